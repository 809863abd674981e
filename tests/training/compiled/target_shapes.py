"""Steps of a small student in bfloat16, with sizes that cuDNN's attention accepts, on any mesh."""

import dataclasses

import numpy as np

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.prompting.packing import Sizes, empty_row
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.scoring.slots import Slots
from prism_jax.student.sharding import make_mesh
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.optimization.objective import Objective
from prism_jax.training.optimization.step import StepShape
from prism_jax.training.pathway_config import PathwayConfig
from prism_jax.training.run_config import TrainingConfig

STUDENT = StudentConfig(
    vocab_size=1024,
    hidden_dim=128,
    num_layers=3,
    num_heads=16,
    num_kv_heads=8,
    head_dim=16,
    mlp_dim=256,
    tied=False,
    dtype="bfloat16",
    param_dtype="bfloat16",
)


def step_on(data=1, fsdp=1, tensor=1, *, student=None, loss=None, packed=False, **training):
    """The shape of a step on a mesh of the devices that are present; each batch axis has two rows.

    Rows of several streams are `packed`.
    """
    size = Sizes(192, 64, 32, 4, 4, 16)
    slots = Slots(Qwen3(dataclasses.replace(STUDENT, **(student or {}))), 1, 2, size.window)
    config = TrainingConfig(**{"batch": 2 * data * fsdp, "master": "float32", **training})
    row = empty_row(size)
    if packed:
        row = row._replace(begin=np.zeros_like(row.trunk))
    objective = Objective(slots, loss or LossConfig(), OperatingPoint())
    return StepShape(objective, config, row, make_mesh(data, fsdp, tensor))


# Settings of student and training that decide the dtypes of the state.
DTYPES = {
    "half": ({}, {}),
    "split": ({}, {"master": "split", "first_moment": "bfloat16", "second_moment": "factored"}),
    "mixed": ({"param_dtype": "float32"}, {"master": "none"}),
    "single": ({"dtype": "float32", "param_dtype": "float32"}, {"master": "none"}),
}
LOWEST = ("embedding", "layers/0/.*")

# Mesh, pathway, dtypes, remat, microbatches, whether the lowest block is frozen, rows are packed, and slow branches are
# priced: every pair of two settings occurs in some row (test_target_study.py checks this).
MATRIX = (
    ((8, 1, 1), "joint", "split", "full", 2, False, True, False),
    ((2, 4, 1), "dft", "mixed", "full", 1, True, False, True),
    ((2, 2, 2), "joint", "single", "offload", 2, True, False, True),
    ((2, 2, 2), "schema_sft", "half", "flash", 1, False, False, False),
    ((2, 4, 1), "schema_sft", "single", "flash", 2, False, True, True),
    ((8, 1, 1), "dft", "half", "offload", 1, True, True, False),
    ((1, 1, 8), "sft", "mixed", "flash", 2, False, True, False),
    ((1, 4, 2), "sft", "split", "flash", 1, True, True, True),
    ((8, 1, 1), "sft", "single", "full", 1, True, False, False),
    ((2, 4, 1), "sft", "half", "offload", 2, False, True, True),
    ((1, 1, 8), "schema_sft", "split", "offload", 1, True, False, True),
    ((1, 1, 8), "joint", "half", "full", 1, True, True, False),
    ((2, 2, 2), "sft", "mixed", "full", 1, True, True, False),
    ((1, 1, 8), "dft", "single", "flash", 2, False, True, False),
    ((1, 4, 2), "joint", "mixed", "offload", 2, False, False, False),
    ((8, 1, 1), "schema_sft", "mixed", "flash", 1, False, False, True),
    ((1, 8, 1), "joint", "half", "flash", 1, True, False, True),
    ((1, 4, 2), "schema_sft", "half", "full", 1, False, False, True),
    ((1, 8, 1), "dft", "single", "full", 2, False, True, False),
    ((1, 8, 1), "sft", "split", "offload", 2, False, True, False),
    ((1, 4, 2), "dft", "single", "flash", 2, False, True, True),
    ((1, 8, 1), "schema_sft", "mixed", "full", 2, True, True, True),
    ((2, 2, 2), "dft", "split", "flash", 2, True, True, True),
    ((2, 4, 1), "joint", "split", "full", 2, True, False, False),
)


def cell(mesh, pathway, dtypes, remat, accumulation, frozen, packed, slow):
    """The step of a row of the matrix."""
    student, training = DTYPES[dtypes]
    return step_on(
        *mesh,
        student={**student, "remat": remat},
        loss=PathwayConfig(name=pathway, slow=float(slow)).objective(LossConfig()),
        packed=packed,
        accumulation=accumulation,
        frozen=LOWEST if frozen else (),
        **training,
    )
