"""Do judges change the comparison of two systems? ProactiveBench's own scores by panel, paired by step.

A system is a file of streams that says at each step what the system did: it offered the candidate whose `logged` is
true, or stayed silent where none is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from prism_jax.decision import judge_noise
from prism_jax.decision.judge_noise import CorrectionMethod
from prism_jax.decision.uncertainty import HEADLINE, Estimate, PairedRate, paired_official_rates, paired_p_values
from prism_jax.labelling.judges.ballots import Ballots, Item, offered, step_items
from prism_jax.streams import Stream

RATES = ("f1", "precision", "recall", "accuracy", "false_alarm")


class Deed(NamedTuple):
    """What a system did at a step: whether it proposed something, and the item that judges rate."""

    proposed: bool
    item: Item


def deeds(streams: Iterable[Stream]) -> dict[tuple[str, int], Deed]:
    """What a system did, by stream and event; raises ValueError for a step at which several candidates were offered."""
    done = {}
    for stream in streams:
        for number, step in enumerate(stream.steps):
            silence, *offers = step_items(stream, step)
            made = offered(stream.id, number, step)
            done[stream.id, step.event] = Deed(made is not None, silence if made is None else offers[made])
    return done


class Judged(NamedTuple):
    """What a system did, and one judge's verdicts on it."""

    steps: tuple[tuple[str, int], ...]  # stream and event
    proposed: Bool[np.ndarray, " steps"]
    accepted: Float64[np.ndarray, " steps"]  # whether the judge accepts the proposal or the silence; NaN where unknown

    @property
    def known(self) -> frozenset[tuple[str, int]]:
        """The steps that have a verdict."""
        return frozenset(step for step, label in zip(self.steps, self.accepted, strict=True) if not np.isnan(label))


def judged(done: Mapping[tuple[str, int], Deed], rater: Ballots) -> Judged:
    """The verdicts of a single rater (`panels.majority`) on what a system did."""
    labels = dict(zip(rater.items, rater.verdicts[:, 0], strict=True))
    accepted = np.array([labels.get(deed.item, np.nan) for deed in done.values()], np.float64)
    return Judged(tuple(done), np.array([deed.proposed for deed in done.values()], bool), accepted)


@dataclasses.dataclass(frozen=True)
class RobustnessRow:
    """Two systems under one panel."""

    panel: str
    steps: int  # number of steps at which both systems have a label
    left_out: int  # number of steps of both systems without a label for one of them
    rates: Mapping[str, PairedRate]  # the rates of `RATES` by name, of the baseline, the system, and their difference
    p_values: Mapping[str, float]  # two-sided, of no difference, by name; NaN where a rate is undefined


def compare_judged(
    panel: str,
    baseline: Judged,
    system: Judged,
    *,
    by_stream: bool = True,
    method: Literal["percentile"] | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> RobustnessRow:
    """Compares two systems under one panel on the steps that they share.

    The units of intervals and p-values are streams, or events as if they were independent; `method` is that of
    `uncertainty.interval`.

    Raises:
      ValueError: if the systems share no step, or the panel labelled none of both.
    """
    place = {step: index for index, step in enumerate(system.steps)}
    pairs = [(index, place[step]) for index, step in enumerate(baseline.steps) if step in place]
    if not pairs:
        raise ValueError("baseline: found no step in common with the other system, expected the same streams")
    first, second = np.array(pairs).T
    known = ~np.isnan(baseline.accepted[first] + system.accepted[second])
    if not known.any():
        raise ValueError(f"{panel}: found no step with labels for both systems, expected some")
    first, second = first[known], second[known]
    streams = np.array([baseline.steps[index][0] for index in first], str) if by_stream else None
    of_both = [values[rows] for of, rows in ((baseline, first), (system, second)) for values in of[1:]]
    settings: dict[str, Any] = dict(streams=streams, names=RATES, method=method, resamples=resamples, seed=seed)
    rates = paired_official_rates(*of_both, **settings)
    right = [proposed == (accepted == 1) for proposed, accepted in (of_both[:2], of_both[2:])]
    p_values = paired_p_values(of_both[0], of_both[2], right[0], y_second=right[1], **settings)
    return RobustnessRow(panel, len(first), len(pairs) - len(first), rates, p_values)


METHODS: tuple[CorrectionMethod, ...] = ("judge_only", "rectified", "inversion_by_decision", "inversion", "human_only")
NUMBERS = ("prevalence", *HEADLINE, "cost")


@dataclasses.dataclass(frozen=True)
class CorrectedRow:
    """One system under one panel, with one way to account for the panel's errors."""

    panel: str
    method: CorrectionMethod  # how the panel's errors are accounted for (`prism_jax.decision.judge_noise`)
    steps: int  # number of steps with a label of the panel
    human: int  # number of these with a human label
    numbers: Mapping[str, Estimate] | None  # the numbers of `NUMBERS` by name; None where the method cannot tell them
    problem: str = ""  # why it cannot


def correct(
    system: Iterable[Stream],
    panels: Mapping[str, Ballots],
    human: Ballots,
    *,
    c_fa: float = 1.0,
    c_fn: float = 2.0,
    resamples: int = 10_000,
    seed: int = 0,
) -> tuple[CorrectedRow, ...]:
    """A system's official rates under each panel, corrected for the panel's errors where people voted too.

    The label of a step says whether an offer is right there: the verdict on the system's proposal, and the opposite of
    the verdict on its silence. Panels and the human majority are each a single rater's ballots. `c_fa` is the cost of a
    rejected proposal, `c_fn` that of a rejected silence, and the resamples are of streams.
    """
    done = deeds(system)
    truth, rows = judged(done, human), []
    for name, ballots in panels.items():
        of = judged(done, ballots)
        known = ~np.isnan(of.accepted)
        if not known.any():
            continue
        proposed = of.proposed[known]
        judge, people = (np.where(proposed, by[known], 1 - by[known]) for by in (of.accepted, truth.accepted))
        streams = np.array([stream for stream, _ in of.steps], str)[known]
        for method in METHODS:
            numbers, problem = None, ""
            try:
                numbers = judge_noise.corrected_rates(
                    proposed,
                    judge,
                    people,
                    streams=streams,
                    method=method,
                    names=NUMBERS,
                    c_fa=c_fa,
                    c_fn=c_fn,
                    resamples=resamples,
                    seed=seed,
                )
            except ValueError as error:
                problem = str(error)
            rows.append(CorrectedRow(name, method, len(judge), int((~np.isnan(people)).sum()), numbers, problem))
    return tuple(rows)
