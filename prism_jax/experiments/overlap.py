"""Are the logs that off-policy estimates refuse the right ones? Made logs whose probabilities are easy or hard.

    python -m prism_jax experiments overlap [--replications=2000] [--design=rare]

Each design says who the people are, with which probability e every offer is made, and what a target policy offers. Its
table shows how often the 95 % intervals hold the true difference from the logging policy where the log is answered,
and how often they would have, had nothing been refused (docs/counterfactual.md). Covariates are quantiles, the same in
every log, so that a design is answered always or never, up to who has which of its rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
import scipy
from absl import flags
from jaxtyping import Float64, Int

from prism_jax.decision import off_policy
from prism_jax.decision.off_policy import Logged
from prism_jax.experiments.replications import Drawn, Replicated, measure
from prism_jax.report.numbers import DASH, number, percent
from prism_jax.report.table import Column, Row, Section, Table

Rows = Float64[np.ndarray, " rows"]
Kind = Literal["rare rows", "rare people", "rare answers", "beta", "constant", "explores", "linear", "hidden"]
HABIT = 0.6
"""How far people's acceptance lies from that of the rows, at most, in shares of the distance to 0 or 1."""
RARE = 0.05
"""Share of the rare rows or people."""
HIDDEN = 0.008
"""Share of the rows whose offer could never be made."""
TIMES = 2_000
C_FA, C_FN = 1.0, 2.0


class Design(NamedTuple):
    """A logging policy, a target policy and the people of a log."""

    kind: Kind  # what the probabilities are; `WORDS` says it
    value: float  # the number that `WORDS` calls x
    people: int
    rows: int  # mean number of rows per person
    # whether people have equal numbers of rows, log-normal ones (sigma = 1), or one person has half of all
    sizes: Literal["equal", "unequal", "one has half"] = "equal"
    # whether the target offers everywhere, or only where fewer than half of the offers would be accepted
    target: Literal["always", "disliked"] = "always"

    def __str__(self) -> str:
        sizes = "" if self.sizes == "equal" else f", {self.sizes}"
        return f"x = {self.value:g}, {self.people} people of {self.rows} rows{sizes}, target {self.target}"


WORDS: dict[Kind, str] = {
    "rare rows": "e = x at 5 % of rows, where 10 % of offers would be accepted, else 0.9 and 70 %",
    "rare people": "the same, by people",
    "rare answers": "e = 0.2; acceptance x",
    "beta": "e ~ Beta(x, 1); acceptance 0.2 + 0.6 e",
    "constant": "e = x; acceptance 70 %",
    "explores": "a gate that takes the other decision with probability x; acceptance 30 % where it is silent, or 70 %",
    "linear": "e from x to 1 - x, acceptance from 20 to 80 %, both linear in a covariate",
    "hidden": "e = 0 at 0.8 % of rows, else 0.5; acceptance x there, else 50 %",
}
DESIGNS = (
    *(Design("rare rows", e, 200, 12) for e in (0.002, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4)),
    *(Design("rare rows", e, 200, 60) for e in (0.02, 0.05, 0.1)),
    *(Design("rare rows", 0.4, 30, 60, sizes) for sizes in ("equal", "unequal")),
    *(Design("rare people", e, 200, 40) for e in (0.02, 0.1, 0.3)),
    Design("rare answers", 0.01, 100, 12),
    *(Design("beta", a, 200, 12) for a in (0.3, 0.5, 1.0, 2.0, 3.0, 4.0)),
    *(Design("constant", e, 200, 12) for e in (0.01, 0.02, 0.05)),
    Design("constant", 0.3, 8, 30),
    *(Design("explores", e, 20, 60) for e in (0.02, 0.1, 0.2)),
    *(Design("explores", e, 20, 60, target="disliked") for e in (0.02, 0.1, 0.2)),
    *(Design("linear", 0.1, people, 100) for people in (2, 4, 8, 20)),
    *(Design("linear", 0.1, people, 100, "unequal") for people in (8, 15, 40)),
    Design("linear", 0.1, 50, 100, "one has half"),
    *(Design("hidden", accepted, 200, 200) for accepted in (0.02, 0.98)),
)


class Result(NamedTuple):
    """What became of a design; one number per estimator, NaN where no log was answered."""

    refused: float  # share of the logs that were refused
    covered: tuple[float, ...]  # share of the intervals of answered logs that hold the truth
    anyway: tuple[float, ...]  # the same over all logs, had none been refused
    width: float  # median width of the intervals of inverse propensities over all logs


