"""Speed of decisions on live streams compared with llama.cpp on one GGUF file: same machine, threads and run.

    pip install llama-cpp-python                            # builds llama.cpp, in about ten minutes
    python benchmarks/llama.py SmolLM2-135M-Instruct.Q4_1.gguf

Each turn brings one event to every stream, and both sides read it with the branch that holds the slots, against what
they have kept of the stream. Ours computes in float32 with the numbers of the file. llama.cpp multiplies the quantised
matrices by activations of 8 bits and keeps keys and values in 16 bits; it decodes the same groups of streams together,
each as a sequence of its own, and removes the branch afterwards. Its log-odds therefore differ, by how much is printed.
The two sides take turns, and a ratio is the median over turns of their time / our time, with its quartiles.

The part `start` measures a new process each time, from its start to its first decision: imports, loading, and for ours
the programs of one decision from the cache, or, warmed up, all programs that `Engine.warm_up` compiles before it.
"""

from __future__ import annotations

import argparse
import contextlib
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
from llama_theirs import Inputs
from student import Comparison, processor
from student_common import NO, YES, Process, make_live_stream

from prism_jax.student.weights import read_config


def inputs_of(path: str) -> Inputs:
    """The streams of `student_common`, for the vocabulary of a file."""
    live = make_live_stream(read_config(path, "float32").vocab_size)
    branch = [*live.head, *live.leaf]
    return Inputs(live.system, live.events, branch, [len(live.head) - 1, len(branch) - 1], [YES, NO])


def benchmark_live(path: str, threads: int, turns: int, counts: Sequence[int]) -> Iterator[Comparison]:
    """One decision on each of many live streams, in the same groups on both sides."""
    for streams in counts:
        with contextlib.ExitStack() as stack:
            ours, theirs = (
                stack.enter_context(contextlib.closing(Process(module, "Side", path, threads, given)))
                for module, given in (("student_ours", None), ("llama_theirs", inputs_of(path)))
            )
            for side in (ours, theirs):
                side("open_many", streams)
                side("decide_many", 0)
            pairs = [(ours("decide_many", number), theirs("decide_many", number)) for number in range(1, 1 + turns)]
        seconds = [[pair[side][0] / streams for pair in pairs] for side in (0, 1)]
        apart = [np.abs(np.subtract(*(np.diff(logits) for _, logits in pair))) for pair in pairs]
        rate = f"ours {1 / statistics.median(seconds[0]):.1f} decisions/s, log-odds {np.mean(apart):.2f} apart"
        yield Comparison(f"a decision, {streams} live streams", *seconds, "", rate)


OURS = """
import sys
from prism_jax.runtime.distributed import keep_programs
keep_programs({cache!r}, all_of_them=True)
from prism_jax.student.branches import Branch
from prism_jax.student.pages import page_bytes
from prism_jax.student.engine import Engine, ReadRequest
from prism_jax.student.weights import load
student = load({path!r}, "float32")
system, events, branch, slots, answers = {inputs!r}
memory = 17 * page_bytes(student.model.config)
engine = Engine(student.model, student.params, answers, budget=512, memory=memory, longest=64)
if {all_programs}:
    engine.warm_up()
engine.open("a", system)
head = slots[0] + 1
engine.read([ReadRequest("a", events[0], [Branch(tuple(branch[:head]), (tuple(branch[head:]),))])])
"""
THEIRS = """
import sys
sys.path.insert(0, {benchmarks!r})
from llama_theirs import Side
side = Side({path!r}, {threads}, {inputs!r})
side.open_many(1)
side.decide_many(0)
"""


def benchmark_start(path: str, threads: int, turns: int) -> Iterator[Comparison]:
    """A new process, to the end of its first decision."""
    with tempfile.TemporaryDirectory() as cache:
        values = {
            "benchmarks": str(pathlib.Path(__file__).parent),
            "cache": cache,
            "path": str(pathlib.Path(path).resolve()),
            "threads": threads,
            "inputs": tuple(inputs_of(path)),
        }

        def start(program: str, all_programs: bool = False) -> float:
            begin = time.perf_counter()
            code = program.format(**values, all_programs=all_programs)
            subprocess.run([sys.executable, "-c", code], check=True)
            return time.perf_counter() - begin

        start(THEIRS)  # reads the file into the system's cache
        for all_programs in (False, True):
            first = start(OURS, all_programs)
            pairs = [(start(OURS, all_programs), start(THEIRS)) for _ in range(turns)]
            name = "start to first decision" + (", warmed up" if all_programs else "")
            note = f"ours without compiled programs {first:.1f} s"
            yield Comparison(name, *map(list, zip(*pairs, strict=True)), "", note)


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
