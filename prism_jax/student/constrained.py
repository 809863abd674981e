"""Constrained greedy decoding: free text between forced tokens, for many rows in one donated while_loop.

A text is written span by span. A span writes its forced tokens first, and then the likeliest tokens that an automaton
over the vocabulary allows, until one of them ends the span or the span's limit is reached. Rows pass through the spans
at their own pace; each iteration writes one token per row. Forced tokens, limits and automaton are arrays, so that one
program is compiled per number of rows and bucket of lengths, whatever is written.

Dimensions: B batch, V vocabulary, S states, N spans, F forced tokens, M room for new tokens.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int8

from prism_jax.student.branches import bucket
from prism_jax.student.kv_cache import Cache, Segment, capacity_of, read_next
from prism_jax.student.qwen3 import Params, Qwen3
from prism_jax.student.start import Start, check_ids

FORBIDDEN, END = -1, -2
"""Entries of `Automaton.step`: the token may not occur here, and the token ends the span."""
UNREACHABLE = 127
"""Entry of `Automaton.distance` for a state from which no text can end."""
_SPANS, _FORCED = 8, 64  # spans and forced tokens are padded to multiples of these


class Automaton(NamedTuple):
    """Which tokens may occur in free text, by state; every span starts in state 0."""

    step: Int8[np.ndarray, "S V"]  # state after a token, `FORBIDDEN` or `END`
    # for a token that ends a span, the token that is written in its place, for what it holds before the end; -1
    # writes nothing
    kept: Int[np.ndarray, " V"]
    # fewest tokens from a state to one where the text may stop; 0 where it may stop now
    distance: Int8[np.ndarray, " S"]

    @property
    def after(self) -> Int8[np.ndarray, "S V"]:
        """Fewest tokens that must follow each token before the text may stop; `UNREACHABLE` where it is forbidden."""
        fewest = np.where(self.step >= 0, self.distance[np.maximum(self.step, 0)], UNREACHABLE)
        return np.where(self.step == END, 0, fewest).astype(np.int8)


class Span(NamedTuple):
    """One span of a text."""

    forced: Sequence[int]  # ids of its forced tokens
    limit: int  # maximum number of free tokens after them


def make_automaton(step: Int8[np.ndarray, "S V"], kept: Int[np.ndarray, " V"], final: Sequence[bool]) -> Automaton:
    """Makes an automaton, with the distances of its states.

    `final` says for each state whether the text may stop there when the limit is reached.

    Raises:
      ValueError: if no way leads from the first state to one where the text may stop.
    """
    distance = np.where(final, 0, UNREACHABLE).astype(np.int64)
    for _ in range(len(step)):
        beyond = np.where(step >= 0, distance[np.maximum(step, 0)], UNREACHABLE)
        beyond = np.where(step == END, 0, beyond).min(axis=1)
        distance = np.minimum(distance, np.minimum(beyond + 1, UNREACHABLE))
    if distance[0] == UNREACHABLE:
        raise ValueError("automaton: found no text that may stop, expected some: the vocabulary lacks needed tokens")
    return Automaton(step, kept, distance.astype(np.int8))


class DeviceAutomaton:
    """An automaton, copied to the device once; `least` is the smallest limit of a span that leaves room for a text."""

    def __init__(self, automaton: Automaton):
        """Copies the automaton's arrays."""
        self.arrays = tuple(jnp.asarray(part) for part in (automaton.step, automaton.after, automaton.kept))
        self.least = max(1, int(automaton.distance[0]))


def write_spans(
    model: Qwen3, params: Params, start: Start, spans: Sequence[Span], automaton: DeviceAutomaton
) -> list[list[list[int]]]:
    """Writes the same spans, at least one, in every row, and returns the free tokens by row and span.

    The prefixes of `start` end with the forced tokens of the first span, and its caches have `room(spans)` free
    positions. Parameters are unstacked (`kv_cache.unstack_layers`).

    Raises:
      ValueError: for a span without a limit or, after the first, without forced tokens, or too small a limit for any
        text.
    """
    tokens, owner, _ = write_program(*_arguments(model, params, start, spans, automaton))
    tokens, owner = jax.device_get((tokens, owner))
    return [[ids[of == span].tolist() for span in range(len(spans))] for ids, of in zip(tokens, owner, strict=True)]


def compile_spans(model: Qwen3, params: Params, start: Start, automaton: DeviceAutomaton) -> None:
    """Compiles what `write_spans` runs, without running it.

    `start` holds rows of the sizes to compile for, or the `jax.ShapeDtypeStruct` of each array. Every automaton with as
    many states leads to the same program.
    """
    spans = [Span((0,), automaton.least)]
    write_program.lower(*_arguments(model, params, start, spans, automaton)).compile()


def _arguments(model: Qwen3, params: Params, start: Start, spans: Sequence[Span], automaton: DeviceAutomaton) -> tuple:
    """The arguments of `write_program`."""
    table = _span_table(spans, model.config.vocab_size, automaton)
    prefix = (start.lengths, start.trunk)
    return (
        model,
        start.width,
        _fused(model, params, start),
        params,
        start.cache,
        prefix,
        start.logits,
        table,
        automaton.arrays,
    )


def _fused(model: Qwen3, params: Params, start: Start) -> bool:
    """Whether the kernels of `decoding` write: where `cudnn` is asked for and one GPU holds the parameters.

    `auto` leaves writing to XLA: no GPU has shown yet that the kernels are right and faster there.
    """
    if model.config.attention != "cudnn":
        return False
    from prism_jax.student.decoding import fits  # loads Pallas, which nothing else needs

    placed = getattr(jax.tree.leaves(params)[0], "sharding", None)
    one = placed is None or len(placed.device_set) == 1
    return one and fits(model.config, [capacity_of(start.cache), capacity_of(start.trunk.cache)])


