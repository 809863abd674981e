"""The whole model: embedding, stacked blocks under one scan, final norm, output head.

NNX modules define the parameters; everything that runs is a pure function of (params, inputs). `Qwen3` is the static
half, and params is a plain nested dict that jax.jit, jax.grad, optax and Orbax take as it is.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int, PRNGKeyArray

from prism_jax.student.attention import TreeMask, Visible, tree_mask
from prism_jax.student.config import StudentConfig
from prism_jax.student.dispatch import dispatch
from prism_jax.student.layers import Block, Linear, RMSNorm, rotary_tables

Params = dict[str, Any]

_REMAT_POLICIES = {"dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable, "full": None}


class _Modules(nnx.Module):
    """The parameters: an embedding, `layers` blocks stacked along a leading axis, a norm, and an untied head."""

    def __init__(self, config: StudentConfig, rngs: nnx.Rngs):
        init = jax.nn.initializers.normal(config.initializer_range)
        shape = (config.vocabulary_size, config.width)
        self.embedding = nnx.Param(init(rngs.params(), shape, config.param_dtype))
        create = nnx.vmap(lambda rngs: Block(config, rngs), in_axes=0, out_axes=0)
        self.layers = create(rngs.fork(split=config.layers))
        self.final_norm = RMSNorm(config.width, config)
        self.head = None if config.tied else Linear(config.width, config.vocabulary_size, config, rngs)


@dataclasses.dataclass(frozen=True)
class Qwen3:
    """The static half of a model; hashable, so jit can take it as a static argument.

    Dimensions: B batch, L length, D width, V vocabulary.
    """

    config: StudentConfig

    def __post_init__(self) -> None:
        if self.config.vocabulary_size < 1:
            raise ValueError("vocabulary_size: found 0, expected the tokenizer's size to be filled in")

    def init(self, key: PRNGKeyArray) -> Params:
        """Fresh parameters."""
        return nnx.to_pure_dict(nnx.state(_Modules(self.config, nnx.Rngs(params=key))))

    def abstract_params(self) -> Params:
        """Shapes and dtypes of the parameters, without allocating them."""
        return jax.eval_shape(self.init, jax.random.key(0))

    def hidden(
        self,
        params: Params,
        tokens_BxL: Int[Array, "B L"],
        positions_BxL: Int[Array, "B L"],
        mask: TreeMask,
        visible: Visible = None,
    ) -> Float[Array, "B L D"]:
        """Final hidden states, after the last norm.

        Args:
          params: As `init` returns them.
          tokens_BxL: Token ids in [0, vocabulary_size).
          positions_BxL: Rotary positions; a branch continues its trunk's.
          mask: What branch positions see; `attention.no_branches` for plain causal rows.
          visible: Static bounds on that, see `attention.Visible`.

        Raises:
          ValueError: when the config asks for an attention that can't run here.
        """
        config = self.config
        x = params["embedding"].astype(config.dtype)[tokens_BxL]
        cos, sin = rotary_tables(positions_BxL, config.head_dim, config.rope_theta)

        see = dispatch(config, mask, visible)

        def body(x: Array, layer: Params) -> tuple[Array, None]:
            return nnx.merge(block(config), layer)(x, cos, sin, see), None

        if config.remat != "none":
            body = jax.checkpoint(body, policy=_REMAT_POLICIES[config.remat])
        x, _ = jax.lax.scan(body, x, params["layers"], unroll=config.unroll)
        return nnx.merge(final_norm(config), params["final_norm"])(x)

    def branch_hidden(
        self,
        params: Params,
        trunk_BxT: Int[Array, "B T"],
        tokens_BxR: Int[Array, "B R"],
        positions_BxR: Int[Array, "B R"],
        stop_BxR: Int[Array, "B R"],
        branch_BxR: Int[Array, "B R"],
        leaf_BxR: Int[Array, "B R"],
        window: int,
        visible: Visible = None,
    ) -> Float[Array, "B R D"]:
        """Final hidden states of branches off a trunk, read in one prefill; see `prism_jax.student.attention`.

        Args:
          params: As `init` returns them.
          trunk_BxT: Token ids of the trunk, whose positions count from 0.
          tokens_BxR: Token ids of the branches.
          positions_BxR: Their rotary positions.
          stop_BxR: Trunk positions below this are visible.
          branch_BxR: Number of the branch, from 1; 0 is padding.
          leaf_BxR: 0 on a head, else the number of the leaf.
          window: W, which divides R and which no branch exceeds.
          visible: For each W branch positions a bound on `stop` in all rows, see `attention.Visible`.
        """
        rows, trunk = trunk_BxT.shape
        positions = jnp.broadcast_to(jnp.arange(trunk, dtype=positions_BxR.dtype), (rows, trunk))
        hidden = self.hidden(
            params,
            jnp.concatenate([trunk_BxT, tokens_BxR], axis=1),
            jnp.concatenate([positions, positions_BxR], axis=1),
            tree_mask(stop_BxR, branch_BxR, leaf_BxR, trunk, window),
            visible,
        )
        return hidden[:, trunk:]

    def head(self, params: Params) -> Float[Array, "V D"]:
        """Rows of the output head, one a token."""
        return params["embedding"] if self.config.tied else params["head"]["kernel"].T

    def logits(self, params: Params, hidden: Float[Array, "*rest D"]) -> Float[Array, "*rest V"]:
        """Logits in float32 over the whole vocabulary: for short pieces only, never for a training batch."""
        return jnp.einsum("...d,vd->...v", hidden, self.head(params).astype(hidden.dtype)).astype(jnp.float32)

    def answers(
        self, params: Params, hidden_BxRxD: Float[Array, "B R D"], place_BxS: Int[Array, "B S"], yes: int, no: int
    ) -> Float[Array, "B S"]:
        """z_yes - z_no of the next token at marked places, from two rows of the head: the others are never needed."""
        rows = self.head(params)[jnp.array([yes, no])].astype(jnp.float32)
        return take(hidden_BxRxD, place_BxS).astype(jnp.float32) @ (rows[0] - rows[1])


def take(hidden_BxRxD: Float[Array, "B R D"], place_BxS: Int[Array, "B S"]) -> Float[Array, "B S D"]:
    """The hidden states at marked places."""
    return jnp.take_along_axis(hidden_BxRxD, place_BxS[..., None], axis=1)


@functools.cache
def block(config: StudentConfig) -> nnx.GraphDef:
    """The static half of one block; merged with one layer's slice of the stacked parameters inside the scan."""
    return nnx.graphdef(nnx.eval_shape(lambda: Block(config, nnx.Rngs(0))))


@functools.cache
def final_norm(config: StudentConfig) -> nnx.GraphDef:
    """The static half of the last norm."""
    return nnx.graphdef(nnx.eval_shape(lambda: RMSNorm(config.width, config)))
