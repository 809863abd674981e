"""llama.cpp's side of benchmarks/llama.py, which imports nothing of prism_jax, so that its start is its own."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

BATCH = 16  # streams that are read together
CONTEXT = 512  # tokens of a stream


class Inputs(NamedTuple):
    """Token ids of live streams: system part, events, the branch after each event, answers; and the branch's slots."""

    system: list[int]
    events: list[list[int]]
    branch: list[int]
    slots: list[int]
    answers: list[int]


class Side:
    """llama.cpp, through its C interface."""

    def __init__(self, path: str, threads: int, inputs: Sequence):
        import llama_cpp  # no dependency of the project, and its start is timed

        self.c = llama_cpp
        self.c.llama_backend_init()
        self.log = self.c.llama_log_callback(lambda level, text, data: None)
        self.c.llama_log_set(self.log, ctypes.c_void_p(0))
        self.model = self.c.llama_model_load_from_file(path.encode(), self.c.llama_model_default_params())
        if not self.model:
            raise ValueError(f"{path}: llama.cpp could not load it")
        self.inputs, self.threads, self.context = Inputs(*inputs), threads, None

    def open_many(self, streams: int) -> None:
        """Opens live streams, each a sequence of one context, and reads their system parts."""
        if self.context:
            self.c.llama_free(self.context)
        params = self.c.llama_context_default_params()
        params.n_ctx, params.n_seq_max, params.kv_unified = streams * CONTEXT, streams, False
        params.n_batch = params.n_ubatch = 2048
        params.n_threads = params.n_threads_batch = self.threads
        self.context = self.c.llama_init_from_model(self.model, params)
        if not self.context:
            raise MemoryError(f"llama.cpp could not make a context of {streams} sequences of {CONTEXT} tokens")
        self.memory, self.batch = self.c.llama_get_memory(self.context), self.c.llama_batch_init(2048, 0, 1)
        self.lengths = [0] * streams
        for group in self._groups():
            self._decode([(i, self.inputs.system, ()) for i in group])

    def decide_many(self, number: int) -> tuple[float, np.ndarray]:
        """Reads an event on every stream and its branch; returns the seconds and the answers' logits at both slots."""
        time.sleep(0.03)  # as before our turns
        start = time.perf_counter()
        found = np.concatenate([self._read(group, number) for group in self._groups()])
        return time.perf_counter() - start, found

    def _groups(self) -> list[range]:
        count = len(self.lengths)
        return [range(start, min(start + BATCH, count)) for start in range(0, count, BATCH)]

    def _read(self, group: Sequence[int], number: int) -> np.ndarray:
        events = {i: self.inputs.events[(number + i) % len(self.inputs.events)] for i in group}
        rows = []
        for i, event in events.items():
            rows.append((i, [*event, *self.inputs.branch], [len(event) + slot for slot in self.inputs.slots]))
        logits = self._decode(rows)
        for i in group:
            self.lengths[i] -= len(self.inputs.branch)
            self.c.llama_memory_seq_rm(self.memory, i, self.lengths[i], -1)
        return logits.reshape(len(rows), 2, 2)

    def _decode(self, rows: Sequence[tuple[int, Sequence[int], Sequence[int]]]) -> np.ndarray:
        """Decodes tokens after their sequences; returns the answers' logits at the marked places."""
        batch, place, marked = self.batch, 0, []
        for sequence, ids, slots in rows:
            for offset, token in enumerate(ids):
                batch.token[place], batch.pos[place] = token, self.lengths[sequence] + offset
                batch.n_seq_id[place], batch.seq_id[place][0] = 1, sequence
                batch.logits[place] = offset in slots
                if offset in slots:
                    marked.append(place)
                place += 1
            self.lengths[sequence] += len(ids)
        batch.n_tokens = place
        if status := self.c.llama_decode(self.context, batch):
            raise RuntimeError(f"llama.cpp returned {status} for a batch of {place} tokens")
        found = [self.c.llama_get_logits_ith(self.context, one) for one in marked]
        return np.array([[logits[answer] for answer in self.inputs.answers] for logits in found])
