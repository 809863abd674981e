"""Low-rank adapters (LoRA, Hu et al., arXiv 2106.09685) of matrices that stay as they are.

    y = x W + alpha / r * drop(x) A B        A [in, r] is uniform and B [r, out] zero before training

What trains is kept in float32, whatever the dtype of the student. Beside the adapters that can be the rows of the head
that the slots are read with, or the whole head; a tied head is the embedding, too.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx, traverse_util
from jaxtyping import Array, Float, Int, PRNGKeyArray

from prism_jax.runtime.dataclass_config import check, check_above, check_at_least

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The matrices of a block."""

ROWS = "head_rows"
"""The parameter that holds the rows of the head for the tokens in `LoraConfig.tokens`."""

Tree = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class LoraConfig:
    """Settings of the adapters; hashable, so that the static half of a model can hold it."""

    rank: int = 0  # rank r of every adapter; 0 trains the student itself
    alpha: float = 16.0  # the output of an adapter is multiplied by alpha / rank
    dropout: float = 0.0  # share of the inputs of adapters that training sets to 0
    targets: tuple[str, ...] = TARGETS  # matrices of every block that get an adapter
    # what trains of the head beside adapters: nothing, the rows of the two answers of slots, or all of it in float32
    head: Literal["frozen", "slots", "all"] = "frozen"
    # PEFT directory whose adapters training starts from; it sets all of the above but the dropout
    start: str = ""
    tokens: tuple[int, ...] = ()  # ids of tokens whose rows of the head train; `slots` fills in those of the answers

    def __post_init__(self) -> None:
        check_at_least(self, 0, "rank")
        check_above(self, 0, "alpha")
        check(self, "dropout", 0 <= self.dropout < 1, "a number in [0, 1)")
        if unknown := set(self.targets) - set(TARGETS):
            raise ValueError(f"targets: found {', '.join(sorted(unknown))}, expected some of {', '.join(TARGETS)}")
        if not self.targets and self.head == "frozen":
            raise ValueError("targets: found none with head = 'frozen', expected something to train")
        if self.tokens and self.head != "slots":
            raise ValueError(f"tokens: found {self.tokens} with head = {self.head!r}, expected none or head = 'slots'")

    @property
    def scale(self) -> float:
        """Factor of an adapter's output, alpha / rank."""
        return self.alpha / self.rank

    @property
    def trains_head(self) -> bool:
        """Whether the whole head trains beside adapters."""
        return self.rank > 0 and self.head == "all"

    def owns(self, tied: bool) -> str:
        """Regular expression for the names of all parameters that train."""
        if not self.rank:
            return r".*"
        head = {"frozen": "", "slots": f"|{ROWS}", "all": "|embedding" if tied else "|head/kernel"}[self.head]
        return rf"layers/.*/lora/[ab]{head}"


NO_ADAPTERS = LoraConfig()


class Adapter(nnx.Module):
    """The two factors of one matrix's adapter."""

    def __init__(self, inner: int, outer: int, config: LoraConfig, rngs: nnx.Rngs):
        bound = 1 / math.sqrt(inner)
        self.a = nnx.Param(jax.random.uniform(rngs.params(), (inner, config.rank), minval=-bound, maxval=bound))
        self.b = nnx.Param(jnp.zeros((config.rank, outer)))
        self.scale, self.dropout = config.scale, config.dropout

    def __call__(self, x: Float[Array, "n i"], key: PRNGKeyArray | None) -> Float[Array, "n o"]:
        """Computes what is added to the product with the matrix; a key drops a share of the inputs."""
        if key is not None and self.dropout:
            kept = jax.random.bernoulli(key, 1 - self.dropout, x.shape)
            x = jnp.where(kept, x / (1 - self.dropout), 0).astype(x.dtype)
        low = (x @ self.a[...].astype(x.dtype)) * self.scale
        return low @ self.b[...].astype(x.dtype)


def own(params: Tree, config: LoraConfig, tied: bool) -> Tree:
    """The parameters that train, or their shapes: with adapters a small part, else all."""
    return _nested({name: leaf for name, leaf in _flat(params).items() if re.fullmatch(config.owns(tied), name)})


def joined(base: Tree, part: Tree) -> Tree:
    """The parameters of a base and those that train, which replace any of the same name."""
    return _nested({**_flat(base), **_flat(part)})


def merged(params: Tree, config: LoraConfig, tied: bool) -> Tree:
    """The parameters of the plain student that computes the same, in the dtype of the base.

    Takes over the buffers of the matrices: a student and its copy need not fit into memory together.
    """
    flat = _flat(params)
    plain = {}
    for name, leaf in flat.items():
        adapter = name.removesuffix("kernel") + "lora"
        if f"{adapter}/a" in flat:
            leaf = _added(leaf, flat[f"{adapter}/a"], flat[f"{adapter}/b"], scale=config.scale)
        if name != ROWS and not name.endswith(("/lora/a", "/lora/b")):
            plain[name] = leaf
    if config.tokens:
        name, ids = ("embedding" if tied else "head/kernel"), jnp.array(config.tokens)
        rows = flat[ROWS].astype(plain[name].dtype)
        head = jnp.asarray(plain[name])
        plain[name] = head.at[ids].set(rows) if tied else head.at[:, ids].set(rows.T)
    return _nested(plain)


def _flat(tree: Tree) -> dict[str, Any]:
    return traverse_util.flatten_dict(tree, sep="/")


def _nested(flat: dict[str, Any]) -> Tree:
    return traverse_util.unflatten_dict(flat, sep="/")


@functools.partial(jax.jit, static_argnames="scale", donate_argnames="kernel")
def _added(kernel: Float[Array, "l i o"], a: Float[Array, "l i r"], b: Float[Array, "l r o"], scale: float) -> Array:
    """The kernels with their adapters added in float32, one layer at a time and in place."""

    def add(layer: Int[Array, ""], kernel: Array) -> Array:
        product = jnp.matmul(a[layer], b[layer], precision=jax.lax.Precision.HIGHEST)
        return kernel.at[layer].set((kernel[layer].astype(jnp.float32) + scale * product).astype(kernel.dtype))

    return jax.lax.fori_loop(0, kernel.shape[0], add, kernel)
