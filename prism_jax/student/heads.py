"""Cross-entropy over supervised tokens, one chunk of tokens at a time: no array [batch, length, vocabulary] exists.

On a mesh, either the tokens are split over the batch axes and the head is gathered once, or the head is split by
vocabulary over the axes fsdp and tensor and the tokens are gathered (as in Megatron-LM, Shoeybi et al., arXiv
1909.08053), whichever exchanges fewer bytes.

Dimensions: T supervised tokens, D hidden width, V vocabulary; n chunks of G groups of t tokens, T <= n G t. The groups
are the parts of the tokens that different devices hold; without a mesh there is one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int

from prism_jax.student import sharding
from prism_jax.student.products import Compute, contract


def token_cross_entropy(
    head_VxD: Float[Array, "V D"],
    hidden_TxD: Float[Array, "T D"],
    targets_T: Int[Array, " T"],
    weights_T: Float[Array, " T"],
    chunk: int = 512,
    dynamic: bool = False,
    compute: Compute = "float32",
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sums the weighted cross-entropy -log p(target) over tokens.

    Returns the weighted sum of losses in nats, and the sum of weights, which are at least 0, and 0 for padding. T may
    be 0. With `dynamic` the loss of a token is sg(p) times -log p, whose gradient is -grad p (dynamic fine-tuning, Wu
    et al., arXiv 2508.05629): tokens that the model finds unlikely contribute smaller gradients.

    The logits of at most `chunk` tokens, which need not divide T, exist at once. Up to D tokens are one chunk in any
    case if the head is narrower than float32: their logits take no more memory than the sum over chunks of the head's
    gradient in float32, which a single chunk does not need. The gradient is computed in the forward pass, while a
    chunk's logits exist, so that they are never recomputed. Second derivatives are therefore not available.
    """
    if not targets_T.size:
        return jnp.zeros(()), jnp.zeros(())
    layout = Layout.of(head_VxD, hidden_TxD, chunk, jax.sharding.get_abstract_mesh().shape)
    return _total(layout, dynamic, compute, head_VxD, hidden_TxD, targets_T, weights_T), jnp.sum(weights_T)


Sized = Array | jax.ShapeDtypeStruct


