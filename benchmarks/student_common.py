"""Shared by both sides of benchmarks/student.py: their processes, the timing of a turn, and the inputs."""

from __future__ import annotations

import concurrent.futures
import functools
import importlib
import multiprocessing
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.student.prompting.packing import Packed, decisions, pack

PAUSE = 0.03  # seconds before a turn, in which the threads of the previous turn go idle
YES, NO = 40, 41  # token ids of the answers at a slot


class Process:
    """An object of a module's class in its own process."""

    def __init__(self, module: str, name: str, *arguments: Any):
        spawn = multiprocessing.get_context("spawn")
        self.pool = concurrent.futures.ProcessPoolExecutor(1, spawn, _start, (module, name, arguments))

    def __call__(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the object and returns its result."""
        return self.pool.submit(_answer, method, arguments).result()

    def close(self) -> None:
        self.pool.shutdown()


_objects: list[Any] = []  # the one object of this process


def _start(module: str, name: str, arguments: Sequence[Any]) -> None:
    _objects.append(getattr(importlib.import_module(module), name)(*arguments))


def _answer(method: str, arguments: Sequence[Any]) -> Any:
    return getattr(_objects[0], method)(*arguments)


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Times one call in seconds, after a pause; returns the time and the result."""
    time.sleep(PAUSE)
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def random_tokens(vocabulary: int, seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(vocabulary, size=shape).astype(np.int32)


def random_rows(count: int, width: int) -> np.ndarray:
    return np.random.default_rng(3).normal(size=(count, width)).astype(np.float32)


class Shapes:
    """A template with ProactiveBench's lengths over random ids: 25 tokens per event, 9 per head, 18 per leaf."""

    def __init__(self, vocabulary: int):
        self.vocabulary, self.rng = vocabulary, np.random.default_rng(1)
        self.kept: dict[str, list[int]] = {}

    def _ids(self, name: str, count: int) -> list[int]:
        return self.kept.setdefault(name, self.rng.integers(self.vocabulary, size=count).tolist())

    def system(self) -> list[int]:
        return list(self._ids("system", 15))

    def event(self, event: Event, before: Event | None) -> list[int]:
        return self._ids(event.text, 15 + self.rng.poisson(10))

    def head(self) -> list[int]:
        return self._ids("head", 9)

    def leaf(self, candidate: Candidate) -> list[int]:
        return self._ids(candidate.text or "constant", 12 + self.rng.poisson(6))


def make_stream(events: int = 20, candidates: int = 5) -> Stream:
    """A stream with a step of labelled candidates at each event, as in ProactiveBench."""
    steps = tuple(
        Step(
            event=i,
            y_need=float(i % 2),
            candidates=tuple(Candidate(text=f"{i}.{j}", y_accept=float(j % 2)) for j in range(candidates)),
        )
        for i in range(events)
    )
    return Stream(id="s", events=tuple(Event(time=float(i), text=str(i)) for i in range(events)), steps=steps)


class Decisions(NamedTuple):
    """A stream of labelled decisions.

    Attributes:
      packed: All decisions as branches of one trunk.
      count: Number of decisions.
      sample: Eight decisions of medium length, each with its own trunk.
    """

    packed: Packed
    count: int
    sample: list[Packed]


def make_decisions(vocabulary: int) -> Decisions:
    """Makes a stream of 100 labelled decisions; the sample is of similar lengths, so that it needs little padding."""
    shapes, stream = Shapes(vocabulary), make_stream()
    packed = pack(stream, shapes, 10**6)
    rows = [pack(one, shapes, 10**6) for one in decisions(stream)]
    rows.sort(key=lambda row: len(row.trunk))
    middle = len(rows) // 2
    return Decisions(packed, len(rows), rows[middle - 4 : middle + 4])


class LiveStream(NamedTuple):
    """A live stream: token ids of the system prompt, of the events, and of the branch that is read after each event."""

    system: list[int]
    events: list[list[int]]
    head: list[int]
    leaf: list[int]


@functools.cache
def make_live_stream(vocabulary: int, events: int = 50) -> LiveStream:
    shapes = Shapes(vocabulary)
    texts = [shapes.event(Event(time=0.0, text=str(i)), None) for i in range(events)]
    return LiveStream(shapes.system(), texts, shapes.head(), shapes.leaf(Candidate()))
