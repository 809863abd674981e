"""The whole model: embedding, stacked blocks under one scan, final norm, output head.

NNX modules define the parameters; every computation is a pure function of (params, inputs). `Qwen3` is the static half
of the model, and params is a plain nested dict that jax.jit, jax.grad, optax and Orbax accept.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from prism_jax.student import lora
from prism_jax.student.attention import TreeMask, Visible, tree_mask
from prism_jax.student.dispatch import dispatch
from prism_jax.student.layers import Block, Linear, RMSNorm, rotary_tables
from prism_jax.student.lora import NO_ADAPTERS, LoraConfig
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.remat import keeping
from prism_jax.student.sharding import pinned

Params = dict[str, Any]


class Tree(NamedTuple):
    """A trunk and its branches in each row (see `prism_jax.student.attention`): B rows, T trunk, R branch positions."""

    # token ids of the trunk, whose positions count from its beginning; or features [B, T, D]
    trunk: Int[Array, "B T"] | Float[Array, "B T D"]
    tokens: Int[Array, "B R"] | Float[Array, "B R D"]  # token ids of the branches, or features [B, R, D]
    positions: Int[Array, "B R"]  # rotary positions of the branches
    stop: Int[Array, "B R"]  # the trunk positions below this are visible
    branch: Int[Array, "B R"]  # number of the branch, from 1; 0 is padding (`attention.PADDING`)
    leaf: Int[Array, "B R"]  # 0 on a head, else number of the leaf
    # where the trunk of a trunk position begins, in rows of several trunks; None for one trunk per row
    begin: Int[Array, "B T"] | None = None

    @classmethod
    def of(cls, batch: Any) -> Tree:
        """Takes these columns from a batch of packed rows."""
        return cls(*(getattr(batch, name) for name in cls._fields))


class _Modules(nnx.Module):
    """The parameters: embedding, blocks stacked along a leading axis, final norm, and the head unless it is tied.

    Those that an adapter adds (`lora`) are among them.
    """

    def __init__(self, config: StudentConfig, rngs: nnx.Rngs, adapter: LoraConfig):
        init = jax.nn.initializers.normal(config.initializer_range)
        shape = (config.vocab_size, config.hidden_dim)
        whole = dataclasses.replace(config, param_dtype="float32") if adapter.trains_head else config
        self.embedding = nnx.Param(init(rngs.params(), shape, (whole if config.tied else config).param_dtype))
        create = nnx.vmap(lambda rngs: Block(config, rngs, adapter), in_axes=0, out_axes=0)
        self.layers = create(rngs.fork(split=config.num_layers))
        self.final_norm = RMSNorm(config.hidden_dim, config)
        self.head = None if config.tied else Linear(config.hidden_dim, config.vocab_size, whole, rngs)
        if adapter.tokens:
            setattr(self, lora.ROWS, nnx.Param(jnp.zeros((len(adapter.tokens), config.hidden_dim))))


@dataclasses.dataclass(frozen=True)
class Qwen3:
    """The static half of a model; hashable, so that jit can take it as a static argument.

    Dimensions: B batch, L length, D hidden width, V vocabulary.
    """

    config: StudentConfig
    lora: LoraConfig = NO_ADAPTERS  # adapters beside the parameters of `config`, if its rank is above 0

    def __post_init__(self) -> None:
        if self.config.vocab_size < 1:
            raise ValueError("vocab_size: found 0, expected the tokenizer's size to be filled in")

    def init(self, key: PRNGKeyArray) -> Params:
        """Draws fresh parameters."""
        return nnx.to_pure_dict(nnx.state(_Modules(self.config, nnx.Rngs(params=key), self.lora)))

    def adapted(self, base: Params, key: PRNGKeyArray) -> Params:
        """Adds the adapters that `base`, which stays as it is, lacks; fresh ones change no output without dropout."""
        fresh = lora.own(self.init(key), self.lora, self.config.tied)
        if self.lora.tokens:
            fresh[lora.ROWS] = self._table(base)[jnp.array(self.lora.tokens)]
        both = lora.joined(fresh, base)
        return jax.tree.map(lambda leaf, kind: leaf.astype(kind.dtype), both, self.abstract_params())

    def own(self, params: Params) -> Params:
        """The parameters that train, or their shapes: with adapters a small part, else all."""
        return lora.own(params, self.lora, self.config.tied)

    def plain(self, params: Params) -> Params:
        """The parameters of the student without adapters that computes the same, rounded to the dtype of the base.

        With adapters, the buffers of `params` are taken over.
        """
        if not self.lora.rank:
            return params
        plain = lora.merged(params, self.lora, self.config.tied)
        return jax.tree.map(lambda leaf: leaf.astype(self.config.param_dtype), plain)

    def abstract_params(self) -> Params:
        """The shapes and dtypes of the parameters, which are not allocated."""
        return jax.tree.map(lambda leaf: leaf, _abstract_params(self))  # the cached dicts stay out of reach

    def hidden(
        self,
        params: Params,
        tokens_BxL: Int[Array, "B L"],
        positions_BxL: Int[Array, "B L"],
        mask: TreeMask,
        visible: Visible = None,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "B L D"]:
        """Computes final hidden states, after the last norm; in training, a key draws the dropout of adapters.

        Rotary positions of a branch continue the trunk's. For plain causal rows the mask is `attention.no_branches`.

        Raises:
          ValueError: when the config requests an attention that cannot run here.
        """
        x = self._embed(params, tokens_BxL)
        return self._norm(params, self._blocks(params["layers"], x, positions_BxL, mask, visible, key))

    def _embed(self, params: Params, tokens_BxL: Int[Array, "B L"]) -> Float[Array, "B L D"]:
        # The table is split by width. Each device looks up its part of the width for the rows of its fsdp group; the
        # group then exchanges widths for rows.
        by_width = pinned(params["embedding"].astype(self.config.dtype)[tokens_BxL], P("data", None, "fsdp"))
        for row, token in enumerate(self.lora.tokens if self.config.tied else ()):
            own = params[lora.ROWS][row].astype(self.config.dtype)
            by_width = jnp.where((tokens_BxL == token)[..., None], own, by_width)
        return pinned(by_width)

    def _blocks(
        self,
        layers: Params,
        x: Float[Array, "B L D"],
        positions_BxL: Int[Array, "B L"],
        mask: TreeMask,
        see: Visible,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "B L D"]:
        """Applies blocks, stacked along the leading axis of `layers`, to the residual stream."""
        config = self.config
        rotary = rotary_tables(positions_BxL, config.head_dim, config.rope_theta)
        attend = dispatch(config, mask, see)

        def body(x: Array, part: tuple[Params, PRNGKeyArray | None]) -> tuple[Array, None]:
            layer, key = part
            return nnx.merge(block(config, self.lora), layer)(x, rotary, attend, key=key), None

        keys = None if key is None else jax.random.split(key, jax.tree.leaves(layers)[0].shape[0])
        return jax.lax.scan(keeping(config.remat)(body), x, (layers, keys), unroll=config.unroll)[0]

    def _norm(self, params: Params, x: Float[Array, "*rest D"]) -> Float[Array, "*rest D"]:
        return nnx.merge(final_norm(self.config), params["final_norm"])(x)

    def branch_hidden(
        self,
        params: Params,
        tree: Tree,
        window: int,
        visible: Visible = None,
        done: int = 0,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "B R D"]:
        """Computes final hidden states of branches off a trunk in one pass; see `prism_jax.student.attention`.

        The tree holds token ids, or the features that `branch_features` returns, which have passed the lowest `done`
        blocks already. The window is W, which divides R and which no branch exceeds. The key is that of `hidden`.
        """
        x, positions, mask = _join(tree, window)
        if not done:
            return self.hidden(params, x, positions, mask, visible, key)[:, tree.trunk.shape[1] :]
        upper = jax.tree.map(lambda leaf: leaf[done:], params["layers"])
        return self._norm(params, self._blocks(upper, x, positions, mask, visible, key)[:, tree.trunk.shape[1] :])

    def branch_features(
        self,
        params: Params,
        tree: Tree,
        window: int,
        visible: Visible = None,
        done: int = 0,
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B R D"]]:
        """Computes the residual stream of trunk and branches, given as token ids, after the lowest `done` blocks."""
        ids, positions, mask = _join(tree, window)
        x = self._embed(params, ids)
        lower = jax.tree.map(lambda leaf: leaf[:done], params["layers"])
        x = self._blocks(lower, x, positions, mask, visible)
        return x[:, : tree.trunk.shape[1]], x[:, tree.trunk.shape[1] :]

    def branch_states(
        self,
        params: Params,
        tree: Tree,
        window: int,
        visible: Visible = None,
        at: tuple[int, ...] = (),
    ) -> tuple[Float[Array, "B R D"], ...]:
        """Computes the residual stream of the branches after each of some numbers of blocks, and no block above them.

        The tree holds token ids, and the numbers `at` ascend from 1 to at most the number of layers. Only the requested
        states are kept; those of other blocks, and those of the trunk, are not.
        """
        self.check_blocks(at)
        x, positions, mask = _join(tree, window)
        x, states = self._embed(params, x), []
        for begin, end in itertools.pairwise((0, *at)):
            between = jax.tree.map(lambda leaf: leaf[begin:end], params["layers"])  # noqa: B023 (it runs at once)
            x = self._blocks(between, x, positions, mask, visible)
            states.append(x[:, tree.trunk.shape[1] :])
        return tuple(states)

    def check_blocks(self, at: Sequence[int]) -> None:
        """Raises ValueError for anything but some ascending numbers of blocks, from 1 to the number of layers."""
        layers = self.config.num_layers
        if not at or list(at) != sorted(set(at)) or at[0] < 1 or at[-1] > layers:
            raise ValueError(f"at: found {at}, expected ascending numbers of blocks from 1 to {layers}")

    def head(self, params: Params) -> Float[Array, "V D"]:
        """Returns the output head, one row per token of the vocabulary."""
        table = self._table(params)
        for row, token in enumerate(self.lora.tokens):  # one by one: a scatter would copy the table several times
            own = params[lora.ROWS][row : row + 1].astype(table.dtype)
            table = jax.lax.dynamic_update_slice_in_dim(table, own, token, axis=0)
        return table

    def _table(self, params: Params) -> Float[Array, "V D"]:
        """The head without the rows that an adapter has for some tokens."""
        return params["embedding"] if self.config.tied else params["head"]["kernel"].T

    def logits(self, params: Params, hidden: Float[Array, "*rest D"]) -> Float[Array, "*rest V"]:
        """Computes float32 logits over the whole vocabulary: for a few positions only, never for a training batch."""
        return jnp.einsum("...d,vd->...v", hidden, self.head(params).astype(hidden.dtype)).astype(jnp.float32)

    def answers(
        self, params: Params, hidden_BxRxD: Float[Array, "B R D"], place_BxS: Int[Array, "B S"], yes: int, no: int
    ) -> Float[Array, "B S"]:
        """Computes z_yes - z_no, with the ids of two answer tokens, at marked places of the branches' hidden states."""
        if self.lora.tokens:
            rows = params[lora.ROWS][jnp.array([self.lora.tokens.index(token) for token in (yes, no)])]
        else:
            rows = self._table(params)[jnp.array([yes, no])].astype(jnp.float32)
        return take(hidden_BxRxD, place_BxS).astype(jnp.float32) @ (rows[0] - rows[1])


