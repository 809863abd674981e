"""Speed of the student beside transformers + PyTorch: same machine, threads, weights and float32, in one run.

    python benchmarks/student.py                     # everything; SmolLM2-135M's shape, random weights, two threads
    python benchmarks/student.py --layers=8          # a shallower model, for a quick look
    python benchmarks/student.py stream --threads=1  # one part, one thread

Both sides take turns, a pause between them so that neither's idle threads spin into the other's turn; a ratio is the
median over turns of their time / our time, with its quartiles. Compiling and warming up are paid before. PyTorch runs
with the faster of its eager and its sdpa attention, gradients aside without autograd, and reads no logits it need not.
Where numbers can be compared, the largest difference is printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any


def parse() -> argparse.Namespace:
    """The command line; runs before JAX and PyTorch count the cores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="of: train packed product decode stream; all by default")
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5, help="of each side, where a turn takes long")
    return parser.parse_args()


if __name__ == "__main__":
    ARGS = parse()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: ARGS.threads])

from prism_jax.training.memory.allocator import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # as `prism_jax.train` does; for both sides

import jax
import jax.numpy as jnp
import numpy as np
import student_peer as peer
from next_token import make_next_token_step

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.prompting.packing import Packed, decisions, pack, pad, sizes
from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.student import Qwen3, presets
from prism_jax.student.engine import Branch, Engine
from prism_jax.student.kv_cache import unstack
from prism_jax.student.sampler import Start, decode, prefill
from prism_jax.student.sampling import make_sampling
from prism_jax.student.sharding import make_mesh
from prism_jax.training.config import LossConfig, TrainingConfig
from prism_jax.training.optimization.objective import Slots
from prism_jax.training.optimization.optimizer import Optimizer
from prism_jax.training.optimization.step import TrainState, make_step

SHAPE = presets.smollm2_135m()
TRAINING = TrainingConfig(steps=1000, batch=1, learning_rate=1e-4)
PAUSE = 0.03  # seconds between turns
YES, NO = 10, 11


@dataclasses.dataclass(frozen=True)
class Row:
    """One comparison: seconds a turn, ours and theirs, side by side."""

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


def timed(run: Callable[[], Any]) -> float:
    """Seconds of one call, after a pause."""
    time.sleep(PAUSE)
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def compare(name: str, ours: Callable, theirs: Callable, target: str, turns: int, note: str = "") -> Row:
    """Both sides in turns, after one uncounted turn of each."""
    ours(), theirs()
    pairs = [(timed(ours), timed(theirs)) for _ in range(turns)]
    return Row(name, [a for a, _ in pairs], [b for _, b in pairs], target, note)


def make_model(layers: int) -> tuple[Qwen3, Any]:
    """The student and random parameters."""
    model = Qwen3(dataclasses.replace(SHAPE, layers=layers, unroll=layers))
    return model, jax.jit(model.init)(jax.random.key(0))


def fresh_state(params: Any) -> TrainState:
    """A state over copies of the parameters, since a step consumes what it is given."""
    copies = jax.tree.map(jnp.copy, params)
    return TrainState(jnp.zeros((), jnp.int32), copies, Optimizer(TRAINING).init(copies))


def benchmark_train(model: Qwen3, params: Any, turns: int) -> Iterator[Row]:
    """One step of next-token training on 4 rows of 256 tokens."""
    rows = np.random.default_rng(0).integers(model.config.vocabulary_size, size=(4, 257)).astype(np.int32)
    ours = Stepping(make_next_token_step(model, TRAINING), fresh_state(params), rows)
    theirs = peer.Training(model.config, params, TRAINING, peer.next_token_loss, rows)
    row = compare("training step, 4 rows of 256 tokens", ours, theirs, ">= 0.8", turns)
    yield dataclasses.replace(
        row,
        note=f"ours {rows[:, 1:].size / statistics.median(row.ours):.0f} tokens/s; losses {difference(ours, theirs)}",
    )


class Stepping:
    """Our training: each call is one step; `losses` remembers."""

    def __init__(self, step: Callable, state: TrainState, batch: Any):
        self.step, self.state, self.batch, self.losses = step, state, batch, []

    def __call__(self) -> None:
        self.state, loss = self.step(self.state, self.batch)
        self.losses.append(float(loss["loss"] if isinstance(loss, dict) else loss))


def difference(ours: Stepping, theirs: Any) -> str:
    """How far the two sides' losses are apart, step by step."""
    worst = max(abs(a - b) for a, b in zip(ours.losses, theirs.losses, strict=True))
    return f"{ours.losses[0]:.3f} to {ours.losses[-1]:.3f}, {worst:.0e} apart"


