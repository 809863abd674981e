"""The engine of live streams: their trunks are read and continued in batches against one pool of pages.

Streams of a batch advance together: one pass reads an event and the branches after it for each of them. Branches are
computed side by side against the trunk and never enter it, and every answer equals that of a cold start on the token
ids that the stream keeps. What a batch compiles depends only on three classes: its number of rows, the pages per
stream, and the new tokens per row. Their number is therefore small, and all can be compiled before they are needed
(`warm_up`, `compile_behind`). On a CPU the pool grows to its bound in few steps; a GPU's memory is reserved at once
anyway. Which tokens a stream keeps, and which streams are in the pool, is decided in `trunks`.

Dimensions: B batch, n pages per stream, L new tokens, P marked places, A answers.
"""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import itertools
import os
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from prism_jax.student.branches import Branch, NewTokens, lay_out
from prism_jax.student.constrained import DeviceAutomaton, Span, compile_spans, write_spans
from prism_jax.student.constrained import room as room_of
from prism_jax.student.dispatch import platform
from prism_jax.student.kv_cache import Segment, unstack_layers
from prism_jax.student.live_programs import (
    Programs,
    at_least,
    classes,
    compiled,
    described,
    place_beside,
    read_rows,
    state_rows,
)
from prism_jax.student.pages import PAGE, enlarge, make_pool, page_bytes, store, table_of
from prism_jax.student.qwen3 import Params, Qwen3
from prism_jax.student.start import branch_off, check_ids
from prism_jax.student.trunks import Trunk, Trunks

_PLACES = 8  # marked places per row are padded to a multiple of this
_WIDER, _LONGER = 8, 4  # from one class of pages per stream, and of new tokens, to the next
_SMALLEST, _LARGER = 1 << 27, 4  # bytes of a pool that grows, and from one of its sizes to the next


class ReadRequest(NamedTuple):
    """What to read on one stream: an event, which may be empty, and branches after it."""

    stream: str
    event: Sequence[int]
    branches: Sequence[Branch]
    reserve: int = 0  # tokens of the budget that stay free beside the trunk with the event


