"""Where decoding starts: branches that are read after their trunks, and the logits after them.

Dimensions: B batch, L branch tokens, V vocabulary.
"""

from __future__ import annotations

import functools
import operator
import reprlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from prism_jax.student.dispatch import platform
from prism_jax.student.kv_cache import Cache, Segment, gather, grow, read
from prism_jax.student.qwen3 import Params, Qwen3


def check_ids(name: str, ids: Sequence[int] | np.ndarray, vocabulary: int) -> None:
    """Checks token ids, which may be a list, a tuple or an integer array of one dimension.

    Raises:
      ValueError: when there are none, or one is no integer or outside of the vocabulary: JAX would truncate or clamp it
        silently.
    """
    if not len(ids):
        raise ValueError(f"{name}: found no token ids, expected at least one")
    for token in ids:
        if isinstance(token, bool | np.bool_) or not isinstance(token, int | np.integer):
            raise ValueError(f"{name}: found {reprlib.repr(token)}, expected token ids, which are integers")
    if min(ids) < 0 or max(ids) >= vocabulary:
        wrong = next(i for i in ids if not 0 <= i < vocabulary)
        raise ValueError(f"{name}: found token id {wrong}, expected ids in [0, {vocabulary})")


class Start(NamedTuple):
    """The state from which decoding starts."""

    cache: Cache  # one prefix per row, padded to `width`, and room for new tokens after it; decoding donates its memory
    lengths: Array | np.ndarray  # [B] lengths of the prefixes
    width: int  # cache position of the first new token
    logits: Array  # [B, V] logits after the prefixes
    trunk: Segment  # the tokens before each prefix, which are only read


def branch_off(
    model: Qwen3,
    params: Params,
    trunk: Segment,
    tokens_BxL: Int[np.ndarray, "B L"],
    counts_B: Int[np.ndarray, " B"],
    room: int,
    run: Callable = operator.call,
) -> Start:
    """Reads branches after their trunks.

    On a CPU pages of trunks are gathered once, because to do so at every token takes as long as attention itself. A GPU
    has little memory and gathers fast: each layer gathers its own pages at every token, and no trunk is ever copied.

    The first positions of each row's trunk are visible. Branches are padded on the right, and `room` cache positions
    are reserved for new tokens. `run` runs a program on arguments, or only compiles it (`live_programs.compiled`).
    """
    logits, own, rows = run(_branch_off, model, params, trunk, tokens_BxL, counts_B, room)
    return Start(own, counts_B, tokens_BxL.shape[1], logits, trunk if rows is None else Segment(rows, trunk.seen))


@functools.partial(jax.jit, static_argnums=(0, 5))
def _branch_off(
    model: Qwen3,
    params: Params,
    trunk: Segment,
    tokens_BxL: Int[Array, "B L"],
    counts_B: Int[Array, " B"],
    room: int,
) -> tuple[Float[Array, "B V"], Cache, Cache | None]:
    """Returns logits after each branch, a cache of the branches, and rows that take the place of the trunks' pages."""
    rows = None
    if trunk.table is not None and platform() == "cpu":
        rows = tuple(gather(layer, trunk.table) for layer in trunk.cache)
        trunk = Segment(rows, trunk.seen)
    length = tokens_BxL.shape[1]
    positions = trunk.lengths[:, None] + jnp.arange(length)
    causal = jnp.tril(jnp.ones((1, length, length), bool))
    hidden, fresh = read(model, params, tokens_BxL, positions, causal, counts_B[:, None] - 1, [trunk])
    return model.logits(params, hidden[:, 0]), grow(fresh, length + room), rows
