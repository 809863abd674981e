"""Generation: one prefill of right-padded prompts, then one donated while_loop over single tokens.

Lengths are padded to buckets and all settings are arrays, so that one program is compiled per bucket for all settings.

Dimensions: B batch, P padded prompt, M room for new tokens, V vocabulary, S stop tokens.
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

from prism_jax.student.branches import bucket
from prism_jax.student.dispatch import platform
from prism_jax.student.kv_cache import Cache, Segment, capacity_of, gather, grow, read, read_next, read_prompts
from prism_jax.student.qwen3 import Params, Qwen3
from prism_jax.student.sampling import Sampling, next_token

_STOPS = 8  # stop tokens are padded to a multiple of this


class Generated(NamedTuple):
    """The tokens generated for one row."""

    ids: list[int]  # ids of the new tokens, without the stop token
    stopped: bool  # whether a stop token ended the row; otherwise the limit did


def generate(
    model: Qwen3,
    params: Params,
    prompts: Sequence[Sequence[int]],
    limit: int,
    sampling: Sampling,
    stop: Sequence[int] = (),
) -> list[Generated]:
    """Continues each prompt by at most `limit` tokens, or to one of the tokens `stop`.

    Parameters are unstacked (`kv_cache.unstack_layers`).

    Raises:
      ValueError: naming the argument that is empty or out of range.
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


@functools.partial(jax.jit, static_argnums=(0, 4))
def prefill(
    model: Qwen3, params: Params, tokens_BxP: Int[Array, "B P"], lengths_B: Int[Array, " B"], room: int
) -> tuple[Float[Array, "B V"], Cache]:
    """Reads prompts, padded on the right; returns logits after each, and a cache with `room` free positions."""
    last, fresh = read_prompts(model, params, tokens_BxP, lengths_B)
    return model.logits(params, last), grow(fresh, tokens_BxP.shape[1] + room)


class Start(NamedTuple):
    """The state from which decoding starts."""

    cache: Cache  # one prefix per row, padded to `width`, and room for new tokens after it; decoding donates its memory
    lengths: Array | np.ndarray  # [B] lengths of the prefixes
    width: int  # cache position of the first new token
    logits: Array  # [B, V] logits after the prefixes
    trunk: Segment | None = None  # the tokens before each prefix, which are only read; None where there are none


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


def decode(
    model: Qwen3, params: Params, start: Start, limit: int, sampling: Sampling, stop: Sequence[int]
) -> list[Generated]:
    """Generates the continuation of each row from its start; raises ValueError for a negative stop token."""
    if any(token < 0 for token in stop):
        raise ValueError(f"stop: found {list(stop)}, expected token ids of at least 0")
    padded = np.full(max(1, -(-len(stop) // _STOPS)) * _STOPS, -1, np.int32)
    padded[: len(stop)] = stop
    prefix = (start.lengths, start.trunk)
    tokens, counts, stopped, _ = _decode(
        model, start.width, params, start.cache, prefix, start.logits, np.int32(limit), sampling, padded
    )
    rows = zip(*jax.device_get((tokens, counts, stopped)), strict=True)
    return [Generated(ids[:count].tolist(), bool(ended)) for ids, count, ended in rows]


class _State(NamedTuple):
    """The state of the loop."""

    made: Int[Array, ""]  # number of tokens generated so far
    token: Int[Array, " B"]  # newest token of each row
    stopped: Array  # [B] whether a stop token has ended the row
    counts: Int[Array, " B"]  # number of tokens of the row before its stop token
    tokens: Int[Array, "B M"]  # generated tokens
    cache: Cache  # keys and values of prefixes and generated tokens


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
    """Runs the loop.

    Returns new tokens, how many of them count, whether a stop token ended the row, and the cache, so that its memory is
    reused.
    """
    lengths, trunk = prefix
    columns = jnp.arange(capacity_of(cache))
    base = lengths if trunk is None else lengths + trunk.lengths
    past = [] if trunk is None else [trunk]

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
