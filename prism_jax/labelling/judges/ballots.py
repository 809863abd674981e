"""Verdicts as a matrix: one row per thing judged, one column per judge, NaN for none; and the majority of a panel."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float64

from prism_jax.streams import Step, Stream


class Item(NamedTuple):
    """What a verdict is about, in a form that two files of streams share."""

    stream: str
    event: int  # number of the newest event
    silence: bool  # whether silence was judged; otherwise a proposal was
    text: str | None = None  # what would be said; None for silence, and for a constant offer without a proposal
    place: int = 0  # number of earlier proposals of the step with the same text, usually 0


@dataclasses.dataclass(frozen=True)
class Ballots:
    """The verdicts of several judges on the same items."""

    items: tuple[Item, ...]  # what was judged, without duplicates
    judges: tuple[str, ...]  # names of the judges, in the order of the columns
    verdicts: Float64[np.ndarray, "items judges"]  # 1 where a judge accepts, 0 where not, NaN where it is missing


def human_ballots(streams: Iterable[Stream]) -> Ballots:
    """The raw votes that streams hold, by the annotator's place in them: `annotator 1`, `annotator 2` and so on.

    Items without votes are left out. Whether the same place always is the same person depends on the data.
    """
    rows: dict[Item, tuple[bool | None, ...]] = {}
    for stream in streams:
        for step in stream.steps:
            votes = (step.votes, *(candidate.votes for candidate in step.candidates))
            rows.update((item, ballot) for item, ballot in zip(step_items(stream, step), votes, strict=True) if ballot)
    width = max(map(len, rows.values()), default=0)
    padded = {item: (*ballot, *[None] * (width - len(ballot))) for item, ballot in rows.items()}
    return make_ballots(padded, [f"annotator {number}" for number in range(1, width + 1)])


def step_items(stream: Stream, step: Step) -> Iterator[Item]:
    """The items of one step: silence, then each candidate."""
    yield Item(stream.id, step.event, silence=True)
    seen: Counter[str | None] = Counter()
    for candidate in step.candidates:
        yield Item(stream.id, step.event, silence=False, text=candidate.said, place=seen[candidate.said])
        seen[candidate.said] += 1


def offered(stream: str, number: int, step: Step) -> int | None:
    """What a recorded assistant did at a step: the number of the candidate that it offered, or None for silence.

    Raises ValueError if several candidates were offered.
    """
    made = [index for index, candidate in enumerate(step.candidates) if candidate.logged]
    if len(made) > 1:
        raise ValueError(
            f"stream {stream!r}, step {number}: found {len(made)} candidates with logged = true, expected at most one: "
            "what the assistant offered"
        )
    return made[0] if made else None


def make_ballots(rows: Mapping[Item, Sequence[bool | None]], judges: Sequence[str]) -> Ballots:
    """Ballots from the verdicts on each item, None where one is missing."""
    verdicts = [[np.nan if verdict is None else float(verdict) for verdict in row] for row in rows.values()]
    return Ballots(tuple(rows), tuple(judges), np.array(verdicts, np.float64).reshape(len(rows), len(judges)))


Missing = Literal["majority_of_all", "majority_of_present", "require_all"]
Ties = Literal["missing", "rejected", "accepted"]


@dataclasses.dataclass(frozen=True)
class PanelConfig:
    """How verdicts become a label."""

    soft: bool = False  # whether the label is the share of present verdicts that accept, instead of their majority
    # which labels are known where verdicts are missing: `majority_of_all` those that the missing ones could not change,
    # because more than half of all judges agree; `majority_of_present` all with a verdict; `require_all` none
    missing: Missing = "majority_of_all"
    # the label of equally many verdicts for and against, which only occur with `majority_of_present`, and for human
    # votes of an even number; a soft label is 0.5 there
    ties: Ties = "missing"


def panel_labels(
    verdicts: Float64[np.ndarray, "items judges"], config: PanelConfig = PanelConfig()
) -> Float64[np.ndarray, " items"]:
    """The panel's label of each item: 1 accepted, 0 rejected, the share if soft, NaN where it is not known.

    Verdicts are 1, 0, or NaN for a missing one.
    """
    judges = verdicts.shape[1]
    present = (~np.isnan(verdicts)).sum(1)
    accepted = np.nansum(verdicts, axis=1)
    rejected = present - accepted
    known = {
        "majority_of_all": 2 * np.maximum(accepted, rejected) > judges,
        "majority_of_present": present > 0,
        "require_all": present == judges,
    }[config.missing] & (present > 0)
    if config.soft:
        return np.where(known, accepted / np.maximum(present, 1), np.nan)
    tie = {"missing": np.nan, "rejected": 0.0, "accepted": 1.0}[config.ties]
    majority = np.where(accepted == rejected, tie, np.where(accepted > rejected, 1.0, 0.0))
    return np.where(known, majority, np.nan)


def majority(ballots: Ballots, config: PanelConfig = PanelConfig()) -> Ballots:
    """The panel as a single judge, always with hard labels: `config.soft` is ignored."""
    labels = panel_labels(ballots.verdicts, dataclasses.replace(config, soft=False))
    return Ballots(ballots.items, ("majority",), labels[:, None])
