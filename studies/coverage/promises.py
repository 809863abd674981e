"""Do promises about false alarms hold for people who were not drawn? On resampled real data.

The people of a log (or the streams of ProactiveBench, with out-of-fold scores of words) are the whole population, so
its risks are known exactly. Again and again, as many people are drawn from it with replacement, and each bound chooses
a threshold on them. A promise is broken if the population's risk at that threshold exceeds the limit. Thresholds are
quantiles of the population's scores, which do not depend on the draw (docs/promises.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float, Int, Shaped

from prism_jax.decision import gate, risk
from prism_jax.evaluation.answers.logs import AcceptanceLog
from prism_jax.evaluation.splits import TEST, rows_of
from prism_jax.experiments.field.tfidf import outer_folds, score_words_nested
from prism_jax.report.numbers import percent
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.streams import Step, Stream
from prism_jax.streams.edit import map_steps

THRESHOLDS = 200
FOLDS = 5
ERROR = 0.1
"""Probability with which a promise may be broken."""
ROWS, EXPECTATION = "rows", "expectation"
METHODS = {
    ROWS: "binomial test, rows as units",
    "betting": "betting",
    "hoeffding_bentkus": "Hoeffding and Bentkus",
    EXPECTATION: "in expectation",
}


class Steps(NamedTuple):
    """The steps of all units of a population."""

    score: Float[np.ndarray, " n"]  # what ranks the steps, -inf where there is no score
    y: Float[np.ndarray, " n"]  # gold labels, 0 or 1
    unit: Shaped[np.ndarray, " n"]  # the person or stream of each step
    words: str  # what the units and scores are, for the title


class Kept(NamedTuple):
    """What one method does over many draws."""

    broken: float  # share whose threshold breaks the promise; of all but `rows`, about the mean over units
    speaks: float  # mean speak rate of the chosen thresholds over units; silence where none is certified
    risk: float  # their mean risk in the population


def measure(
    steps: Steps, promise: risk.Promise, *, units: int, times: int = 2_000, error: float = ERROR, seed: int = 0
) -> dict[str, Kept]:
    """Draws so many units again and again, and measures what each method promises about them.

    Raises:
      ValueError: for a promise about another risk, whose row-wise test would be another one.
    """
    if promise.risk != "false_alarms":
        raise ValueError(f"promise: found {promise}, expected one about false_alarms")
    finite = steps.score[np.isfinite(steps.score)]
    thresholds = np.unique(np.quantile(finite, np.linspace(0, 1, THRESHOLDS)))[::-1]
    first = risk.first_rule(steps.score, thresholds)
    L_UxG, B_UxG = (
        risk.unit_losses(first, steps.y, steps.unit, len(thresholds), target)
        for target in (promise, risk.Promise("burden", 0.5))
    )
    rows_U: Int[np.ndarray, " U"] = np.unique(steps.unit, return_counts=True)[1]
    counts_DxU = np.random.default_rng(seed).multinomial(units, np.full(len(rows_U), 1 / len(rows_U)), times)
    # The exact binomial test of independent rows, which these are not.
    false_alarms_DxG = np.rint(counts_DxU @ (L_UxG * rows_U[:, None]))
    p_values = {ROWS: scipy.stats.binom.cdf(false_alarms_DxG, (counts_DxU @ rows_U)[:, None], promise.limit)}
    p_values |= {name: bound(L_UxG, promise.limit, counts=counts_DxU) for name, bound in risk.BOUNDS.items()}
    certified = {name: risk.fixed_sequence(p_DxG, error) for name, p_DxG in p_values.items()}
    certified[EXPECTATION] = (counts_DxU @ L_UxG + 1) / (units + 1) <= promise.limit
    kept = {}
    for name in METHODS:
        risk_G = rows_U @ L_UxG / rows_U.sum() if name == ROWS else L_UxG.mean(axis=0)
        last = certified[name].sum(axis=1) - 1  # rules are certified from the first one on
        at, speaks = (np.where(last < 0, 0.0, by_G[last]) for by_G in (risk_G, B_UxG.mean(axis=0)))
        kept[name] = Kept(float((at > promise.limit + 1e-12).mean()), float(speaks.mean()), float(at.mean()))
    return kept


def table(steps: Steps, promises: Sequence[risk.Promise], units: Sequence[int], times: int) -> Table:
    """One section per number of units and promise; without numbers, as many are drawn as there are."""
    columns = (
        Column("promise broken", "Share of draws in which the population's risk exceeds the limit.", "%"),
        Column("speak rate", "Mean speak rate of the chosen thresholds; silence where none is certified.", "%"),
    )
    sections = []
    for size in units or [len(np.unique(steps.unit))]:
        for promise in promises:
            rows = [
                Row(METHODS[name], (percent(kept.broken), percent(kept.speaks)), strong=name == "betting")
                for name, kept in measure(steps, promise, units=size, times=times).items()
            ]
            sections.append(Section(f"{promise}, {size} units drawn", tuple(rows)))
    note = (
        f"{times} draws with replacement; probability of a broken promise eta = {ERROR:g}, which does not apply in "
        "expectation. Risks are means over units; those of the binomial test are over rows, as it promises."
    )
    return Table(f"Promises on {steps.words}", "bound", columns, tuple(sections), note, mark="the default")


def of_log(log: AcceptanceLog, name: str) -> Steps:
    """The offers of a log that have an answer; those without a score come last.

    ValueError for a log without a score.
    """
    if log.score is None:
        raise ValueError(f"columns: found no score of {name}, expected score=COLUMN: thresholds are thresholds of it")
    made = log.logged
    score = np.where(np.isnan(log.score[made]), -np.inf, log.score[made])
    words = f"{len(set(log.person[made]))} people of {name}, {made.sum()} steps"
    return Steps(score, log.accepted[made], log.person[made], words)


def of_proactivebench(source: str, data_dir: str | None) -> Steps:
    """The steps of ProactiveBench's streams: the gate's score on out-of-fold probabilities of words."""
    from prism_jax.streams import proactivebench  # imports TFDS, which takes seconds

    streams = [in_fixed_order(stream) for stream in proactivebench.load(source, data_dir)]
    parts = []
    for fold, (train, test) in enumerate(outer_folds(streams, FOLDS)):
        steps = rows_of(score_words_nested(train, test, fold)[0], TEST).steps()
        assert steps.y_need is not None and steps.y_accept is not None, "the scored rows have labels or nulls"
        assert steps.p_need_fast is not None, "words score both signals"
        score, y = np.asarray(gate.score(steps.p_need_fast, steps.p_accept_fast)), steps.y_need * steps.y_accept
        known = ~np.isnan(y)
        parts.append((score[known], y[known], steps.stream.astype(str)[known]))
    score, y, unit = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Steps(score, y, unit, f"{len(set(unit))} streams of ProactiveBench, {len(y)} steps")


def in_fixed_order(stream: Stream) -> Stream:
    """The stream with each step's offers in the order of their texts, which does not tell their labels."""

    def ordered(step: Step) -> Step:
        offers = sorted(step.candidates, key=lambda offer: (offer.text or "", offer.votes, offer.y_accept or 0))
        return dataclasses.replace(step, candidates=tuple(offers))

    return map_steps(stream, ordered)
