"""Counterfactual costs of logs that need not fit into memory, and of those that do: sums over rows, then the estimates.

Three statistics follow each other, and a fourth where the log is refused: `Census` has the people and what standardises
the features, `Sums` what the log can tell and what the models are fitted from, `Terms` the estimates' terms of each
person, and `Explored` the support of a log with more exploration. A log in memory is one part (`over_log`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64, UInt64

from prism_jax.decision import off_policy
from prism_jax.decision.off_policy import Drawn, Estimator, Moments, Support
from prism_jax.decision.uncertainty import Estimate, Resampled, interval, unit_keys
from prism_jax.evaluation import logged_steps
from prism_jax.evaluation.intervals import LEVEL, RESAMPLES
from prism_jax.evaluation.logged_steps import Decisions, DrawnRows, Reading, Rows
from prism_jax.evaluation.merged.planning import check_structure
from prism_jax.evaluation.merged.running import Runner
from prism_jax.evaluation.merged.scan import structure_of
from prism_jax.evaluation.merged.states import Beginning, Largest, State, Statistic, UnitSums, merge
from prism_jax.scores import Scores

FOLDS = 5
"""Folds of people for the model of the doubly robust estimate."""
POLICIES = ("target", "always", "never")
"""The policies whose mean cost is estimated where the log tells it."""
_ROWS = "rows"
_MOST_SCORES = 1 << 16
"""Up to so many scores say where the fifths of the score begin."""


@dataclasses.dataclass(frozen=True)
class Folds:
    """The fold of each person: people in alphabetical order take turns, or where these are too many, by their keys."""

    number: int
    keys: UInt64[np.ndarray, " people"] | None  # ascending; None where folds follow from the keys themselves
    fold: Int64[np.ndarray, " people"]  # of these keys

    @classmethod
    def of(cls, people: UnitSums) -> Folds:
        """The folds of these people."""
        number = min(FOLDS, people.number)
        if people.keys is not None:
            return cls(number, None, np.zeros(0, np.int64))
        keys = unit_keys(people.names)
        order = np.argsort(keys)
        return cls(number, keys[order], order % number)

    def of_rows(self, rows: Decisions) -> Int64[np.ndarray, " rows"]:
        """The fold of each row."""
        keys = unit_keys(rows.names)
        if self.keys is None:
            fold = (keys % np.uint64(self.number)).astype(np.int64)
        else:
            fold = self.fold[np.searchsorted(self.keys, keys)]
        return fold[rows.person]


@dataclasses.dataclass(frozen=True)
class _Statistic(Statistic):
    """A statistic of the rows that a table's steps are."""

    reading: Reading

    def add(self, state: State, rows: Scores) -> State:
        """The state with some more rows, in which every step is whole.

        Raises:
          ScoresError: as `logged_steps.decisions`.
        """
        return merge(state, self.of_steps(*logged_steps.decided(rows)))

    def of_steps(self, steps: Scores, facts: Mapping[str, Any]) -> State:
        """The state of the steps that `logged_steps.decided` gives, with its facts."""
        if facts["unanswered"] == len(steps):
            return self.of_drawn(logged_steps.drawn_rows(steps, self.reading))
        return self.of(logged_steps.decisions(steps, self.reading))

    def of(self, rows: Decisions) -> State:
        """The state of some rows of a log."""
        raise NotImplementedError

    def of_drawn(self, rows: DrawnRows, most: int | None = None) -> State:
        """What the state has of rows whose answers may be unknown; up to `most` people are kept, None as elsewhere."""
        return {}


class Census(_Statistic):
    """The people, the moments of the features, and the largest changes, by which others are scaled."""

    def add(self, state: State, rows: Scores) -> State:
        """The state with some more rows; beside it, what tells whether the table can be used at all."""
        steps, facts = logged_steps.decided(rows)
        return merge(state, self.of_steps(steps, facts) | {"structure": structure_of(rows), "facts": facts})

    def of_drawn(self, rows: DrawnRows, most: int | None = None) -> State:
        """The first scores."""
        return {"scores": Beginning({"score": rows.score[:_MOST_SCORES]}, _MOST_SCORES)}

    def of(self, rows: Decisions) -> State:
        """The state of some rows of a log."""
        return self.of_drawn(rows.drawn) | {
            "moments": Moments.of(rows.features),
            "largest": {
                name: Largest(off_policy.largest_change(pi, rows.logged)) for name, pi in _supported(rows).items()
            },
            "people": _by_person(rows, {}),
        }


