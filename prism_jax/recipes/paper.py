"""The paper's training schedule, which the configs of Qwen3 share."""

from __future__ import annotations

from typing import Any

from prism_jax.streams.sources import DataConfig
from prism_jax.student import StudentConfig
from prism_jax.training.config import MeshConfig, PackingConfig, RunConfig, TrainingConfig


def paper_run(student: StudentConfig, *, mesh: MeshConfig | None = None, **training: Any) -> RunConfig:
    """A run on ProactiveBench with the paper's schedule and a context of 4096 tokens.

    The schedule is AdamW with a peak learning rate of 1e-5, a tenth of the steps to warm up, a cosine to 0, and 3
    epochs. The paper states neither weight decay nor b2; here they are 0.01 and 0.999.

    Args:
      student: Size and dtypes of the student.
      mesh: Layout of the devices; one device by default.
      **training: Fields of `TrainingConfig` that the schedule leaves open, such as start, batch and master.
    """
    schedule: dict[str, Any] = {"learning_rate": 1e-5, "warmup": 0.1, "final_rate": 0.0, "steps": 0, "epochs": 3.0}
    return RunConfig(
        data=DataConfig(name="proactivebench", source=""),
        packing=PackingConfig(context=4096),
        student=student,
        mesh=mesh or MeshConfig(),
        training=TrainingConfig(**schedule, weight_decay=0.01, b2=0.999, **training),
    )
