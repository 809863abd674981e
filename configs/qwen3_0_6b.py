"""Qwen3-0.6B, all parameters, on one GPU of 24 GB: the paper's recipe at a size that most can run.

    python -m prism_jax.train --config=configs/qwen3_0_6b.py --plan --device_memory=24GB
    python -m prism_jax.train --config=configs/qwen3_0_6b.py --config.training.start=DIR --workdir=runs/qwen3_0_6b

DIR is the model's directory as Hugging Face has it (Qwen/Qwen3-0.6B), 1.5 GB. Schedule and batch are those of
`configs/qwen3_8b_a100.py`; masters and both moments are whole, in float32.

Time: never run on such a card so far.
Result: unknown until then; by the plan it takes 11.0 GiB.
"""

from prism_jax.runtime.config import to_config_dict
from prism_jax.streams.sources import DataConfig
from prism_jax.student.presets import qwen3_0_6b
from prism_jax.training.config import PackingConfig, RunConfig, TrainingConfig


def get_config():
    """Small enough for whole moments beside float32 masters."""
    return to_config_dict(
        RunConfig(
            data=DataConfig(name="proactivebench", source=""),
            packing=PackingConfig(context=4096),
            student=qwen3_0_6b(dtype="bfloat16", param_dtype="bfloat16", remat="full"),
            training=TrainingConfig(
                start="weights/Qwen3-0.6B",
                steps=0,
                epochs=3.0,
                batch=4,
                learning_rate=1e-5,
                warmup=0.1,
                final_rate=0.0,
                weight_decay=0.01,
                b2=0.999,
                master="float32",
            ),
        )
    )
