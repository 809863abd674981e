"""The statistics one after the other, over whatever can run one of them over all rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prism_jax.decision.calibration import CalibrationConfig
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.merged import planning
from prism_jax.evaluation.merged.assembling import Assembled, assemble, settings_of
from prism_jax.evaluation.merged.ranks import Moves, Ranks
from prism_jax.evaluation.merged.scan import Scan
from prism_jax.evaluation.merged.states import State, Statistic, merge
from prism_jax.evaluation.merged.sums import Sums
from prism_jax.evaluation.need import certain_need
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
    run: Runner, point: OperatingPoint, config: CalibrationConfig | None = None, calibration: Calibration | None = None
) -> tuple[Calibration, Assembled]:
    """Calibrates and evaluates as `protocol` does, by statistics that need not hold all rows.

    Args:
      run: What runs a statistic over the rows.
      point: The costs, margin and policy that are deployed.
      config: The choice of the map; None is one temperature.
      calibration: Maps to apply in place of fitting some.

    Returns:
      The calibration, and the results.

    Raises:
      OutOfOrderError: where the rows of a stream are not together; they must be put together first.
      ScoresError: as `protocol.calibrate` and `protocol.evaluate`.
    """
    scan, calibration, plan = planned(run, point, config, calibration)
    ranks = run("ranks", Ranks(plan))
    settings = settings_of(plan, ranks)
    return calibration, assemble(plan, scan, ranks, settings, run("sums", Sums(plan, settings)))


def planned(
    run: Runner,
    point: OperatingPoint,
    config: CalibrationConfig | None = None,
    calibration: Calibration | None = None,
) -> tuple[State, Calibration, planning.Plan]:
    """The first two statistics: the scan, the maps, and how the rows are to be evaluated, as `evaluate` says."""
    config = CalibrationConfig() if config is None else config
    scan = run("scan", Scan(config))
    planning.check(scan)
    bounds, unbounded = {}, False
    if calibration is None:
        calibration = planning.calibrate(scan, config)
        bounds = planning.temperature_errors(scan, calibration)
        unbounded = config.calibrator in ("isotonic", "grouped")
        calibration = _with_moves(run, scan, calibration)
    plan = planning.plan(scan, calibration, point, bounds=bounds, unbounded_maps=unbounded)
    return scan, calibration, plan


def _with_moves(run: Runner, scan: State, calibration: Calibration) -> Calibration:
    """The calibration with the moves of the slow pass, where it has maps of it."""
    if calibration.accept_slow is None:
        return calibration
    taken = calibration if planning.has_need(scan) else certain_need(calibration)
    return planning.with_moves(calibration, run("moves", Moves(taken, planning.out_of_fold(scan))))
