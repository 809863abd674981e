"""Compares the training pathways on the simulator (paper, ablation C), and crosses filter and losses as a 2 x 2.

    python -m prism_jax experiments training_pathways --workdir=DIR

Every pathway trains on the same streams for the same number of steps from the same initial parameters, and the same
fast pass scores it. A second stage spends the first half of its steps on an rdc_sft run and continues from it for the
second half. The teacher gives the true probabilities, blurred and biased: its labels contain errors that the filter can
remove and a bias that can mislead a student. Offers were logged by a policy that also depends on what the prompt hides.
The test streams are a trial in which every step has an offer, so all costs are observed.

Each seed sets the streams, the teacher, the initial parameters and the order of the data. Intervals are 95 % t
intervals over seeds; differences are paired by seed. Trainings are kept in DIR/trainings, which the tables of
`python -m prism_jax experiments` share; a second call repeats none of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tqdm
from absl import flags
from etils import epath

from prism_jax.decision.calibration import CalibrationConfig
from prism_jax.evaluation.protocol import calibrate, evaluate
from prism_jax.experiments import students
from prism_jax.experiments.intervals import mean_over_seeds, show_interval
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.runs.store import Store, of_seed
from prism_jax.scores import Scores
from prism_jax.scores.labels import Signal
from prism_jax.streams.simulator import SimulatorConfig
from prism_jax.streams.sources import DataConfig
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.pathways.table import SECOND_STAGES, Name, PathwayConfig
from prism_jax.training.run_config import RunConfig, TrainingConfig

SEEDS = (0, 1, 2)
CONFIG = RunConfig(
    data=DataConfig(train_streams=8000, calibration_streams=150, test_streams=500),
    simulator=SimulatorConfig(min_events=4, max_events=4, teacher=True, teacher_blur=0.7, teacher_bias=0.3),
    prompt=students.PROMPT,
    student=students.STUDENT,
    loss=LossConfig(response=0.2, accept=1.2),
    training=TrainingConfig(steps=400, batch=32, learning_rate=4e-3, checkpoint_every=100),
)
"""A tiny student on streams of three decisions."""

_NAMES: tuple[Name, ...] = ("schema_sft", "sft", "rdc_sft", "dft", "weighted_sft")
PATHWAYS: dict[str, PathwayConfig] = {name: PathwayConfig(name=name) for name in _NAMES}
SQUARE = {
    ("all data", "plain"): PathwayConfig(name="sft"),
    ("all data", "decision"): PathwayConfig(name="joint"),
    ("filtered", "plain"): PathwayConfig(name="rdc_sft", losses="plain"),
    ("filtered", "decision"): PathwayConfig(name="rdc_sft"),
}


class StudentResult(NamedTuple):
    """Results of one student on the test streams."""

    cost: float  # realised cost per step of the dynamic gate on raw signals
    cost_calibrated: float  # realised cost per step of the dynamic gate on calibrated signals
    cost_platt: float  # the same where Platt's map replaces the temperatures
    f1: float  # gold F1 of the calibrated gate
    speak_rate: float  # share of steps on which the calibrated gate offers
    need: float  # expected calibration error of raw p_need
    need_calibrated: float  # the same after its temperature
    need_platt: float  # the same after Platt's map
    accept: float  # expected calibration error of raw p_accept
    accept_calibrated: float  # the same after its temperature
    accept_platt: float  # the same after Platt's map


COLUMNS = (
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
"""`COLUMNS` and `ERRORS` are the headings of the fields of `StudentResult`."""


def scores_of(config: RunConfig, pathway: PathwayConfig, store: Store) -> Scores:
    """The scores of the fast pass of a student that was trained on a pathway, and is kept in the store.

    `training.steps` is the number of both stages together: a second stage starts from an rdc_sft run of the first half.
    """
    name, steps = f"pathway-{pathway.name}", config.training.steps
    if pathway.name not in SECOND_STAGES:
        return store.scores(name, _with(config, pathway), "fast")
    first = _with(config, dataclasses.replace(pathway, name="rdc_sft"), steps=steps // 2)
    start = store.finished("pathway-first-stage", first).resolve()
    return store.scores(name, _with(config, pathway, steps=steps - steps // 2, start=str(start)), "fast")


def _with(config: RunConfig, pathway: PathwayConfig, **training: Any) -> RunConfig:
    """The config on a pathway, with some training settings changed; a second stage is only valid with its start."""
    changed = dataclasses.replace(config.training, **training)
    return dataclasses.replace(config, pathway=pathway, training=changed)


def measure(scores: Scores, config: RunConfig) -> StudentResult:
    """The results of a student, whose scores are of the fast pass, at the config's operating point."""
    temperature, platt = (
        evaluate(scores, calibrate(scores, CalibrationConfig(calibrator)), config.decision)
        for calibrator in ("temperature", "platt")
    )

    def errors(signal: Signal) -> tuple[float, float, float]:
        raw, calibrated, by_platt = (
            next(row.ece for row in of.signals if (row.signal, row.form) == (signal, form))
            for of, form in ((temperature, "raw"), (temperature, "calibrated"), (platt, "calibrated"))
        )
        return raw, calibrated, by_platt

    raw, calibrated = temperature.policy("dynamic", "raw"), temperature.policy("dynamic", "calibrated")
    costs = raw.realised_cost, calibrated.realised_cost, platt.policy("dynamic", "calibrated").realised_cost
    return StudentResult(*costs, calibrated.f1, calibrated.speak_rate, *errors("need"), *errors("accept"))


