"""The tiny students of our studies; the configs of the same names in configs/ take them from here."""

from __future__ import annotations

import dataclasses

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.streams.simulator_config import SimulatorConfig
from prism_jax.streams.sources import DataConfig
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.prompting.template import PromptConfig
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.pathway_config import PathwayConfig
from prism_jax.training.run_config import RunConfig, TrainingConfig

PROMPT = PromptConfig(system="Watch.")
STUDENT = StudentConfig(
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
)


def sources(train: str, calibration: str, test: str) -> DataConfig:
    """One file of streams for each split."""
    return DataConfig(name="jsonl", train_source=train, calibration_source=calibration, test_source=test)


THINKING = RunConfig(
    data=DataConfig(train_streams=6720, calibration_streams=300, test_streams=300),
    simulator=SimulatorConfig(population="switches", min_events=14, max_events=18, responses=0),
    prompt=PROMPT,
    student=StudentConfig(
        hidden_dim=64,
        num_layers=2,
        num_heads=2,
        num_kv_heads=2,
        head_dim=32,
        mlp_dim=192,
        rope_theta=1e3,
        initializer_range=0.12,
        unroll=2,
    ),
    loss=LossConfig(response=10.0, accept=1.2),
    pathway=PathwayConfig(slow=0.5),
    training=TrainingConfig(steps=560, batch=12, learning_rate=4e-3, checkpoint_every=280),
)
"""Uses every training stream once. Without responses, loss.response weights the fields of the slow pass alone."""

THREE_SETTINGS = dataclasses.replace(
    THINKING,
    data=dataclasses.replace(THINKING.data, train_streams=13_440),
    simulator=dataclasses.replace(THINKING.simulator, switches=3),
    writing=dataclasses.replace(THINKING.writing, field_tokens=64),
    training=dataclasses.replace(THINKING.training, steps=1120, checkpoint_every=560),
)
"""The population with three settings: twice the updates, and room for two words per switch."""

DISTILLED = dataclasses.replace(
    THINKING,
    data=sources(*(f"runs/distill_demo/{name}.jsonl" for name in ("curated", "judged_calibration", "judged_held_out"))),
    simulator=SimulatorConfig(population="switches", min_events=8, max_events=10, responses=0),
    pathway=PathwayConfig(name="rdc_sft", filter="off", slow=0.5),
    decision=OperatingPoint(trigger="margin"),
    training=dataclasses.replace(THINKING.training, steps=500, checkpoint_every=250),
)
"""The student that gains by thinking, on short streams: many judges' questions are asked about each step. As in the
paper, the margin triggers the slow pass."""
