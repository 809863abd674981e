"""The complete configuration of a run, with one frozen dataclass per section; the files in `configs/` build it."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Literal

from prism_jax.decision.calibration import CalibrationConfig
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.runtime.dataclass_config import check, check_above, check_at_least, check_shares
from prism_jax.streams.simulator import SimulatorConfig
from prism_jax.streams.sources import DataConfig
from prism_jax.student.lora import LoraConfig
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.prompting.template import PromptConfig, WritingConfig
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.pathway_config import SECOND_STAGES, PathwayConfig

Master = Literal["none", "float32", "split", "stochastic"]
Unit = Literal["streams", "decisions"]


@dataclasses.dataclass(frozen=True)
class PackingConfig:
    """How streams become rows of token ids."""

    # Maximum number of tokens up to the end of one decision. Longer streams are split between steps, and each part
    # keeps the newest events that fit.
    context: int = 2048
    # What one row holds. `streams` reads the events of a stream once, with every decision as a branch; `decisions`
    # reads each decision separately, in a row of its own.
    unit: Unit = "streams"
    # Maximum number of decisions per row; a stream with more gets several rows, each with its own copy of the events
    # that its decisions see, so that an epoch has more updates. 1 gives each decision its own row; 0 sets no limit.
    # Each decision sees the same events at any limit.
    max_decisions: int = 0
    # approximate number of tokens in a row that short streams share (first-fit decreasing); 0 gives each stream its own
    # row
    row_tokens: int = 0
    # Maximum number of shapes that rows are padded to; each shape compiles a separate program. With several buckets,
    # all rows of a batch have the same shape.
    buckets: int = 1

    def __post_init__(self) -> None:
        check_at_least(self, 1, "context", "buckets")
        check_at_least(self, 0, "max_decisions", "row_tokens")
        if self.max_decisions and self.row_tokens:
            raise ValueError(
                f"max_decisions: found {self.max_decisions} with row_tokens = {self.row_tokens}, expected one of them "
                "to be 0: a row that streams share holds the decisions of all of them"
            )
        if self.max_decisions > 1 and self.unit == "decisions":
            raise ValueError(
                f"max_decisions: found {self.max_decisions} with unit = 'decisions', expected 0 or 1: a row holds one"
            )


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """Number of devices along each axis of the device mesh (`prism_jax.student.sharding`)."""

    data: int = 1  # number of devices on the axis that shards the rows of a batch
    # number of devices on the axis that shards the rows of a batch, the parameters and the optimizer state
    fsdp: int = 1
    # number of devices on the axis that splits attention heads and the inner widths of feed-forward layers
    tensor: int = 1

    def __post_init__(self) -> None:
        check_at_least(self, 1, "data", "fsdp", "tensor")

    @property
    def devices(self) -> int:
        """Total number of devices in the mesh."""
        return self.data * self.fsdp * self.tensor


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Settings of the steps, the optimizer and the checkpoints."""

    seed: int = 0  # random seed of the initial parameters and of the data order
    # Weights to start from: the workdir of another run, a Hugging Face directory, a GGUF file, or the name of a model
    # of Hugging Face's hub that is in its cache (`hf download Qwen/Qwen3-0.6B`). They determine the student's
    # architecture and, unless prompt.tokenizer names another, its tokenizer. Empty initialises the parameters randomly.
    start: str = ""
    # SHA-256 that the weights in `start` must have, in hexadecimal digits: of the GGUF file, or of the directory's
    # safetensors files one after another (`cat DIR/*.safetensors | sha256sum`). Empty checks nothing.
    start_sha256: str = ""
    # Number of lowest blocks of the weights in `start` that the student keeps. Its slots are read after the last of
    # them, and the blocks above are neither loaded nor exported. 0 keeps all.
    start_blocks: int = 0
    steps: int = 400  # number of optimizer steps; 0 if `epochs` sets it
    # number of passes over the training rows, which determines the number of steps; needs steps = 0
    epochs: float = 0.0
    batch: int = 16  # number of rows per optimizer step, over all microbatches; a row holds what `packing.unit` selects
    # number of microbatches per step, computed one after another; 1 needs no buffer for the sum of their gradients
    accumulation: int = 1
    learning_rate: float = 3e-3  # peak learning rate of the cosine schedule
    warmup: float = 0.1  # share of the steps during which the learning rate warms up
    final_rate: float = 0.02  # learning rate at the last step, as a share of the peak
    weight_decay: float = 0.05  # coefficient of the decoupled weight decay, which applies to matrices only
    b1: float = 0.9  # decay rate of AdamW's first moment
    b2: float = 0.98  # decay rate of AdamW's second moment
    clip: float = 1.0  # maximum global norm that gradients are clipped to
    first_moment: Literal["float32", "bfloat16"] = "float32"  # dtype that stores AdamW's first moment
    # dtype that stores AdamW's second moment, or `factored`, which stores only row and column means for every large
    # matrix, as Adafactor does
    second_moment: Literal["float32", "bfloat16", "factored"] = "float32"
    # kind of master copy that accumulates the updates of bfloat16 parameters; `none` adds them to the parameters
    # themselves (`prism_jax.training.optimization.masters`)
    master: Master = "none"
    # regular expressions for full parameter names such as `embedding` or `layers/3/mlp/up_proj/kernel`; matching
    # parameters are not trained
    frozen: tuple[str, ...] = ()
    # whether to compute the features of the embedding and the lowest blocks, which must be frozen, once per row and to
    # train the rest on them (`prism_jax.training.optimization.frozen`); supports one device only
    reuse_frozen: bool = False
    # whether the acceptance target is the share of annotators who accept, where votes are known
    soft_labels: bool = False
    # number of steps between logs of each loss term's gradient norm, which cost one backward pass per term; 0 never
    # logs them
    share_every: int = 0
    checkpoint_every: int = 200  # number of steps between checkpoints; the last step is always saved
    # Number of newest checkpoints to keep. With more than one, a damaged checkpoint can be replaced by the one before
    # it.
    keep: int = 2
    # Number of checkpoints with the lowest validation loss to keep as well. Above 0, evaluation and export read the
    # best checkpoint; at 0, the newest.
    keep_best: int = 0
    # number of steps between scores of the validation streams, in addition to the score at every checkpoint; 0 adds
    # none
    evaluate_every: int = 0

    def __post_init__(self) -> None:
        if self.steps < 0 or self.epochs < 0 or (self.steps == 0) == (self.epochs == 0):
            raise ValueError(
                f"steps: found {self.steps} with epochs = {self.epochs}, expected one of them above 0 and the other 0"
            )
        check(self, "steps", self.steps < 2**31, "less than 2**31, which step counters can hold")
        check(self, "seed", 0 <= self.seed < 2**32, f"0 to {2**32 - 1}")  # keys of JAX drop higher bits
        if self.start_sha256 and not self.start:
            raise ValueError(f"start_sha256: found {self.start_sha256} without start, expected the weights' path there")
        known = re.fullmatch(r"([0-9a-fA-F]{64})?", self.start_sha256) is not None
        check(self, "start_sha256", known, "64 hexadecimal digits")
        if self.start_blocks and not self.start:
            raise ValueError(f"start_blocks: found {self.start_blocks} without start, expected the weights' path there")
        check_at_least(self, 0, "start_blocks")
        check_at_least(self, 1, "batch", "accumulation", "checkpoint_every", "keep")
        check(self, "share_every", self.share_every >= 0, "at least 0 (0 never logs them)")
        check_at_least(self, 0, "keep_best", "evaluate_every")
        check_above(self, 0, "learning_rate", "clip")
        check_shares(self, "a number in [0, 1]", "warmup", "final_rate")
        for name in ("b1", "b2"):  # at 1 a moment stays 0, and its correction divides 0 by 0
            check(self, name, 0 <= getattr(self, name) < 1, "a number in [0, 1)")
        check_at_least(self, 0, "weight_decay")
        if self.second_moment == "bfloat16" and 1 - self.b2 < 2**-8:
            raise ValueError(
                f"second_moment: found 'bfloat16' with b2 = {self.b2}, expected 'float32', 'factored' or a b2 of at "
                f"most {1 - 2**-8:.4f}: bfloat16 has 8 significant bits and would round smaller changes to zero"
            )
        for pattern in self.frozen:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"frozen: found {pattern!r}, expected a regular expression ({error})") from error

    def over(self, epoch: float) -> TrainingConfig:
        """Returns these settings with `epochs` converted into steps, given the number of batches per epoch."""
        if self.steps:
            return self
        return dataclasses.replace(self, steps=math.ceil(self.epochs * epoch), epochs=0.0)

    @property
    def warmup_steps(self) -> int:
        """Number of steps during which the learning rate warms up, at least 1; needs `steps` (see `over`)."""
        return max(1, round(self.warmup * self.steps))

    def saves(self, step: int) -> bool:
        """Whether the state after `step` is saved; validation streams are scored at these steps too."""
        return step % self.checkpoint_every == 0 or step == self.steps

    def evaluates(self, step: int) -> bool:
        """Whether the validation streams are scored after `step`."""
        return self.saves(step) or (self.evaluate_every > 0 and step % self.evaluate_every == 0)


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """The configuration of a complete run; both the training losses and the evaluation read `decision`."""

    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    simulator: SimulatorConfig = dataclasses.field(default_factory=SimulatorConfig)
    prompt: PromptConfig = dataclasses.field(default_factory=PromptConfig)
    packing: PackingConfig = dataclasses.field(default_factory=PackingConfig)
    student: StudentConfig = dataclasses.field(default_factory=StudentConfig)
    mesh: MeshConfig = dataclasses.field(default_factory=MeshConfig)
    decision: OperatingPoint = dataclasses.field(default_factory=OperatingPoint)
    writing: WritingConfig = dataclasses.field(default_factory=WritingConfig)
    calibration: CalibrationConfig = dataclasses.field(default_factory=CalibrationConfig)
    loss: LossConfig = dataclasses.field(default_factory=LossConfig)
    pathway: PathwayConfig = dataclasses.field(default_factory=PathwayConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
    lora: LoraConfig = dataclasses.field(default_factory=LoraConfig)

    def __post_init__(self) -> None:
        self._check_lora()
        if self.pathway.name in SECOND_STAGES and not self.training.start:
            raise ValueError(
                f"training.start: found none, expected the workdir of an rdc_sft run: {self.pathway.name} is a second "
                "stage"
            )
        if self.pathway.own_fields and not self.training.start:
            raise ValueError(
                "training.start: found none with pathway.own_fields above 0, expected the workdir of a run with slow "
                "branches, whose student writes the fields"
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
                    "share of the training streams in data.validation"
                )
        if self.loss.need_target == "given_accept" and self.pathway.alpha:
            raise ValueError(
                f"loss.need_target: found 'given_accept' with pathway.alpha = {self.pathway.alpha}, expected "
                "'marginal' or pathway.alpha = 0: a teacher's need is not conditional on acceptance"
            )
        self._check_mesh()

    def _check_lora(self) -> None:
        """Raises ValueError, naming the field, for settings that adapters do not fit."""
        if not self.lora.rank:
            if self.lora.start:
                raise ValueError(
                    f"lora.start: found {self.lora.start} with lora.rank = 0, expected the rank of these adapters"
                )
            return
        if not self.training.start:
            raise ValueError("training.start: found none with lora.rank above 0, expected the weights to adapt")
        if self.training.master != "none":
            raise ValueError(
                f"training.master: found {self.training.master!r} with lora.rank above 0, expected 'none': adapters "
                "are kept in float32"
            )

    def _check_mesh(self) -> None:
        """Raises ValueError, naming the field, for settings that do not fit the device mesh."""
        mesh, training = self.mesh, self.training
        if training.reuse_frozen and mesh.devices > 1:
            raise ValueError(
                f"training.reuse_frozen: found True on data {mesh.data} x fsdp {mesh.fsdp} x tensor {mesh.tensor} "
                "devices, expected one device"
            )
        if training.batch % (training.accumulation * mesh.data * mesh.fsdp):
            raise ValueError(
                f"training.batch: found {training.batch}, expected a multiple of accumulation {training.accumulation} "
                f"x data {mesh.data} x fsdp {mesh.fsdp}: every microbatch must give each device the same number of rows"
            )
