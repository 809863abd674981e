"""Do promises about false alarms hold for people who were not drawn? On resampled real data.

    python -m prism_jax experiments promises --log=FILE --columns=person=..,accepted=..,score=..
    python -m prism_jax experiments promises --source=PROACTIVEBENCH [--data_dir=DIR]

The people of a log (or the streams of ProactiveBench, with out-of-fold scores of words) are the whole population, so
its risks are known exactly. Again and again, as many people are drawn from it with replacement, and each bound chooses
a threshold on them. A promise is broken if the population's risk at that threshold exceeds the limit. Thresholds are
quantiles of the population's scores, which do not depend on the draw. docs/promises.md shows what it prints.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import scipy
from absl import flags
from etils import epath
from jaxtyping import Float, Int, Shaped

from prism_jax.decision import gate, risk
from prism_jax.evaluation.answers.columns import parse_columns
from prism_jax.evaluation.answers.logs import read_log
from prism_jax.evaluation.splits import TEST, rows_of
from prism_jax.experiments.field.tfidf import outer_folds, score_words_nested
from prism_jax.report.numbers import number, percent
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.streams import Step, Stream, proactivebench
from prism_jax.streams.edit import map_steps

THRESHOLDS = 200
FOLDS = 5
ROWS, EXPECTATION = "rows", "expectation"
METHODS = {
    ROWS: "binomial test, rows as units",
    "betting": "betting",
    "hoeffding_bentkus": "Hoeffding and Bentkus",
    EXPECTATION: "in expectation",
}


class Population(NamedTuple):
    """The steps of all units."""

    score: Float[np.ndarray, " n"]  # what ranks the steps, -inf where there is no score
    y: Float[np.ndarray, " n"]  # gold labels, 0 or 1
    unit: Shaped[np.ndarray, " n"]  # the person or stream of each step
    words: str  # what the units and scores are, for the title


class MethodResult(NamedTuple):
    """What one method does over many draws."""

    method: str  # one of `METHODS`
    violations: float  # share of draws whose threshold breaks the promise; of all but `rows`, about the mean over units
    mean_risk: float  # mean risk of the chosen thresholds; silence has none
    speak_rate: float  # mean speak rate of the chosen thresholds over units
    silent: float  # share of draws in which no threshold is certified


def measure(
    population: Population,
    promise: risk.Promise,
    *,
    error: float,
    units: int | None = None,
    draws: int = 2_000,
    seed: int = 0,
) -> list[MethodResult]:
    """Draws units again and again, and measures what each method promises about them.

    The promise about false alarms may fail with probability `error`. A draw has `units` units; None is as many as there
    are.

    Raises:
      ValueError: for a promise about another risk, whose row-wise test would be another one.
    """
    if promise.risk != "false_alarms":
        raise ValueError(f"promise: found {promise}, expected one about false_alarms")
    finite = population.score[np.isfinite(population.score)]
    thresholds = np.unique(np.quantile(finite, np.linspace(0, 1, THRESHOLDS)))[::-1]
    first = risk.first_rule(population.score, thresholds)
    L_UxG, B_UxG = (
        risk.unit_losses(first, population.y, population.unit, len(thresholds), target)
        for target in (promise, risk.Promise("burden", 0.5))
    )
    steps_U: Int[np.ndarray, " U"] = np.unique(population.unit, return_counts=True)[1]
    units = len(steps_U) if units is None else units
    counts_DxU = np.random.default_rng(seed).multinomial(units, np.full(len(steps_U), 1 / len(steps_U)), draws)
    by_unit_G, by_row_G = L_UxG.mean(axis=0), steps_U @ L_UxG / steps_U.sum()
    outcomes = []
    for method in METHODS:
        if method == EXPECTATION:
            chosen = (counts_DxU @ L_UxG + 1) / (units + 1) <= promise.limit
        elif method == ROWS:
            chosen = risk.fixed_sequence(_row_p_values(counts_DxU, L_UxG, steps_U, promise.limit), error)
        else:
            chosen = risk.fixed_sequence(risk.BOUNDS[method](L_UxG, promise.limit, counts=counts_DxU), error)
        outcomes.append(
            _outcome(method, chosen, by_row_G if method == ROWS else by_unit_G, B_UxG.mean(axis=0), promise)
        )
    return outcomes


def _row_p_values(
    counts_DxU: Int[np.ndarray, "D U"], L_UxG: Float[np.ndarray, "U G"], steps_U: Int[np.ndarray, " U"], limit: float
) -> Float[np.ndarray, "D G"]:
    """The exact binomial test of independent rows, which these are not: Pr(Bin(rows, limit) <= false alarms)."""
    false_alarms_DxG = np.rint(counts_DxU @ (L_UxG * steps_U[:, None]))
    return scipy.stats.binom.cdf(false_alarms_DxG, (counts_DxU @ steps_U)[:, None], limit)


def _outcome(
    method: str,
    chosen: Shaped[np.ndarray, "D G"],
    risk_G: Float[np.ndarray, " G"],
    burden_G: Float[np.ndarray, " G"],
    promise: risk.Promise,
) -> MethodResult:
    last = chosen.sum(axis=1) - 1  # rules are chosen from the first one on
    silent = last < 0
    at, speaks = np.where(silent, 0.0, risk_G[last]), np.where(silent, 0.0, burden_G[last])
    violations = float((at > promise.limit + 1e-12).mean())
    return MethodResult(method, violations, float(at.mean()), float(speaks.mean()), float(silent.mean()))


def table_of(
    population: Population,
    promises: Sequence[risk.Promise],
    *,
    error: float,
    units: Sequence[int],
    draws: int,
) -> Table:
    """One section per number of units and promise."""
    columns = (
        Column("promise broken", "Share of draws in which the population's risk exceeds the limit.", "%"),
        Column("risk", "Mean risk of the chosen thresholds, in the population."),
        Column("speak rate", "Mean speak rate of the chosen thresholds.", "%"),
        Column("no promise", "Share of draws in which no threshold is certified.", "%"),
    )
    sections = []
    for size in units:
        for promise in promises:
            rows = tuple(
                Row(
                    METHODS[outcome.method],
                    (
                        percent(outcome.violations),
                        number(outcome.mean_risk, 3),
                        percent(outcome.speak_rate),
                        percent(outcome.silent),
                    ),
                    strong=outcome.method == "betting",
                )
                for outcome in measure(population, promise, error=error, units=size, draws=draws)
            )
            sections.append(Section(f"{promise}, {size} units drawn", rows))
    note = (
        f"{draws} draws with replacement; probability of a broken promise eta = {error:g}, which does not apply in "
        "expectation. Risks are means over units; those of the binomial test are over rows, as it promises."
    )
    return Table(f"Promises on {population.words}", "bound", columns, tuple(sections), note, mark="the default")


def of_log(path: str, columns: str | Sequence[str]) -> Population:
    """The population of an acceptance log: offers with an answer; rows without a score come last.

    ValueError for a log without a score.
    """
    log = read_log(path, parse_columns(columns))
    if log.score is None:
        raise ValueError(f"columns: found no score of {path}, expected score=COLUMN: thresholds are thresholds of it")
    made = log.logged
    score = np.where(np.isnan(log.score[made]), -np.inf, log.score[made])
    words = f"{len(set(log.person[made]))} people of {epath.Path(path).name}, {made.sum()} steps"
    return Population(score, log.accepted[made], log.person[made], words)


def in_fixed_order(stream: Stream) -> Stream:
    """The stream with each step's offers in the order of their texts, which does not tell their labels."""

    def ordered(step: Step) -> Step:
        return dataclasses.replace(
            step,
            candidates=tuple(
                sorted(step.candidates, key=lambda offer: (offer.text or "", offer.votes, offer.y_accept or 0))
            ),
        )

    return map_steps(stream, ordered)


