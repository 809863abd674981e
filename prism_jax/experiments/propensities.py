"""Does weighting by inverse propensities bring p_accept closer to the truth?

    python -m prism_jax.experiments.propensities

On the simulator the log's offers depend on a variable that the prompt hides and that moves acceptance. So a student
trained on logged acceptances as they are learns a biased p_accept, and one trained with SNIPS does not (maths
section 4). For each seed (of streams, initial parameters and order of the data) two students are trained alike but for
the weights, and compared on held-out streams by their mean squared distance to the true p_accept. With the hidden
variable switched off there is no bias, and the difference must vanish.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterable
from typing import Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy import stats

from prism_jax.prompting.template import PromptConfig
from prism_jax.recipes.runs import score_run
from prism_jax.runtime import command
from prism_jax.streams.simulator import SimulatorConfig
from prism_jax.streams.sources import DataConfig
from prism_jax.student import StudentConfig
from prism_jax.training.config import RunConfig, TrainingConfig
from prism_jax.training.loop import plan, train
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.run import Run, open_run
from prism_jax.training.workdir import Workdir

SEEDS = range(6)
CONFIG = RunConfig(
    data=DataConfig(train_streams=19_200, calibration_streams=1, test_streams=600),
    simulator=SimulatorConfig(min_events=3, max_events=3, responses=0),
    prompt=PromptConfig(system="Watch."),
    student=StudentConfig(
        vocab_size=1024,
        hidden_dim=32,
        num_layers=2,
        num_heads=2,
        num_kv_heads=2,
        head_dim=16,
        mlp_dim=96,
        rope_theta=1e3,
        initializer_range=0.15,
        unroll=2,
    ),
    loss=LossConfig(response=0.0, burden=0.0),
    training=TrainingConfig(steps=600, batch=32, learning_rate=3e-3, checkpoint_every=600),
)
"""Short streams and a tiny student, so that what is left after training is the bias and not what was not learned."""


def squared_distance(run: Run) -> float:
    """Mean squared distance of p_accept to the truth on held-out streams, after training on logged acceptances."""
    with tempfile.TemporaryDirectory() as folder:
        params = jax.device_get(train(plan(run), Workdir(folder), progress=False))
    scores = score_run(run, params, ("test",), batch=50)
    assert scores.p_accept_true is not None, "the simulator knows the truth"
    return float(np.mean((scores.p_accept_fast - scores.p_accept_true) ** 2))


def paired_gain(config: RunConfig, hidden_effect: float, seeds: Iterable[int]) -> Float[np.ndarray, " seeds"]:
    """How much closer SNIPS comes to the truth than ignoring the propensities does, for each seed."""

    def gain(seed: int) -> float:
        simulator = dataclasses.replace(config.simulator, seed=seed, hidden_effect=hidden_effect)
        training = dataclasses.replace(config.training, seed=seed)
        run = open_run(dataclasses.replace(config, simulator=simulator, training=training))

        def distance(estimator: Literal["none", "snips"]) -> float:
            loss = dataclasses.replace(config.loss, estimator=estimator)
            return squared_distance(dataclasses.replace(run, config=dataclasses.replace(run.config, loss=loss)))

        return distance("none") - distance("snips")

    return np.array([gain(seed) for seed in seeds])


class Gain(NamedTuple):
    """The mean gain over seeds with its 95 % t interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, gains: Float[np.ndarray, " seeds"]) -> Gain:
        """The interval of paired gains."""
        mean, error = float(gains.mean()), float(stats.sem(gains))
        low, high = stats.t.interval(0.95, len(gains) - 1, mean, error)
        return cls(mean, float(low), float(high))


def main() -> None:
    """Prints the gain with the hidden variable on and off; takes about half an hour of processor time."""
    for name, effect in (("on", 1.0), ("off", 0.0)):
        gains = paired_gain(CONFIG, effect, SEEDS)
        print(f"hidden variable {name}: gains by seed {' '.join(f'{gain:+.4f}' for gain in gains)}")
        print(f"hidden variable {name}: mean {{:+.4f}}, 95 % interval [{{:+.4f}}, {{:+.4f}}]".format(*Gain.of(gains)))


if __name__ == "__main__":
    command.start(main)
