"""The streaming engine: many streams, each with a growing trunk in its own KV cache, and branches off the trunks.

An event costs one pass over its own tokens, with attention over the trunk's cache. The cache's capacity grows in steps
of 128 up to 1024, and in four steps per doubling beyond. Branches are computed side by side against the trunk and never
enter its cache. Every answer equals that of a cold start on the ids that the stream keeps.

A budget limits the tokens of a trunk. When an event would exceed it, the oldest events are evicted until at most a
share `keep` of the budget is used; the system part and the new event are never evicted. The remaining tokens are read
again from position 0, because the keys of later events depend on the evicted ones. With keep = 1/2, one token is read
again per appended token.

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

Ids = Sequence[int] | np.ndarray
"""Token ids: a list, a tuple or an integer array of one dimension."""

_SMALLEST = 128  # smallest capacity of a cache, and smallest step in which it grows
_CHUNK = 512  # most trunk tokens per pass


@dataclasses.dataclass
class _Stream:
    """One stream.

    Attributes:
      events: Token ids of each event; the first entry is the system part.
      cache: Keys and values of the events.
      length: Number of cached tokens.
    """

    events: list[list[int]]
    cache: Cache
    length: int = 0


class Engine:
    """Reads events as they arrive and computes logits at branches; streams are independent of each other.

    Attributes:
      model: The static half of the student.
      budget: Maximum number of tokens of a trunk, not counting branches and generated tokens.
      keep: Largest share of the budget that is used after an eviction.
    """

    def __init__(self, model: Qwen3, params: Params, budget: int | float = 4096, keep: float = 0.5):
        """Prepares an engine without streams; it holds a copy of the parameters, with the layers unstacked.

        Args:
          model: The static half of the student.
          params: Parameters as `Qwen3.init` returns them.
          budget: Maximum number of tokens of a trunk, an integer.
          keep: Largest share of the budget that is used after an eviction.

        Raises:
          ValueError: when `budget` or `keep` is out of range.
        """
        if isinstance(budget, bool) or not isinstance(budget, int | np.integer):
            raise ValueError(f"budget: found {budget!r}, expected an integer of at least 1")
        if budget < 1:
            raise ValueError(f"budget: found {budget}, expected at least 1")
        if not 0 < keep <= 1:
            raise ValueError(f"keep: found {keep}, expected a number in (0, 1]")
        self.model, self.budget, self.keep = model, int(budget), keep
        self._params = unstack_layers(params)
        self._streams: dict[str, _Stream] = {}

    def open(self, stream: str, system: Ids) -> None:
        """Opens a stream with its system part, the beginning of the trunk, which is never evicted.

        Raises:
          ValueError: when the stream is already open, or the system part is empty, has ids out of range, or exceeds the
            budget.
        """
        if stream in self._streams:
            raise ValueError(f"stream: found {stream!r} open already, expected a new one")
        self._check("system", system)
        if len(system) > self.budget:
            raise ValueError(f"system: found {len(system)} tokens, expected at most the budget of {self.budget}")
        self._streams[stream] = _Stream([], empty(self.model.config, 1, _capacity(len(system))))
        self._extend(self._streams[stream], [int(token) for token in system], ())

    def close(self, stream: str) -> None:
        """Closes a stream and frees its cache.

        Raises:
          ValueError: when no such stream is open.
        """
        self._stream(stream)
        del self._streams[stream]

    def trunk(self, stream: str) -> list[int]:
        """The token ids in the stream's cache: those that a cold start would have to read."""
        return [token for event in self._stream(stream).events for token in event]

    def append(self, stream: str, event: Ids) -> int:
        """Reads one event into the stream's cache.

        Returns:
          How many events were evicted to make room for it.

        Raises:
          ValueError: when the event is empty, has ids out of range, or with the system part exceeds the budget.
        """
        evicted, _ = self._append(stream, event, ())
        return evicted

    def score(
        self, stream: str, branches: Sequence[Branch], answers: Ids | None = None, event: Ids = ()
    ) -> list[Float[np.ndarray, "P A"]]:
        """Computes logits at the marked places of branches side by side; no branch enters the cache.

        Args:
          stream: Name of an open stream.
          branches: Branches that continue the stream's trunk.
          answers: Ids of the tokens whose logits are returned; only their rows of the output head are read. None reads
            the whole vocabulary.
          event: Token ids of an event to append first, in the same pass; may be empty.

        Returns:
          The logits [places, answers] of each branch, in float32.

        Raises:
          ValueError: as `append` does, or when there are no branches or an id is out of range.
        """
        if not branches:
            raise ValueError("branches: found none, expected at least one")
        for number, branch in enumerate(branches):
            self._check(f"branches[{number}]", branch.ids)
        if answers is not None:
            self._check("answers", answers)
        if len(event):
            _, logits = self._append(stream, event, branches, answers)
        else:
            logits = self._extend(self._stream(stream), [], branches, answers)
        stops = np.cumsum([len(branch.marked) for branch in branches])
        return np.split(np.asarray(logits)[: stops[-1]], stops[:-1])

    def generate(
        self,
        stream: str,
        branch: Ids,
        limit: int,
        sampling: Sampling | None = None,
        stop: Sequence[int] = (),
    ) -> Generated:
        """Continues a branch off the trunk by at most `limit` tokens, without changing the cache.

        Args:
          stream: Name of an open stream.
          branch: Token ids after the trunk, at least one.
          limit: Maximum number of new tokens.
          sampling: Sampling settings of one row; None is greedy.
          stop: Ids of the tokens that end the text.

        Raises:
          ValueError: naming the argument that is empty or out of range.
        """
        state = self._stream(stream)
        self._check("branch", branch)
        if limit < 1:
            raise ValueError(f"limit: found {limit}, expected at least 1")
        tokens = np.zeros((1, bucket(len(branch))), np.int32)
        tokens[0, : len(branch)] = branch
        lengths, trunk_lengths = np.array([len(branch)], np.int32), np.array([state.length], np.int32)
        logits, cache = sampler.branch_off(
            self.model, self._params, state.cache, trunk_lengths, tokens, lengths, room=bucket(limit)
        )
        start = Start(cache, lengths, tokens.shape[1], logits, state.cache, trunk_lengths)
        return sampler.decode(self.model, self._params, start, limit, sampling or make_sampling(1), stop)[0]

    def _append(
        self, stream: str, event: Ids, branches: Sequence[Branch], answers: Ids | None = None
    ) -> tuple[int, Array | None]:
        """Makes room for an event, then reads it and the branches after it."""
        state = self._stream(stream)
        self._check("event", event)
        if len(state.events[0]) + len(event) > self.budget:
            raise ValueError(
                f"event: found {len(event)} tokens after a system part of {len(state.events[0])}, expected at most the "
                f"budget of {self.budget} in all"
            )
        evicted = self._evict(state, len(event)) if state.length + len(event) > self.budget else 0
        return evicted, self._extend(state, [int(token) for token in event], branches, answers)

    def _evict(self, state: _Stream, coming: int) -> int:
        """Evicts the oldest events until the rest and `coming` tokens use at most `keep` of the budget.

        The rest is read again.

        Returns:
          How many events were evicted.
        """
        system, *events = state.events
        left, evicted = state.length + coming, 0
        while evicted < len(events) and left > self.keep * self.budget:
            left -= len(events[evicted])
            evicted += 1
        state.events, state.length = [], 0
        self._extend(state, system, ())
        kept = [token for event in events[evicted:] for token in event]
        if kept:
            self._extend(state, kept, ())
        state.events = [system, *events[evicted:]]
        return evicted

    def _extend(
        self, state: _Stream, event: list[int], branches: Sequence[Branch], answers: Ids | None = None
    ) -> Array | None:
        """Reads an event into the cache and branches after it; returns the logits at the branches' places."""
        *chunks, last = [event[i : i + _CHUNK] for i in range(0, max(1, len(event)), _CHUNK)]
        for chunk in chunks:
            self._step(state, chunk, (), None)
        logits = self._step(state, last, branches, answers)
        if event:
            state.events.append(event)
        return logits

    def _step(self, state: _Stream, event: list[int], branches: Sequence[Branch], answers: Ids | None) -> Array | None:
        """Runs one pass over at most `_CHUNK` trunk tokens and all branches."""
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
        """Grows the cache to hold at least `positions` tokens."""
        capacity = capacity_of(state.cache)
        if positions > capacity:
            state.cache = _grow(state.cache, _capacity(positions))

    def _stream(self, stream: str) -> _Stream:
        if stream not in self._streams:
            raise ValueError(f"stream: found {stream!r}, expected one of the {len(self._streams)} open streams")
        return self._streams[stream]

    def _check(self, name: str, ids: Ids) -> None:
        check_ids(name, ids, self.model.config.vocab_size)


def _capacity(positions: int) -> int:
    """The capacity of a cache that holds `positions` tokens.

    Finer steps would compile more programs; coarser steps would compute more scores of masked positions.
    """
    return bucket(positions, _SMALLEST)


_grow = jax.jit(grow, static_argnums=1)


@functools.partial(jax.jit, static_argnums=0)
def _read_row(
    model: Qwen3, params: Params, cache: Cache, length: Int[Array, ""], row: Row, answers: Int[Array, " A"] | None
) -> tuple[Float[Array, "P A"], Cache]:
    """Reads a row after the first `length` positions of a cache.

    Returns:
      Logits at the row's marked places, and the keys and values of its tokens.
    """
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
    """Writes keys and values after the first `length` positions of a cache, in place.

    It is a program of its own because one that also read the cache would copy it. The keys of branches, which follow
    those of the event, are never visible, and the next event overwrites them.
    """
    return write(cache, fresh, length)
