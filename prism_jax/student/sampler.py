"""Generation: one prefill of right-padded prompts, then one donated while_loop over single tokens.

Lengths are padded to buckets, and all settings are arrays: one program a bucket is compiled, whatever is asked for.

Dimensions: B batch, P padded prompt, M room for new tokens, V vocabulary, S stop tokens.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from prism_jax.student.branches import bucket
from prism_jax.student.kv_cache import Cache, Segment, capacity_of, grow, read_next, read_prompts
from prism_jax.student.qwen3 import Params, Qwen3
from prism_jax.student.sampling import Sampling, next_token

_STOPS = 8  # stop tokens are padded to a multiple of this


class Generated(NamedTuple):
    """What one row wrote.

    Attributes:
      ids: The new tokens, without the stop token.
      stopped: Whether a stop token ended the row; else the limit did.
    """

    ids: list[int]
    stopped: bool


def generate(
    model: Qwen3,
    params: Params,
    prompts: Sequence[Sequence[int]],
    limit: int,
    sampling: Sampling,
    stop: Sequence[int] = (),
) -> list[Generated]:
    """Continues each prompt by at most `limit` tokens.

    Args:
      model: The static half of the student.
      params: Unstacked, as `kv_cache.unstack_layers` returns them.
      prompts: Token ids, of any lengths above 0.
      limit: Most new tokens of a row.
      sampling: Settings by row.
      stop: Tokens that end a row.

    Raises:
      ValueError: naming what is empty or out of range.
    """
    for i, prompt in enumerate(prompts):
        check_ids(f"prompts[{i}]", prompt, model.config.vocab_size)
    if not prompts or limit < 1:
        raise ValueError(f"generate: found {len(prompts)} prompts and a limit of {limit}, expected at least 1 of each")
    lengths = np.array([len(prompt) for prompt in prompts], np.int32)
    room = bucket(limit)
    tokens = np.zeros((len(prompts), bucket(int(lengths.max()))), np.int32)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[: len(prompt)] = prompt
    logits, cache = prefill(model, params, tokens, lengths, room)
    start = Start(cache, lengths, tokens.shape[1], logits)
    return decode(model, params, start, limit, sampling, stop)


def check_ids(name: str, ids: Sequence[int], vocabulary: int) -> None:
    """Raises ValueError when ids are none or not all of the vocabulary: JAX would clamp them silently."""
    if not len(ids):
        raise ValueError(f"{name}: found no token ids, expected at least one")
    if min(ids) < 0 or max(ids) >= vocabulary:
        wrong = next(i for i in ids if not 0 <= i < vocabulary)
        raise ValueError(f"{name}: found token id {wrong}, expected ids in [0, {vocabulary})")


@functools.partial(jax.jit, static_argnums=(0, 4))
def prefill(
    model: Qwen3, params: Params, tokens_BxP: Int[Array, "B P"], lengths_B: Int[Array, " B"], room: int
) -> tuple[Float[Array, "B V"], Cache]:
    """Logits after each prompt, and a cache of the prompts with room behind them."""
    last, fresh = read_prompts(model, params, tokens_BxP, lengths_B)
    return model.logits(params, last), grow(fresh, tokens_BxP.shape[1] + room)


class Start(NamedTuple):
    """Where decoding starts.

    Attributes:
      cache: A prefix a row, padded to `width`, and room for new tokens behind; decoding consumes it.
      lengths: [B] of the prefixes.
      width: Position in the cache of the first new token.
      logits: [B, V] after the prefixes.
      trunk: What all prefixes of the row follow: a cache that is only read.
      trunk_lengths: [B] of the trunks.
    """

    cache: Cache
    lengths: Array | np.ndarray
    width: int
    logits: Array
    trunk: Cache | None = None
    trunk_lengths: Array | np.ndarray | None = None


def decode(
    model: Qwen3, params: Params, start: Start, limit: int, sampling: Sampling, stop: Sequence[int]
) -> list[Generated]:
    """Writes each row on from where it starts; see `generate`."""
    if any(token < 0 for token in stop):
        raise ValueError(f"stop: found {list(stop)}, expected token ids of at least 0")
    padded = np.full(max(1, -(-len(stop) // _STOPS)) * _STOPS, -1, np.int32)
    padded[: len(stop)] = stop
    prefix = (start.lengths, start.trunk, start.trunk_lengths)
    tokens, counts, stopped, _ = _decode(
        model, start.width, params, start.cache, prefix, start.logits, np.int32(limit), sampling, padded
    )
    rows = zip(*jax.device_get((tokens, counts, stopped)), strict=True)
    return [Generated(ids[:count].tolist(), bool(ended)) for ids, count, ended in rows]


class _State(NamedTuple):
    """What changes from token to token."""

    made: Int[Array, ""]
    token: Int[Array, " B"]
    stopped: Array
    counts: Int[Array, " B"]
    tokens: Int[Array, "B M"]
    cache: Cache


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def _decode(
    model: Qwen3,
    width: int,
    params: Params,
    cache: Cache,
    prefix: tuple,
    logits_BxV: Float[Array, "B V"],
    limit: Int[Array, ""],
    sampling: Sampling,
    stop_S: Int[Array, " S"],
) -> tuple[Int[Array, "B M"], Int[Array, " B"], Array, Cache]:
    """The loop: new tokens, how many count, whether a stop token came, and the cache, whose memory is reused."""
    lengths, trunk, trunk_lengths = prefix
    columns = jnp.arange(capacity_of(cache))
    base = lengths if trunk is None else lengths + trunk_lengths
    past = []
    if trunk is not None:
        past = [Segment(trunk, jnp.arange(capacity_of(trunk)) < trunk_lengths[:, None])]

    def put(state: _State, logits: Array, cache: Cache) -> _State:
        token = next_token(logits, sampling, state.made)
        stopped = state.stopped | jnp.any(token[:, None] == stop_S, axis=1)
        tokens = jax.lax.dynamic_update_slice(state.tokens, token[:, None], (0, state.made))
        return _State(state.made + 1, token, stopped, state.counts + ~stopped, tokens, cache)

    def body(state: _State) -> _State:
        at = width + state.made - 1
        seen = (columns < lengths[:, None]) | ((columns >= width) & (columns <= at))
        position = base + state.made - 1
        hidden, cache = read_next(model, params, state.token, position, Segment(state.cache, seen), at, past)
        return put(state, model.logits(params, hidden), cache)

    none = jnp.zeros(lengths.shape, jnp.int32)
    room = jnp.zeros((len(lengths), columns.size - width), jnp.int32)
    state = _State(jnp.zeros((), jnp.int32), none, none.astype(bool), none, room, cache)
    state = put(state, logits_BxV, cache)
    state = jax.lax.while_loop(lambda s: (s.made < limit) & ~jnp.all(s.stopped), body, state)
    return state.tokens, state.counts, state.stopped, state.cache
