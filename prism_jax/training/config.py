"""The whole configuration of a run, one frozen dataclass a section; `configs/` builds these."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Literal

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.prompting.template import PromptConfig
from prism_jax.streams.simulator import SimulatorConfig
from prism_jax.streams.sources import DataConfig
from prism_jax.student import StudentConfig
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.pathways.table import SECOND_STAGES, PathwayConfig

Master = Literal["none", "float32", "split", "stochastic"]
Unit = Literal["streams", "decisions"]


@dataclasses.dataclass(frozen=True)
class PackingConfig:
    """How streams become rows of token ids.

    Attributes:
      context: Most tokens up to the end of one decision; longer streams are split between steps, and each part keeps
        the newest events that fit.
      unit: What one row holds. `streams` reads the events of a stream once, with every decision as a branch off them;
        `decisions` reads each decision by itself.
      row_tokens: Lets short streams share rows of about this many tokens, first fit decreasing; 0 gives each its own.
      buckets: Most shapes that rows are padded to, each a program to compile; with several, every batch has one shape.
    """

    context: int = 2048
    unit: Unit = "streams"
    row_tokens: int = 0
    buckets: int = 1

    def __post_init__(self) -> None:
        for name in ("context", "buckets"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected at least 1")
        if self.row_tokens < 0:
            raise ValueError(f"row_tokens: found {self.row_tokens}, expected at least 0")


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """How many devices lie along each axis of the device mesh (`prism_jax.student.sharding`).

    Attributes:
      data: Shares out the rows of a batch.
      fsdp: Shares out the rows of a batch, and shards parameters and optimizer state.
      tensor: Splits attention heads and the inner widths of the feed-forward layers.
    """

    data: int = 1
    fsdp: int = 1
    tensor: int = 1

    def __post_init__(self) -> None:
        for name in ("data", "fsdp", "tensor"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected at least 1")

    @property
    def devices(self) -> int:
        """How many devices the mesh has."""
        return self.data * self.fsdp * self.tensor


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Steps, optimizer and checkpoints.

    Attributes:
      seed: Of the initial parameters and the order of the data.
      start: Weights to start from: the workdir of another run, a Hugging Face directory or a GGUF file, which then say
        the student's architecture and, unless prompt.tokenizer names another, its tokenizer. Empty draws fresh ones.
      steps: Optimizer steps; 0 where `epochs` says how many.
      epochs: Times that every training row is seen, where steps is 0: the steps are as many as that takes.
      batch: Rows a step, in all microbatches together; a row is a stream unless `data` says otherwise.
      accumulation: Microbatches a step, one after another; 1 keeps no buffer for the sum of their gradients.
      learning_rate: Peak of the cosine.
      warmup: Share of the steps that warm up.
      final_rate: Learning rate at the end, as a share of the peak.
      weight_decay: Decoupled, on matrices only.
      b1: AdamW's first moment.
      b2: AdamW's second moment.
      clip: Global gradient norm is clipped to this.
      first_moment: Dtype that AdamW's first moment is kept in.
      second_moment: Dtype of the second, or `factored`: row and column means of every large matrix, as Adafactor has.
      master: What updates of bfloat16 parameters are added to; `none` is the parameter itself
        (`prism_jax.training.optimization.masters`).
      frozen: Regular expressions of whole names such as `embedding` or `layers/3/mlp/up_proj/kernel`; what matches does
        not train.
      reuse_frozen: Whether to read each row once through the embedding and the lowest blocks, which must be frozen, and
        to train what is above on that (`prism_jax.training.optimization.reuse`); for one device.
      soft_labels: Whether acceptance trains on the share of annotators who accept, where votes are known.
      share_every: Steps between logs of each term's own gradient norm, which cost a backward pass a term; 0 is never.
      checkpoint_every: Steps between checkpoints; the last step is always saved.
      keep: Newest checkpoints that stay; more than one, so that a damaged one gives way to the one before.
      keep_best: Checkpoints of lowest held-out loss that stay too. Above 0, evaluation and export read the best one;
        at 0 the newest.
      evaluate_every: Steps between scores of the held-out streams, beside those at every checkpoint; 0 for no others.
    """

    seed: int = 0
    start: str = ""
    steps: int = 400
    epochs: float = 0.0
    batch: int = 16
    accumulation: int = 1
    learning_rate: float = 3e-3
    warmup: float = 0.1
    final_rate: float = 0.02
    weight_decay: float = 0.05
    b1: float = 0.9
    b2: float = 0.98
    clip: float = 1.0
    first_moment: Literal["float32", "bfloat16"] = "float32"
    second_moment: Literal["float32", "bfloat16", "factored"] = "float32"
    master: Master = "none"
    frozen: tuple[str, ...] = ()
    reuse_frozen: bool = False
    soft_labels: bool = False
    share_every: int = 0
    checkpoint_every: int = 200
    keep: int = 2
    keep_best: int = 0
    evaluate_every: int = 0

    def __post_init__(self) -> None:
        if self.steps < 0 or self.epochs < 0 or (self.steps == 0) == (self.epochs == 0):
            raise ValueError(
                f"steps: found {self.steps} with epochs = {self.epochs}, expected one of the two above 0, one 0"
            )
        for name in ("batch", "accumulation", "checkpoint_every", "keep"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected at least 1")
        if self.share_every < 0:
            raise ValueError(f"share_every: found {self.share_every}, expected at least 0 (0 is never)")
        for name in ("keep_best", "evaluate_every"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected at least 0")
        for name in ("learning_rate", "clip"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected above 0")
        for name in ("warmup", "final_rate", "b1", "b2"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected a number in [0, 1]")
        if not self.weight_decay >= 0:
            raise ValueError(f"weight_decay: found {self.weight_decay}, expected at least 0")
        if self.second_moment == "bfloat16" and 1 - self.b2 < 2**-8:
            raise ValueError(
                f"second_moment: found 'bfloat16' with b2 = {self.b2}, expected 'float32', 'factored' or a b2 of at "
                f"most {1 - 2**-8:.4f}: smaller changes round to none in 8 bits"
            )
        for pattern in self.frozen:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"frozen: found {pattern!r}, expected a regular expression ({error})") from error

    def over(self, epoch: float) -> TrainingConfig:
        """These settings with `epochs` turned into steps, at `epoch` batches each."""
        if self.steps:
            return self
        return dataclasses.replace(self, steps=math.ceil(self.epochs * epoch), epochs=0.0)

    def saves(self, step: int) -> bool:
        """Whether the state after `step` is saved; held-out streams are scored then too."""
        return step % self.checkpoint_every == 0 or step == self.steps

    def evaluates(self, step: int) -> bool:
        """Whether held-out streams are scored after `step`."""
        return self.saves(step) or (self.evaluate_every > 0 and step % self.evaluate_every == 0)


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """A whole run; `decision` feeds the training losses and the evaluation alike."""

    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    simulator: SimulatorConfig = dataclasses.field(default_factory=SimulatorConfig)
    prompt: PromptConfig = dataclasses.field(default_factory=PromptConfig)
    packing: PackingConfig = dataclasses.field(default_factory=PackingConfig)
    student: StudentConfig = dataclasses.field(default_factory=StudentConfig)
    mesh: MeshConfig = dataclasses.field(default_factory=MeshConfig)
    decision: OperatingPoint = dataclasses.field(default_factory=OperatingPoint)
    loss: LossConfig = dataclasses.field(default_factory=LossConfig)
    pathway: PathwayConfig = dataclasses.field(default_factory=PathwayConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)

    def __post_init__(self) -> None:
        if self.pathway.name in SECOND_STAGES and not self.training.start:
            raise ValueError(
                f"training.start: found none, expected the workdir of an rdc_sft run: {self.pathway.name} is a second "
                "stage"
            )
        kind, dtype = self.training.master, self.student.param_dtype
        if kind != "none" and dtype != "bfloat16":
            raise ValueError(
                f"training.master: found {kind!r} with student.param_dtype = {dtype!r}, expected 'none' or "
                "parameters in 'bfloat16'"
            )
        for name in ("keep_best", "evaluate_every"):
            if getattr(self.training, name) and not self.data.validation:
                raise ValueError(
                    f"training.{name}: found {getattr(self.training, name)} with data.validation = 0, expected 0 or a "
                    "share of the training streams to score"
                )
        self._check_mesh()

    def _check_mesh(self) -> None:
        """Raises ValueError, naming the field, for settings that these devices cannot serve."""
        mesh, training = self.mesh, self.training
        if training.reuse_frozen and mesh.devices > 1:
            raise ValueError(
                f"training.reuse_frozen: found True on data {mesh.data} x fsdp {mesh.fsdp} x tensor {mesh.tensor} "
                "devices, expected one device"
            )
        if training.batch % (training.accumulation * mesh.data * mesh.fsdp):
            raise ValueError(
                f"training.batch: found {training.batch}, expected a multiple of accumulation {training.accumulation} "
                f"x data {mesh.data} x fsdp {mesh.fsdp}: every microbatch gives each device as many rows"
            )
