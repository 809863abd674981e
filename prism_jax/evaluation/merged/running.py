"""The statistics one after the other, over whatever can run one of them over all rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from prism_jax.decision.calibration import CalibrationConfig
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.merged import planning
from prism_jax.evaluation.merged.assembling import Assembled, assemble, settings_of
from prism_jax.evaluation.merged.parts import test_data
from prism_jax.evaluation.merged.ranks import Moves, Ranks
from prism_jax.evaluation.merged.scan import Scan
from prism_jax.evaluation.merged.states import State, Statistic, merge
from prism_jax.evaluation.merged.sums import Sums
from prism_jax.evaluation.need import certain_need
from prism_jax.evaluation.triggers import Share
from prism_jax.scores import Scores

Runner = Callable[[str, Any], State]
"""Runs a statistic, under a name, over all rows and gives its state."""


def over(parts: Iterable[Scores]) -> Runner:
    """A runner over parts of a table in memory, in each of which every step is whole."""
    kept = list(parts)

    def run(_: str, statistic: Statistic) -> State:
        state = statistic.init()
        for part in kept:
            state = merge(state, statistic.add(statistic.init(), part))
        return state

    return run


def evaluate(
    run: Runner,
    point: OperatingPoint,
    config: CalibrationConfig | None = None,
    calibration: Calibration | None = None,
    *,
    exact: bool = False,
) -> tuple[Calibration, Assembled]:
    """Calibrates and evaluates as `protocol` does, by statistics that need not hold all rows.

    Args:
      run: What runs a statistic over the rows.
      point: The costs, margin and policy that are deployed.
      config: The choice of the map; None is one temperature.
      calibration: Maps to apply in place of fitting some.
      exact: Whether all rows fit into memory, so that no number is rounded to a grid.

    Returns:
      The calibration, and the results.

    Raises:
      OutOfOrderError: where the rows of a stream are not together; they must be put together first.
      ScoresError: as `protocol.calibrate` and `protocol.evaluate`.
    """
    scan, calibration, plan = planned(run, point, config, calibration, exact=exact)
    return calibration, _evaluated(run, scan, plan)


def evaluate_rows(
    scores: Scores,
    point: OperatingPoint,
    config: CalibrationConfig | None = None,
    calibration: Calibration | None = None,
    *,
    explored: bool = True,
) -> tuple[Calibration, Assembled]:
    """`evaluate` of a table in memory, exactly; decisions are counted over costs and triggers where they are explored.

    The results show every row.
    """
    run = over([scores])
    scan, calibration, plan = planned(run, point, config, calibration, exact=True, checked=True)
    return calibration, _evaluated(run, scan, dataclasses.replace(plan, kept={}, surface=explored), scores)


def _evaluated(run: Runner, scan: State, plan: planning.Plan, rows: Scores | None = None) -> Assembled:
    ranks = run("ranks", Ranks(plan))
    settings = settings_of(plan, ranks)
    return assemble(plan, scan, ranks, settings, run("sums", Sums(plan, settings)), rows)


def shares(scores: Scores, calibration: Calibration, point: OperatingPoint) -> list[Share]:
    """The test steps of a table in memory that each trigger of the slow pass thinks about; none without a slow pass."""
    run = over([scores])
    _, _, plan = planned(run, point, calibration=calibration, exact=True, checked=True)
    plan = dataclasses.replace(plan, kept={})
    data = test_data(scores, plan)
    if data is None or not plan.fitted_on:
        return []
    return Sums(plan, settings_of(plan, run("ranks", Ranks(plan)))).shares(data)


def calibrate(scores: Scores, config: CalibrationConfig) -> Calibration:
    """The maps and the moves of a table in memory, as `protocol.calibrate` says."""
    scan = Scan(config, exact=True).maps(scores)
    return _with_moves(over([scores]), scan, planning.calibrate(scan, config))


def planned(
    run: Runner,
    point: OperatingPoint,
    config: CalibrationConfig | None = None,
    calibration: Calibration | None = None,
    *,
    exact: bool = False,
    checked: bool = False,
    labelled: bool = True,
) -> tuple[State, Calibration, planning.Plan]:
    """The first two statistics: the scan, the maps, and how the rows are to be evaluated, as `evaluate` says.

    A table in memory is `checked` already. Decisions need no step with all labels where not `labelled`.
    """
    config = CalibrationConfig() if config is None else config
    scan = run("scan", Scan(config if calibration is None else None, exact))
    if not checked:
        planning.check(scan, exact=exact)
    bounds, unbounded = {}, False
    if calibration is None:
        calibration = planning.calibrate(scan, config)
        bounds = {} if exact else planning.temperature_errors(scan, calibration)
        unbounded = config.calibrator in ("isotonic", "grouped") and not exact
        calibration = _with_moves(run, scan, calibration)
    plan = planning.plan(
        scan, calibration, point, bounds=bounds, unbounded_maps=unbounded, exact=exact, labelled=labelled
    )
    return scan, calibration, plan


def _with_moves(run: Runner, scan: State, calibration: Calibration) -> Calibration:
    """The calibration with the moves of the slow pass, where it has maps of it."""
    if calibration.accept_slow is None:
        return calibration
    taken = calibration if planning.has_need(scan) else certain_need(calibration)
    return planning.with_moves(calibration, run("moves", Moves(taken, planning.out_of_fold(scan))))
