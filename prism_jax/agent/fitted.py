"""What a gate was fitted on, which `calibrate` writes into it, and whether the model still answers so.

A gate's decision at a step is None without an answer, 0 for silence, and k for an offer of candidate k, from 1.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy

from prism_jax.agent.exported import fits
from prism_jax.agent.reader import Item, Reader, Unanswered
from prism_jax.agent.signals import probabilities
from prism_jax.agent.steps import AN_OFFER
from prism_jax.decision.uncertainty import Bounds, Estimate, mean_interval
from prism_jax.gate import Gate, GateError
from prism_jax.runtime.digests import sha256
from prism_jax.scores import Scores
from prism_jax.scores.labels import acceptance_weight
from prism_jax.streams import Stream
from prism_jax.streams.stream_columns import offer_columns


class Labelled(NamedTuple):
    """What a reader said at the steps of some streams."""

    rows: list[dict[str, Any]]  # rows of the scores table with raw p_need_fast and p_accept_fast
    log_odds: Mapping[tuple[str, int], tuple[float, ...]]  # need, then each candidate, by stream and step
    unanswered: Mapping[str, int]  # how many steps have no answer, by the reason in words


def read_labelled(reader: Reader, streams: Sequence[Stream], *, together: int = 16) -> Labelled:
    """Reads streams to their last step, `together` at once, and drops them again.

    Events without a step are read as ones after which an offer without a text could be made. ValueError names a stream
    that cannot be read.
    """
    rows: list[dict[str, Any]] = []
    log_odds: dict[tuple[str, int], tuple[float, ...]] = {}
    unanswered: dict[str, int] = {}
    for start in range(0, len(streams), together):
        group = [stream for stream in streams[start : start + together] if stream.steps]
        steps = [{step.event: number for number, step in enumerate(stream.steps)} for stream in group]
        for place in range(max((max(own) + 1 for own in steps), default=0)):
            asked: list[tuple[Stream, int]] = []
            passing: list[Item] = []
            for stream, own in zip(group, steps, strict=True):
                if place in own:
                    asked.append((stream, own[place]))
                elif place < max(own):
                    passing.append((stream.id, stream.events[place], AN_OFFER))
            if passing:
                reader.follow(passing)
            items = [(one.id, one.events[place], one.steps[number].candidates) for one, number in asked]
            for (stream, number), found in zip(asked, reader.observe(items) if items else (), strict=True):
                if isinstance(found, Unanswered):
                    unanswered[found.reason] = unanswered.get(found.reason, 0) + 1
                    continue
                log_odds[stream.id, number] = z = (found.z_need, *found.z_accept)
                p_need, *p_accept = probabilities(z, stream.id)
                for candidate, (offer, p) in enumerate(zip(stream.steps[number].candidates, p_accept, strict=True)):
                    columns = offer_columns(stream, stream.steps[number], offer, split="", fold=0)
                    del columns["split"], columns["fold"]
                    signals = {"p_need_fast": p_need, "p_accept_fast": p}
                    rows.append({**columns, "step": number, "candidate": candidate, **signals})
        for stream in group:
            reader.forget(stream.id)
    return Labelled(rows, log_odds, unanswered)


CHANCE = 0.05
"""How improbable more flips than between the two askings have to be, of a model that does not repeat itself exactly."""


SIGNALS = ("need", "accept")


class Checked(NamedTuple):
    """How a model answers now, against the time when its gate was fitted."""

    flips: int  # decisions that differ
    steps: int  # of so many that have an answer now and had one then
    change: Estimate | None  # what a judged step costs more now; None where no step is judged
    failures: list[str]  # why the gate no longer fits, in words; empty where it does
    # by how much the mean log-odds of each signal is higher now; None where those of the same steps are not known
    moved: Mapping[str, float] | None = None


def read_fitted(path: str, labels: Sequence[str | os.PathLike[str]]) -> Gate:
    """The gate of a file, which was fitted on these files of labels; GateError for another one."""
    gate = Gate.load(path).for_models(path)
    keys = ("labels", "decisions", "again")
    if gate.fitted is None or not set(keys) <= gate.fitted.keys():
        raise GateError(f"{path}: fitted: found no {', '.join(keys)}, expected them: fit it again, by calibrate --out")
    again = gate.fitted["again"]
    if not isinstance(again, dict) or not {"flips", "steps", "log_odds"} <= again.keys():
        raise GateError(f"{path}: fitted.again: found {again!r:.80}, expected flips, steps and log_odds: fit it again")
    means = gate.fitted.get("log_odds", {"need": 0.0, "accept": 0.0})
    if not (isinstance(means, dict) and all(isinstance(means.get(name), float) for name in SIGNALS)):
        raise GateError(f"{path}: fitted.log_odds: found {means!r:.80}, expected numbers of need and accept")
    if not again["steps"]:
        raise GateError(f"{path}: fitted.again: found no step that had two answers, expected some: fit it again")
    if gate.fitted["labels"] != [sha256(one) for one in labels]:
        raise GateError(f"--labels: found other content than {path} was fitted on, expected the same files")
    return gate


def check_model(gate: Gate, model: str, path: str, name: str | None = None) -> None:
    """Raises GateError where the gate of a file was fitted on another model than the one, of a name, asked now."""
    of = (gate.fitted or {}).get("model", "")
    if not fits(gate, model, name):
        raise GateError(
            f"--check: {path}: found a gate of the model {of:.12}, expected that of {model:.12}, which is asked now: "
            "ask the same export, or a decision model of the same name, or fit it again, by calibrate --out"
        )


def decisions_of(asked: Labelled, gate: Gate, streams: Sequence[Stream]) -> list[int | None]:
    """What a gate decides at each step of some streams, in their order."""
    keys = [(stream.id, number) for stream in streams for number in range(len(stream.steps))]
    domains = {stream.id: stream.domain for stream in streams}
    p = {key: probabilities(asked.log_odds[key], key[0]) for key in keys if key in asked.log_odds}
    best = {key: 1 + int(np.argmax(own[1:])) for key, own in p.items()}
    if not p:
        return [None] * len(keys)
    need, accept = np.array([(own[0], max(own[1:])) for own in p.values()]).T
    speaks = gate(need, accept, domain=np.array([domains[name] for name, _ in p], object)).speak
    decided = {key: best[key] * bool(speak) for key, speak in zip(p, speaks, strict=True)}
    return [decided.get(key) for key in keys]


def differing(first: Sequence[int | None], second: Sequence[int | None]) -> tuple[int, int]:
    """How many of the decisions that are known twice differ, and how many there are."""
    both = [pair for pair in zip(first, second, strict=True) if None not in pair]
    return sum(one != two for one, two in both), len(both)


def mean_log_odds(asked: Labelled) -> dict[str, float]:
    """The mean log-odds of each signal over the steps that have an answer, and over their candidates; NaN of none."""
    need, accept = [z[0] for z in asked.log_odds.values()], [one for z in asked.log_odds.values() for one in z[1:]]
    return {name: float(np.mean(own)) if own else np.nan for name, own in zip(SIGNALS, (need, accept), strict=True)}


def distance(first: Labelled, second: Labelled) -> tuple[float, float]:
    """How far the log-odds of two askings are apart: on average, and at most; 0 without any."""
    both = first.log_odds.keys() & second.log_odds.keys()
    apart = [np.abs(np.subtract(first.log_odds[key], second.log_odds[key])) for key in both]
    return (float(np.concatenate(apart).mean()), float(np.concatenate(apart).max())) if apart else (0.0, 0.0)


def fitted_on(
    model: str,
    files: Sequence[str | os.PathLike[str]],
    streams: Sequence[Stream],
    askings: Sequence[Labelled],
    gate: Gate,
    figures: Mapping[str, Any],
    name: str | None = None,
) -> dict[str, Any]:
    """What a gate was fitted on, as JSON values: the model's fingerprint, digests of labels, decisions and figures.

    `name` is that of a decision model, which is the same one at another address. Of two askings of the same questions
    the maps are those of the first.
    """
    decided, again = (decisions_of(one, gate, streams) for one in askings)
    flips, steps = differing(decided, again)
    mean, most = distance(*askings)
    return {
        "model": model,
        **({} if name is None else {"decision_model": name}),
        "labels": [sha256(path) for path in files],
        "decisions": decided,
        "log_odds": mean_log_odds(askings[0]),
        "again": {"flips": flips, "steps": steps, "log_odds": [mean, most]},
        "figures": dict(figures),
    }


def check(gate: Gate, streams: Sequence[Stream], asked: Labelled, scores: Scores) -> Checked:
    """Compares what a gate decides on new answers with what it decided when it was fitted on the same labels.

    More flips than between the two askings are a failure: any more of a model that repeated itself exactly then, and
    more than chance explains (`CHANCE`) of one that did not. So are more steps that had an answer and have none now
    than chance explains beside those of the second asking, and a cost that rose clear of 0.
    """
    assert gate.fitted is not None, "the command has asked for it"
    before, again = gate.fitted["decisions"], gate.fitted["again"]
    now = decisions_of(asked, gate, streams)
    if len(before) != len(now):
        raise GateError(f"fitted.decisions: found {len(before)}, expected {len(now)}, one for each step of the labels")
    (flips, steps), failures = differing(before, now), []
    known = sum(one is not None for one in before)
    lost, lost_then = known - steps, max(known - again["steps"], 0)
    if lost and (not steps or scipy.stats.binomtest(lost, lost + lost_then, alternative="greater").pvalue < CHANCE):
        failures.append(
            f"{lost} of {known} steps that had an answer have none now, and {lost_then} had none when they were asked "
            "again as the gate was fitted"
        )
    total, share = flips + again["flips"], steps / max(steps + again["steps"], 1)
    exact = again["log_odds"][1] == 0
    chance = 1.0 if not total else float(scipy.stats.binomtest(flips, total, share, alternative="greater").pvalue)
    if flips > again["flips"] if exact else chance < CHANCE:
        failures.append(
            f"{flips} of {steps} decisions flip, and {again['flips']} of {again['steps']} did between two askings when "
            "the gate was fitted"
        )
    keys = [(stream.id, number) for stream in streams for number in range(len(stream.steps))]
    change = _change(gate, streams, dict(zip(keys, zip(before, now, strict=True), strict=True)), scores)
    if change is not None and change.low > 0:
        failures.append(f"the cost per judged step rose by {change.value:.3g}, at least {change.low:.3g}")
    then, means = gate.fitted.get("log_odds"), mean_log_odds(asked)
    same_steps = [one is None for one in before] == [one is None for one in now]
    moved = {name: means[name] - then[name] for name in SIGNALS} if then and same_steps else None
    return Checked(flips, steps, change, failures, moved)


def _change(
    gate: Gate,
    streams: Sequence[Stream],
    decided: Mapping[tuple[str, int], tuple[int | None, int | None]],
    scores: Scores,
) -> Estimate | None:
    """What a judged step costs more now, with its interval over people or streams."""
    by_name, rows = {stream.id: stream for stream in streams}, scores.steps()
    assert rows.step is not None, "the command numbers the steps"
    costs = [
        [_cost(gate, by_name[name].steps[number], one) for one in decided[name, number]]
        for name, number in zip(rows.stream.tolist(), rows.step.tolist(), strict=True)
    ]
    rise = np.array([now - before for before, now in costs], np.float64)
    known, most = ~np.isnan(rise), max(gate.point.c_fa, gate.point.c_fn)
    if not known.any():
        return None
    units = rows.stream if rows.person is None else rows.person
    return mean_interval(rise[known], units[known], acceptance_weight(rows)[known], bounds=Bounds(-most, most))


def _cost(gate: Gate, step: Any, decided: int | None) -> float:
    """The realised cost of a decision at a step; NaN where it is not known."""
    labels = [one.y_accept for one in step.candidates]
    if decided is None or step.y_need is None or None in labels:
        return np.nan
    return gate.point.c_fa * (1 - labels[decided - 1]) if decided else gate.point.c_fn * step.y_need * max(labels)
