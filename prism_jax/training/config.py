"""The whole configuration of a run, one frozen dataclass a section; `configs/` builds these."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Literal

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.prompting.template import PromptConfig
from prism_jax.streams.simulator import SimulatorConfig
from prism_jax.student import StudentConfig
from prism_jax.training.pathways.table import SECOND_STAGES, PathwayConfig

Master = Literal["none", "float32", "split", "stochastic"]
Packing = Literal["streams", "rows"]


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Where streams come from and how whole streams are split.

    Attributes:
      name: `simulator`, `proactivebench`, or `jsonl` (streams in this project's own format).
      source: Directory laid out as ProactiveBench's repository, empty to download the official archive; or path of the
        JSONL file.
      need: ProactiveBench's definition of need: strict (official help_needed), majority, or any_valid.
      folds: Number of folds of a fixed data set; the simulator draws each split afresh instead.
      fold: Which fold is the test split.
      calibration: Share of the other folds' streams that calibrate.
      split_seed: Names the shuffle behind the folds.
      held_out: Share of the training split's streams, drawn whole, that are not trained on but scored along the way, to
        say which checkpoint is best; 0 holds none out. The calibration split never chooses a checkpoint.
      train_streams: Simulator: streams of the training split.
      calibration_streams: Simulator: streams of the calibration split.
      test_streams: Simulator: streams of the test split, on which every offer is made.
      context: Most tokens up to the end of one decision; longer streams are split between steps, and each part keeps
        the newest events that fit.
      packing: `streams` reads a stream's events once, every decision a branch off them; `rows` reads each decision by
        itself, a batch being so many decisions.
      row_tokens: Short streams share rows of about so many tokens, first fit decreasing; 0 gives each its own.
      buckets: Most shapes that rows are padded to, each a program to compile; with several, every batch has one shape.
    """

    name: Literal["simulator", "proactivebench", "jsonl"] = "simulator"
    source: str = ""
    need: Literal["strict", "majority", "any_valid"] = "strict"
    folds: int = 4
    fold: int = 0
    calibration: float = 0.25
    split_seed: int = 0
    held_out: float = 0.0
    train_streams: int = 4096
    calibration_streams: int = 256
    test_streams: int = 512
    context: int = 2048
    packing: Packing = "streams"
    row_tokens: int = 0
    buckets: int = 1

    def __post_init__(self) -> None:
        for name in ("train_streams", "calibration_streams", "test_streams", "context", "buckets"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected at least 1")
        if self.row_tokens < 0:
            raise ValueError(f"row_tokens: found {self.row_tokens}, expected at least 0")
        if self.folds < 2:
            raise ValueError(f"folds: found {self.folds}, expected at least 2")
        if not 0 <= self.fold < self.folds:
            raise ValueError(f"fold: found {self.fold}, expected 0 to {self.folds - 1} (folds = {self.folds})")
        if not 0 < self.calibration < 1:
            raise ValueError(f"calibration: found {self.calibration}, expected a share between 0 and 1")
        if not 0 <= self.held_out < 1:
            raise ValueError(f"held_out: found {self.held_out}, expected a share of at least 0 and below 1")
        if self.name == "jsonl" and not self.source:
            raise ValueError(f"source: found none, expected a path for data.name = {self.name!r}")


@dataclasses.dataclass(frozen=True)
class LossConfig:
    """Weights and estimators of the objective (maths section 4; defaults of section 1).

    Attributes:
      response: lambda_LM, of the cross-entropy of response tokens; at 0 it is reported, and costs no gradient.
      need: lambda_n.
      accept: lambda_a.
      burden: lambda_b.
      estimator: How logged acceptances are weighted: `snips`, `ips`, `dr` (doubly robust, with the mean acceptance of
        other streams of the domain as its prediction), or `none`, which ignores the propensities (for comparison).
      e_min: Propensities below are raised to this.
      w_max: Inverse propensities above are lowered to this.
      false_alarm: lambda_FA, inside the burden.
      missed: Weight of missed help, inside the burden.
      width_start: h of the soft gate at the first step, in log-odds.
      width_end: h at the last step.
      tokens: Loss of a token of text: `sft`, or `dft`, which pathway.name = 'dft' sets.
      response_chunk: Supervised tokens whose logits exist at once.
    """

    response: float = 1.0
    need: float = 1.0
    accept: float = 1.0
    burden: float = 0.1
    estimator: Literal["snips", "ips", "dr", "none"] = "snips"
    e_min: float = 0.05
    w_max: float = 20.0
    false_alarm: float = 1.0
    missed: float = 1.0
    width_start: float = 0.25
    width_end: float = 0.05
    tokens: Literal["sft", "dft"] = "sft"
    response_chunk: int = 1024

    def __post_init__(self) -> None:
        for name in ("response", "need", "accept", "burden", "false_alarm", "missed"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected at least 0")
        if not 0 < self.e_min <= 1:
            raise ValueError(f"e_min: found {self.e_min}, expected a probability in (0, 1]")
        for name in ("w_max", "width_start", "width_end", "response_chunk"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected above 0")


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
      soft_votes: Whether acceptance trains on the share of annotators who accept, where votes are known.
      share_every: Steps between logs of each term's own gradient norm, which cost a backward pass a term; 0 is never.
      checkpoint_every: Steps between checkpoints; the last step is always saved.
      keep: Newest checkpoints that stay; more than one, so that a damaged one gives way to the one before.
      keep_best: Checkpoints of lowest held-out loss that stay too. Above 0, evaluation and export read the best one;
        at 0 the newest.
      evaluate_every: Steps between scores of the held-out streams, beside those at every checkpoint; 0 for no others.
      data: Devices along the data axis of the mesh.
      fsdp: Devices along the axis that shards parameters.
      tensor: Devices along the axis that splits heads and inner widths.
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
    soft_votes: bool = False
    share_every: int = 0
    checkpoint_every: int = 200
    keep: int = 2
    keep_best: int = 0
    evaluate_every: int = 0
    data: int = 1
    fsdp: int = 1
    tensor: int = 1

    def __post_init__(self) -> None:
        if self.steps < 0 or self.epochs < 0 or (self.steps == 0) == (self.epochs == 0):
            raise ValueError(
                f"steps: found {self.steps} with epochs = {self.epochs}, expected one of the two above 0, one 0"
            )
        for name in ("batch", "accumulation", "checkpoint_every", "keep", "data", "fsdp", "tensor"):
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
        if self.reuse_frozen and self.data * self.fsdp * self.tensor > 1:
            raise ValueError(
                f"reuse_frozen: found True on data {self.data} x fsdp {self.fsdp} x tensor {self.tensor} devices, "
                "expected one device"
            )
        if self.batch % (self.accumulation * self.data * self.fsdp):
            raise ValueError(
                f"batch: found {self.batch}, expected a multiple of accumulation {self.accumulation} x data "
                f"{self.data} x fsdp {self.fsdp}: every microbatch gives each device as many streams"
            )

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
    student: StudentConfig = dataclasses.field(default_factory=StudentConfig)
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
            if getattr(self.training, name) and not self.data.held_out:
                raise ValueError(
                    f"training.{name}: found {getattr(self.training, name)} with data.held_out = 0, expected 0 or a "
                    "share of the training streams to score"
                )
