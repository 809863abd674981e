"""The recipe of a tiny student that a teacher and judges taught, which its config, the demo and its study share."""

from __future__ import annotations

import dataclasses

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.recipes.thinking import THINKING
from prism_jax.streams.simulator_config import SimulatorConfig
from prism_jax.streams.sources import DataConfig
from prism_jax.training.config import RunConfig
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.pathways.table import PathwayConfig


def sources(train: str, calibration: str, test: str) -> DataConfig:
    """One file of streams for each split."""
    return DataConfig(name="jsonl", train_source=train, calibration_source=calibration, test_source=test)


DISTILLED: RunConfig = dataclasses.replace(
    THINKING,
    data=sources(*(f"runs/distill_demo/{name}.jsonl" for name in ("curated", "judged_calibration", "judged_held_out"))),
    simulator=SimulatorConfig(population="switches", min_events=8, max_events=10, responses=0),
    loss=LossConfig(response=10.0, accept=1.2),
    pathway=PathwayConfig(name="rdc_sft", filter="off", slow=0.5),
    decision=OperatingPoint(trigger="margin"),
    training=dataclasses.replace(THINKING.training, steps=500, checkpoint_every=250),
)
"""The student that gains by thinking, on short streams: many judges' questions are asked about each step. As in the
paper, the margin triggers the slow pass."""
