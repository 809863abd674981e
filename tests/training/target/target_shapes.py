"""Steps of a small student in bfloat16, with sizes that cuDNN's attention accepts, on any mesh."""

import dataclasses

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.prompting.packing import Sizes, empty_row
from prism_jax.slots import Slots
from prism_jax.student import Qwen3, StudentConfig
from prism_jax.student.sharding import make_mesh
from prism_jax.training.config import TrainingConfig
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.memory.estimate import StepShape

STUDENT = StudentConfig(
    vocab_size=1024,
    hidden_dim=128,
    num_layers=3,
    num_heads=8,
    num_kv_heads=4,
    head_dim=32,
    mlp_dim=256,
    tied=False,
    dtype="bfloat16",
    param_dtype="bfloat16",
)


def step_on(data=1, fsdp=1, tensor=1, *, responses=16, student=None, **training):
    """The shape of a step on a mesh of the devices that are present; each batch axis has two rows."""
    size = Sizes(192, 64, 32, 4, 4, responses)
    slots = Slots(Qwen3(dataclasses.replace(STUDENT, **(student or {}))), 1, 2, size.window)
    config = TrainingConfig(**{"batch": 2 * data * fsdp, "master": "float32", **training})
    mesh = make_mesh(data, fsdp, tensor)
    return StepShape(slots, size, empty_row(size), config, LossConfig(), OperatingPoint(), mesh)
