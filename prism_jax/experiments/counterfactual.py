"""Are counterfactual costs right? Logs with known propensities, drawn from a log in which every offer was answered.

    python -m prism_jax experiments counterfactual --log=FILE --columns=person=..,accepted=..,score=..

The full log says what every policy costs. Each replication redraws people, draws which offers a logging policy makes,
hides the answers to the others, and estimates the difference of a target policy from the logging policy. The tables
show bias, how often the 95 % interval holds the true difference, its width, and how often an estimate is refused
(docs/counterfactual.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from absl import flags
from jaxtyping import Float64

from prism_jax.evaluation.answers.columns import LogError, parse_columns
from prism_jax.evaluation.answers.logs import AcceptanceLog, read_log
from prism_jax.experiments.replications import FullLog, Policies, Replicated, replicate
from prism_jax.report.numbers import number, percent
from prism_jax.report.table import Column, Row, Section, Table

Rows = Float64[np.ndarray, " rows"]
TARGETS = {"the upper quarter": 0.75, "the upper half": 0.5, "everything": 0.0}
"""Target policies: they offer where the rank of the score is at least this."""
REFUSALS = 200
"""Redrawn logs, at most, of the logging policies whose logs are only looked at for refusals."""
LOGGING = {
    "explores": "e from 0.1 to 0.9, linear in the rank of the score",
    "never offers the lower third": "e = 0 in the lower third by score, else 0.5",
    "hardly ever offers": "e = 0.01 everywhere",
}
"""Logging policies by name, in words."""


def logging_policy(name: str, rank: Rows) -> Rows:
    """The probability of an offer at each row."""
    if name == "explores":
        return 0.1 + 0.8 * rank
    return np.where(rank < 1 / 3, 0.0, 0.5) if name == "never offers the lower third" else np.full_like(rank, 0.01)


def study(log: AcceptanceLog, people: Sequence[int], replications: int, *, c_fa: float, c_fn: float) -> list[Table]:
    """The tables: estimates from logs of the exploring policy, and refusals for all logging policies.

    In the log every offer was answered and has a score; missing scores become the median. `people` are the numbers of
    people in redrawn logs, and `replications` is the number of redrawn logs for each row.
    """
    assert log.score is not None, "the main refuses a log without a score"
    score = np.where(np.isnan(log.score), np.nanmedian(log.score), log.score)
    full = FullLog.of(log.person, log.accepted, score)
    sections, refusals = [], []
    for name in LOGGING:
        e = logging_policy(name, full.rank)
        refused_rows = []
        for target, least in TARGETS.items():
            policies = Policies(e, (full.rank >= least).astype(np.float64))
            counts = people if name == "explores" else people[-1:]
            times = replications if name == "explores" else min(replications, REFUSALS)
            results = {count: replicate(full, policies, count, times, c_fa=c_fa, c_fn=c_fn) for count in counts}
            if name == "explores":
                rows = [_row(count, estimate) for count, estimates in results.items() for estimate in estimates]
                sections.append(Section(f"target: {target}", tuple(rows)))
            refused_rows.append(Row(f"target: {target}", (percent(results[people[-1]][0].refused),)))
        refusals.append(Section(f"{name}: {LOGGING[name]}", tuple(refused_rows)))
    note = f"{replications} redrawn logs per row, C_FA = {c_fa:g}, C_FN = {c_fn:g}. ± is the error of the simulation."
    columns = (
        Column("truth", "Difference of the mean cost from the logging policy's, in the full log."),
        Column("bias", "Mean estimate minus truth."),
        Column("coverage", "Share of the 95 % intervals that hold the truth.", "%"),
        Column("width", "Mean width of the intervals."),
    )
    title = f"Estimates from logs of a policy with {LOGGING['explores']}"
    refusal = Table("Refused", "logging policy", (Column("refused", unit="%"),), tuple(refusals), _people_note(people))
    return [Table(title, "people, estimate", columns, tuple(sections), note), refusal]


def _people_note(people: Sequence[int]) -> str:
    return f"Share of redrawn logs of {people[-1]} people on which the estimate is refused."


def _row(people: int, replicated: Replicated) -> Row:
    bias, error = replicated.bias
    coverage = float(replicated.covered.mean()) if len(replicated.covered) else np.nan
    width = float(replicated.width.mean()) if len(replicated.width) else np.nan
    cells = (number(replicated.truth), f"{number(bias)} ± {number(error)}", percent(coverage), number(width, 3))
    return Row(f"{people}, {replicated.estimator}", cells)


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("log", None, "Acceptance log in which every offer was answered.", required=True)
    flags.DEFINE_list("columns", [], "Roles: person=COLUMN,accepted=COLUMN or a condition,score=COLUMN.")
    flags.DEFINE_list("people", ["20", "50", "100", "200"], "Numbers of people in redrawn logs, ascending.")
    flags.DEFINE_integer("replications", 2000, "Number of redrawn logs for each row.", 10)
    flags.DEFINE_float("c_fa", 1.0, "C_FA.", 1e-6)
    flags.DEFINE_float("c_fn", 2.0, "C_FN.", 1e-6)


def main() -> Iterable[Table]:
    """Redraws logs from a log whose truth is known."""
    options = flags.FLAGS
    if not all(text.isdigit() and int(text) >= 2 for text in options.people) or not options.people:
        raise ValueError(f"--people: found {','.join(options.people)!r}, expected whole numbers from 2")
    log = read_log(options.log, parse_columns(options.columns))
    if log.score is None or not log.logged.all():
        raise LogError(f"{options.log}: expected score=COLUMN, and answers to all offers")
    people = sorted(map(int, options.people))
    return study(log, people, options.replications, c_fa=options.c_fa, c_fn=options.c_fn)
