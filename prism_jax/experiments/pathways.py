"""What a training pathway is worth: the paper's ablation C on the simulator, and filter and losses as a 2 x 2.

    python -m prism_jax.experiments.pathways

Every pathway sees the same streams, for as many steps, from the same start, and is read by the same fast pass. A second
stage spends the second half of its steps on an rdc_sft run of the first half. The teacher gives the true probabilities,
blurred and biased, so there is something to filter out and something to be misled by. Offers were logged by a policy
that also looks at what the prompt hides; the test streams are a trial that always offers, so costs are observed.

Each seed names streams, teacher, initial parameters and order of the data. Intervals are 95 % t intervals over seeds;
differences are paired by seed.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tqdm
from etils import epath

from prism_jax.evaluation.protocol import calibrate, evaluate
from prism_jax.evaluation.results import Form, Signal
from prism_jax.experiments import propensities
from prism_jax.recipes.runs import score_run, train_run
from prism_jax.runtime import command
from prism_jax.scores import Scores
from prism_jax.streams.simulator import SimulatorConfig
from prism_jax.streams.sources import DataConfig
from prism_jax.training.config import RunConfig, TrainingConfig
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.pathways.table import SECOND_STAGES, PathwayConfig
from prism_jax.training.workdir import Workdir

SEEDS = (0, 1, 2)
CONFIG = RunConfig(
    data=DataConfig(train_streams=8000, calibration_streams=150, test_streams=500),
    simulator=SimulatorConfig(min_events=4, max_events=4, teacher=True, teacher_blur=0.7, teacher_bias=0.3),
    prompt=propensities.CONFIG.prompt,
    student=propensities.CONFIG.student,
    loss=LossConfig(response=0.2, accept=1.2),
    training=TrainingConfig(steps=400, batch=32, learning_rate=4e-3, checkpoint_every=10_000),
)
"""The tiny student of the propensities study, on streams of three decisions."""

PATHWAYS = {
    "schema_sft": PathwayConfig(name="schema_sft"),
    "sft": PathwayConfig(name="sft"),
    "rdc_sft": PathwayConfig(name="rdc_sft"),
    "dft": PathwayConfig(name="dft"),
    "weighted_sft": PathwayConfig(name="weighted_sft"),
}
SQUARE = {
    ("all data", "plain"): PathwayConfig(name="sft"),
    ("all data", "decision"): PathwayConfig(name="joint"),
    ("filtered", "plain"): PathwayConfig(name="rdc_sft", losses="plain"),
    ("filtered", "decision"): PathwayConfig(name="rdc_sft"),
}


class Outcome(NamedTuple):
    """What one student is worth on the test streams.

    Attributes:
      cost: Realised cost of the dynamic gate on raw signals.
      cost_calibrated: The same on calibrated ones.
      f1: Gold F1 of the calibrated gate.
      speak_rate: Share of steps on which the calibrated gate offers.
      ece_need: Expected calibration error of raw p_need.
      ece_accept: The same of raw p_accept.
    """

    cost: float
    cost_calibrated: float
    f1: float
    speak_rate: float
    ece_need: float
    ece_accept: float


def outcome(config: RunConfig, folder: epath.Path) -> Outcome:
    """Trains a student in a folder, with a first stage in it where its pathway is a second one, and evaluates it."""
    steps = config.training.steps
    if config.pathway.name in SECOND_STAGES:
        first = _with(config, PathwayConfig(name="rdc_sft"), steps=steps // 2, start="")
        train_run(first, Workdir(folder / "first"), report=False)
        config = _with(config, config.pathway, steps=steps - steps // 2, start=str(folder / "first"))
    run, params = train_run(config, Workdir(folder / "run"), report=False)
    return _measure(score_run(run, params, batch=50), config)


def _with(config: RunConfig, pathway: PathwayConfig, **training: Any) -> RunConfig:
    """The config on a pathway, with some training settings changed; a second stage needs its start at once."""
    changed = dataclasses.replace(config.training, **training)
    return dataclasses.replace(config, pathway=pathway, training=changed)


def _measure(scores: Scores, config: RunConfig) -> Outcome:
    found = evaluate(scores, calibrate(scores), config.decision)
    gate = {row.form: row for row in found.policies if row.policy == "dynamic"}
    raw, calibrated = gate["raw"], gate["calibrated"]

    def ece(signal: Signal, form: Form = "raw") -> float:
        return next(row.ece for row in found.signals if (row.signal, row.form) == (signal, form))

    return Outcome(
        raw.realised_cost,
        calibrated.realised_cost,
        calibrated.f1,
        calibrated.speak_rate,
        ece("need"),
        ece("accept"),
    )


def study(config: RunConfig, seeds: Sequence[int]) -> dict[PathwayConfig, np.ndarray]:
    """Outcomes of every pathway and of every corner of the 2 x 2: an array [seeds, fields of `Outcome`] for each."""
    found: dict[PathwayConfig, np.ndarray] = {}
    for pathway in tqdm.tqdm(dict.fromkeys((*PATHWAYS.values(), *SQUARE.values())), unit="pathway"):
        outcomes = []
        for seed in seeds:
            with tempfile.TemporaryDirectory() as folder:
                simulator = dataclasses.replace(config.simulator, seed=seed)
                start = "a first stage" if pathway.name in SECOND_STAGES else ""
                of_seed = _with(dataclasses.replace(config, simulator=simulator), pathway, seed=seed, start=start)
                outcomes.append(outcome(of_seed, epath.Path(folder)))
        found[pathway] = np.array(outcomes)
    return found


def table(found: dict[PathwayConfig, np.ndarray]) -> list[str]:
    """The lines of the report: one a pathway, one a corner, and what filter and losses each change in the cost."""
    lines = [f"{'':22}" + "".join(f"{name:>26}" for name in Outcome._fields)]
    named = {**PATHWAYS, **{", ".join(corner): pathway for corner, pathway in SQUARE.items()}}
    for name, pathway in named.items():
        lines.append(f"{name:22}" + "".join(f"{_shown(values):>26}" for values in found[pathway].T))
    cost = {corner: found[pathway][:, Outcome._fields.index("cost")] for corner, pathway in SQUARE.items()}
    effects = {
        "filter, plain losses": cost["filtered", "plain"] - cost["all data", "plain"],
        "filter, decision losses": cost["filtered", "decision"] - cost["all data", "decision"],
        "losses, all data": cost["all data", "decision"] - cost["all data", "plain"],
        "losses, filtered data": cost["filtered", "decision"] - cost["filtered", "plain"],
    }
    lines += [f"change of cost by {name:24} {_shown(values, '+')}" for name, values in effects.items()]
    return lines


def _shown(values: np.ndarray, sign: str = "") -> str:
    mean, low, high = propensities.Gain.of(values)
    return f"{mean:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"


def main() -> None:
    """Prints the tables; takes about eleven minutes on two cores."""
    print("\n".join(table(study(CONFIG, SEEDS))))


if __name__ == "__main__":
    command.start(main)