def room(spans: Sequence[Span]) -> int:
    """Number of cache positions that writing the spans needs after the prefix."""
    return bucket(sum(span.limit for span in spans) + sum(len(span.forced) for span in spans[1:]))


class _Table(NamedTuple):
    """The spans as arrays."""

    forced: Int[Array | np.ndarray, " F"]  # forced tokens of all spans but the first, end to end
    begin: Int[Array | np.ndarray, " N"]  # index of a span's first forced token
    end: Int[Array | np.ndarray, " N"]  # index after its last one
    limit: Int[Array | np.ndarray, " N"]  # maximum number of free tokens
    spans: Int[Array | np.ndarray, ""]


def _span_table(spans: Sequence[Span], vocabulary: int, automaton: DeviceAutomaton) -> _Table:
    if not spans:
        raise ValueError("spans: found none, expected at least one")
    for number, span in enumerate(spans):
        if span.limit < automaton.least:
            raise ValueError(f"spans[{number}].limit: found {span.limit}, expected at least {automaton.least}")
        if number:
            check_ids(f"spans[{number}].forced", span.forced, vocabulary)
    stops = np.cumsum([0, *(len(span.forced) for span in spans[1:])]).tolist()
    size = -(-(len(spans) + 1) // _SPANS) * _SPANS

    def padded(values: Sequence[int], length: int) -> np.ndarray:
        return np.pad(np.asarray(values, np.int32), (0, length - len(values)))

    forced = [token for span in spans[1:] for token in span.forced]
    return _Table(
        padded(forced, max(1, -(-len(forced) // _FORCED)) * _FORCED),
        padded([0, *stops[:-1]], size),
        padded([0, *stops[1:]], size),
        padded([span.limit for span in spans], size),
        np.array(len(spans), np.int32),
    )


class _State(NamedTuple):
    """The state of the loop."""

    made: Int[Array, ""]  # number of iterations so far
    token: Int[Array, " B"]  # newest token of each row
    span: Int[Array, " B"]  # span that the row writes; the number of spans where it is complete
    # index of the row's next forced token; at the end of the span's forced tokens the text is free
    at: Int[Array, " B"]
    used: Int[Array, " B"]  # number of free tokens in the span
    state: Int[Array, " B"]  # state of the automaton
    tokens: Int[Array, "B M"]  # tokens written
    owner: Int[Array, "B M"]  # span whose free text the token belongs to; -1 on forced tokens and after the end
    cache: Cache  # keys and values of prefixes and written tokens


def _advance(now: _State, logits_BxV: Float[Array, "B V"], table: _Table, automaton: tuple) -> _State:
    """Writes one token per row."""
    step, after, kept = automaton
    forced, left = now.at < table.end[now.span], table.limit[now.span] - now.used - 1
    allowed_BxV = after[now.state] <= left[:, None]
    picked = jnp.argmax(jnp.where(allowed_BxV, logits_BxV, -jnp.inf), axis=-1).astype(jnp.int32)
    state = step[now.state, picked].astype(jnp.int32)
    ends = state == END
    text = jnp.where(ends, kept[picked], picked)
    nothing = ends & (text < 0)  # the span ends, and this iteration already writes the first token of the next one
    finished = ~forced & (ends | (left <= 0))
    following = table.begin[now.span + 1]
    at = jnp.where(forced, now.at, following)
    token = jnp.where(forced | nothing, table.forced[at], text)
    running = now.span < table.spans
    free = running & ~forced & ~nothing
    moved = jnp.where(forced | (finished & nothing), at + 1, jnp.where(finished, following, now.at))
    column = functools.partial(jax.lax.dynamic_update_slice, start_indices=(0, now.made))
    return _State(
        made=now.made + 1,
        token=token,
        span=jnp.minimum(now.span + finished, table.spans),
        at=moved,
        used=jnp.where(finished | forced, 0, now.used + 1),
        state=jnp.where(finished | forced, 0, state),
        tokens=column(now.tokens, token[:, None]),
        owner=column(now.owner, jnp.where(free, now.span, -1)[:, None]),
        cache=now.cache,
    )


@functools.partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=4)
def write_program(
    model: Qwen3,
    width: int,
    fused: bool,
    params: Params,
    cache: Cache,
    prefix: tuple,
    logits_BxV: Float[Array, "B V"],
    table: _Table,
    automaton: tuple,
) -> tuple[Int[Array, "B M"], Int[Array, "B M"], Cache]:
    """Runs the loop; returns the tokens, the span of each, and the cache, so that its memory is reused."""
    lengths, trunk = prefix
    table = _Table(*map(jnp.asarray, table))
    columns = jnp.arange(capacity_of(cache))
    base = lengths + trunk.lengths

    def body(now: _State) -> _State:
        at = width + now.made - 1
        seen = (columns < lengths[:, None]) | ((columns >= width) & (columns <= at))
        position = base + now.made - 1
        hidden, cache = read_next(model, params, now.token, position, Segment(now.cache, seen), at, [trunk], fused)
        return _advance(now._replace(cache=cache), model.logits(params, hidden), table, automaton)

    none = jnp.zeros(lengths.shape, jnp.int32)
    empty = jnp.zeros((len(lengths), columns.size - width), jnp.int32)
    now = _State(jnp.zeros((), jnp.int32), none, none, none, none, none, empty, empty - 1, cache)
    now = _advance(now, logits_BxV, table, automaton)
    most = empty.shape[1]
    now = jax.lax.while_loop(lambda s: (s.made < most) & jnp.any(s.span < table.spans), body, now)
    return now.tokens, now.owner, now.cache
