"""An estimate, from shapes alone, of the peak memory within a training step, for devices that are not present.

The estimate is the largest of three moments of the step. Sizes on one device: t tokens, width D, Q and K for all query
heads and all key heads, inner width F, vocabulary V, and c supervised tokens whose logits exist at once.

    loss        the activations kept by the forward pass, the gradient of the head in float32, twice during its
                accumulation (2 V D), and the logits of a chunk with their gradient in float32 (2 c V); without the
                gradient of the head if no response is trained on
    backward    the activations kept by the forward pass, all gradients, and the temporaries of the current layer,
                4 t (D + Q + K + F)
    embedding   all gradients, and that of the embedding in float32 (V D)

Per layer, the forward pass keeps t D with remat `full` and t (3 D + Q + 2 K + 2 F) with `dots`. With `none` it keeps
t (7 D + 7 Q + 7 K + 5 F) and the attention scores; these numbers were observed with XLA. `xla` attention adds its
scores in float32, twice, to the temporaries of the current layer; `cudnn` attention adds only the mask. Layers that
fsdp shards are gathered: the current layer, its gradient, and the next layer. The update of the optimizer is fused with
the cast of gradients to float32 and needs no further memory. `benchmarks/memory.py` compares this estimate with XLA's
compiler for NVIDIA GPUs.
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
    """Everything on which the memory of a step depends.

    Attributes:
      slots: The student and the tokens of its two answers.
      size: Sizes of the largest packed rows that a step may receive.
      row: A row of these sizes.
      training: Training section of the config, with batch and optimizer.
      loss: Loss section of the config; only the chunk of logits and the weight of the response matter.
      point: Operating point whose costs weight the burden, for compiling.
      mesh: Mesh of devices.
    """

    slots: Slots
    size: Sizes
    row: Packed
    training: TrainingConfig
    loss: LossConfig
    point: OperatingPoint
    mesh: Mesh


class Working(NamedTuple):
    """Estimated bytes of one device that are allocated only within a step.

    Attributes:
      gradients: Gradients of the trained parameters; with microbatches also their sum.
      kept: Activations that the forward pass keeps for the backward pass.
      loss: Temporaries of the cross-entropy of the head, in addition to `kept`.
      layer: Temporaries of the backward pass of one layer, in addition to `kept` and `gradients`.
      embedding: Temporaries of the gradient of the embedding, in addition to `gradients`.
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
    """Estimates the bytes needed within a step, as the docstring of the module describes."""
    student, training, size = shape.slots.model.config, shape.training, shape.size
    axes = shape.mesh.shape
    split = axes["tensor"]
    rows = training.batch // (axes["data"] * axes["fsdp"] * training.accumulation)
    tokens = rows * (size.trunk + size.branches)
    heads, keys = student.num_heads * student.head_dim // split, student.num_kv_heads * student.head_dim // split
    inner, item = student.mlp_dim // split, jnp.dtype(student.dtype).itemsize
    temporaries = 4 * (student.hidden_dim + heads + keys + inner)
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
        layer=tokens * temporaries * item + scores + _gathered(shape),
        embedding=head,
    )


def on_device(tree: Any) -> int:
    """Bytes that one device holds of a tree of leaves with shardings."""
    return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _gradients(shape: StepShape) -> int:
    """Bytes of the gradients and, with several microbatches, of their sum in float32."""
    params = abstract_state(shape.slots.model, shape.training, shape.mesh).params
    partition = Partition(params, shape.training.frozen)
    one = round(on_device(params) * partition.trained / (partition.trained + partition.frozen))
    item = jnp.dtype(shape.slots.model.config.param_dtype).itemsize
    return one if shape.training.accumulation == 1 else one + one * 4 // item


def _scores(size: Sizes, attention: AttentionPath, heads: int) -> int:
    """Bytes per row of the part of attention that is quadratic in the number of tokens."""
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
