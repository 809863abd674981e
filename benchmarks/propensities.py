"""Does weighting by inverse propensities bring p_accept closer to the truth? Paired over seeds, on the simulator."""

import dataclasses
import tempfile

import jax
import numpy as np
from etils import epath
from scipy import stats

from prism_jax.policy.fast import score_streams
from prism_jax.prompting.template import PromptConfig
from prism_jax.streams.simulator import SimulatorConfig
from prism_jax.student import StudentConfig
from prism_jax.training.config import DataConfig, LossConfig, RunConfig, TrainingConfig
from prism_jax.training.loop import plan, train
from prism_jax.training.run import open_run

SEEDS = range(5)
CONFIG = RunConfig(
    data=DataConfig(train_streams=8000, calibration_streams=1, test_streams=600),
    simulator=SimulatorConfig(min_events=3, max_events=3, responses=0),
    prompt=PromptConfig(system="Watch."),
    student=StudentConfig(
        vocabulary_size=1024,
        width=32,
        layers=2,
        heads=2,
        kv_heads=2,
        head_dim=16,
        ffn=96,
        rope_theta=1e3,
        initializer_range=0.15,
        unroll=2,
    ),
    loss=LossConfig(response=0.0, burden=0.0),
    training=TrainingConfig(steps=250, batch=32, learning_rate=5e-3, checkpoint_every=250),
)


def squared_distance(folder, seed, estimator, effect):
    """Mean squared distance of p_accept to the truth on held-out streams, after training on logged acceptances."""
    config = dataclasses.replace(
        CONFIG,
        simulator=dataclasses.replace(CONFIG.simulator, seed=seed, hidden_effect=effect),
        loss=dataclasses.replace(CONFIG.loss, estimator=estimator),
        training=dataclasses.replace(CONFIG.training, seed=seed),
    )
    run = open_run(config)
    workdir = epath.Path(folder) / f"{seed}-{estimator}-{effect}"
    workdir.mkdir(parents=True)
    params = jax.device_get(train(plan(run, workdir), progress=False))
    rows = score_streams(run.model, params, run.template, run.splits.test, split="test", fold=0, context=2048, batch=50)
    return np.mean([(row["p_accept_fast"] - row["p_accept_true"]) ** 2 for row in rows])


def paired_gain(folder, effect):
    """How much closer SNIPS comes to the truth than ignoring propensities, per seed."""
    return np.array(
        [
            squared_distance(folder, seed, "none", effect) - squared_distance(folder, seed, "snips", effect)
            for seed in SEEDS
        ]
    )


def interval(gain):
    """The 95 % t interval of the mean over seeds."""
    return stats.t.interval(0.95, len(gain) - 1, gain.mean(), gain.std(ddof=1) / np.sqrt(len(gain)))


def main() -> None:
    """Prints the paired gain of SNIPS with the hidden variable on and off; takes ten minutes on two cores."""
    with tempfile.TemporaryDirectory() as folder:
        for name, effect in (("on", 1.0), ("off", 0.0)):
            gain = paired_gain(folder, effect)
            low, high = interval(gain)
            print(f"hidden variable {name}: gain of SNIPS {gain.mean():+.4f}, 95 % interval [{low:+.4f}, {high:+.4f}]")


if __name__ == "__main__":
    main()
