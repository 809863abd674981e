"""Recipes of the paper's tables, shrunk so that all trainings together take seconds."""

import dataclasses

from prism_jax.experiments.paper.trainings import Recipes
from prism_jax.student.model_config import StudentConfig

STUDENT = StudentConfig(hidden_dim=16, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=8, mlp_dim=32)


def shrunk(config, steps=4, streams=40):
    """The recipe with a smaller student, on fewer streams, for a few steps."""
    return dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, train_streams=48, calibration_streams=streams, test_streams=streams),
        student=STUDENT,
        writing=dataclasses.replace(config.writing, field_tokens=2),
        training=dataclasses.replace(config.training, steps=steps, batch=4, checkpoint_every=1),
    )


FULL = Recipes()
RECIPES = dataclasses.replace(
    FULL,
    student=dataclasses.replace(
        shrunk(FULL.student, streams=12),
        simulator=dataclasses.replace(FULL.student.simulator, min_events=5, max_events=6),
    ),
    pathways=shrunk(FULL.pathways),
    transfer=shrunk(FULL.transfer),
    timed_streams=2,
)
