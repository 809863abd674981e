"""Speed of the student compared with transformers + PyTorch: same machine, threads, weights and float32, in one run.

    python benchmarks/student.py                     # everything; SmolLM2-135M's shape, random weights, two threads
    python benchmarks/student.py --layers=8          # a shallower model, for a quick look
    python benchmarks/student.py stream --threads=1  # one part, one thread

For each part, each side gets a new process and runs as its users would run it (in training, ours keeps freed memory as
`python -m prism_jax train` does). The two sides alternate, with a pause before each turn. A ratio is the median over
turns of their time / our time, with its quartiles; it holds for one kind of processor, which is printed. Compilation
and warm-up are not timed. Where results can be compared, the largest difference is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.metadata
import os
import pathlib
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from student_common import Process, make_live_stream, random_tokens

from prism_jax.student import presets
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.weights import read_config
from prism_jax.training.run_config import TrainingConfig

SHAPE = presets.smollm2_135m()
TRAINING = TrainingConfig(steps=1000, batch=1, learning_rate=1e-4)
LIVE = (1, 16, 256)  # numbers of live streams
WRITTEN = 140  # tokens per written answer, the median of public traces


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One comparison: seconds per turn, ours and theirs."""

    name: str
    ours: list[float]
    theirs: list[float]
    target: str
    note: str = ""

    def __str__(self) -> str:
        ratios = [theirs / ours for ours, theirs in zip(self.ours, self.theirs, strict=True)]
        low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
        seconds = [f"{1e3 * statistics.median(side):9.1f}" for side in (self.ours, self.theirs)]
        return (
            f"{self.name:42s} {seconds[0]} {seconds[1]}  {middle:6.2f} [{low:5.2f}, {high:6.2f}]  {self.target:6s} "
            f"{self.note}"
        )


@dataclasses.dataclass(frozen=True)
class Sides:
    """Both sides; each is a function of a method's name and its arguments."""

    ours: Callable
    theirs: Callable
    turns: int
    vocabulary: int

    def both(self, method: str, *arguments: object) -> tuple:
        """Calls a method on our side, then on theirs, and returns both results."""
        return self.ours(method, *arguments), self.theirs(method, *arguments)

    def alternate(self, turns: int, method: str, *arguments: object) -> list[tuple]:
        """Calls a method on both sides `turns` times, after one uncounted turn, and returns the results."""
        self.both(method, *arguments)
        return [self.both(method, *arguments) for _ in range(turns)]

    def train(self, name: str, target: str) -> Comparison:
        """Compares training steps that both sides have prepared."""
        ours, theirs = zip(*self.alternate(self.turns, "step"), strict=True)
        apart = max(abs(a - b) for (_, a), (_, b) in zip(ours, theirs, strict=True))
        note = f"losses {ours[0][1]:.3f} to {ours[-1][1]:.3f}, {apart:.0e} apart"
        return Comparison(name, [seconds for seconds, _ in ours], [seconds for seconds, _ in theirs], target, note)


def benchmark_train(sides: Sides) -> Iterator[Comparison]:
    """One step of next-token training on 4 rows of 256 tokens."""
    rows = random_tokens(sides.vocabulary, 0, 4, 257)
    sides.both("prepare_next_token", rows)
    row = sides.train("training step, 4 rows of 256 tokens", ">= 0.8")
    yield dataclasses.replace(row, note=f"ours {4 * 256 / statistics.median(row.ours):.0f} tokens/s; {row.note}")


def benchmark_packed(sides: Sides) -> Iterator[Comparison]:
    """One step on a packed stream of labelled decisions, against theirs on some of its rows; then both row by row."""
    count, trunk, branches = sides.ours("prepare_packed")
    rows = sides.theirs("prepare_rows")
    row = sides.train("packed stream, per labelled decision", ">= 5")
    yield dataclasses.replace(
        row,
        ours=[seconds / count for seconds in row.ours],
        theirs=[seconds / rows for seconds in row.theirs],
        note=f"{count} decisions, {trunk} + {branches} tokens; theirs {rows} middle rows",
    )
    sides.both("prepare_rows")
    yield sides.train("the same 8 rows, row by row, ours too", ">= 0.8")


def benchmark_decode(sides: Sides) -> Iterator[Comparison]:
    """Prefill of 256 tokens and decoding of 32, greedily, at batch 1 and 8."""
    new = 32
    for batch in (1, 8):
        tokens = random_tokens(sides.vocabulary, 2, batch, 256)
        ours, theirs = zip(*sides.alternate(2 * sides.turns, "prefill", tokens, new), strict=True)
        yield Comparison(f"prefill, batch {batch}", list(ours), list(theirs), ">= 1")
        ours, theirs = zip(*sides.alternate(sides.turns, "decode", tokens, new), strict=True)
        same = "same tokens" if ours[0][1] == theirs[0][1] else "DIFFERENT tokens"
        seconds = ([seconds for seconds, _ in side] for side in (ours, theirs))
        yield Comparison(f"decode {new} tokens, batch {batch}", *seconds, ">= 1", same)


