"""Second stages, which start from another run's checkpoint and take over its student and tokenizer."""

from __future__ import annotations

import dataclasses

from etils import epath

from prism_jax.runtime.dataclass_config import ConfigError
from prism_jax.runtime.files import parse_json, read_bounded
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.prompting.tokenizer import Tokenizer
from prism_jax.training.run_config import RunConfig
from prism_jax.training.workdir import Workdir

HOW_IT_RUNS = ("dtype", "param_dtype", "compute", "attention", "unroll", "remat")
"""The fields of a student that the config sets even if the weights determine its architecture."""


def is_run(start: epath.PathLike) -> bool:
    """Whether a path is the workdir of a run. A directory of weights is not, although it has a config.json too."""
    path = epath.Path(start) / "config.json"
    if not path.exists():
        return False
    try:
        value = parse_json(read_bounded(path), str(path))
    except ValueError:
        return False
    return isinstance(value, dict) and {"training", "student"} <= value.keys()


def from_run(config: RunConfig) -> RunConfig:
    """Returns the config with the student and the tokenizer of the run that training.start names.

    ConfigError names a difference where the config sets another student or tokenizer; FileNotFoundError if the run has
    no checkpoint.
    """
    start, own = epath.Path(config.training.start), config.student
    checkpoints = start / "checkpoints"
    if not (checkpoints.is_dir() and any(path.name.isdigit() for path in checkpoints.iterdir())):
        raise FileNotFoundError(
            f"{checkpoints}: found no checkpoint, expected one in training.start: train that run first"
        )
    first = Workdir(start).load_config().student
    student = dataclasses.replace(first, **{name: getattr(own, name) for name in HOW_IT_RUNS})
    rows = own.vocab_size or first.vocab_size
    requested = dataclasses.replace(own, vocab_size=rows)
    default = dataclasses.replace(StudentConfig(), **{name: getattr(own, name) for name in HOW_IT_RUNS})
    if own != default:  # a config with the default student takes the run's student
        _check_student(requested, student, start)
    path = start / "tokenizer.json"
    tokenizer_path = config.prompt.tokenizer
    if tokenizer_path and Tokenizer.load(tokenizer_path).definition != Tokenizer.load(path).definition:
        raise ConfigError(
            f"prompt.tokenizer: found {tokenizer_path}, another tokenizer than {path}, expected that of the run in "
            "training.start (leave prompt.tokenizer empty to use it)"
        )
    prompt = dataclasses.replace(config.prompt, tokenizer=str(path))
    return dataclasses.replace(config, student=student, prompt=prompt)


def _check_student(requested: StudentConfig, student: StudentConfig, start: epath.Path) -> None:
    """Raises ConfigError for the first field in which the requested student differs from the run's."""
    for field in dataclasses.fields(student):
        found, expected = getattr(requested, field.name), getattr(student, field.name)
        if found != expected:
            raise ConfigError(
                f"student.{field.name}: found {found!r}, expected {expected!r} as in {start / 'config.json'}, the run "
                "that training.start names"
            )
