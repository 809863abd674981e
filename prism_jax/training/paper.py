"""The paper's recipe, which the configs of Qwen3 share."""

from __future__ import annotations

from typing import Any

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.streams.sources import DataConfig
from prism_jax.student import StudentConfig
from prism_jax.training.pathways.table import PathwayConfig
from prism_jax.training.run_config import MeshConfig, PackingConfig, RunConfig, TrainingConfig

SOURCE = "data/teacher_labelled.jsonl"
"""Where the recipe looks for its streams; they are not part of the project (docs/training.md says how to make them)."""


def paper_run(student: StudentConfig, *, mesh: MeshConfig | None = None, **training: Any) -> RunConfig:
    """A run of `rdc_sft` on teacher-labelled streams, with the paper's curation, schedule and context.

    Curation keeps 1,800 decisions. Each is a row of at most 4096 tokens, so that 3 epochs are 5,400 rows: 1,350 updates
    of 4 rows. The schedule is AdamW with a peak learning rate of 1e-5, a tenth of the steps to warm up, and a cosine to
    0. The paper states neither weight decay nor b2; here they are 0.01 and 0.999. `training` sets the fields of
    `TrainingConfig` that the schedule leaves open, such as start, batch and master; without a mesh there is one device.
    """
    schedule: dict[str, Any] = {"learning_rate": 1e-5, "warmup": 0.1, "final_rate": 0.0, "steps": 0, "epochs": 3.0}
    return RunConfig(
        data=DataConfig(name="jsonl", source=SOURCE),
        packing=PackingConfig(context=4096, max_decisions=1),
        student=student,
        mesh=mesh or MeshConfig(),
        pathway=PathwayConfig(name="rdc_sft", count=1800),
        decision=OperatingPoint(trigger="margin"),
        training=TrainingConfig(**schedule, weight_decay=0.01, b2=0.999, **training),
    )
