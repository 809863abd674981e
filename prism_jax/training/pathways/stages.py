"""Second stages: training that starts from another run's checkpoint, with that run's student and tokenizer."""

from __future__ import annotations

import dataclasses
import json

import jax
from etils import epath
from jax.sharding import Mesh

from prism_jax.prompting.tokenizer import Tokenizer
from prism_jax.runtime.config import ConfigError
from prism_jax.student import Qwen3, StudentConfig
from prism_jax.student.qwen3 import Params
from prism_jax.training.checkpoints.checkpoint import parameters_alone
from prism_jax.training.checkpoints.recovery import restore_best
from prism_jax.training.config import RunConfig
from prism_jax.training.optimization.step import abstract_state
from prism_jax.training.workdir import Workdir

HOW_IT_RUNS = ("dtype", "param_dtype", "attention", "unroll", "remat")
"""What the config says of a student even where weights say what it is."""


def is_run(start: epath.PathLike) -> bool:
    """Whether a path is the workdir of a run, and not a directory of weights, which has a config.json too."""
    path = epath.Path(start) / "config.json"
    if not path.exists():
        return False
    try:
        value = json.loads(path.read_text())
    except ValueError:
        return False
    return isinstance(value, dict) and {"training", "student"} <= value.keys()


def from_run(config: RunConfig) -> RunConfig:
    """The config with the student and the tokenizer of the run that training.start names filled in.

    Raises:
      ConfigError: naming what differs, when the config asks for another student or another tokenizer.
      FileNotFoundError: when the run has no checkpoint.
    """
    start, own = epath.Path(config.training.start), config.student
    checkpoints = start / "checkpoints"
    if not (checkpoints.is_dir() and any(path.name.isdigit() for path in checkpoints.iterdir())):
        raise FileNotFoundError(
            f"{checkpoints}: found no checkpoint, expected one in training.start: train that run first"
        )
    theirs = Workdir(start).load_config().student
    student = dataclasses.replace(theirs, **{name: getattr(own, name) for name in HOW_IT_RUNS})
    rows = own.vocab_size or theirs.vocab_size
    asked = dataclasses.replace(own, vocab_size=rows)
    nothing = dataclasses.replace(StudentConfig(), **{name: getattr(own, name) for name in HOW_IT_RUNS})
    if own != nothing:  # a config that leaves the student alone takes the run's
        _check_student(asked, student, start)
    path = start / "tokenizer.json"
    given = config.prompt.tokenizer
    if given and Tokenizer.load(given).definition != Tokenizer.load(path).definition:
        raise ConfigError(
            f"prompt.tokenizer: found {given}, another tokenizer than {path}, expected that of the run in "
            "training.start (empty takes it)"
        )
    prompt = dataclasses.replace(config.prompt, tokenizer=str(path))
    return dataclasses.replace(config, student=student, prompt=prompt)


def _check_student(asked: StudentConfig, student: StudentConfig, start: epath.Path) -> None:
    for field in dataclasses.fields(student):
        found, expected = getattr(asked, field.name), getattr(student, field.name)
        if found != expected:
            raise ConfigError(
                f"student.{field.name}: found {found!r}, expected {expected!r} as in {start / 'config.json'}, the run "
                "that training.start names"
            )


def run_params(start: epath.PathLike, model: Qwen3, mesh: Mesh) -> Params:
    """The parameters that stand for a trained run (`recovery.restore_best`), on the mesh, in the model's own dtype.

    Raises:
      FileNotFoundError, CheckpointError: when there is no checkpoint that can be read.
    """
    workdir = Workdir(start)
    config = workdir.load_config()
    abstract = parameters_alone(abstract_state(Qwen3(config.student), config.training, mesh))
    restored = restore_best(workdir.checkpoints, abstract, config)
    return jax.tree.map(lambda leaf: leaf.astype(model.config.param_dtype), restored.state.params)
