"""Compares the training pathways on the simulator (paper, ablation C), and crosses filter and losses as a 2 x 2.

    python -m studies training_pathways --workdir=DIR

Every pathway trains on the same streams for the same number of steps from the same initial parameters, and the same
fast pass scores it. A second stage spends the first half of its steps on an rdc_sft run and continues from it for the
second half. The teacher gives the true probabilities, blurred and biased: its labels contain errors that the filter can
remove and a bias that can mislead a student. Offers were logged by a policy that also depends on what the prompt hides.
The test streams are a trial in which every step has an offer, so all costs are observed. Intervals are 95 % t intervals
over seeds; differences are paired by seed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

import numpy as np

from prism_jax.decision.calibration import CalibrationConfig
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation.protocol import calibrate, evaluate
from prism_jax.evaluation.results import Evaluation
from prism_jax.evaluation.rows import Form
from prism_jax.experiments.paper.pathways import NAMES, scores_of
from prism_jax.experiments.paper.trainings import PATHWAYS
from prism_jax.report.table import Column, Table
from prism_jax.scores import Scores
from prism_jax.scores.labels import Signal
from prism_jax.training.pathway_config import PathwayConfig
from studies.runner import Comparison, Measured, open_store, table, workdir_flag

define_flags = workdir_flag
SQUARE = {
    "all data, plain": PathwayConfig(name="sft"),
    "all data, decision": PathwayConfig(name="joint"),
    "filtered, plain": PathwayConfig(name="rdc_sft", losses="plain"),
    "filtered, decision": PathwayConfig(name="rdc_sft"),
}
COMPARED: dict[str, dict[str, PathwayConfig]] = {
    "Pathways": {name: PathwayConfig(name=name) for name in NAMES},
    "Filter, losses": SQUARE,
}
CHANGES = {
    "filter, plain losses": ("filtered, plain", "all data, plain"),
    "filter, decision losses": ("filtered, decision", "all data, decision"),
    "losses, all data": ("all data, decision", "all data, plain"),
    "losses, filtered data": ("filtered, decision", "filtered, plain"),
}
COMPARISON = Comparison(
    PATHWAYS,
    {
        name: functools.partial(scores_of, pathway=pathway)
        for named in COMPARED.values()
        for name, pathway in named.items()
    },
)

OUTCOMES = (
    Column("cost", "Realised cost per step of the dynamic gate on raw signals."),
    Column("cost, calibrated", "Realised cost per step of the dynamic gate on calibrated signals."),
    Column("cost, Platt", "The same where Platt's map replaces the temperatures."),
    Column("gold F1", "F1 of the calibrated gate."),
    Column("speak rate", "Share of steps on which the calibrated gate offers."),
)
ERRORS = (
    Column("need", "Expected calibration error of raw p_need."),
    Column("need, calibrated", "The same after the temperature that fits the calibration streams."),
    Column("need, Platt", "The same after Platt's map, which also has a bias."),
    Column("accept", "Expected calibration error of raw p_accept."),
    Column("accept, calibrated", "The same after its temperature."),
    Column("accept, Platt", "The same after Platt's map."),
)


def measure(scores: Scores, point: OperatingPoint) -> dict[str, float]:
    """What one student reaches, by column; its scores are of the fast pass."""
    temperature, platt = (
        evaluate(scores, calibrate(scores, CalibrationConfig(calibrator)), point)
        for calibrator in ("temperature", "platt")
    )
    forms: dict[str, tuple[Evaluation, Form]] = {
        "": (temperature, "raw"),
        ", calibrated": (temperature, "calibrated"),
        ", Platt": (platt, "calibrated"),
    }
    gate = temperature.policy("dynamic", "calibrated")
    reached = {"gold F1": gate.f1, "speak rate": gate.speak_rate}
    for name, (of, form) in forms.items():
        reached[f"cost{name}"] = of.policy("dynamic", form).realised_cost
        for signal in get_args(Signal):
            reached[signal + name] = next(row.ece for row in of.signals if (row.signal, row.form) == (signal, form))
    return reached


def tables(results: Mapping[str, Sequence[Mapping[str, float]]]) -> list[Table]:
    """What all pathways and corners reach, their calibration, and how filter and losses each change the cost.

    The results are those of each seed, by pathway or corner and by column.
    """

    def of(name: str, column: str) -> Measured:
        return Measured([np.array(reached[column]) for reached in results[name]])

    def shown(title: str, columns: Sequence[Column]) -> Table:
        def cells(name: str) -> list[str]:
            return [of(name, column.label).over_seeds() for column in columns]

        return table(title, columns, rows, cells, "Means over seeds with 95 % t intervals.")

    rows = {title: {name: name for name in named} for title, named in COMPARED.items()}
    changes = {name: of(minuend, "cost") - of(subtrahend, "cost") for name, (minuend, subtrahend) in CHANGES.items()}
    change = Column("change of cost", "Cost with the filter minus without, or under decision losses minus plain ones.")

    def paired(difference: Measured) -> tuple[str]:
        return (difference.over_seeds(sign="+"),)

    return [
        shown("What each pathway reaches", OUTCOMES),
        shown("Expected calibration error", ERRORS),
        table("What filter and losses change", [change], {"": changes}, paired, "Paired by seed."),
    ]


def main() -> Iterable[Table]:
    """Trains a student per pathway and seed."""
    with open_store() as store:
        scores = COMPARISON.scores(store)
    point = COMPARISON.base.decision
    return tables({name: [measure(table, point) for table in of_seeds] for name, of_seeds in scores.items()})
