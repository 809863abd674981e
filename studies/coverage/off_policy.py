"""Are counterfactual costs right, and are the logs that they refuse the right ones (docs/counterfactual.md)?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import scipy

from prism_jax.decision import off_policy
from prism_jax.decision.off_policy import ESTIMATORS, LEAST_PEOPLE
from prism_jax.evaluation.answers.columns import LogError
from prism_jax.evaluation.answers.logs import AcceptanceLog
from prism_jax.report.numbers import DASH, number, percent
from prism_jax.report.table import Column, Row, Section, Table
from studies.coverage.counting import Counted, count
from studies.coverage.drawing import (
    C_FA,
    C_FN,
    DESIGNS,
    HABIT,
    KINDS,
    Design,
    Drawn,
    Logs,
    Rows,
    made_logs,
    redrawn_logs,
)

FOLDS = 5
"""Folds of people for the model of the doubly robust estimate."""
TARGETS = {"the upper quarter": 0.75, "the upper half": 0.5, "everything": 0.0}
"""Target policies: they offer where the rank of the score is at least this."""
REFUSALS = 200
"""Redrawn logs, at most, of the logging policies whose logs are only looked at for refusals."""
EXPLORES = "explores: e from 0.1 to 0.9, linear in the rank of the score"
LOGGING: dict[str, Callable[[Rows], Rows]] = {
    EXPLORES: lambda rank: 0.1 + 0.8 * rank,
    "never offers the lower third: e = 0 in the lower third by score, else 0.5": lambda rank: np.where(
        rank < 1 / 3, 0.0, 0.5
    ),
    "hardly ever offers: e = 0.01 everywhere": lambda rank: np.full_like(rank, 0.01),
}
"""Logging policies in words, and their probability of an offer by the rank of the score."""


def differences(logs: Logs, times: int) -> list[Counted]:
    """Estimates the difference from the logging policy in many logs; one result per estimator."""

    def estimate(drawn: Iterator[Drawn]) -> np.ndarray:
        found = np.zeros((len(ESTIMATORS), times, 4))
        for at, (target, seen, person, features) in enumerate(drawn):
            refusal = off_policy.refusal(off_policy.measure_support(target, seen, person))
            d = off_policy.savings(seen, C_FA, C_FN)
            model = off_policy.cross_fitted(features, d, seen, person % min(FOLDS, int(person.max()) + 1))
            for rows, name in zip(found, ESTIMATORS, strict=True):
                one = off_policy.difference(name, target, seen, person, c_fa=C_FA, c_fn=C_FN, model=model)
                rows[at] = *one[:3], refusal is not None
        return found

    return count(logs.truth, logs.draw, estimate, times)


def design_table(times: int, designs: Sequence[Design] = DESIGNS) -> Table:
    """One row per design; too few people are always refused."""
    columns = (
        Column("refused", unit="%"),
        Column("coverage", "Of answered logs: inverse propensities, self-normalised, doubly robust.", "%"),
        Column("unrefused", "The same of all logs, had none been refused.", "%"),
    )
    sections = []
    for kind, (words, _) in KINDS.items():
        rows = []
        for design in (candidate for candidate in designs if candidate.kind == kind):
            cells: tuple[str, ...] = (percent(1.0), DASH, DASH)
            if design.people >= LEAST_PEOPLE:
                found = differences(made_logs(design), times)
                shares = ([one.coverage for one in found], [one.unrefused.coverage for one in found])
                shown = (DASH if np.isnan(of).all() else " ".join(map(percent, of)) for of in shares)
                cells = (percent(float(found[0].refused.mean())), *shown)
            rows.append(Row(str(design), cells))
        sections += [Section(f"{kind}: {words}", tuple(rows))] if rows else []
    note = (
        f"{times} logs per row, C_FA = {C_FA:g}, C_FN = {C_FN:g}. Acceptance is that of the row, and each "
        f"person's lies up to {100 * HABIT:g} % nearer to 0 or 1. Fewer than {LEAST_PEOPLE} people have no intervals."
    )
    return Table("Coverage of 95 % intervals by the design of the log", "design", columns, tuple(sections), note)


def log_tables(log: AcceptanceLog, people: Sequence[int], times: int) -> list[Table]:
    """Estimates from redrawn logs of the exploring policy, and refusals for all logging policies.

    In the log every offer was answered and has a score; missing scores become the median. `people` are the numbers of
    people in redrawn logs. Raises LogError for another log.
    """
    if log.score is None or not log.logged.all():
        raise LogError("--log: expected score=COLUMN, and answers to all offers")
    score = np.where(np.isnan(log.score), np.nanmedian(log.score), log.score)
    rank = (scipy.stats.rankdata(score) - 0.5) / len(score)
    sections, refusals = [], []
    for name, logging in LOGGING.items():
        refused = []
        for target, least in TARGETS.items():
            offers = (rank >= least).astype(np.float64)
            several, many = (people, times) if name == EXPLORES else (people[-1:], min(times, REFUSALS))
            found = {
                each: differences(redrawn_logs(log.person, log.accepted, rank, logging(rank), offers, each), many)
                for each in several
            }
            if name == EXPLORES:
                rows = (
                    _row(f"{each}, {estimator}", counted)
                    for each, of in found.items()
                    for estimator, counted in zip(ESTIMATORS, of, strict=True)
                )
                sections.append(Section(f"target: {target}", tuple(rows)))
            refused.append(Row(f"target: {target}", (percent(float(found[people[-1]][0].refused.mean())),)))
        refusals.append(Section(name, tuple(refused)))
    note = f"{times} redrawn logs per row, C_FA = {C_FA:g}, C_FN = {C_FN:g}. ± is the error of the simulation."
    columns = (
        Column("truth", "Difference of the mean cost from the logging policy's, in the full log."),
        Column("bias", "Mean estimate minus truth."),
        Column("coverage", "Share of the 95 % intervals that hold the truth.", "%"),
        Column("width", "Mean width of the intervals."),
    )
    title = f"Estimates from logs of a policy with {EXPLORES.partition(': ')[2]}"
    share = f"Share of redrawn logs of {people[-1]} people on which the estimate is refused."
    return [
        Table(title, "people, estimate", columns, tuple(sections), note),
        Table("Refused", "logging policy", (Column("refused", unit="%"),), tuple(refusals), share),
    ]


def _row(name: str, counted: Counted) -> Row:
    bias = " ± ".join(map(number, counted.bias))
    return Row(name, (number(counted.truth), bias, percent(counted.coverage), number(counted.width, 3)))
