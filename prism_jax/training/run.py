"""Opens a run from its config: the streams, tokenizer, template and model that training and evaluation share."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray

from prism_jax.streams.sources import load_splits
from prism_jax.streams.splits import Splits
from prism_jax.streams.summary import summarise
from prism_jax.student.lora import joined
from prism_jax.student.prompting.template import Template, make_tokenizer
from prism_jax.student.prompting.tokenizer import Tokenizer
from prism_jax.student.qwen3 import Params, Qwen3
from prism_jax.student.scoring.student import Student
from prism_jax.student.sharding import make_mesh
from prism_jax.student.weights import load
from prism_jax.student.weights.peft import read_adapters
from prism_jax.training import fingerprints
from prism_jax.training.checkpoints.checkpoint import parameters_alone
from prism_jax.training.checkpoints.recovery import restore_best
from prism_jax.training.optimization.step import abstract_state, saved_part
from prism_jax.training.run_config import RunConfig
from prism_jax.training.start import digest_of, is_run, with_start
from prism_jax.training.workdir import Workdir

NEED = {
    "strict": "some offer was accepted by every annotator (official help_needed)",
    "majority": "more than half of the annotators accepted some offer",
    "any_valid": "some offer was accepted by most annotators",
}
P_NEED = {"marginal": "need, whether accepted or not", "given_accept": "need, given that the offer is accepted"}


@dataclasses.dataclass(frozen=True)
class Run:
    """The parts of a run that training and evaluation share."""

    config: RunConfig  # config of the run, with every size filled in
    splits: Splits  # complete streams of every split
    template: Template  # prompt template with the run's tokenizer
    model: Qwen3  # the student without its parameters
    workdir: Workdir | None = None  # folder of the run; None for a run that is opened only to plan or inspect it

    @property
    def files(self) -> Workdir:
        """The folder of the run; raises ValueError for a run that was opened without one."""
        if self.workdir is None:
            raise ValueError("workdir: found none, expected a run that was opened with its folder")
        return self.workdir

    def student(self, params: Params) -> Student:
        """The student with some parameters."""
        return Student(self.model, params, self.template)

    @property
    def with_adapters(self) -> Qwen3:
        """The student as it trains: with the adapters of the config, if it has any."""
        return Qwen3(self.config.student, self.config.lora)

    @functools.cached_property
    def fingerprints(self) -> dict[str, str]:
        """SHA-256 of the streams, the tokenizer and the prompt, as `fingerprints.json` holds them."""
        return fingerprints.of_run(self.splits, self.template)

    @property
    def trains_slow(self) -> bool:
        """Whether training has slow branches; without any, no slow pass is scored."""
        steps = (step for stream in self.splits.train for step in stream.steps)
        return self.config.pathway.slow > 0 and any(step.rationale for step in steps)

    def facts(self) -> dict[str, str]:
        """Describes the data of every split and the definition of need, for the terminal and the report.

        A trigger that has no slow pass to trigger is described too.
        """
        data = self.config.data
        need = {"proactivebench": f"{data.need}: {NEED[data.need]}", "simulator": "drawn with the true p_need"}
        names = ["train", *["validation"] * bool(self.splits.validation), "calibration", "test"]
        return {
            "data": str(data),
            "need": need.get(data.name, "taken from the labels of the file"),
            "p_need": P_NEED[self.config.loss.need_target],
            **self._idle_trigger(),
            **{name: str(summarise(getattr(self.splits, name))["all"]) for name in names},
        }

    def _idle_trigger(self) -> dict[str, str]:
        trigger, slow = self.config.decision.trigger, self.config.pathway.slow
        if trigger == "auto" or self.trains_slow:
            return {}
        why = "no training step has a rationale" if slow else "pathway.slow = 0"
        fact = f"none is trained ({why}), so decision.trigger = {trigger} has no effect: the fast pass decides"
        return {"slow pass": fact}


def resolve(config: RunConfig, workdir: Workdir | None = None) -> Run:
    """Resolves a config into all that training and evaluation read; writes nothing.

    The student and the tokenizer of `training.start` are looked up (`with_start`), the streams are read, and the
    tokenizer, template and model are built from them. A vocabulary size of 0 is replaced by the tokenizer's. If the
    folder of the run holds a tokenizer, that one is used; otherwise the tokenizer that the config names is loaded or
    trained.

    Raises:
      ValueError, OSError: if a source or setting cannot be used, or if the folder's run read other streams, another
        tokenizer or another prompt; the message is one line.
    """
    return _open(with_start(config), workdir)


def _open(config: RunConfig, workdir: Workdir | None) -> Run:
    splits = load_splits(config.data, config.simulator)
    if workdir is not None and workdir.tokenizer.exists():
        tokenizer = Tokenizer.load(workdir.tokenizer)
    else:
        tokenizer = make_tokenizer(list(splits.train), config.prompt, slow=config.pathway.slow > 0)
    rows = config.student.vocab_size or tokenizer.size
    if rows < tokenizer.size:
        raise ValueError(
            f"student.vocab_size: found {rows}, expected at least the tokenizer's {tokenizer.size} (0 selects it)"
        )
    student, lora = dataclasses.replace(config.student, vocab_size=rows), config.lora
    template = Template(tokenizer, config.prompt)
    if lora.head == "slots" and not lora.tokens:
        lora = dataclasses.replace(lora, tokens=(template.yes, template.no))
    if lora.tokens and {template.yes, template.no} != {*lora.tokens}:
        raise ValueError(
            f"lora.start: found {lora.start} with rows for the tokens {lora.tokens}, expected those of the answers, "
            f"{template.yes} and {template.no}"
        )
    run = Run(dataclasses.replace(config, student=student, lora=lora), splits, template, Qwen3(student), workdir)
    if workdir is not None and workdir.config.exists():
        fingerprints.check(workdir, run.fingerprints)
    return run


def reopen_run(workdir: Workdir) -> Run:
    """Opens a run that was trained, with its own config and tokenizer; FileNotFoundError where one is missing."""
    config = workdir.load_config()
    if not workdir.tokenizer.exists():
        raise FileNotFoundError(
            f"{workdir.tokenizer}: no such file, expected the tokenizer that the run was trained with"
        )
    return _open(config, workdir)


def base_params(config: RunConfig, model: Qwen3, mesh: Mesh) -> Params:
    """The parameters that `training.start` names, which those of adapters come on top of.

    Raises:
      ValueError, OSError, RuntimeError: if the weights or the run cannot be read; the message is one line.
    """
    start = config.training.start
    if not is_run(start):
        return load(start, model.config.param_dtype, mesh, config.training.start_blocks).params
    first = Workdir(start)
    trained = restore_trained(first.load_config(), first, mesh)
    if config.lora.rank and trained.damaged:
        raise ValueError(
            f"{first}: found step {trained.damaged[0]} damaged, expected the base of the adapters as it was"
        )
    return jax.tree.map(lambda leaf: leaf.astype(model.config.param_dtype), trained.params)


def first_params(config: RunConfig, model: Qwen3, mesh: Mesh) -> PRNGKeyArray | Params:
    """The parameters before the first step, or the key for initialising them randomly; errors as in `base_params`.

    Of adapters they hold those that `lora.start` names, if any.
    """
    if not config.training.start:
        return jax.random.key(config.training.seed)
    base = base_params(config, model, mesh)
    return joined(base, read_adapters(config.lora.start, config.student, base)[1]) if config.lora.start else base


def untrained_params(run: Run) -> Params:
    """The parameters before the first step, on one device; errors as in `base_params`."""
    model = run.with_adapters
    start = first_params(run.config, model, make_mesh())
    if not isinstance(start, dict):
        return jax.jit(run.model.init)(start)
    return model.plain(start) if run.config.lora.start else start


NOT_TRAINED = 3
"""Exit status where what was read is not the trained result."""


class Trained(NamedTuple):
    """The parameters of a checkpoint, its step, and the steps of damaged checkpoints that come before it."""

    step: int
    params: Params
    damaged: tuple[int, ...]


def checkpoint_in_words(config: RunConfig, step: int, damaged: Sequence[int] = ()) -> str:
    """Describes the checkpoint that `restore_trained` returned."""
    if damaged:
        which = f"step {damaged[0]} is" if len(damaged) == 1 else f"steps {', '.join(map(str, damaged))} are"
        return f"step {step}, which is not the trained result: {which} damaged"
    return f"step {step} ({'best on validation streams' if config.training.keep_best else 'newest'})"


def restore_trained(config: RunConfig, workdir: Workdir, mesh: Mesh | None = None, *, merge: bool = True) -> Trained:
    """Restores the checkpoint that evaluation and export use, onto one device without a mesh.

    Adapters are merged into their base, which is loaded and compared with its digest; with `merge` False the parameters
    are those of the adapters alone. Errors as in `recovery.restore_best` and `base_params`.
    """
    mesh = make_mesh() if mesh is None else mesh
    model = Qwen3(config.student, config.lora)
    abstract = parameters_alone(saved_part(abstract_state(model, config.training, mesh), model))
    step, state, _, damaged = restore_best(workdir.checkpoints, abstract, config)
    if not (config.lora.rank and merge):
        return Trained(step, state.params, damaged)
    start = config.training.start
    fingerprints.check_start(start, digest_of(start), config.training.start_sha256)
    return Trained(step, model.plain(joined(base_params(config, model, mesh), state.params)), damaged)


def trained_params(config: RunConfig, workdir: Workdir) -> tuple[int, Params]:
    """The step and parameters that `restore_trained` restores; a damaged checkpoint is a warning only."""
    step, params, _ = restore_trained(config, workdir)
    return step, params
