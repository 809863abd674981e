"""The results of the last statistic: the same records as of a table in memory, and how far each number can be off."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from prism_jax.decision.audbc import Audbc, ExpectedCost
from prism_jax.decision.uncertainty import SHARE, Cells, Resampled, interval
from prism_jax.evaluation import (
    breakdowns,
    policy_rows,
    policy_sums,
    ratios,
    second_signal,
    surfaces,
    triggers,
)
from prism_jax.evaluation.intervals import LEVEL, RESAMPLES, SEED, totals_of, with_intervals
from prism_jax.evaluation.merged.histograms import Above, Area, Histogram, area, highest, isotonic_score
from prism_jax.evaluation.merged.parts import test_data
from prism_jax.evaluation.merged.planning import Plan
from prism_jax.evaluation.merged.ranks import thresholds, turning_ratios
from prism_jax.evaluation.merged.states import Beginning, State, UnitSums
from prism_jax.evaluation.merged.sums import AREA, Settings, SignalSums, column
from prism_jax.evaluation.results import Counts, Evaluation, Triggers
from prism_jax.evaluation.rows import Form, SecondSignalRow, SignalRow
from prism_jax.evaluation.splits import TEST
from prism_jax.evaluation.surfaces import Exploration
from prism_jax.scores import Scores
from prism_jax.scores.labels import Signal, Thinking


class Assembled(NamedTuple):
    """An evaluation, with what its report shows beside."""

    evaluation: Evaluation  # its trace is that of the first steps alone
    exploration: Exploration | str  # the surface, or why there is none


def settings_of(plan: Plan, ranks: State) -> Settings:
    """What the last statistic needs of the ranks, whose curves are let go."""
    above: tuple[Above, ...] = ()
    curves = list(ranks["curves"])
    if "accept" in ranks:
        above = tuple(highest(ranks["accept"], "weight", mass) for mass in ranks["gate"].tolist())
    return Settings(
        areas={key: of if isinstance(of := ranks["curves"].pop(key), Area) else area(of) for key in curves},
        turning={form: turning_ratios(histogram) for form, histogram in ranks["turning"].items()},
        thresholds=thresholds(ranks),
        above=above,
    )


def assemble(
    plan: Plan, scan: State, ranks: State, settings: Settings, sums: State, rows: Scores | None = None
) -> Assembled:
    """All results, from the states of the statistics; `rows` are those of all parts, where these are in memory."""
    shown = _shown(sums["shown"]) if rows is None else rows
    data = test_data(shown, plan)
    assert data is not None, "the shown rows are test rows"
    deployed, units = data.deployed(), sums["units"]
    bounds = dict(plan.bounds)
    policies = policy_sums.rows_of(sums["policies"], deployed, plan.slow)
    costs = [column("policy", *name) for name in sums["policies"]]
    number = (sums["counts"]["judged"], len(sums["counts"]["streams"]))
    groups = sorted(sums["groups"], key=lambda name: (breakdowns.COLUMNS.index(name[0]), name[1]))
    across = ratios.ratios_of(*_ratios(plan, settings, sums, bounds), deployed, number, plan.no_area)
    evaluation = Evaluation(
        point=plan.point,
        counts=_counts(plan, scan, sums),
        policies=with_intervals(policies, units.cells([*costs, "weight"]), max(plan.point.c_fa, plan.point.c_fn)),
        ratios=across,
        signals=tuple(_signal_rows(plan, ranks, sums["signals"], bounds)),
        groups=tuple(sums["groups"][name].row(*name, plan.has_need) for name in groups),
        switched_off=(*plan.off.values(), *([across.no_area] if across.no_area else [])),
        trace=breakdowns.trace(data),
        triggers=_triggers(plan, scan, ranks, sums) if plan.fitted_on else None,
        second_signal=_second_signal(plan, ranks, settings, units, bounds) if plan.has_need else (),
        dependence=second_signal.dependence_of(sums["dependence"].cells()) if "dependence" in sums else None,
        need_given_accept=plan.calibration.need_target == "given_accept",
        has_need=plan.has_need,
        unit=plan.whole.unit,
        units=units.number,
        bounds={} if plan.exact else {key: bounds[key] for key in bounds if not plan.unbounded_maps or ".raw." in key},
    )
    return Assembled(evaluation, _exploration(plan, sums, data))


def _shown(beginning: Beginning) -> Scores:
    """The first rows of the test split, without a step that may go on."""
    rows = Scores.from_columns(dict(beginning.columns))
    if len(beginning) < beginning.most:
        return rows
    last = (rows.stream == rows.stream[-1]) & (rows.step == rows.step[-1])
    return rows if last.all() else rows.take(~last)


def _counts(plan: Plan, scan: State, sums: State) -> Counts:
    counts, facts = sums["counts"], scan["test"]["facts"]
    split = TEST if scan["splits"] else ""
    people = scan["people"].get(split)
    return Counts(
        streams=len(scan["streams"][split]),
        steps=facts.steps,
        rows=facts.rows,
        judged=counts["judged"],
        need_unknown=counts["need_unknown"],
        accept_unknown=counts["accept_unknown"],
        positive=counts["positive"] / counts["mass"],
        effective=counts["mass"] ** 2 / counts["squares"],
        fields_correct=counts["fields_correct"] / counts["fields"] if plan.slow and counts["fields"] else None,
        people=None if people is None else len(people),
    )


def _ratios(
    plan: Plan, settings: Settings, sums: State, bounds: dict[str, float]
) -> tuple[ExpectedCost, dict[tuple[str, Form | None], tuple[Audbc | None, float, float]]]:
    """Mean costs of the references, and area and mean cost of each policy."""
    mass = sums["counts"]["mass"]
    always, never, oracle = (sums["references"] / mass).tolist()
    references = ExpectedCost(math.nan, always, never, oracle, math.nan)
    rows = {}
    for (policy, form), total in sums["mean_costs"].items():
        cost = total / mass
        found = None
        if plan.no_area is None and (policy, form) in settings.areas:
            cells = sums["units"].cells([*(column(part, policy, form) for part in AREA), "best", "weight"])
            found, bounds[f"ratios.{policy}.{form}.audbc"] = area_of(
                settings.areas[policy, form], cells, level=LEVEL, resamples=RESAMPLES, seed=SEED
            )
        elif plan.no_area is None:
            points = sums["points"][form]
            found = ratios.area_of_points(points.cells())
        rows[policy, form] = found, cost, ratios.rescaled(cost, references)
    return references, rows


def area_of(of: Area, cells: Cells | Resampled, **resampling: Any) -> tuple[Audbc, float]:
    """The area of a curve with its interval, and the bound of its error.

    The columns of `cells` are those of `ranks.shares_of`, the gold weight of the curve's end, that of the best
    candidates, and all weight. Without one unit the area is exact if the unit's steps stand in one part; a resample has
    what its units' parts let expect.
    """
    _, excess, gold, best, mass = totals_of(cells).tolist()
    value, error = of.normalised(best)

    def normalised(totals: Float64[np.ndarray, "*resamples 5"]) -> Float64[np.ndarray, "*resamples"]:
        parts, own, _, most, weight = np.moveaxis(totals, -1, 0)
        left = np.where(weight > 0, weight, 1.0) / of.mass
        # Without unit i, area - parts_i + own_i over (1 - w_i)^2 (docs/maths.md, section 10).
        changed = parts / left - of.area + (excess - own) / left**2
        positive = most / (left * of.mass)
        oracle = (positive - positive**2 / 2) * of.mass**2
        return np.asarray(np.where(oracle > 0, changed / np.where(oracle > 0, oracle, 1.0), np.nan))

    estimate = interval(cells, normalised, bounds=SHARE, **resampling)
    prevalence, end = best / mass, gold / mass
    chance = end / (2 * prevalence - prevalence**2)
    rescaled = (value - chance) / (1 - chance) if chance < 1 else math.nan
    ends = float(estimate.low), float(estimate.high), float(estimate.standard_error)
    return Audbc(value, *ends, chance, rescaled), error


def _signal_rows(
    plan: Plan, ranks: State, sums: dict[tuple[Signal, Thinking, Form], SignalSums], bounds: dict[str, float]
) -> Iterator[SignalRow]:
    """The measures of each signal, raw and calibrated."""
    for (signal, thinking, form), of in sums.items():
        if of.bins is None:
            continue
        histogram: Histogram = ranks["signals"][signal, thinking, form]
        isotonic = isotonic_score(histogram, of.squares)
        mass, base = float(of.bins.mass.sum()), float(of.bins.y.sum() / of.bins.mass.sum())
        uncertainty = of.squares / mass - base**2
        for name in ("miscalibration", "discrimination"):
            bounds[f"signals.{signal}_{thinking}.{form}.{name}"] = isotonic.error
        calibrated = form == "calibrated"
        temperature = plan.calibration.temperature(signal, thinking) if calibrated else 1.0
        distance, constant = (None if math.isnan(total) else total / of.rows for total in (of.distance, of.constant))
        yield SignalRow(
            signal=signal,
            thinking=thinking,
            form=form,
            temperature=temperature,
            map=plan.calibration.in_words(signal, thinking) if calibrated and temperature is None else None,
            count=of.labels,
            ece=of.bins.error(),
            ece_debiased=of.bins.error(debiased=True),
            brier=of.bins.brier_score,
            miscalibration=of.bins.brier_score - isotonic.score,
            discrimination=uncertainty - isotonic.score,
            uncertainty=uncertainty,
            nll=of.loss / mass,
            distance=distance,
            constant_distance=constant,
            reliability=of.bins.reliability(),
        )


def _second_signal(
    plan: Plan, ranks: State, settings: Settings, units: UnitSums, bounds: dict[str, float]
) -> tuple[SecondSignalRow, ...]:
    """The gate beside p_accept alone."""
    compared = second_signal.ratios_of(plan.point)
    mass = float(ranks["accept"].sums["weight"].sum())
    for ratio, above in zip(compared, settings.above, strict=True):
        most = plan.point.c_fa * (1 + ratio)  # what one offer more and one less can change
        bounds[f"second_signal.{ratio:g}.accept_alone"] = above.weight / mass * most
    columns = [column(who, ratio) for ratio in compared for who in ("gate", "alone")]
    return second_signal.rows_of(compared, (ranks["gate"] / mass).tolist(), units.cells([*columns, "weight"]))


def _triggers(plan: Plan, scan: State, ranks: State, sums: State) -> Triggers:
    names = list(sums["shares"])
    cells = sums["units"].cells([*(column("share", *name) for name in names), "weight"])
    number = (scan["test"]["facts"].steps, sum(ranks["fitted"].values()))
    return triggers.rows_of(names, list(sums["shares"].values()), totals_of(cells), cells, plan.point, number)


def _exploration(plan: Plan, sums: State, data: policy_rows.EvaluationData) -> Exploration | str:
    """The surface: the counts of all steps, and the first of them to browse."""
    if plan.uncountable is not None or not plan.surface:
        return plan.uncountable or "decisions were not counted"
    return surfaces.exploration(data, plan.columns, plan.groups, sums["surface"], part=not plan.exact)