class Shapes:
    """A template of ProactiveBench's lengths over random ids: 25 tokens an event, 9 a head, 18 a leaf."""

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
    """A stream with a step of labelled candidates at each event, as ProactiveBench has them."""
    steps = tuple(
        Step(
            event=i,
            y_need=float(i % 2),
            candidates=tuple(Candidate(text=f"{i}.{j}", y_accept=float(j % 2)) for j in range(candidates)),
        )
        for i in range(events)
    )
    return Stream(id="s", events=tuple(Event(time=float(i), text=str(i)) for i in range(events)), steps=steps)


def benchmark_packed(model: Qwen3, params: Any, turns: int) -> Iterator[Row]:
    """One step on a packed stream of 100 labelled decisions, beside theirs on a sample of its rows."""
    shapes, stream = Shapes(model.config.vocabulary_size), make_stream()
    packed = pack(stream, shapes, 10**6)
    singles = [pack(one, shapes, 10**6) for one in decisions(stream)]
    loss = LossConfig(response=0.0, burden=0.0)
    size = sizes([packed])
    batch = jax.tree.map(lambda x: np.asarray(x)[None], pad(packed, size, 0))
    slots = Slots(model, YES, NO, size.window, size.visible)
    step = make_step(slots, TRAINING, loss, OperatingPoint(), make_mesh())
    ours = Stepping(step, fresh_state(params), batch)
    # Their rows are sorted by length and batched by eight, so that little of theirs is padding.
    singles.sort(key=lambda row: len(row.trunk))
    sample = singles[len(singles) // 2 - 4 : len(singles) // 2 + 4]
    theirs = peer.Training(model.config, params, TRAINING, peer.decision_loss(YES, NO), rows_of(sample))
    row = compare("packed stream, per labelled decision", ours, theirs, ">= 5", turns)
    count = len(singles)
    yield dataclasses.replace(
        row,
        ours=[seconds / count for seconds in row.ours],
        theirs=[seconds / len(sample) for seconds in row.theirs],
        note=f"{count} decisions, {len(packed.trunk)} + {len(packed.tokens)} tokens; theirs {len(sample)} middle rows",
    )
    sample_size = sizes(sample)
    alone = [jax.tree.map(np.asarray, pad(row, sample_size, 0)) for row in sample]
    rows = jax.tree.map(lambda *leaves: np.stack(leaves), *alone)
    slots = Slots(model, YES, NO, sample_size.window, sample_size.visible)
    step = make_step(slots, TRAINING, loss, OperatingPoint(), make_mesh())
    by_row = Stepping(step, fresh_state(params), rows)
    theirs = peer.Training(model.config, params, TRAINING, peer.decision_loss(YES, NO), rows_of(sample))
    row = compare("the same 8 rows, row by row, ours too", by_row, theirs, ">= 0.8", turns)
    yield dataclasses.replace(row, note=f"losses {difference(by_row, theirs)}")


def rows_of(rows: list[Packed]) -> dict[str, np.ndarray]:
    """Rows of one decision each as plain right-padded sequences, with their two slots and labels."""
    whole = [[*row.trunk, *row.tokens] for row in rows]
    tokens = np.zeros((len(rows), max(map(len, whole))), np.int64)
    for out, ids in zip(tokens, whole, strict=True):
        out[: len(ids)] = ids
    places = [[len(row.trunk) + int(slot[0]) for slot in (row.need_slot, row.accept_slot)] for row in rows]
    labels = [[float(row.y_need[0]), float(row.y_accept[0])] for row in rows]
    return {"tokens": tokens, "places": np.array(places), "labels": np.array(labels, np.float32)}


def benchmark_decode(model: Qwen3, params: Any, turns: int) -> Iterator[Row]:
    """Prefill of 256 tokens and decoding of 32, greedily, at batch 1 and 8."""
    unstacked, new = unstack(params), 32
    theirs = peer.Reader(model.config, params)
    for batch in (1, 8):
        tokens = np.random.default_rng(2).integers(model.config.vocabulary_size, size=(batch, 256)).astype(np.int32)
        lengths = np.full(batch, 256, np.int32)

        def read(tokens: Any = tokens, lengths: Any = lengths) -> tuple:
            return prefill(model, unstacked, tokens, lengths, new)

        yield compare(f"prefill, batch {batch}", read, lambda tokens=tokens: theirs.prefill(tokens), ">= 1", 2 * turns)
        written: dict[str, Any] = {}

        def write(batch: int = batch, lengths: Any = lengths, read: Callable = read, written: dict = written) -> float:
            logits, cache = jax.block_until_ready(read())
            start = time.perf_counter()
            start_at = Start(cache, lengths, 256, logits)
            written["ours"] = [row.ids for row in decode(model, unstacked, start_at, new, make_sampling(batch), [])]
            return time.perf_counter() - start

        def write_theirs(tokens: Any = tokens, written: dict = written) -> float:
            seconds, written["theirs"] = theirs.decode(tokens, new)
            return seconds

        write(), write_theirs()
        pairs = [(write(), write_theirs()) for _ in range(turns)]
        same = "same tokens" if written["ours"] == written["theirs"] else "DIFFERENT tokens"
        yield Row(f"decode {new} tokens, batch {batch}", *map(list, zip(*pairs, strict=True)), ">= 1", same)


def benchmark_product(model: Qwen3, params: Any, turns: int) -> Iterator[Row]:
    """The bare matrix product of a feed-forward layer: what a prefill, which is little else, can reach at best."""
    kernel = np.asarray(params["layers"]["mlp"]["gate_proj"]["kernel"][0])
    multiply = jax.jit(jnp.matmul)
    for rows in (256, 2048):
        x = np.random.default_rng(3).normal(size=(rows, kernel.shape[0])).astype(np.float32)
        ours = functools.partial(multiply, jnp.asarray(x), jnp.asarray(kernel))
        name = f"bare product, {rows} x {kernel.shape[0]} x {kernel.shape[1]}"
        yield compare(name, ours, peer.product(x, kernel), "", 4 * turns)


def benchmark_stream(model: Qwen3, params: Any, turns: int) -> Iterator[Row]:
    """One decision after each of 50 events, against reading the same slots and against writing a JSON answer."""
    shapes = Shapes(model.config.vocabulary_size)
    events = [shapes.event(Event(time=0.0, text=str(i)), None) for i in range(50)]
    branch = Branch(tuple(shapes.head()), (tuple(shapes.leaf(Candidate())),))
    engine, theirs = Engine(model, params), peer.Reader(model.config, params)
    engine.open("warm", shapes.system())
    for event in events:  # compiles every bucket that the events need
        engine.score("warm", [branch], [YES, NO], event)
    engine.close("warm")
    engine.open("stream", shapes.system())
    theirs.open(shapes.system())
    ours_s, read_s, write_s, at_write, worst = [], [], [], [], 0.0
    for number, event in enumerate(events):
        found: dict[str, Any] = {}

        def decide(event: list[int] = event, found: dict = found) -> None:
            found["ours"] = engine.score("stream", [branch], [YES, NO], event)[0]

        def read(event: list[int] = event, found: dict = found) -> None:
            found["theirs"] = theirs.decide(event, branch.ids, branch.marked, [YES, NO])

        ours_s.append(timed(decide))
        if number % 10 == 4:
            at_write.append(ours_s[-1])
            write_s.append(timed(lambda event=event: theirs.answer(event, branch.ids, 140)))
        read_s.append(timed(read))
        worst = max(worst, np.abs(found["ours"] - found["theirs"]).max())
    yield Row("a decision on the stream: they read slots", ours_s, read_s, ">= 1", f"logits {worst:.0e} apart")
    half = len(ours_s) // 2
    yield Row("  its last 25 events", ours_s[half:], read_s[half:], ">= 1")
    yield Row("  they write 140 tokens", at_write, write_s, ">= 20")


BENCHMARKS = {
    "train": benchmark_train,
    "packed": benchmark_packed,
    "product": benchmark_product,
    "decode": benchmark_decode,
    "stream": benchmark_stream,
}


def main() -> None:
    """Runs what the command line names."""
    unknown = [name for name in ARGS.parts if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"error: parts: found {unknown}, expected some of {list(BENCHMARKS)}")
    peer.set_threads(ARGS.threads)
    model, params = make_model(ARGS.layers)
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    print(f"SmolLM2-135M's shape, {ARGS.layers} layers: {size / 1e6:.0f} M parameters, float32, {ARGS.threads} threads")
    print(f"jax {jax.__version__} beside {peer.versions()}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'':42s} {'ours ms':>9s} {'theirs':>9s}   ratio  quartiles       target")
    for name in ARGS.parts or BENCHMARKS:
        for row in BENCHMARKS[name](model, params, ARGS.turns):
            print(row, flush=True)


if __name__ == "__main__":
    main()