class Engine:
    """Reads events and branches of many streams in batches."""

    def __init__(
        self,
        model: Qwen3,
        params: Params,
        answers: Sequence[int],
        *,
        budget: int,
        memory: int,
        room: int = 0,
        keep: float = 0.5,
        batches: Sequence[int] = (1, 16),
        longest: int = 256,
        at: Sequence[int] = (),
    ):
        """Allocates the pool; it also holds a copy of the parameters, with the layers unstacked.

        Args:
          model: The static half of the student.
          params: Parameters as `Qwen3.init` returns them.
          answers: Ids of the tokens whose logits `read` returns.
          budget: Maximum number of tokens of a trunk, not counting branches and written tokens.
          memory: Largest size of the pool in bytes.
          room: Cache positions for written text, at least `constrained.room` of every text that `write` is asked for.
          keep: Largest share of the budget that is used after old events were dropped; 1 drops only what must go.
          batches: Numbers of rows that programs are compiled for.
          longest: Most new tokens of a row that programs are compiled for in advance; longer events are read in pieces.
          at: Numbers of blocks, ascending; `read` then returns the states after them, end to end, in place of logits.

        Raises:
          ValueError: for a setting out of range, or a pool that does not hold one full trunk.
        """
        if budget < 1:
            raise ValueError(f"budget: found {budget}, expected at least 1")
        if not 0 < keep <= 1:
            raise ValueError(f"keep: found {keep}, expected a number in (0, 1]")
        if longest < 1:
            raise ValueError(f"longest: found {longest}, expected at least 1")
        if not batches or min(batches) < 1:
            raise ValueError(f"batches: found {tuple(batches)}, expected numbers of rows")
        total, needed = memory // page_bytes(model.config) - 1, -(-budget // PAGE)
        if total < needed:
            least = (needed + 1) * page_bytes(model.config)
            raise ValueError(
                f"memory: found {memory} bytes, expected at least {least} for one trunk of {budget} tokens"
            )
        if at:
            model.check_blocks(at)
        else:
            check_ids("answers", answers, model.config.vocab_size)
        self.model, self.batches, self.room = model, tuple(sorted(batches)), room
        self._answers, self._at = np.asarray(answers, np.int32), tuple(at)
        self._params = unstack_layers(params, model.config.compute)
        self._trunks = Trunks(budget, keep, total)
        smallest = max(_SMALLEST // page_bytes(model.config), needed + 1) if platform() == "cpu" else total + 1
        self._sizes = classes(smallest, total + 1, _LARGER)
        self._pool = place_beside(self._params, make_pool(model.config, self._sizes[0]))
        self._widths = classes(2, needed, _WIDER)
        self._lengths = classes(max(1, longest // _LONGER), longest, _LONGER)
        self.programs = Programs()
        self._behind: tuple[Callable[[], DeviceAutomaton] | None] | None = None

    def __contains__(self, stream: str) -> bool:
        return stream in self._trunks

    def __len__(self) -> int:
        return len(self._trunks)

    @property
    def budget(self) -> int:
        """Maximum number of tokens of a trunk."""
        return self._trunks.budget

    @property
    def resident(self) -> int:
        """Number of streams whose trunk is in the pool."""
        return self._trunks.resident

    def open(self, stream: str, system: Sequence[int]) -> None:
        """Opens a stream with its system part, which is never dropped; reads nothing yet.

        ValueError when the stream is open already, or the system part is empty, has ids out of range, or exceeds the
        budget.
        """
        self._check("system", system)
        self._trunks.open(stream, system)

    def close(self, stream: str) -> None:
        """Forgets a stream and frees its pages."""
        self._trunks.close(stream)

    def tokens(self, stream: str) -> list[int]:
        """The token ids of a stream's trunk: those that a cold start would have to read."""
        return self._trunks[stream].ids

    def read_of(self, stream: str) -> int:
        """Number of a stream's tokens that were ever read, those that had to be read again included."""
        return self._trunks[stream].read

    def append(self, readings: Sequence[ReadRequest]) -> None:
        """Appends the events of distinct streams, which the next `read` of their streams reads; errors as there."""
        self._check_readings(readings)
        self._append(readings)

    def read(self, readings: Sequence[ReadRequest]) -> list[list[Float[np.ndarray, "P A"]]]:
        """Reads an event on each of distinct streams, and branches after it, which leave no trace.

        Returns for every reading the logits [places, answers] of each of its branches, or the states, in float32. What
        a stream keeps does not depend on the others of the call.

        Raises:
          ValueError: for a stream that is not open or given twice, ids out of range, a reading with neither event nor
            branch, or an event that exceeds the budget with the system part; no stream is changed then.
        """
        self._check_readings(readings)
        answers: list[list[np.ndarray]] = []
        coming = [(reading.stream, len(reading.event)) for reading in readings]
        for group in self._trunks.groups(coming, self.batches[-1]):
            chosen = readings[len(answers) : len(answers) + len(group)]
            self._append(chosen)
            answers += self._read_group(group, [reading.branches for reading in chosen])
        return answers

    def write(
        self, branches: Sequence[tuple[str, Sequence[int]]], spans: Sequence[Span], automaton: DeviceAutomaton
    ) -> list[list[list[int]]]:
        """Writes text after a branch of each stream, greedily; nothing of it enters the trunks.

        `branches` are streams, which may repeat, and the ids of a branch without the first span's forced tokens. The
        automaton says which tokens may occur. Returns for every branch the free tokens of each span.
        """
        for number, (_, ids) in enumerate(branches):
            self._check(f"branches[{number}]", ids)
        if room_of(spans) > self.room:
            raise ValueError(
                f"spans: found a text of {room_of(spans)} positions, expected at most the room of {self.room}"
            )
        written: list[list[list[int]]] = []
        for group in self._trunks.groups([(stream, 0) for stream, _ in branches], self.batches[-1]):
            distinct = list(dict.fromkeys(group))
            self._read_group(distinct, [() for _ in distinct])
            rows = [ids for _, ids in branches[len(written) : len(written) + len(group)]]
            written += self._write_group(group, rows, spans, automaton)
        return written

    def warm_up(self, automaton: DeviceAutomaton | None = None) -> int:
        """Compiles what `read` and, given the automaton of any text, `write` need, without running it.

        Programs are compiled side by side, in as many threads as there are processors. Returns their number.
        """
        jobs = self._jobs(None if automaton is None else lambda: automaton)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
            for done in [threads.submit(job) for _, job in jobs]:
                done.result()
        return 2 * len(jobs)

    def compile_behind(self, automaton: Callable[[], DeviceAutomaton] | None = None) -> None:
        """Compiles in a thread what `warm_up` compiles, while nobody reads, and so again once the pool has grown.

        What `read` and `write` need before that is compiled when they need it.
        """
        self._behind = (automaton,)
        self.programs.compile_behind(self._compile_next)

    def _compile_next(self) -> bool:
        """Compiles the first programs that are missing; False where none is."""
        assert self._behind is not None, "the thread is started with what it compiles"
        job = next((job for last, job in self._jobs(*self._behind) if last not in self.programs), None)
        if job is not None:
            job()
        return job is not None

    def _jobs(self, automaton: Callable[[], DeviceAutomaton] | None) -> list[tuple[Hashable, Callable[[], None]]]:
        """What compiles two programs for each class of sizes, and the second of them, the smallest batches first."""
        pool, jobs = len(self._pool[0].values), list[tuple[Hashable, Callable[[], None]]]()
        for rows in self.batches:
            sizes = [(pool, rows, *size) for size in itertools.product(self._widths, self._lengths)]
            jobs += [(("store", *own), functools.partial(self._compile_reading, *own)) for own in sizes]
            if automaton is not None:
                jobs += [(("write", *own), functools.partial(self._compile_writing, *own, automaton)) for own in sizes]
        return jobs

    def _append(self, readings: Sequence[ReadRequest]) -> None:
        for reading in readings:
            if len(reading.event):
                self._trunks.append(reading.stream, reading.event, reading.reserve)

    def _compile_reading(self, size: int, rows: int, width: int, length: int) -> None:
        """Compiles what reads and stores a class of sizes, of which the first is the pool's."""
        pool, table = described(self._pool, size), table_of([], width, rows)
        row, counts = _stack([lay_out((0,), [Branch((0,))], length, _PLACES)] * rows), np.zeros(rows, np.int32)
        program, arguments = self._reading(pool, table, counts, row)
        with self.programs.compile(("read", size, rows, width, length, _PLACES)):
            _, fresh = compiled(program, *arguments)
        with self.programs.compile(("store", size, rows, width, length)):
            compiled(store, pool, fresh, table, counts, counts)

    def _compile_writing(
        self, size: int, rows: int, width: int, length: int, automaton: Callable[[], DeviceAutomaton]
    ) -> None:
        """Compiles what writes in a class of sizes."""
        counts, tokens = np.zeros(rows, np.int32), np.zeros((rows, length), np.int32)
        trunk = Segment.first(described(self._pool, size), counts, table_of([], width, rows))
        with self.programs.compile(("branch", size, rows, width, length)):
            start = branch_off(self.model, self._params, trunk, tokens, counts, self.room, compiled)
        with self.programs.compile(("write", size, rows, width, length)):
            compile_spans(self.model, self._params, start, automaton())

    def _read_group(self, group: Sequence[str], branches: Sequence[Sequence[Branch]]) -> list[list[np.ndarray]]:
        """Reads all tokens of a group that are not in the pool, and branches after them."""
        trunks = self._trunks.hold(group)
        self._grow(max(page for trunk in trunks for page in trunk.pages))
        left = [trunk.unread for trunk in trunks]
        branch_tokens = [sum(len(branch.ids) for branch in row_branches) for row_branches in branches]
        longest = self._lengths[-1]
        while True:
            # A piece takes the branches along if both fit; otherwise it is a part of the trunk alone.
            last = [len(ids) + more <= max(longest, more) for ids, more in zip(left, branch_tokens, strict=True)]
            if all(last):
                break
            pieces = [ids[:longest] if not end else () for ids, end in zip(left, last, strict=True)]
            self._pass(trunks, pieces, [()] * len(group))
            left = [ids[len(piece) :] for ids, piece in zip(left, pieces, strict=True)]
        if not any(map(len, left)) and not any(branch_tokens):
            return [[] for _ in group]
        logits = self._pass(trunks, left, branches)
        return [_split(logits[row], row_branches) for row, row_branches in enumerate(branches)]

    def _grow(self, page: int) -> None:
        """Makes the pool large enough to have a page."""
        if page >= len(self._pool[-1].values):  # where memory ended in between, only the first layers are larger
            pages = max(at_least(self._sizes, page + 1, _LARGER), len(self._pool[0].values))
            for number in range(len(self._pool)):  # so that no more than one layer is in memory twice
                (layer,) = place_beside(self._params, (enlarge(self._pool[number], pages),))
                self._pool = (*self._pool[:number], layer, *self._pool[number + 1 :])
            if self._behind is not None:
                self.programs.compile_behind(self._compile_next)

    def _pass(
        self,
        trunks: Sequence[Trunk],
        pieces: Sequence[Sequence[int]],
        branches: Sequence[Sequence[Branch]],
    ) -> np.ndarray:
        """Runs one pass over a piece of each trunk and the branches after it."""
        longest = max(
            len(p) + sum(len(b.ids) for b in row_branches) for p, row_branches in zip(pieces, branches, strict=True)
        )
        places = max(sum(len(branch.marked) for branch in row_branches) for row_branches in branches)
        length, marked = at_least(self._lengths, longest, _LONGER), -(-max(places, 1) // _PLACES) * _PLACES
        rows, width = self._shape([len(trunk.pages) for trunk in trunks])
        laid = [
            lay_out(piece, row_branches, length, marked) for piece, row_branches in zip(pieces, branches, strict=True)
        ]
        lengths, counts = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
        lengths[: len(trunks)] = [trunk.length for trunk in trunks]
        counts[: len(trunks)] = list(map(len, pieces))
        row = _stack(laid + [laid[0]] * (rows - len(laid)))
        table = table_of([trunk.pages for trunk in trunks], width, rows)
        program, arguments = self._reading(self._pool, table, lengths, row)
        sizes = (len(self._pool[0].values), rows, width, length)
        with self.programs.run(("read", *sizes, marked)):
            outputs, fresh = program(*arguments)
        if counts.any():
            with self.programs.run(("store", *sizes)):
                self._pool = store(self._pool, fresh, table, lengths, counts)
        for trunk, piece in zip(trunks, pieces, strict=True):
            trunk.length += len(piece)
            trunk.read += len(piece)
        if self._at:
            return np.take_along_axis(np.asarray(outputs), np.asarray(row.places)[..., None], axis=1)
        return np.asarray(outputs)

    def _reading(
        self, pool: Any, table: np.ndarray, lengths: np.ndarray, row: NewTokens
    ) -> tuple[Any, tuple[Any, ...]]:
        """The program that reads rows, and its arguments."""
        arguments = (self.model, self._params, pool, table, lengths)
        if not self._at:
            return read_rows, (*arguments, row, self._answers)
        # It returns the states of all tokens, so that no number of marked places needs a program of its own.
        return state_rows, (*arguments, row._replace(places=row.places[:, :1]), self._at)

    def _write_group(
        self, group: Sequence[str], rows: Sequence[Sequence[int]], spans: Sequence[Span], automaton: DeviceAutomaton
    ) -> list[list[list[int]]]:
        trunks = [self._trunks[stream] for stream in group]
        count, width = self._shape([len(trunk.pages) for trunk in trunks])
        lengths = np.array([trunk.length for trunk in trunks] + [1] * (count - len(trunks)), np.int32)
        table = table_of([trunk.pages for trunk in trunks], width, count)
        full = [*rows, *[[0]] * (count - len(rows))]
        return self._write_rows(table, lengths, full, spans, automaton)[: len(group)]

    def _write_rows(
        self,
        table: np.ndarray,
        lengths: np.ndarray,
        rows: Sequence[Sequence[int]],
        spans: Sequence[Span],
        automaton: DeviceAutomaton,
    ) -> list[list[list[int]]]:
        branches = [[*ids, *spans[0].forced] for ids in rows]
        tokens = np.zeros((len(rows), at_least(self._lengths, max(map(len, branches)), _LONGER)), np.int32)
        for line, ids in zip(tokens, branches, strict=True):
            line[: len(ids)] = ids
        counts = np.array(list(map(len, branches)), np.int32)
        trunk = Segment.first(self._pool, lengths, table)
        sizes = (len(self._pool[0].values), len(rows), table.shape[1], tokens.shape[1])
        with self.programs.run(("branch", *sizes)):
            start = branch_off(self.model, self._params, trunk, tokens, counts, self.room)
        with self.programs.run(("write", *sizes)):
            return write_spans(self.model, self._params, start, spans, automaton)

    def _shape(self, pages: Sequence[int]) -> tuple[int, int]:
        """The classes of a batch: rows, and pages per stream."""
        return at_least(self.batches, len(pages), 1), at_least(self._widths, max(pages), _WIDER)

    def _check(self, name: str, ids: Sequence[int]) -> None:
        check_ids(name, ids, self.model.config.vocab_size)

    def _check_readings(self, readings: Sequence[ReadRequest]) -> None:
        twice = [name for name, n in collections.Counter(r.stream for r in readings).items() if n > 1]
        if twice:
            raise ValueError(f"readings: found stream {twice[0]!r} twice, expected distinct ones")
        for number, reading in enumerate(readings):
            trunk = self._trunks[reading.stream]
            for place, branch in enumerate(reading.branches):
                self._check(f"readings[{number}].branches[{place}]", branch.ids)
            if not len(reading.event):
                if not reading.branches:
                    raise ValueError(f"readings[{number}]: found neither event nor branch, expected one of them")
                continue
            self._check(f"readings[{number}].event", reading.event)
            used = len(trunk.events[0]) + reading.reserve
            if used + len(reading.event) > self.budget:
                raise ValueError(
                    f"readings[{number}].event: found {len(reading.event)} tokens after a system part and a reserve of "
                    f"{used}, expected at most the budget of {self.budget} in all"
                )


def _stack(rows: Sequence[NewTokens]) -> NewTokens:
    return NewTokens(*(np.stack(column) for column in zip(*rows, strict=True)))


def _split(logits: np.ndarray, branches: Sequence[Branch]) -> list[np.ndarray]:
    if not branches:
        return []
    stops = np.cumsum([len(branch.marked) for branch in branches])
    return np.split(logits[: stops[-1]], stops[:-1])
