"""Does need given acceptance make the gate optimal where need and acceptance depend on each other?

    python -m prism_jax experiments need_target

The gate needs Pr(need and accept) = p_accept * Pr(need | accept). With the unconditional need it assumes that the two
are independent (docs/maths.md, section 2). In the simulator they need not be: at dependence 1 the less likely one
implies the other, at -1 they coincide as rarely as they can. For each seed, which sets the streams, the initial
parameters and the order of the data, two students that differ only in `loss.need_target` are trained and calibrated.
Their gates are compared by the regret of their decisions: expected cost under the simulator's truth beyond that of the
best decisions. The first column has the regret of a gate that knows the true p_accept and the true unconditional need.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterable, Mapping
from typing import NamedTuple, get_args

import jax
import numpy as np
from jaxtyping import Float

from prism_jax.decision import gate
from prism_jax.decision.uncertainty import mean_interval
from prism_jax.evaluation import protocol, splits
from prism_jax.experiments import students
from prism_jax.experiments.intervals import show_interval
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.runs.pipeline import score_run
from prism_jax.runs.store import of_seed
from prism_jax.scores import Scores
from prism_jax.streams.simulator import SimulatorConfig
from prism_jax.streams.sources import DataConfig
from prism_jax.student.scoring.passes import Passes
from prism_jax.training.loop import plan, train
from prism_jax.training.loss_config import LossConfig, NeedTarget
from prism_jax.training.run import Run, open_run
from prism_jax.training.run_config import RunConfig, TrainingConfig
from prism_jax.training.workdir import Workdir

SEEDS = range(3)
DEPENDENCES = (-1.0, 1.0)
RATIOS = (2.0, 3.0, 4.0)
"""Cost ratios C_FN / C_FA. At 3, the wrong assumption costs at both dependences; at 2 and 4, at one of them each."""
CONFIG = RunConfig(
    data=DataConfig(train_streams=19_200, calibration_streams=1000, test_streams=2000),
    simulator=SimulatorConfig(min_events=3, max_events=3, responses=0, hidden_effect=0.0),
    prompt=students.PROMPT,
    student=students.STUDENT,
    loss=LossConfig(response=0.0, burden=0.0),
    training=TrainingConfig(steps=600, batch=32, learning_rate=3e-3, checkpoint_every=600),
)
"""Short streams and a tiny student, whose remaining errors are small beside what the wrong assumption costs."""


class Regrets(NamedTuple):
    """Mean regrets of every test stream, at each cost ratio."""

    # of the gate on the true probabilities, with need taken for unconditional
    exact: Float[np.ndarray, "ratios streams"]
    marginal: Float[np.ndarray, "ratios streams"]  # of the gate of the student that learned the unconditional need
    given_accept: Float[np.ndarray, "ratios streams"]  # of the gate of the student that learned need given acceptance


def regrets(config: RunConfig) -> Regrets:
    """Trains both students of one population and measures the regret of their gates on its test streams."""
    by_target = {}
    for target in get_args(NeedTarget):
        loss = dataclasses.replace(config.loss, need_target=target)
        scores = trained_scores(open_run(dataclasses.replace(config, loss=loss)))
        fits = protocol.calibrate(scores)
        steps = splits.evaluated_rows(scores).steps()
        signals = (fits.calibrated(signal, "fast", steps) for signal in ("need", "accept"))
        by_target[target] = _regret(steps, *signals)
    return Regrets(exact=_regret(steps, *_true(steps)[:2]), **by_target)


def trained_scores(run: Run, splits: tuple[str, ...] = ("calibration", "test")) -> Scores:
    """The scores of a student after training, of which nothing else is kept."""
    with tempfile.TemporaryDirectory() as folder:
        params = jax.device_get(train(plan(dataclasses.replace(run, workdir=Workdir(folder))), progress=False))
    return score_run(run, params, splits, batch=50, passes=Passes())


def _true(steps: Scores) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The true probabilities of need, of acceptance and of both."""
    need, accept, both = steps.p_need_true, steps.p_accept_true, steps.p_both_true
    assert need is not None and accept is not None and both is not None, "the simulator knows the truth"
    return need, accept, both


def _regret(steps: Scores, need: np.ndarray, accept: np.ndarray) -> Float[np.ndarray, "ratios streams"]:
    """The mean regret of each stream at each cost ratio, of the gate on these signals."""
    _, stream = np.unique(steps.stream.astype(str), return_inverse=True)
    costs = []
    for ratio in RATIOS:
        speak, silent = gate.expected_costs(*_true(steps)[1:], 1.0, ratio)
        offer = np.asarray(gate.decide(need, accept, 1.0, ratio))
        costs.append(np.where(offer, speak, silent) - np.minimum(speak, silent))
    return np.stack([np.bincount(stream, row) / np.bincount(stream) for row in costs])


def of_seeds(config: RunConfig, dependence: float, seeds: Iterable[int]) -> tuple[Regrets, ...]:
    """The regrets of every seed at one dependence."""
    dependent = dataclasses.replace(config, simulator=dataclasses.replace(config.simulator, dependence=dependence))
    return tuple(regrets(of_seed(dependent, seed)) for seed in seeds)


def table(runs_by_dependence: Mapping[float, tuple[Regrets, ...]]) -> Table:
    """Mean regrets over seeds and streams, and the paired differences, by dependence and cost ratio."""
    columns = (
        Column("exact, unconditional", "Regret of the gate on the true p_accept and the true unconditional need."),
        Column("marginal", "Regret of the student that learned the unconditional need."),
        Column("given_accept", "Regret of the student that learned need given acceptance."),
        Column("marginal − given_accept", "Mean difference, with its interval."),
        Column("by seed", "The difference of every seed."),
    )
    sections = [
        Section(f"Dependence {dependence:+g}", tuple(_row(runs, i, ratio) for i, ratio in enumerate(RATIOS)))
        for dependence, runs in runs_by_dependence.items()
    ]
    note = (
        "Regret: expected cost per step beyond the best decisions, C_FA = 1. 95 % intervals over the "
        "test streams of all seeds; they hold for these trainings."
    )
    return Table("What need given acceptance gains", "C_FN / C_FA", columns, tuple(sections), note)


def _row(runs: tuple[Regrets, ...], i: int, ratio: float) -> Row:
    """One cost ratio."""
    exact, marginal, given_accept = (
        np.concatenate([getattr(run, name)[i] for run in runs]) for name in Regrets._fields
    )
    difference = mean_interval(marginal - given_accept, np.arange(len(marginal)), resamples=2000)
    seeds = ", ".join(f"{(run.marginal[i] - run.given_accept[i]).mean():+.4f}" for run in runs)
    means = (f"{values.mean():.4f}" for values in (exact, marginal, given_accept))
    return Row(f"{ratio:g}", (*means, show_interval(difference, digits=4, sign="+"), seeds))


def define_flags() -> None:
    """There are none."""


def main() -> Iterable[Table]:
    """Trains students of both meanings at every dependence."""
    return [table({dependence: of_seeds(CONFIG, dependence, SEEDS) for dependence in DEPENDENCES})]
