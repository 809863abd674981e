"""Our side of benchmarks/student.py: the student's training step, prefill, decoding and live stream."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from next_token import Greedy, make_next_token_step, prefill
from student_common import NO, YES, make_decisions, make_live_stream, random_rows, timed

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.runtime.command import keep_freed_memory
from prism_jax.student.branches import Branch
from prism_jax.student.engine import Engine, ReadRequest
from prism_jax.student.kv_cache import unstack_layers
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.pages import PAGE, page_bytes
from prism_jax.student.prompting.packing import Packed, pad, sizes
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.scoring.slots import Slots
from prism_jax.student.sharding import make_mesh
from prism_jax.student.weights import load, save_hf
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.optimization.objective import Objective
from prism_jax.training.optimization.optimizer import Optimizer
from prism_jax.training.optimization.step import StepShape, TrainState, make_step
from prism_jax.training.run_config import TrainingConfig


class Weights:
    """Writes the random weights that both sides read."""

    def __init__(self, folder: str, config: StudentConfig):
        self.folder, self.model = folder, Qwen3(config)

    def write(self) -> int:
        """Writes the weights and returns their number."""
        params = jax.jit(self.model.init)(jax.random.key(0))
        save_hf(self.folder, self.model, params)
        return sum(leaf.size for leaf in jax.tree.leaves(params))


class Side:
    """The student with the weights of a folder, with one thread per available core."""

    def __init__(self, folder: str, threads: int, training: TrainingConfig | None):
        if training is not None:
            keep_freed_memory()  # as `python -m prism_jax train` does
        self.training, pretrained = training, load(folder, "float32")
        config = pretrained.model.config
        self.model, self.params = Qwen3(dataclasses.replace(config, unroll=config.num_layers)), pretrained.params
        self.vocabulary = config.vocab_size

    def prepare_next_token(self, rows: np.ndarray) -> None:
        """Prepares training on every next token of the rows."""
        self._prepare(make_next_token_step(self.model, self.training), rows)

    def prepare_packed(self) -> tuple[int, int, int]:
        """Prepares training on a packed stream; returns the numbers of decisions, trunk tokens and branch tokens."""
        found = make_decisions(self.vocabulary)
        self._prepare_decisions([found.packed])
        return found.count, len(found.packed.trunk), len(found.packed.tokens)

    def prepare_rows(self) -> None:
        """Prepares training on eight of these decisions, each with its own trunk."""
        self._prepare_decisions(make_decisions(self.vocabulary).sample)

    def _prepare_decisions(self, rows: list[Packed]) -> None:
        size, loss = sizes(rows), LossConfig(response=0.0, burden=0.0)
        padded = [jax.tree.map(np.asarray, pad(row, size, 0)) for row in rows]
        slots = Slots(self.model, YES, NO, size.window, size.visible)
        objective = Objective(slots, loss, OperatingPoint())
        step = make_step(StepShape(objective, self.training, padded[0], make_mesh()))
        self._prepare(step, jax.tree.map(lambda *leaves: np.stack(leaves), *padded))

    def _prepare(self, optimizer_step: Callable, batch: Any) -> None:
        copies = jax.tree.map(jnp.copy, self.params)  # a step donates its arguments
        self.optimizer_step, self.batch = optimizer_step, batch
        self.state = TrainState(jnp.zeros((), jnp.int32), copies, Optimizer(self.training).init(copies))

    def step(self) -> tuple[float, float]:
        """Runs an optimizer step; returns its seconds and its loss."""

        def run() -> float:
            self.state, loss = jax.block_until_ready(self.optimizer_step(self.state, self.batch))
            return float(loss["loss"] if isinstance(loss, dict) else loss)

        return timed(run)

    @functools.cached_property
    def unstacked(self) -> Any:
        """The parameters in the form for inference, per layer."""
        return unstack_layers(self.params)

    def prefill(self, tokens: np.ndarray, new: int) -> float:
        """Prefills rows of one length; returns the seconds."""
        return timed(lambda: jax.block_until_ready(self._read(tokens)))[0]

    def _read(self, tokens: np.ndarray) -> Any:
        return prefill(self.model, self.unstacked, tokens)

    def decode(self, tokens: np.ndarray, new: int) -> tuple[float, list[list[int]]]:
        """Decodes `new` tokens after prefilled rows; returns the seconds and the tokens."""
        write, read = Greedy(self.model, self.unstacked, new), jax.block_until_ready(self._read(tokens))
        return timed(lambda: write(*read))

    def product(self, rows: int) -> float:
        """Computes the matrix product of a feed-forward layer; returns the seconds."""
        kernel = self.params["layers"]["mlp"]["gate_proj"]["kernel"][0]
        x = jnp.asarray(random_rows(rows, kernel.shape[0]))
        return timed(lambda: jax.block_until_ready(_multiply(x, kernel)))[0]

    def open(self) -> None:
        """Opens the live stream, after compiling all its programs."""
        self._open(1, budget=4096, batches=(1,))

    def decide(self, number: int) -> tuple[float, np.ndarray]:
        """Reads the next event and its branch; returns the seconds and the answers' logits at both slots."""
        reading = ReadRequest("0", self.live.events[number], [self.branch])
        seconds, [[logits]] = timed(lambda: self.engine.read([reading]))
        return seconds, logits

    def open_many(self, streams: int) -> None:
        """Opens live streams that are read together, after compiling all their programs."""
        self._open(streams, budget=512, batches=(1, 16))

    def _open(self, streams: int, budget: int, batches: tuple[int, ...]) -> None:
        self.live = make_live_stream(self.vocabulary)
        self.branch = Branch(tuple(self.live.head), (tuple(self.live.leaf),))
        pages = budget // PAGE * max(batches[-1], streams) + 1
        memory = pages * page_bytes(self.model.config)
        answers, sizes = [YES, NO], {"budget": budget, "memory": memory, "batches": batches, "longest": 64}
        self.engine = Engine(self.model, self.params, answers, **sizes)
        self.engine.warm_up()
        for stream in range(streams):
            self.engine.open(str(stream), self.live.system)

    def decide_many(self, number: int) -> tuple[float, np.ndarray]:
        """Reads an event on every stream and its branch; returns the seconds and the answers' logits at both slots."""
        events = [self.live.events[(number + i) % len(self.live.events)] for i in range(len(self.engine))]
        readings = [ReadRequest(str(i), event, [self.branch]) for i, event in enumerate(events)]
        seconds, logits = timed(lambda: self.engine.read(readings))
        return seconds, np.stack([rows for [rows] in logits])


_multiply = jax.jit(jnp.matmul)
