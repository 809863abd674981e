"""The steps of a log, as another gate would have decided them: what counterfactual costs are estimated from.

A step counts with the offer that was made or could have been. What a scores table must have for that is checked from
counts, so that the parts of a table can add theirs up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int

from prism_jax.decision import arrays, gate
from prism_jax.decision.off_policy import EstimateSettings, Logged
from prism_jax.evaluation.fits import Calibration
from prism_jax.scores import Scores, ScoresError
from prism_jax.scores.agreement import PROPENSITIES
from prism_jax.scores.texts import ordered

_LEAST = 1e-4
"""Probabilities nearer to 0 or 1 than this count as this in the model of the doubly robust estimate."""
Rows = Float64[np.ndarray, " rows"]


@dataclasses.dataclass(frozen=True)
class Reading:
    """How the steps of a scores table are read."""

    settings: EstimateSettings
    target: str | None = None  # column with the target's probability of an offer; None is the gate at the costs
    fits: Calibration | None = None  # maps of the signals
    calibrated_by: str | None = None  # the file of these maps
    records: bool = False  # whether a missing propensity means that no offer was possible


class DrawnRows(NamedTuple):
    """What tells whether offers were drawn with their propensities, of rows whose answers may be unknown."""

    offered: Bool[np.ndarray, " rows"]
    propensity: Rows
    score: Rows
    person: Int[np.ndarray, " rows"]
    people: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Decisions:
    """The rows of a log with a target policy."""

    target: Rows  # pi, the probability that the target policy makes each offer
    logged: Logged  # what the log knows
    person: Int[np.ndarray, " rows"]  # number of each row's person, or of its stream where people are not known
    features: Float64[np.ndarray, "rows features"]  # what the model of the doubly robust estimate reads
    notes: tuple[str, ...] = ()  # sentences about how the log was read
    people: Sequence[str] | None = None  # the names of the people, of some rows of a log; None of a whole log
    unfiltered: DrawnRows | None = None  # these rows and the offers without an answer; None where there are none

    @property
    def names(self) -> Sequence[str]:
        """The names of the people; their numbers where all rows of the log are here."""
        return list(map(str, range(int(self.person.max()) + 1))) if self.people is None else self.people

    @property
    def drawn(self) -> DrawnRows:
        """The rows that tell whether offers were drawn with their propensities; the score is the first feature."""
        logged = self.logged
        own = DrawnRows(logged.offered, logged.propensity, self.features[:, 0], self.person, self.names)
        return own if self.unfiltered is None else self.unfiltered


def decided(scores: Scores) -> tuple[Scores, dict[str, Any]]:
    """One row per step of some rows with whole steps: the offer that was or could have been made.

    Of a step without such an offer, it is the likeliest one; `decisions` leaves out the offers whose answer is unknown.
    Beside it the facts for `check` and `notes`: counts, which add up, and places.
    """
    logged, propensity = scores.numbers("logged"), scores.numbers("propensity")
    possible = (logged == 1) | ~np.isnan(propensity)
    steps, numbers = scores, scores.step_numbers()
    if numbers.max() + 1 < len(scores):  # some step has several candidates
        order = np.lexsort((scores.candidate, -scores.p_accept_fast, ~possible, numbers))
        first = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        steps = scores.take(np.sort(order[first]))
    offered, answer = steps.numbers("logged") == 1, steps.numbers("y_accept")
    kept = ~(offered & np.isnan(answer))
    made, probability = offered & kept, steps.numbers("propensity")
    facts: dict[str, Any] = {
        "silent": int((logged == 0).sum()),
        "unexplained": int(((logged == 1) & np.isnan(propensity)).sum()),
        "logged": _known(logged),
        "propensity": _known(propensity),
        "decided": _known(steps.numbers("logged")),
        "answers": _known(answer),
        "kept": _known(probability[kept]),
        "made": int(made.sum()),
        "improbable": int(np.isnan(probability[made]).sum()),
        "unanswered": int((~kept).sum()),
        "unjudged": int(np.isnan(steps.numbers("y_need")[made]).sum()),
        "nobody": int(steps.person is None),
    }
    undecided = np.isnan(steps.numbers("logged"))
    if undecided.any():
        row = int(undecided.argmax())
        facts["undecided"] = (f"stream {steps.stream[row]!r}, step {steps.step[row]}",)  # the first of each part
    return steps, facts


def check(facts: Mapping[str, Any]) -> None:
    """Raises a ScoresError for a table without the log's offers, propensities or answers."""
    for name in ("logged", "propensity"):
        if not facts[name]:
            raise _without(name)
    if facts["silent"] and facts["unexplained"]:
        raise ScoresError(f"found null at {facts['unexplained']} offers, expected {PROPENSITIES}", "propensity")
    if facts["decided"] and "undecided" in facts:
        raise ScoresError(f"found null at {facts['undecided'][0]}, expected whether an offer was made", "logged")
    for count, name in (("decided", "logged"), ("answers", "y_accept"), ("kept", "propensity")):
        if not facts[count]:
            raise _without(name)
    if facts["improbable"]:
        raise ScoresError(
            f"found none at {facts['improbable']} of {facts['made']} offers, expected one each", "propensity"
        )


