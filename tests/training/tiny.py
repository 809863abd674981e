"""The config of a minimal run: a few short simulated streams and a student with a few thousand parameters."""

import dataclasses

from prism_jax.streams.simulator import SimulatorConfig
from prism_jax.streams.sources import DataConfig
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.prompting.template import PromptConfig
from prism_jax.training.run_config import RunConfig, TrainingConfig

CONFIG = RunConfig(
    data=DataConfig(train_streams=12, calibration_streams=12, test_streams=12),
    simulator=SimulatorConfig(min_events=4, max_events=5),
    prompt=PromptConfig(system="Watch.", vocab_size=400),
    student=StudentConfig(hidden_dim=16, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=8, mlp_dim=32),
    training=TrainingConfig(steps=8, batch=4, checkpoint_every=3, learning_rate=1e-2),
)


def with_training(config=CONFIG, **changes):
    """Returns the config with some training settings changed."""
    return dataclasses.replace(config, training=dataclasses.replace(config.training, **changes))


class StoppedError(Exception):
    """Ends a run where a test wants it to end."""


def stop_after(step):
    """What a run calls after every step, and which ends it after this one."""

    def stop(done):
        if done == step:
            raise StoppedError

    return stop