def of_proactivebench(source: str, data_dir: str | None) -> Population:
    """The population of ProactiveBench's streams: the gate's score on out-of-fold probabilities of words."""
    streams = [in_fixed_order(stream) for stream in proactivebench.load(source, data_dir)]
    tables = [
        rows_of(score_words_nested(train, test, fold)[0], TEST).steps()
        for fold, (train, test) in enumerate(outer_folds(streams, FOLDS))
    ]
    parts = []
    for steps in tables:
        assert steps.y_need is not None and steps.y_accept is not None, "the scored rows have labels or nulls"
        assert steps.p_need_fast is not None, "words score both signals"
        known = ~np.isnan(steps.y_need * steps.y_accept)
        score = np.asarray(gate.score(steps.p_need_fast, steps.p_accept_fast))
        parts.append((score[known], (steps.y_need * steps.y_accept)[known], steps.stream.astype(str)[known]))
    score, y, unit = (np.concatenate(column) for column in zip(*parts, strict=True))
    words = f"{len(set(unit))} streams of ProactiveBench, {len(y)} steps"
    return Population(score, y, unit, words)


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_string("log", None, "Acceptance log, .csv or .parquet.")
    flags.DEFINE_list("columns", [], "Its columns: person=NAME,accepted=NAME,score=NAME.")
    flags.DEFINE_string("source", None, "Instead of a log: folder with ProactiveBench's repository.")
    flags.DEFINE_string("data_dir", None, "Folder of its prepared copy; ~/tensorflow_datasets if unset.")
    flags.DEFINE_multi_string("promise", ["false_alarms<=0.1", "false_alarms<=0.2"], "RISK<=LIMIT; may be repeated.")
    flags.DEFINE_float("promise_level", 0.9, "Probability 1 - eta with which a promise holds.", 0.5, 0.999)
    flags.DEFINE_multi_integer("units", [], "Number of units in a draw; by default as many as there are.", 1)
    flags.DEFINE_integer("draws", 2_000, "Number of draws.", 10, 100_000)
    flags.register_multi_flags_validator(
        ["log", "source"],
        lambda values: (values["log"] is None) != (values["source"] is None),
        "expected exactly one of --log and --source",
    )


def main() -> Iterable[Table]:
    """Draws people again and again."""
    options = flags.FLAGS
    promises = [risk.Promise.parse(text) for text in options.promise]
    if options.log is not None:
        population = of_log(options.log, options.columns)
    else:
        population = of_proactivebench(options.source, options.data_dir)
    units = options.units or [len(np.unique(population.unit))]
    return [table_of(population, promises, error=1 - options.promise_level, units=units, draws=options.draws)]
