"""The streaming engine: many streams, each a growing trunk in its own KV cache, and branches that leave no trace.

An event costs the reading of its own tokens, and attention over the trunk's cache, whose capacity grows by 128 up to
1024 and from there doubles in four steps. Branches are read side by side against the trunk and never enter it. Every
answer equals a cold start's on the ids that the stream keeps.

A budget bounds the trunk. When an event would exceed it, the oldest events are dropped, but neither the system's part
nor the new event, until at most `keep` of the budget is left; what is left is read again from position 0, since the
keys of kept events remember the dropped ones. With keep = 1/2 that is one token read again for each one appended.

Dimensions: L new tokens, P marked places, A answers (columns of the output head).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from prism_jax.student import sampler
from prism_jax.student.branches import Branch, Row, bucket, lay_out, row_mask
from prism_jax.student.kv_cache import Cache, Segment, capacity_of, empty, grow, read, unstack_layers, write
from prism_jax.student.qwen3 import Params, Qwen3
from prism_jax.student.sampler import Generated, Start, check_ids
from prism_jax.student.sampling import Sampling, make_sampling

_SMALLEST = 128  # smallest capacity of a cache, and smallest step by which it grows
_CHUNK = 512  # most tokens of a trunk that are read at once


@dataclasses.dataclass
class _Stream:
    """One stream: the ids of its events (the first is the system's part), their cache, and its length."""

    events: list[list[int]]
    cache: Cache
    length: int = 0


class Engine:
    """Reads events as they come and answers at branches; streams are independent of each other.

    Attributes:
      model: The static half of the student.
      budget: Most tokens of a trunk; branches and what is generated come on top.
      keep: Share of the budget that an eviction leaves at most.
    """

    def __init__(self, model: Qwen3, params: Params, budget: int = 4096, keep: float = 0.5):
        """Takes parameters as `Qwen3.init` returns them; the engine holds a copy of the layers, one by one.

        Raises:
          ValueError: when `budget` or `keep` is out of range.
        """
        if budget < 1:
            raise ValueError(f"budget: found {budget}, expected at least 1")
        if not 0 < keep <= 1:
            raise ValueError(f"keep: found {keep}, expected a number in (0, 1]")
        self.model, self.budget, self.keep = model, budget, keep
        self._params = unstack_layers(params)
        self._streams: dict[str, _Stream] = {}

    def open(self, stream: str, system: Sequence[int]) -> None:
        """Starts a stream with the part of the trunk that is never evicted.

        Raises:
          ValueError: when the stream is open already, or the part is empty or exceeds the budget.
        """
        if stream in self._streams:
            raise ValueError(f"stream: found {stream!r} open already, expected a new one")
        self._check("system", system)
        if len(system) > self.budget:
            raise ValueError(f"system: found {len(system)} tokens, expected at most the budget of {self.budget}")
        self._streams[stream] = _Stream([], empty(self.model.config, 1, _capacity(len(system))))
        self._extend(self._streams[stream], list(system), ())

    def close(self, stream: str) -> None:
        """Forgets a stream and frees its cache."""
        self._stream(stream)
        del self._streams[stream]

    def trunk(self, stream: str) -> list[int]:
        """The ids that the stream's cache holds: what a cold start would have to read."""
        return [token for event in self._stream(stream).events for token in event]

    def append(self, stream: str, event: Sequence[int]) -> int:
        """Reads one event into the stream's cache; returns how many events were evicted for it.

        Raises:
          ValueError: when the event is empty, has ids out of range, or exceeds the budget beside the system's part.
        """
        evicted, _ = self._append(stream, event, ())
        return evicted

    def score(
        self, stream: str, branches: Sequence[Branch], answers: Sequence[int] | None = None, event: Sequence[int] = ()
    ) -> list[Float[np.ndarray, "P A"]]:
        """Logits at the marked places of branches, all read side by side; none of them enters the cache.

        Args:
          stream: An open stream.
          branches: Off the end of its trunk.
          answers: Ids of the tokens whose logits are wanted; only these rows of the output head are read. None reads
            the whole vocabulary.
          event: An event to append first, read in the same pass; may be none.

        Returns:
          For each branch its logits [places, answers], float32.
        """
        if not branches:
            raise ValueError("branches: found none, expected at least one")
        for number, branch in enumerate(branches):
            self._check(f"branches[{number}]", branch.ids)
        if answers is not None:
            self._check("answers", answers)
        if event:
            _, logits = self._append(stream, event, branches, answers)
        else:
            logits = self._extend(self._stream(stream), [], branches, answers)
        stops = np.cumsum([len(branch.marked) for branch in branches])
        return np.split(np.asarray(logits)[: stops[-1]], stops[:-1])

    def generate(
        self,
        stream: str,
        branch: Sequence[int],
        limit: int,
        sampling: Sampling | None = None,
        stop: Sequence[int] = (),
    ) -> Generated:
        """Continues from a branch off the trunk by at most `limit` tokens, and leaves the cache as it was.

        Args:
          stream: An open stream.
          branch: Token ids after the trunk, at least one.
          limit: Most new tokens.
          sampling: Settings of one row; None is greedy.
          stop: Tokens that end the text.
        """
        state = self._stream(stream)
        self._check("branch", branch)
        if limit < 1:
            raise ValueError(f"limit: found {limit}, expected at least 1")
        tokens = np.zeros((1, bucket(len(branch))), np.int32)
        tokens[0, : len(branch)] = branch
        lengths, trunk_lengths = np.array([len(branch)], np.int32), np.array([state.length], np.int32)
        logits, cache = _branch_off(
            self.model, self._params, state.cache, trunk_lengths, tokens, lengths, room=bucket(limit)
        )
        start = Start(cache, lengths, tokens.shape[1], logits, state.cache, trunk_lengths)
        return sampler.decode(self.model, self._params, start, limit, sampling or make_sampling(1), stop)[0]

    def _append(
        self, stream: str, event: Sequence[int], branches: Sequence[Branch], answers: Sequence[int] | None = None
    ) -> tuple[int, Array | None]:
        """Makes room for an event, then reads it, and branches behind it."""
        state = self._stream(stream)
        self._check("event", event)
        if len(state.events[0]) + len(event) > self.budget:
            raise ValueError(
                f"event: found {len(event)} tokens after a system part of {len(state.events[0])}, expected at most the "
                f"budget of {self.budget} in all"
            )
        evicted = self._evict(state, len(event)) if state.length + len(event) > self.budget else 0
        return evicted, self._extend(state, list(event), branches, answers)

    def _evict(self, state: _Stream, coming: int) -> int:
        """Drops the oldest events until kept and coming ones fill at most `keep` of the budget; reads the rest."""
        system, *events = state.events
        left, dropped = state.length + coming, 0
        while dropped < len(events) and left > self.keep * self.budget:
            left -= len(events[dropped])
            dropped += 1
        state.events, state.length = [], 0
        self._extend(state, system, ())
        kept = [token for event in events[dropped:] for token in event]
        if kept:
            self._extend(state, kept, ())
        state.events = [system, *events[dropped:]]
        return dropped

    def _extend(
        self, state: _Stream, event: list[int], branches: Sequence[Branch], answers: Sequence[int] | None = None
    ) -> Array | None:
        """Reads an event into the cache, and branches behind it; returns the logits at their places."""
        *chunks, last = [event[i : i + _CHUNK] for i in range(0, max(1, len(event)), _CHUNK)]
        for chunk in chunks:
            self._step(state, chunk, (), None)
        logits = self._step(state, last, branches, answers)
        if event:
            state.events.append(event)
        return logits

    def _step(
        self, state: _Stream, event: list[int], branches: Sequence[Branch], answers: Sequence[int] | None
    ) -> Array | None:
        """One pass over at most `_CHUNK` tokens of the trunk and all branches."""
        row = lay_out(event, branches)
        columns = None if answers is None else np.asarray(answers, np.int32)
        if event:
            self._reserve(state, state.length + row.tokens.size)
        length = np.int32(state.length)
        logits, fresh = _read_row(self.model, self._params, state.cache, length, row, columns)
        if event:
            state.cache = _store(state.cache, fresh, length)
            state.length += len(event)
        return logits if branches else None

    def _reserve(self, state: _Stream, positions: int) -> None:
        """Gives the cache the capacity that `positions` need, if it has less."""
        capacity = capacity_of(state.cache)
        if positions > capacity:
            state.cache = _grow(state.cache, _capacity(positions))

    def _stream(self, stream: str) -> _Stream:
        if stream not in self._streams:
            raise ValueError(f"stream: found {stream!r}, expected an open one of {sorted(self._streams)}")
        return self._streams[stream]

    def _check(self, name: str, ids: Sequence[int]) -> None:
        check_ids(name, ids, self.model.config.vocab_size)


def _capacity(positions: int) -> int:
    """The capacity of a cache that holds `positions`.

    Finer steps would compile more programs, coarser ones compute more scores of positions that nothing sees.
    """
    return bucket(positions, _SMALLEST)


_grow = jax.jit(grow, static_argnums=1)


@functools.partial(jax.jit, static_argnums=0)
def _read_row(
    model: Qwen3, params: Params, cache: Cache, length: Int[Array, ""], row: Row, answers: Int[Array, " A"] | None
) -> tuple[Float[Array, "P A"], Cache]:
    """Logits at the marked places of a row behind the first `length` positions of a cache; its keys and values."""
    seen = (jnp.arange(capacity_of(cache)) < length)[None]
    hidden, fresh = read(
        model,
        params,
        jnp.asarray(row.tokens)[None],
        (length + row.offsets)[None],
        row_mask(row)[None],
        jnp.asarray(row.places)[None],
        [Segment(cache, seen)],
    )
    if answers is None:
        return model.logits(params, hidden[0]), fresh
    rows = model.head(params)[answers]
    return hidden[0].astype(jnp.float32) @ rows.astype(jnp.float32).T, fresh


@functools.partial(jax.jit, donate_argnums=0)
def _store(cache: Cache, fresh: Cache, length: Int[Array, ""]) -> Cache:
    """Writes what was read behind the first `length` positions, in place, which one program that also reads would not.

    What branches leave behind the event is never seen, and the next event overwrites it.
    """
    return write(cache, fresh, length)


@functools.partial(jax.jit, static_argnums=0, static_argnames="room")
def _branch_off(
    model: Qwen3,
    params: Params,
    cache: Cache,
    lengths: Int[Array, " B"],
    tokens_BxL: Int[Array, "B L"],
    counts: Int[Array, " B"],
    room: int,
) -> tuple[Float[Array, "B V"], Cache]:
    """Logits after a branch, and a cache of the branch alone with room behind it."""
    length = tokens_BxL.shape[1]
    seen = jnp.arange(capacity_of(cache)) < lengths[:, None]
    positions = lengths[:, None] + jnp.arange(length)
    causal = jnp.tril(jnp.ones((1, length, length), bool))
    hidden, fresh = read(model, params, tokens_BxL, positions, causal, counts[:, None] - 1, [Segment(cache, seen)])
    return model.logits(params, hidden[:, 0]), grow(fresh, length + room)
