"""What a training step holds in memory at once, estimated from shapes alone: for devices that are not here.

Estimated is the largest of three moments of the step. Dimensions, of one device: t tokens, D width, Q and K all query
and all key heads, F inner width, V vocabulary, c supervised tokens whose logits exist at once.

    loss        what the forward pass keeps, the head's gradient in float32, twice while it grows (2 V D), and the
                logits of a chunk and their gradient in float32 (2 c V); no head's gradient where no response is
                trained on
    backward    what the forward pass keeps, all gradients, and one layer at work, 4 t (D + Q + K + F)
    embedding   all gradients, and the embedding's in float32 (V D)

Of every layer the forward pass keeps t D with remat `full`, t (3 D + Q + 2 K + 2 F) with `dots`, and with `none` t (7 D
+ 7 Q + 7 K + 5 F) and the scores, which is what XLA was seen to keep. Attention by `xla` adds its scores in float32,
twice, to a layer at work; by `cudnn` only the mask. Layers that fsdp splits are gathered whole: the one at work, its
gradient, and the next one. The optimizer's update is fused with the cast of gradients to float32 and adds nothing.
`benchmarks/memory.py` holds all this against XLA's compiler for NVIDIA GPUs.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.prompting.packing import Packed, Sizes
from prism_jax.slots import Slots
from prism_jax.student.attention import split_evenly
from prism_jax.training.config import TrainingConfig
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.optimization.frozen import Partition
from prism_jax.training.optimization.step import abstract_state

AttentionPath = Literal["xla", "cudnn"]


@dataclasses.dataclass(frozen=True)
class StepShape:
    """All that a step's memory depends on.

    Attributes:
      slots: The student and how its decisions are read.
      size: Of packed rows, the largest that a step may meet.
      row: A row of these sizes.
      training: Batch and optimizer.
      loss: Of which the chunk of logits matters, and whether responses are trained on.
      point: Costs of the burden, for compiling.
      mesh: Devices.
    """

    slots: Slots
    size: Sizes
    row: Packed
    training: TrainingConfig
    loss: LossConfig
    point: OperatingPoint
    mesh: Mesh


class Working(NamedTuple):
    """Estimated bytes of one device that live within a step only.

    Attributes:
      gradients: Of the trained parameters; with microbatches also their sum.
      kept: What the forward pass keeps for the backward pass.
      loss: Beside `kept`, while the head's cross-entropy is computed.
      layer: Beside `kept` and `gradients`, while one layer's backward pass is computed.
      embedding: Beside `gradients`, while the embedding's is computed.
    """

    gradients: int
    kept: int
    loss: int
    layer: int
    embedding: int

    @property
    def peak(self) -> int:
        """The largest of the three moments."""
        return max(self.kept + self.loss, self.kept + self.gradients + self.layer, self.gradients + self.embedding)


def estimate(shape: StepShape, attention: AttentionPath) -> Working:
    """Bytes within a step, as the module says."""
    student, training, size = shape.slots.model.config, shape.training, shape.size
    axes = shape.mesh.shape
    split = axes["tensor"]
    rows = training.batch // (axes["data"] * axes["fsdp"] * training.accumulation)
    tokens = rows * (size.trunk + size.branches)
    heads, keys = student.num_heads * student.head_dim // split, student.num_kv_heads * student.head_dim // split
    inner, item = student.mlp_dim // split, jnp.dtype(student.dtype).itemsize
    at_work = 4 * (student.hidden_dim + heads + keys + inner)
    kept = {
        "full": student.hidden_dim,
        "dots": 3 * student.hidden_dim + heads + 2 * keys + 2 * inner,
        "none": 7 * (student.hidden_dim + heads + keys) + 5 * inner,
    }[student.remat]
    scores = rows * _scores(size, attention, -(-student.num_heads // split))
    head = student.vocab_size * student.hidden_dim * 4 // split
    chunk = min(shape.loss.response_chunk, rows * size.responses)
    by_head = 2 * head if chunk and shape.loss.response else 0
    return Working(
        gradients=_gradients(shape),
        kept=student.num_layers * (tokens * kept * item + (scores if student.remat == "none" else 0)),
        loss=by_head + 2 * chunk * student.vocab_size * 4 // split,
        layer=tokens * at_work * item + scores + _gathered(shape),
        embedding=head,
    )


def on_device(tree: Any) -> int:
    """Bytes that one device holds of leaves with shardings."""
    return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _gradients(shape: StepShape) -> int:
    """Bytes of the gradients, and at a depth above 1 of their sum in float32."""
    params = abstract_state(shape.slots.model, shape.training, shape.mesh).params
    partition = Partition(params, shape.training.frozen)
    one = round(on_device(params) * partition.trained / (partition.trained + partition.frozen))
    item = jnp.dtype(shape.slots.model.config.param_dtype).itemsize
    return one if shape.training.accumulation == 1 else one + one * 4 // item


def _scores(size: Sizes, attention: AttentionPath, heads: int) -> int:
    """Bytes of what is quadratic in attention, of one row."""
    if attention == "cudnn":
        return 2 * size.branches * (size.trunk + size.branches)
    trunk = sum((stop - start) * stop for start, stop in split_evenly(size.trunk, 1))
    return heads * 2 * 4 * (trunk + size.branches * (size.trunk + 2 * size.window))


def _gathered(shape: StepShape) -> int:
    """Bytes of layers that fsdp gathers."""
    if shape.mesh.shape["fsdp"] == 1:
        return 0
    model = shape.slots.model
    stack = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(model.abstract_params()["layers"]))
    return 3 * stack // model.config.num_layers // shape.mesh.shape["tensor"]