class Layout(NamedTuple):
    """How tokens and vocabulary are divided."""

    chunks: int  # number of chunks, n
    groups: int  # number of groups per chunk, G
    size: int  # tokens per group and chunk, t
    tokens: tuple[str, ...] = ()  # mesh axes that split the groups
    vocabulary: tuple[str, ...] = ()  # mesh axes that split the vocabulary

    @classmethod
    def of(cls, head: Sized, hidden: Sized, chunk: int, sizes: Mapping[str, int]) -> Layout:
        """The layout for a mesh with these sizes of its axes; head and hidden states may be shapes only."""
        tokens, vocabulary = _axes(head, hidden, sizes)
        groups, split = (math.prod(sizes[name] for name in names) for names in (tokens, vocabulary))
        own = hidden.shape[0] // groups
        at_once = chunk * split
        if head.dtype.itemsize < 4 and own <= head.shape[1] * split:
            at_once = max(at_once, own)
        chunks = -(-own // at_once)
        return cls(chunks, groups, -(-own // chunks), tokens, vocabulary)

    def divided(self, column: Array) -> Array:
        """Divides a column of tokens [T, ...] into [n, G, t, ...], padded with zeros."""
        rest = [(0, 0)] * (column.ndim - 1)
        groups = column.reshape(self.groups, -1, *column.shape[1:])
        groups = jnp.pad(groups, [(0, 0), (0, self.chunks * self.size - groups.shape[1]), *rest])
        parts = groups.reshape(self.groups, self.chunks, self.size, *column.shape[1:]).swapaxes(0, 1)
        return self.pinned(parts, P(None, self.tokens))

    def joined(self, parts: Array, count: int) -> Array:
        """The inverse of `divided`, for a column of `count` tokens."""
        groups = parts.swapaxes(0, 1).reshape(self.groups, -1, *parts.shape[3:])
        return groups[:, : count // self.groups].reshape(count, *parts.shape[3:])

    def pinned(self, x: Array, spec: P) -> Array:
        """Fixes the split of an array over the mesh, if there is one."""
        return sharding.pinned(x, spec) if self.tokens else x


def _axes(head: Sized, hidden: Sized, sizes: Mapping[str, int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The mesh axes that split the tokens, and those that split the vocabulary."""
    (vocabulary, _), count = head.shape, hidden.shape[0]
    data, fsdp, tensor = (sizes.get(name, 1) for name in sharding.MESH_AXES)
    if data * fsdp * tensor == 1 or count % (data * fsdp):
        return (), ()
    # Either is gathered, and its gradient is summed in the same dtype.
    tokens_are_smaller = count // data * hidden.dtype.itemsize < vocabulary * head.dtype.itemsize
    if tokens_are_smaller and vocabulary % (fsdp * tensor) == 0:
        return ("data",), ("tensor", "fsdp")
    return ("data", "fsdp"), ("tensor",) if vocabulary % tensor == 0 else ()


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _total(
    layout: Layout, dynamic: bool, compute: Compute, head: Array, hidden: Array, targets: Array, weights: Array
) -> Array:
    """Computes the weighted sum of losses."""
    head = layout.pinned(head, P(layout.vocabulary))

    def one(total: Array, part: tuple[Array, ...]) -> tuple[Array, None]:
        losses = optax.losses.softmax_cross_entropy_with_integer_labels(
            _logits(layout, compute, head, part[0]), part[1]
        )
        losses *= _factor(losses, dynamic)
        return total + jnp.sum(losses * part[2]), None

    parts = tuple(layout.divided(column) for column in (hidden, targets, weights))
    return jax.lax.scan(one, jnp.zeros((), jnp.float32), parts)[0]


def _factor(losses: Array, dynamic: bool) -> Array | float:
    """The probability of the target where losses are weighted by it, else 1."""
    return jnp.exp(-losses) if dynamic else 1.0


def _forward(
    layout: Layout, dynamic: bool, compute: Compute, head: Array, hidden: Array, targets: Array, weights: Array
) -> tuple[Array, tuple[Array, Array, Array]]:
    """Computes the sum and its gradients by head, hidden states and weights, chunk by chunk."""
    whole = layout.pinned(head, P(layout.vocabulary))
    # The gradient of the head is summed over chunks in float32, separately for each group. The sum over groups has the
    # dtype of the parameter, like the sum of every gradient over devices.
    kept = jnp.promote_types(head.dtype, jnp.float32) if layout.chunks > 1 else head.dtype

    def one(part: tuple[Array, ...]) -> tuple[Array, Array, Array, Array]:
        hidden, targets, weights = part
        logits = _logits(layout, compute, whole, hidden)
        peak = jnp.max(logits, axis=-1, keepdims=True)
        expected = jnp.arange(logits.shape[-1]) == targets[..., None]
        # The barrier prevents the compiler from computing the exponentials twice, for their sum and for the gradient.
        exponentials, at_target = jax.lax.optimization_barrier(
            (jnp.exp(logits - peak), _at_target(layout, logits, targets, expected))
        )
        normaliser = jnp.sum(exponentials, axis=-1, keepdims=True)
        losses = (jnp.log(normaliser) + peak - at_target)[..., 0]
        factor = _factor(losses, dynamic)
        losses *= factor
        by_logits = exponentials * (1 / normaliser) - expected
        by_logits = (by_logits * (weights * factor)[..., None]).astype(hidden.dtype)
        by_head = contract("gtv,gtd->gvd", compute, by_logits, hidden, kept)
        by_hidden = contract("gtv,vd->gtd", compute, by_logits, whole)
        return jnp.sum(losses * weights), layout.pinned(by_head, P(layout.tokens, layout.vocabulary)), by_hidden, losses

    def add(carry: tuple[Array, Array], part: tuple[Array, ...]) -> tuple[tuple[Array, Array], tuple]:
        total, by_head, by_hidden, losses = one(part)
        return (carry[0] + total, carry[1] + by_head), (by_hidden, losses)

    parts = tuple(layout.divided(column) for column in (hidden, targets, weights))
    if layout.chunks == 1:
        total, by_head, *rest = one(tuple(column[0] for column in parts))
        by_hidden, losses = (column[None] for column in rest)
    else:
        start = (jnp.zeros((), jnp.float32), jnp.zeros((layout.groups, *head.shape), kept))
        (total, by_head), (by_hidden, losses) = jax.lax.scan(add, start, parts)
    by_hidden, losses = (layout.joined(column, len(hidden)) for column in (by_hidden, losses))
    by_head = jnp.sum(by_head.astype(head.dtype), axis=0)
    return total, (by_head, layout.pinned(by_hidden, sharding.BATCH), losses.astype(weights.dtype))


def _backward(
    layout: Layout, dynamic: bool, compute: Compute, gradients: tuple[Array, Array, Array], scale: Array
) -> tuple[Array, Array, None, Array]:
    """Multiplies the gradients of the forward pass by the gradient of the sum."""
    by_head, by_hidden, by_weights = (x * scale.astype(x.dtype) for x in gradients)
    return by_head, by_hidden, None, by_weights


_total.defvjp(_forward, _backward)


def _logits(layout: Layout, compute: Compute, head: Array, hidden: Array) -> Array:
    """Logits [G, t, V] in float32."""
    logits = contract("gtd,vd->gtv", compute, hidden, head).astype(jnp.float32)
    return layout.pinned(logits, P(layout.tokens, None, layout.vocabulary))


def _at_target(layout: Layout, logits: Array, targets: Array, expected: Array) -> Array:
    """The logit of each target [G, t, 1]; a split vocabulary is summed over, because only one device has the target."""
    if layout.vocabulary:
        return jnp.sum(jnp.where(expected, logits, 0.0), axis=-1, keepdims=True)
    return jnp.take_along_axis(logits, targets[..., None], axis=-1)
