"""The quickstart: a tiny Qwen3-shaped student with random initial weights, on the built-in simulator.

    python -m prism_jax train --config=configs/quickstart.py --workdir=runs/quickstart

Time: one to five minutes on two CPU cores; of this, 15 seconds or more pass before the first step and after the last.
Result: on test streams the calibrated dynamic gate closes over 80 % of the expected-cost gap between the better
constant policy and the Bayes oracle, and both calibrated signals are on average within 0.06 of the true probabilities.
"""

from prism_jax.runtime.dataclass_config import to_config_dict
from prism_jax.streams.sources import DataConfig
from prism_jax.student.model_config import StudentConfig
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.run_config import RunConfig, TrainingConfig


def get_config():
    """Uses every training stream once; responses have a small weight, because only decisions are measured."""
    return to_config_dict(
        RunConfig(
            data=DataConfig(train_streams=13_200, calibration_streams=500, test_streams=500),
            student=StudentConfig(
                hidden_dim=64,
                num_layers=3,
                num_heads=2,
                num_kv_heads=2,
                head_dim=32,
                mlp_dim=192,
                rope_theta=1e3,
                initializer_range=0.12,
                unroll=3,
            ),
            loss=LossConfig(response=0.2, accept=1.2),
            training=TrainingConfig(steps=1100, batch=12, learning_rate=4e-3, checkpoint_every=550),
        )
    )