def notes(facts: Mapping[str, Any], reading: Reading) -> tuple[str, ...]:
    """Sentences about how the log was read."""
    by = reading.calibrated_by
    return (
        "Signals are raw." if by is None else f"Signals are calibrated by {by}.",
        *(["An accepted offer without a judgement of need counts as needed."] if facts["unjudged"] else []),
        *(
            [f"{facts['unanswered']} offers without an answer are left out, as if they were any offers."]
            if facts["unanswered"]
            else []
        ),
        *(["The table has no people: streams are resampled in their place."] if facts["nobody"] else []),
    )


def decisions(steps: Scores, reading: Reading) -> Decisions:
    """The steps that `decided` gives, with the target policy.

    Raises:
      ScoresError: for maps that do not fit the table, or a column that is no probability of an offer.
    """
    need, accept = _signals(steps, reading.fits)
    pi = target_gate(need, accept, reading.settings) if reading.target is None else _target(steps, reading.target)
    rows, answer = _drawn(steps, reading, accept), steps.numbers("y_accept")
    kept, unfiltered = ~(rows.offered & np.isnan(answer)), None
    if not kept.all():
        unfiltered = rows
        steps, pi, answer, need = steps.take(kept), pi[kept], answer[kept], None if need is None else need[kept]
        rows = _drawn(steps, reading, accept[kept])
    accepted = np.where(rows.offered, np.nan_to_num(answer), 0.0)
    logged = Logged(rows.offered, rows.propensity, accepted, np.nan_to_num(steps.numbers("y_need"), nan=1.0))
    features = np.column_stack([rows.score, *([] if need is None else [model_feature(need)])])
    return Decisions(pi, logged, rows.person, features, people=rows.people, unfiltered=unfiltered)


def drawn_rows(steps: Scores, reading: Reading) -> DrawnRows:
    """The steps that `decided` gives, as rows that tell whether offers were drawn with their propensities."""
    return _drawn(steps, reading, _signals(steps, reading.fits)[1])


def _drawn(steps: Scores, reading: Reading, accept: Rows) -> DrawnRows:
    propensity = steps.numbers("propensity")
    if reading.records:
        propensity = np.where(np.isnan(propensity), 0.0, propensity)
    names, person = ordered(*steps.numbered("stream" if steps.person is None else "person"))
    return DrawnRows(steps.numbers("logged") == 1, propensity, model_feature(accept), person, names)


def target_gate(need: Rows | None, accept: Rows, settings: EstimateSettings) -> Rows:
    """The gate as a target policy: 1 where it offers; without p_need, help is certainly needed."""
    certain = np.ones_like(accept) if need is None else need
    return np.asarray(gate.decide(certain, accept, settings.c_fa, settings.c_fn), np.float64)


def model_feature(p: Rows) -> Rows:
    """A probability as the model of the doubly robust estimate reads it: its log-odds, without the extremes."""
    return np.asarray(arrays.log_odds(p, _LEAST))


def _signals(steps: Scores, fits: Calibration | None) -> tuple[Rows | None, Rows]:
    """The signals that decide: those of the slow pass where it ran; p_need is None where there is none."""
    signals: dict[str, Rows] = {}
    for signal in ("need", "accept"):
        fast, slow = getattr(steps, f"p_{signal}_fast"), getattr(steps, f"p_{signal}_slow")
        if fast is None:
            continue
        if slow is not None and np.isnan(slow).all():
            slow = None
        if fits is not None:
            fast = fits.calibrated(signal, "fast", steps)
            if slow is not None and getattr(fits, f"{signal}_slow") is None:
                words = "found values, expected none: calibration has no map of them"
                raise ScoresError(words, f"p_{signal}_slow")
            slow = None if slow is None else fits.calibrated(signal, "slow", steps)
        signals[signal] = fast if slow is None else np.where(np.isnan(slow), fast, slow)
    return signals.get("need"), signals["accept"]


def _target(steps: Scores, name: str) -> Rows:
    if name not in steps.extra:
        raise ScoresError("found no such column, expected the target's probability of an offer", name)
    values = np.array([_number(value) for value in steps.extra[name].tolist()])
    bad = ~((values >= 0) & (values <= 1))
    if bad.any():
        raise ScoresError(f"found {steps.extra[name][bad][0]!r}, expected a number in [0, 1] in every row", name)
    return values


def _number(value: Any) -> float:
    """A value as a number; NaN for one that is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan


def _known(column: Rows) -> int:
    return int((~np.isnan(column)).sum())


def _without(name: str) -> ScoresError:
    answers, rest = "the answers to offers", "some: nothing follows without the log's probabilities"
    return ScoresError(f"found no value, expected {answers if name == 'y_accept' else rest}", name)
