"""How many updates a run makes: the line of the start-up report, and a warning where they are too few to warm up."""

from __future__ import annotations

from absl import logging

from prism_jax.training.config import TrainingConfig

LEAST_WARMUP = 3
"""Fewer warm-up steps than this raise the learning rate by more than a third of its peak at once."""


def updates(training: TrainingConfig, epoch: float) -> str:
    """Describes the updates of a run in one line; its settings have epochs converted into steps (`over`)."""
    return (
        f"{training.steps:,} updates of {training.batch} rows each, {training.steps / epoch:.1f} epochs of "
        f"{epoch:,.1f} updates, {training.warmup_steps if training.warmup else 0:,} of them to warm up"
    )


def warn_of_short_warmup(training: TrainingConfig, epoch: float) -> None:
    """Warns if the schedule has fewer than `LEAST_WARMUP` warm-up steps although it asks for a warm-up."""
    if training.warmup and training.warmup_steps < LEAST_WARMUP:
        logging.warning(
            "training.warmup: found %g of %d updates (%.1f per epoch), which is %d, expected at least %d updates "
            "to warm up; lower packing.max_decisions or training.batch, or raise training.epochs or training.steps",
            training.warmup,
            training.steps,
            epoch,
            training.warmup_steps,
            LEAST_WARMUP,
        )