@dataclasses.dataclass(frozen=True)
class Sums(_Statistic):
    """What the log can tell of the target and of a policy that always offers, and what the estimates need of it."""

    folds: Folds
    moments: Moments
    largest: Mapping[str, Largest]
    edges: Float64[np.ndarray, "edges"]  # where the fifths of the score begin, which is the first feature

    def of_drawn(self, rows: DrawnRows, most: int | None = None) -> State:
        """The `off_policy.drawn_sums`."""
        totals, units = off_policy.drawn_sums(*rows[:3], self.edges, rows.person, len(rows.people))
        columns = {f"{i}": column for i, column in enumerate(units.reshape(len(units), -1).T)}
        residuals = UnitSums.of(rows.people, columns, resamples=RESAMPLES, seed=0, most=most)
        return {"drawn": totals, "residuals": residuals}

    def of(self, rows: Decisions) -> State:
        """The state of some rows of a log."""
        support, changes = _support_sums(
            {name: (pi, rows.logged, self.largest[name].value) for name, pi in _supported(rows).items()}
        )
        d, silence = _outcomes(rows, self.reading)
        x, fold = self.moments.standardised(rows.features), self.folds.of_rows(rows)
        return self.of_drawn(rows.drawn, len(rows.drawn.people) if rows.people is None else None) | {
            "support": support,
            "people": _by_person(rows, changes),
            "equations": off_policy.normal_equations(
                x, np.column_stack([d, silence]), rows.logged, fold, self.folds.number
            ),
            "weights": {
                "difference": off_policy.weight_sums(rows.target, rows.logged, d),
                **{name: off_policy.level_sums(pi, rows.logged, d, silence) for name, pi in _policies(rows).items()},
            },
        }


@dataclasses.dataclass(frozen=True)
class Terms(_Statistic):
    """The terms of every estimate, summed over the rows of each person."""

    folds: Folds
    moments: Moments
    fitted: Float64[np.ndarray, "folds columns 2"]  # coefficients of the models of d and of silence
    weights: Mapping[str, Float64[np.ndarray, "3"]]
    level: bool  # whether the mean cost itself is estimated, too

    def of(self, rows: Decisions) -> State:
        """The state of some rows of a log."""
        d, silence = _outcomes(rows, self.reading)
        x, fold = self.moments.standardised(rows.features), self.folds.of_rows(rows)
        models = off_policy.predictions(x, self.fitted, fold)
        terms = {}
        for name in off_policy.ESTIMATORS:
            sums = self.weights["difference"]
            terms[_column("difference", name)] = off_policy.difference_terms(
                name, rows.target, rows.logged, d, models[:, 0], sums=sums
            )
            for policy, pi in _policies(rows).items() if self.level else ():
                terms[_column(policy, name)] = off_policy.level_terms(
                    name, pi, rows.logged, d, silence, models[:, 0], models[:, 1], self.weights[policy]
                )
        return {"people": _by_person(rows, terms)}


class Explored(_Statistic):
    """What the log could have told, had every offer of the target had at least a probability of `EXPLORATION`."""

    def of(self, rows: Decisions) -> State:
        """The state of some rows of a log."""
        # With at least so much exploration, no |pi / e - 1| of the target's offers is larger than its inverse.
        levels = {
            f"{least}": (rows.target, off_policy.explored(rows.target, rows.logged, least), 1 / least)
            for least in off_policy.EXPLORATION
        }
        support, changes = _support_sums(levels)
        return {"support": support, "people": _by_person(rows, changes)}


class Estimates(NamedTuple):
    """What another gate would have cost."""

    support: Support
    drawn: list[Drawn]  # whether offers were drawn with the propensities; empty where the log cannot tell
    difference: Mapping[Estimator, Estimate]  # from the cost of the policy that made the log
    level: Mapping[str, Mapping[Estimator, Estimate]]  # mean costs by policy; empty where the log does not tell them
    level_unknown: str | None  # why it does not
    notes: tuple[str, ...]  # sentences about how the log was read


def over_log(log: Decisions) -> Runner:
    """A runner over a log in memory."""
    whole = dataclasses.replace(log, people=None)

    def run(_: str, statistic: _Statistic) -> State:
        return statistic.of(whole)

    return run


def estimate(run: Runner, reading: Reading) -> Estimates:
    """Estimates what the target policy would have cost, by statistics that need not hold all rows.

    Args:
      run: What runs a statistic over the rows: over scores tables, or `over_log`.
      reading: How the steps of tables are read, with the settings of the estimate.

    Returns:
      The estimates. Of up to `states.MOST_KEPT` people, or of a log in memory, each person's sums are kept, and
      intervals are those of `off_policy.means_over_people`. Of more, intervals are percentiles of resampled sums, and
      effective numbers of people follow from the variance of these.

    Raises:
      OverlapError: where the log cannot support the estimate; the message says why.
      OutOfOrderError: where the rows of a stream are not together; they must be put together first.
      ScoresError: for tables that do not hold such a log, or that `reading` does not fit.
    """
    settings = reading.settings
    census = run("scan", Census(reading))
    if "facts" in census:
        check_structure(census["structure"])
        logged_steps.check(census["facts"])
    folds = Folds.of(census["people"])
    edges = off_policy.edges_of(census["scores"].columns["score"])
    sums = run("sums", Sums(reading, folds, census["moments"], census["largest"], edges))
    support, always = (_support(sums, name) for name in ("target", "always"))
    off_policy.check(support, lambda: _enough(run("explored", Explored(reading)), settings.limits), **settings.limits)
    drawn = _drawn(sums)
    if (reason := off_policy.doubt(drawn, off_policy.MOST_OFF)) is not None:
        raise off_policy.OverlapError(reason)
    unknown = _level_unknown(always, settings.limits)
    fitted = off_policy.coefficients(sums["equations"])
    terms = run("terms", Terms(reading, folds, census["moments"], fitted, sums["weights"], unknown is None))
    means = _means(terms["people"], settings.resamples, settings.seed)
    unseen = (support.unknown + support.impossible) * support.target
    return Estimates(
        support,
        drawn,
        {
            name: off_policy.widened(means[_column("difference", name)], unseen, settings.c_fa, settings.c_fn)
            for name in off_policy.ESTIMATORS
        },
        {}
        if unknown
        else {policy: {name: means[_column(policy, name)] for name in off_policy.ESTIMATORS} for policy in POLICIES},
        unknown,
        logged_steps.notes(census["facts"], reading) if "facts" in census else (),
    )


