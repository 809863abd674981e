"""Qwen3-8B, all parameters, on one node of 8 A100: parameters and optimizer state split over the cards (FSDP).

    python -m prism_jax.train --config=configs/qwen3_8b_a100x8.py --plan --device_memory=80GB
    launch/node.sh --config=configs/qwen3_8b_a100x8.py --config.training.start=DIR --workdir=runs/qwen3_8b_x8

What `configs/qwen3_8b_a100.py` gives up for want of memory is back: Adam's moments are whole, in float32, and so are
the masters. The batch is 8 rows, the fewest that 8 cards share; for several nodes set data to their number and batch to
8 times it (`launch/slurm.sh`).

Time: never run on A100s so far.
Result: unknown until then; by the plan each card holds 19.4 GiB.
"""

from prism_jax.runtime.config import to_config_dict
from prism_jax.streams.sources import DataConfig
from prism_jax.student.presets import qwen3_8b
from prism_jax.training.config import MeshConfig, PackingConfig, RunConfig, TrainingConfig


def get_config():
    """The paper's schedule with a batch that 8 cards share."""
    return to_config_dict(
        RunConfig(
            data=DataConfig(name="proactivebench", source=""),
            packing=PackingConfig(context=4096),
            student=qwen3_8b(dtype="bfloat16", param_dtype="bfloat16", remat="full"),
            mesh=MeshConfig(fsdp=8),
            training=TrainingConfig(
                start="weights/Qwen3-8B",
                steps=0,
                epochs=3.0,
                batch=8,
                learning_rate=1e-5,
                warmup=0.1,
                final_rate=0.0,
                weight_decay=0.01,
                b2=0.999,
                master="float32",
            ),
        )
    )