def measure_design(design: Design, replications: int) -> Result:
    """Draws logs of a design and estimates what its target would have changed."""
    person = np.repeat(np.arange(design.people), _sizes(design))

    def policies(generator: np.random.Generator) -> tuple[Rows, Rows, Rows]:
        """e, acceptance and pi of every row."""
        e, accepted = _rows(design, person, generator)
        target = np.ones(len(e)) if design.target == "always" else (accepted < 0.5).astype(np.float64)
        return e, accepted, target

    def draw(generator: np.random.Generator) -> Drawn:
        e, accepted, target = policies(generator)
        habit = generator.uniform(-HABIT, HABIT, design.people)[person]
        y = generator.random(len(e)) < accepted + habit * np.minimum(accepted, 1 - accepted)
        offered = generator.random(len(e)) < e
        logged = Logged(offered, e, np.where(offered, y, 0.0), np.ones(len(e)))
        return Drawn(target, logged, person, np.column_stack([accepted, e]))

    e, accepted, target = policies(np.random.default_rng(0))
    truth = float(((target - e) * (C_FA * (1 - accepted) - C_FN * accepted)).mean())
    if design.people < off_policy.LEAST_PEOPLE:
        nothing = (np.nan,) * len(off_policy.ESTIMATORS)
        return Result(1.0, nothing, nothing, np.nan)
    answered = anyway = measure(draw, truth, replications, c_fa=C_FA, c_fn=C_FN)
    if answered[0].refused:
        anyway = measure(draw, truth, replications, c_fa=C_FA, c_fn=C_FN, refuse=False)
    return Result(answered[0].refused, _coverage(answered), _coverage(anyway), float(np.median(anyway[0].width)))


def _coverage(results: list[Replicated]) -> tuple[float, ...]:
    return tuple(float(estimator.covered.mean()) if len(estimator.covered) else np.nan for estimator in results)


def _sizes(design: Design) -> Int[np.ndarray, " people"]:
    """Numbers of rows; unequal ones are quantiles."""
    sizes = np.full(design.people, design.rows)
    if design.sizes == "unequal":
        sizes = np.round(design.rows * np.exp(scipy.stats.norm.ppf(_grid(design.people)) - 0.5)).astype(int)
    elif design.sizes == "one has half":
        sizes[0] = design.rows * (design.people - 1)
    return np.maximum(sizes, 1)


def _rows(design: Design, person: Int[np.ndarray, " rows"], generator: np.random.Generator) -> tuple[Rows, Rows]:
    """Propensity and acceptance of every row: quantiles, in an order of their own in every log."""
    x, by = design.value, generator.permutation(_grid(len(person)))
    if design.kind == "rare people":
        by = generator.permutation(_grid(design.people))[person]
    if design.kind in ("rare rows", "rare people"):
        return np.where(by < RARE, x, 0.9), np.where(by < RARE, 0.1, 0.7)
    if design.kind == "rare answers":
        return np.full(len(by), 0.2), np.full(len(by), x)
    if design.kind == "beta":
        e = by ** (1 / x)
        return e, 0.2 + 0.6 * e
    if design.kind == "constant":
        return np.full(len(by), x), np.full(len(by), 0.7)
    if design.kind == "explores":
        return np.where(by < 0.5, x, 1 - x), np.where(by < 0.5, 0.3, 0.7)
    if design.kind == "linear":
        return x + (1 - 2 * x) * by, 0.2 + 0.6 * by
    return np.where(by < HIDDEN, 0.0, 0.5), np.where(by < HIDDEN, x, 0.5)


def _grid(number_of: int) -> Rows:
    """Quantiles of the uniform distribution."""
    return (np.arange(number_of) + 0.5) / number_of


def table_of(designs: tuple[Design, ...], replications: int) -> Table:
    """One row per design."""
    columns = (
        Column("refused", unit="%"),
        Column("coverage", "Of answered logs: inverse propensities, self-normalised, doubly robust.", "%"),
        Column("unrefused", "The same of all logs, had none been refused.", "%"),
        Column("width", "Median width of the intervals of inverse propensities."),
    )
    sections = []
    for kind, words in WORDS.items():
        rows = []
        for design in (candidate for candidate in designs if candidate.kind == kind):
            result = measure_design(design, replications)
            cells = (percent(result.refused), _shown(result.covered), _shown(result.anyway), number(result.width, 3))
            rows.append(Row(str(design), cells))
        sections += [Section(f"{kind}: {words}", tuple(rows))] if rows else []
    note = (
        f"{replications} logs per row, C_FA = {C_FA:g}, C_FN = {C_FN:g}. Acceptance is that of the row, and each "
        f"person's lies up to {100 * HABIT:g} % nearer to 0 or 1. Fewer than {off_policy.LEAST_PEOPLE} people have no "
        "intervals."
    )
    return Table("Coverage of 95 % intervals by the design of the log", "design", columns, tuple(sections), note)


def _shown(shares: tuple[float, ...]) -> str:
    return DASH if np.isnan(shares[0]) else " ".join(percent(share) for share in shares)


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_integer("replications", TIMES, "Number of logs for each row.", 10)
    flags.DEFINE_multi_enum("design", list(WORDS), list(WORDS), "Which designs to draw.")


def main() -> Iterable[Table]:
    """Draws logs of every design."""
    options = flags.FLAGS
    return [table_of(tuple(design for design in DESIGNS if design.kind in options.design), options.replications)]