def _enough(state: State, limits: Mapping[str, float]) -> float | None:
    """The smallest exploration that would have been enough; as `off_policy.enough_exploration`."""
    levels = off_policy.EXPLORATION
    return next((least for least in levels if off_policy.refusal(_support(state, f"{least}"), **limits) is None), None)


def _level_unknown(always: Support, limits: Mapping[str, float]) -> str | None:
    """Why the log does not tell the mean cost itself, which needs every row as a target that always offers does."""
    if not always.everywhere:
        return "it needs a probability above 0 of an offer at every row"
    return off_policy.refusal(always, **limits)


def _support(state: State, name: str) -> Support:
    cells = state["people"].cells([_ROWS, name])
    if isinstance(cells, Resampled):
        # A Poisson resample of sums of v has the variance sum(v^2).
        total, squares = cells.sums, ((cells.replicates - cells.sums) ** 2).mean(axis=0)
    else:
        total, squares = cells.units.sum(axis=0), (cells.units**2).sum(axis=0)
    numbers = map(off_policy.effective_number, total.tolist(), squares.tolist())
    return off_policy.support_of(state["support"][name], state["people"].number, min(numbers))


def _drawn(sums: State) -> list[Drawn]:
    cells, totals = sums["residuals"].cells(), sums["drawn"]
    if isinstance(cells, Resampled):
        spread = (cells.replicates - cells.sums) / np.sqrt(len(cells.replicates))
    else:
        spread = cells.units
    return off_policy.drawn(totals, spread.reshape(len(spread), len(totals), -1), sums["residuals"].number)


def _means(people: UnitSums, resamples: int, seed: int) -> dict[str, Estimate]:
    """The mean over rows of every column, with its interval over people."""
    names = people.columns[:-1]
    cells = people.cells()
    if not isinstance(cells, Resampled):
        found = off_policy.means_over_people(people.sums, level=LEVEL, resamples=resamples, seed=seed)
        return dict(zip(names, found, strict=True))
    means = interval(cells, lambda sums: sums[..., :-1] / sums[..., -1:], level=LEVEL)
    return {name: Estimate(*(field[i] for field in means)) for i, name in enumerate(names)}


def _supported(rows: Decisions) -> dict[str, Rows]:
    """The policies whose support is looked at."""
    return {"target": rows.target, "always": np.ones_like(rows.target)}


def _policies(rows: Decisions) -> dict[str, Rows]:
    pi = rows.target
    return dict(zip(POLICIES, (pi, np.ones_like(pi), np.zeros_like(pi)), strict=True))


def _outcomes(rows: Decisions, reading: Reading) -> tuple[Rows, Rows]:
    """What an offer changes, and what silence costs, where the offer was made."""
    settings, logged = reading.settings, rows.logged
    return off_policy.savings(logged, settings.c_fa, settings.c_fn), settings.c_fn * logged.needed * logged.accepted


def _support_sums(
    policies: Mapping[str, tuple[Rows, off_policy.Logged, float]],
) -> tuple[dict[str, dict[str, int | float]], dict[str, Rows]]:
    """`off_policy.support_sums` of each policy in its log, at its scale."""
    found = {name: off_policy.support_sums(*of) for name, of in policies.items()}
    return {name: sums for name, (sums, _) in found.items()}, {name: changes for name, (_, changes) in found.items()}


def _by_person(rows: Decisions, columns: Mapping[str, Rows]) -> UnitSums:
    """Sums of some columns, and last the number of rows, over each person."""
    names = list(rows.names)
    whole = len(names) if rows.people is None else None  # each person's sums are kept where all rows are in memory
    counted = {**columns, _ROWS: np.ones(len(rows.target))}
    sums = {name: np.bincount(rows.person, column, minlength=len(names)) for name, column in counted.items()}
    return UnitSums.of(names, sums, resamples=RESAMPLES, seed=0, most=whole)


def _column(*names: str) -> str:
    return ".".join(names)
