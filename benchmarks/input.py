"""Labelled decisions per second of training, row by row and packed: same student, same decisions, one run.

    python benchmarks/input.py                # SmolLM2-135M's shape, random weights, two threads
    python benchmarks/input.py --layers=2     # a shallower model, for a quick look

The two packings alternate, one optimizer step each. A rate is the median over turns of the labelled decisions per
second, and the ratio is the median over turns of the rates' quotient, with its quartiles. Compilation is not timed.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import time


def parse() -> argparse.Namespace:
    """Parses the command line; must run before JAX counts the cores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--streams", type=int, default=2, help="streams per packed step")
    parser.add_argument("--decisions", type=int, default=8, help="decisions per row-by-row step")
    return parser.parse_args()


if __name__ == "__main__":
    ARGS = parse()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: ARGS.threads])

import jax
import numpy as np

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.streams.simulator import SimulatorConfig, simulate
from prism_jax.student import presets
from prism_jax.student.prompting.template import PromptConfig, Template, make_tokenizer
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.scoring.slots import Slots
from prism_jax.student.sharding import make_mesh
from prism_jax.training.input_pipeline import batches, pack_split
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.optimization.objective import Objective
from prism_jax.training.optimization.step import StepShape, init_state, make_step
from prism_jax.training.run_config import PackingConfig, TrainingConfig, Unit


class Trainer:
    """Trains with one packing; each call runs a step and returns its labelled decisions per second."""

    def __init__(self, unit: Unit, batch: int, template: Template, model: Qwen3, streams: list):
        config = TrainingConfig(steps=1000, batch=batch, learning_rate=1e-4)
        # Single decisions vary in length far more than streams do; each side gets the number of shapes that suits it.
        shapes = 3 if unit == "decisions" else 1
        split = pack_split(streams, template, PackingConfig(4096, unit=unit, buckets=shapes), batch=batch)
        slots = Slots(model, template.yes, template.no, 1, buckets=tuple(bucket.size for bucket in split.buckets))
        objective = Objective(slots, LossConfig(response=0.0), OperatingPoint())
        self.step = make_step(StepShape(objective, config, split.rows[0], make_mesh()))
        self.state = init_state(model, config, make_mesh(), jax.random.key(0))
        self.iterator = batches(split, batch, 0)
        shapes_compiled: set[tuple[int, ...]] = set()
        while len(shapes_compiled) < len(split.buckets):  # compiles every shape
            data = next(self.iterator)
            if data.tokens.shape + data.trunk.shape not in shapes_compiled:
                shapes_compiled.add(data.tokens.shape + data.trunk.shape)
                self.state, _ = jax.block_until_ready(self.step(self.state, data))

    def __call__(self) -> float:
        data = next(self.iterator)
        decisions = np.count_nonzero(data.accept_weight * data.logged)
        start = time.perf_counter()
        self.state, _ = jax.block_until_ready(self.step(self.state, data))
        return decisions / (time.perf_counter() - start)


def main() -> None:
    """Measures and prints both rates and their ratio."""
    streams = [simulate(SimulatorConfig(min_events=12, max_events=16), index, logging="always") for index in range(32)]
    config = PromptConfig()
    template = Template(make_tokenizer(streams, config), config)
    shape = dataclasses.replace(
        presets.smollm2_135m(), num_layers=ARGS.layers, unroll=ARGS.layers, vocab_size=template.tokenizer.size
    )
    model = Qwen3(shape)
    packed = Trainer("streams", ARGS.streams, template, model, streams)
    alone = Trainer("decisions", ARGS.decisions, template, model, streams)
    pairs = np.array([(packed(), alone()) for _ in range(ARGS.turns)])
    low, middle, high = np.quantile(pairs[:, 0] / pairs[:, 1], [0.25, 0.5, 0.75])
    print(f"SmolLM2-135M's blocks, {ARGS.layers} layers, float32, {ARGS.threads} threads; jax {jax.__version__}")
    for name, rates in zip(("packed", "row by row"), np.median(pairs, axis=0), strict=True):
        print(f"{name:12s} {rates:8.2f} labelled decisions per second")
    print(f"{'ratio':12s} {middle:8.2f} [{low:.2f}, {high:.2f}]")


if __name__ == "__main__":
    main()
