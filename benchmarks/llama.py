"""Speed of decisions on live streams compared with llama.cpp on one GGUF file: same machine, threads and run.

    pip install llama-cpp-python                            # builds llama.cpp, in about ten minutes
    python benchmarks/llama.py SmolLM2-135M-Instruct.Q4_1.gguf

Each turn brings one event to every stream, and both sides read it with the branch that holds the slots, against what
they have kept of the stream. Ours computes in float32 with the numbers of the file. llama.cpp multiplies the quantised
matrices by activations of 8 bits and keeps keys and values in 16 bits; it decodes the same groups of streams together,
each as a sequence of its own, and removes the branch afterwards. Its log-odds therefore differ, by how much is printed.
The two sides take turns, and a ratio is the median over turns of their time / our time, with its quartiles.

The part `start` measures a new process each time, from its start to its first decision: imports, loading, and for ours
the programs of one decision, compiled or from the cache.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib.metadata
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from student import Row, processor
from student_common import NO, YES, Process, make_live_stream, timed

BATCH = 16  # streams that are read together
CONTEXT = 512  # tokens of a stream


class Side:
    """llama.cpp, through its C interface."""

    def __init__(self, path: str, threads: int, training: None):
        import llama_cpp

        self.c = llama_cpp
        llama_cpp.llama_backend_init()
        self.log = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.log, ctypes.c_void_p(0))
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise ValueError(f"{path}: llama.cpp could not load it")
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.vocabulary, self.threads, self.context = llama_cpp.llama_vocab_n_tokens(vocabulary), threads, None

    def size(self) -> int:
        """Number of tokens in the vocabulary."""
        return self.vocabulary

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
        self.live = make_live_stream(self.vocabulary)
        self.branch = [*self.live.head, *self.live.leaf]
        self.lengths = [0] * streams
        for group in self._groups():
            self._decode([(i, self.live.system, ()) for i in group])

    def decide_many(self, number: int) -> tuple[float, np.ndarray]:
        """Reads an event on every stream and its branch; returns the seconds and the answers' logits at both slots."""
        return timed(lambda: np.concatenate([self._read(group, number) for group in self._groups()]))

    def _groups(self) -> list[range]:
        count = len(self.lengths)
        return [range(start, min(start + BATCH, count)) for start in range(0, count, BATCH)]

    def _read(self, group: Sequence[int], number: int) -> np.ndarray:
        events = {i: self.live.events[(number + i) % len(self.live.events)] for i in group}
        rows = []
        for i, event in events.items():
            slots = [len(event) + end - 1 for end in (len(self.live.head), len(self.branch))]
            rows.append((i, [*event, *self.branch], slots))
        logits = self._decode(rows)
        for i in group:
            self.lengths[i] -= len(self.branch)
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
        return np.array([[logits[YES], logits[NO]] for logits in found])


def benchmark_live(path: str, threads: int, turns: int, counts: Sequence[int]) -> Iterator[Row]:
    """One decision on each of many live streams, in the same groups on both sides."""
    for streams in counts:
        with contextlib.ExitStack() as stack:
            ours, theirs = (
                stack.enter_context(contextlib.closing(Process(module, "Side", path, threads, None)))
                for module in ("student_ours", "llama")
            )
            for side in (ours, theirs):
                side("open_many", streams)
                side("decide_many", 0)
            pairs = [(ours("decide_many", number), theirs("decide_many", number)) for number in range(1, 1 + turns)]
        seconds = [[pair[side][0] / streams for pair in pairs] for side in (0, 1)]
        apart = [np.abs(np.subtract(*(np.diff(logits) for _, logits in pair))) for pair in pairs]
        rate = f"ours {1 / statistics.median(seconds[0]):.1f} decisions/s, log-odds {np.mean(apart):.2f} apart"
        yield Row(f"a decision, {streams} live streams", *seconds, "", rate)


OURS = """
import sys
sys.path.insert(0, {benchmarks!r})
from prism_jax.runtime.distributed import keep_programs
keep_programs({cache!r}, all_of_them=True)
from student_common import NO, YES, make_live_stream
from prism_jax.student.branches import Branch
from prism_jax.student.pages import page_bytes
from prism_jax.student.trunks import Reading, Trunks
from prism_jax.student.weights import load
student = load({path!r}, "float32")
live = make_live_stream(student.model.config.vocab_size)
memory = 17 * page_bytes(student.model.config)
trunks = Trunks(student.model, student.params, [YES, NO], budget=512, memory=memory, longest=64)
trunks.open("a", live.system)
trunks.read([Reading("a", live.events[0], [Branch(tuple(live.head), (tuple(live.leaf),))])])
"""
THEIRS = """
import sys
sys.path.insert(0, {benchmarks!r})
from llama import Side
side = Side({path!r}, {threads}, None)
side.open_many(1)
side.decide_many(1)
"""


def benchmark_start(path: str, threads: int, turns: int) -> Iterator[Row]:
    """A new process, to the end of its first decision."""
    with tempfile.TemporaryDirectory() as cache:
        values = {
            "benchmarks": str(pathlib.Path(__file__).parent),
            "cache": cache,
            "path": str(pathlib.Path(path).resolve()),
            "threads": threads,
        }

        def start(program: str) -> float:
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", program.format(**values)], check=True)
            return time.perf_counter() - begin

        start(THEIRS)  # reads the file into the system's cache
        first = start(OURS)
        pairs = [(start(OURS), start(THEIRS)) for _ in range(turns)]
    note = f"ours without compiled programs {first:.1f} s"
    yield Row("start to first decision", *map(list, zip(*pairs, strict=True)), "", note)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf", help="path of a GGUF file of a dense Qwen3 or Llama-shaped model")
    parser.add_argument("parts", nargs="*", help="parts to run, among live and start; both by default")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 16, 256])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()
    if unknown := [name for name in args.parts if name not in ("live", "start")]:
        parser.error(f"parts: found {unknown}, expected live or start")
    return args


def main() -> None:
    """Runs the parts that the command line names."""
    args = parse()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])  # both sides inherit it
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("jax", "llama-cpp-python"))
    print(f"{pathlib.Path(args.gguf).name}, {args.threads} threads")
    print(f"{versions}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores of {processor()}")
    print(f"{'':42s} {'ours ms':>9s} {'theirs':>9s}   ratio  quartiles")
    parts: dict[str, Any] = {
        "live": lambda: benchmark_live(args.gguf, args.threads, args.turns, args.streams),
        "start": lambda: benchmark_start(args.gguf, args.threads, args.turns),
    }
    for name in args.parts or parts:
        for row in parts[name]():
            print(row, flush=True)


if __name__ == "__main__":
    main()