def benchmark_product(sides: Sides) -> Iterator[Comparison]:
    """The matrix product of a feed-forward layer alone, which bounds the speed of a prefill."""
    for rows in (256, 2048):
        ours, theirs = zip(*sides.alternate(4 * sides.turns, "product", rows), strict=True)
        yield Comparison(f"bare product of {rows} rows", list(ours), list(theirs), "")


def benchmark_stream(sides: Sides) -> Iterator[Comparison]:
    """One decision after each of 50 events, against reading the same slots and against writing a JSON answer."""
    sides.both("open")
    ours, read, at_write, write, worst = [], [], [], [], 0.0
    for number in range(len(make_live_stream(sides.vocabulary).events)):
        seconds, logits = sides.ours("decide", number)
        ours.append(seconds)
        if number % 10 == 4:
            at_write.append(seconds)
            write.append(sides.theirs("write", number, WRITTEN))
        seconds, theirs = sides.theirs("decide", number)
        read.append(seconds)
        worst = max(worst, np.abs(logits - theirs).max())
    yield Comparison("a decision on the stream: they read slots", ours, read, ">= 1", f"logits {worst:.0e} apart")
    half = len(ours) // 2
    yield Comparison("  its last 25 events", ours[half:], read[half:], ">= 1")
    yield Comparison(f"  they write {WRITTEN} tokens", at_write, write, ">= 20")


def benchmark_live(sides: Sides) -> Iterator[Comparison]:
    """One decision on each of many live streams: ours in batches, theirs one stream after the other."""
    for streams in LIVE:
        sides.both("open_many", streams)
        sides.both("decide_many", 0)
        turns = [sides.both("decide_many", number) for number in range(1, 1 + sides.turns)]
        ours, theirs = ([seconds / streams for seconds, _ in side] for side in zip(*turns, strict=True))
        worst = max(np.abs(a - b).max() for (_, a), (_, b) in turns)
        rate = f"ours {1 / statistics.median(ours):.1f} decisions/s, logits {worst:.0e} apart"
        yield Comparison(f"a decision, {streams} live streams", ours, theirs, "", rate)


BENCHMARKS = {
    "train": benchmark_train,
    "packed": benchmark_packed,
    "product": benchmark_product,
    "decode": benchmark_decode,
    "stream": benchmark_stream,
    "live": benchmark_live,
}
TRAINS = ("train", "packed")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"parts to run, among {' '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5, help="turns per side where a turn takes long")
    args = parser.parse_args()
    if unknown := [name for name in args.parts if name not in BENCHMARKS]:
        parser.error(f"parts: found {unknown}, expected some of {list(BENCHMARKS)}")
    return args


def measure(names: Sequence[str], folder: str, threads: int, turns: int) -> Iterator[Comparison]:
    """Runs some benchmarks on the weights in a folder and yields their rows."""
    vocabulary = read_config(folder, "float32").vocab_size
    for name in names:
        with contextlib.ExitStack() as stack:
            training = TRAINING if name in TRAINS else None
            ours, theirs = (
                stack.enter_context(contextlib.closing(Process(module, "Side", folder, threads, training)))
                for module in ("student_ours", "student_theirs")
            )
            yield from BENCHMARKS[name](Sides(ours, theirs, turns, vocabulary))


def write_weights(folder: str, config: StudentConfig) -> int:
    """Writes random weights for both sides and returns their number."""
    with contextlib.closing(Process("student_ours", "Weights", folder, config)) as process:
        return process("write")


def processor() -> str:
    """Name, family and model of the processor; known on Linux only."""
    try:
        lines = [line.split(":", 1) for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return "an unknown processor"
    found = {line[0].strip(): line[1].strip() for line in lines if len(line) == 2}
    return ", ".join(f"{key} {found.get(key, 'unknown')}" for key in ("model name", "cpu family", "model"))


def main() -> None:
    """Runs the parts that the command line names."""
    args = parse()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])  # both sides inherit it
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("jax", "torch", "transformers"))
    with tempfile.TemporaryDirectory() as folder:
        size = write_weights(folder, dataclasses.replace(SHAPE, num_layers=args.layers))
        print(f"SmolLM2-135M's shape, {args.layers} layers: {size / 1e6:.0f} M weights, {args.threads} threads")
        print(f"{versions}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores of {processor()}")
        print(f"{'':42s} {'ours ms':>9s} {'theirs':>9s}   ratio  quartiles       target")
        for row in measure(args.parts or list(BENCHMARKS), folder, args.threads, args.turns):
            print(row, flush=True)


if __name__ == "__main__":
    main()
