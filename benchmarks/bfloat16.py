"""The student with student.compute=bfloat16 beside float32, and beside transformers + PyTorch, in CPU seconds.

    python benchmarks/bfloat16.py                           # SmolLM2-135M's shape, random weights
    python benchmarks/bfloat16.py prefill train --layers=12

All take turns in one process, which keeps freed memory. PyTorch's bfloat16 is that of the parameters, and in training
that of automatic mixed precision. A ratio is the median over turns of the CPU seconds in float32 / those in bfloat16,
both ours, with its quartiles. A CPU without avx512_bf16 or amx_bf16 is refused, as by `python -m prism_jax train`.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import student_theirs
from next_token import Greedy, make_next_token_step, prefill
from student import TRAINING, processor
from student_common import random_tokens

from prism_jax.runtime.command import keep_freed_memory
from prism_jax.student import presets
from prism_jax.student.dispatch import check_compute
from prism_jax.student.kv_cache import unstack_layers
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.weights import save_hf
from prism_jax.training.optimization.optimizer import Optimizer
from prism_jax.training.optimization.step import TrainState

KINDS = ("float32", "bfloat16")
Run = Callable[[], object]


@dataclasses.dataclass(frozen=True)
class Sides:
    """Our models, which share their parameters, and the folder of weights of theirs, by the dtype of products."""

    models: dict[str, Qwen3]
    params: dict
    folder: str

    def theirs(self, training: bool) -> list[student_theirs.Side]:
        """Theirs have one thread: several count the CPU seconds in which they wait for one another."""
        return [student_theirs.Side(self.folder, 1, TRAINING if training else None, kind) for kind in KINDS]


def products(sides: Sides) -> Iterator[tuple[str, list[Run]]]:
    """A feed-forward product of 1024 rows alone, whose rates say what share of the peak is reached."""
    kernel = sides.params["layers"]["mlp"]["gate_proj"]["kernel"][0]
    x = jnp.ones((1024, len(kernel)))
    multiply = jax.jit(lambda a, b: jnp.matmul(a, b, preferred_element_type=jnp.float32))
    pairs = [(x.astype(kind), kernel.astype(kind)) for kind in KINDS]
    runs = [lambda pair=pair: jax.block_until_ready([multiply(*pair) for _ in range(20)]) for pair in pairs]
    yield f"20 products, {20 * 2 * x.size * kernel.shape[1] / 1e9:.1f} GFLOP", runs


def reading(sides: Sides) -> Iterator[tuple[str, list[Run]]]:
    """Prefill of rows, whose number of tokens a live event has too."""
    kept, theirs = [unstack_layers(sides.params, kind) for kind in KINDS], sides.theirs(training=False)
    for rows, length in ((1, 32), (1, 256), (8, 256)):
        tokens = random_tokens(sides.models["float32"].config.vocab_size, 2, rows, length)
        runs: list[Run] = [
            lambda model=model, own=own, tokens=tokens: jax.block_until_ready(prefill(model, own, tokens))
            for model, own in zip(sides.models.values(), kept, strict=True)
        ]
        runs += [lambda side=side, tokens=tokens: side.prefill(tokens, 0) for side in theirs]
        yield f"prefill of {length} tokens, {rows} rows", runs


def writing(sides: Sides) -> Iterator[tuple[str, list[Run]]]:
    """Greedy decoding of 32 tokens after 64."""
    for rows in (1, 8):
        tokens, runs = random_tokens(sides.models["float32"].config.vocab_size, 2, rows, 64), []
        for kind, model in sides.models.items():
            own = unstack_layers(sides.params, kind)
            write, read = Greedy(model, own, 32), jax.block_until_ready(prefill(model, own, tokens))
            runs.append(lambda write=write, read=read: write(*read))
        yield f"decode 32 tokens, {rows} rows", runs


def training(sides: Sides) -> Iterator[tuple[str, list[Run]]]:
    """Steps of next-token training on 4 rows of 256 tokens."""
    rows, runs = random_tokens(sides.models["float32"].config.vocab_size, 0, 4, 257), []
    for model in sides.models.values():
        copies = jax.tree.map(jnp.copy, sides.params)
        held = [TrainState(jnp.zeros((), jnp.int32), copies, Optimizer(TRAINING).init(copies))]
        step = make_next_token_step(model, TRAINING)

        def run(held: list = held, step: Callable = step) -> None:
            held[0], _ = jax.block_until_ready(step(held[0], rows))

        runs.append(run)
    for side in sides.theirs(training=True):
        side.prepare_next_token(rows)
        runs.append(side.step)
    yield "training step, 4 rows of 256 tokens", runs


PARTS = {"product": products, "prefill": reading, "decode": writing, "train": training}


def compare(name: str, runs: list[Run], turns: int) -> None:
    """Prints the CPU seconds of all by turns, after one turn each that compiles."""
    seconds = np.zeros((turns, len(runs)))
    for run in runs:
        run()
    for turn in seconds:
        for place, run in enumerate(runs):
            start = time.process_time()
            run()
            turn[place] = time.process_time() - start
    low, middle, high = np.quantile(seconds[:, 0] / seconds[:, 1], [0.25, 0.5, 0.75])
    medians = "".join(f" {1e3 * column:9.1f}" for column in np.median(seconds, axis=0))
    print(f"{name:36s} {middle:5.2f} [{low:.2f}, {high:.2f}] {medians}", flush=True)


def main() -> None:
    """Runs the parts that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"parts to run, among {' '.join(PARTS)}; all by default")
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--turns", type=int, default=7)
    args = parser.parse_args()
    check_compute("bfloat16")
    keep_freed_memory()
    config = presets.smollm2_135m(num_layers=args.layers, unroll=args.layers)
    models = {kind: Qwen3(dataclasses.replace(config, compute=kind)) for kind in KINDS}
    params = jax.jit(models["float32"].init)(jax.random.key(0))
    print(f"SmolLM2-135M's shape, {args.layers} layers, jax {jax.__version__}, {processor()}")
    print(f"{'':36s} ratio  quartiles    CPU ms: float32, bfloat16, PyTorch float32, bfloat16")
    with tempfile.TemporaryDirectory() as folder:
        save_hf(folder, models["float32"], params)
        for part in args.parts or PARTS:
            for name, runs in PARTS[part](Sides(models, params, folder)):
                compare(name, runs, args.turns)


if __name__ == "__main__":
    main()