def take(x: Shaped[Array, "#B R D"], place_BxS: Int[Array, "B S"]) -> Shaped[Array, "B S D"]:
    """Takes the entries of `x` at the marked places of each row; an `x` of one row is used for all rows."""
    return jnp.take_along_axis(x, place_BxS[..., None], axis=1)


def _join(tree: Tree, window: int) -> tuple[Array, Array, TreeMask]:
    """Concatenates trunk and branches to one sequence; returns it with its positions and its mask."""
    rows, length = tree.trunk.shape[:2]
    of_trunk = jnp.broadcast_to(jnp.arange(length, dtype=tree.positions.dtype), (rows, length))
    if tree.begin is not None:
        of_trunk = of_trunk - tree.begin
    return (
        jnp.concatenate([tree.trunk, tree.tokens], axis=1),
        jnp.concatenate([of_trunk, tree.positions], axis=1),
        tree_mask(tree.stop, tree.branch, tree.leaf, length, window, tree.begin),
    )


@functools.cache
def _abstract_params(model: Qwen3) -> Params:
    return jax.eval_shape(lambda: model.init(jax.random.key(0)))  # traced too, so that no key is computed


@functools.cache
def block(config: StudentConfig, adapter: LoraConfig | None = None, joined: bool = False) -> nnx.GraphDef:
    """The static half of one block; the scan merges it with one layer's slice of the stacked parameters."""
    return nnx.graphdef(nnx.eval_shape(lambda: Block(config, nnx.Rngs(0), adapter, joined)))


@functools.cache
def final_norm(config: StudentConfig) -> nnx.GraphDef:
    """The static half of the final norm."""
    return nnx.graphdef(nnx.eval_shape(lambda: RMSNorm(config.hidden_dim, config)))