def study(config: RunConfig, seeds: Sequence[int], store: Store) -> dict[PathwayConfig, np.ndarray]:
    """Trains and evaluates every pathway and every corner of the 2 x 2: [seeds, fields of `StudentResult`] each."""
    return {
        pathway: np.array([measure(scores_of(of_seed(config, seed), pathway, store), config) for seed in seeds])
        for pathway in tqdm.tqdm(dict.fromkeys((*PATHWAYS.values(), *SQUARE.values())), unit="pathway")
    }


def tables(results: dict[PathwayConfig, np.ndarray]) -> tuple[Table, Table, Table]:
    """The outcomes of all pathways and corners, their calibration, and how filter and losses each change the cost."""
    corners = {", ".join(corner): pathway for corner, pathway in SQUARE.items()}

    def sections(fields: slice) -> tuple[Section, ...]:
        return tuple(
            Section(
                title,
                tuple(Row(name, tuple(map(_show, results[pathway].T[fields]))) for name, pathway in named.items()),
            )
            for title, named in {"Pathways": PATHWAYS, "Filter, losses": corners}.items()
        )

    cost = {corner: results[pathway][:, StudentResult._fields.index("cost")] for corner, pathway in SQUARE.items()}
    changes = {
        "filter, plain losses": cost["filtered", "plain"] - cost["all data", "plain"],
        "filter, decision losses": cost["filtered", "decision"] - cost["all data", "decision"],
        "losses, all data": cost["all data", "decision"] - cost["all data", "plain"],
        "losses, filtered data": cost["filtered", "decision"] - cost["filtered", "plain"],
    }
    rows = tuple(Row(name, (_show(values, "+"),)) for name, values in changes.items())
    over_seeds = "Means over seeds with 95 % t intervals."
    of_cost = (
        Column("change of cost", "Cost with the filter minus without, or under decision losses minus plain ones."),
    )
    return (
        Table("What each pathway reaches", "", COLUMNS, sections(slice(len(COLUMNS))), over_seeds),
        Table("Expected calibration error", "", ERRORS, sections(slice(len(COLUMNS), None)), over_seeds),
        Table("What filter and losses change", "", of_cost, (Section("", rows),), "Paired by seed."),
    )


def _show(values: np.ndarray, sign: str = "") -> str:
    return show_interval(mean_over_seeds(values), sign=sign)


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_string("workdir", None, "Folder for the trainings.", required=True)


def main() -> Iterable[Table]:
    """Trains a student per pathway and seed."""
    store = Store(epath.Path(flags.FLAGS.workdir) / "trainings")
    with store.claimed():
        return tables(study(CONFIG, SEEDS, store))
