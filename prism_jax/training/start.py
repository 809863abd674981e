"""What `training.start` names: the run or the weights that training starts from, with their student and tokenizer."""

from __future__ import annotations

import dataclasses
import hashlib
import re

from etils import epath

from prism_jax.runtime.dataclass_config import ConfigError
from prism_jax.runtime.digests import NAME, check_export, sha256, weights_sha256
from prism_jax.runtime.files import parse_json, read_bounded
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.prompting.tokenizer import Tokenizer
from prism_jax.student.weights import read_config
from prism_jax.student.weights.peft import adapters_as_in, base_of, is_adapter
from prism_jax.training import fingerprints
from prism_jax.training.checkpoints.recovery import best_first
from prism_jax.training.run_config import RunConfig
from prism_jax.training.workdir import Workdir

HOW_IT_RUNS = ("dtype", "param_dtype", "compute", "attention", "unroll", "remat")
"""The fields of a student that the config sets even if the weights determine its architecture."""


def with_start(config: RunConfig) -> RunConfig:
    """Returns the config with the student and the tokenizer that belong to `training.start`, a run or weights.

    Raises:
      ValueError, OSError, RuntimeError: if the weights cannot be used; the message is one line.
    """
    start, own = from_hub(config.training.start), config.student
    if not start:
        return config
    config = dataclasses.replace(config, training=dataclasses.replace(config.training, start=start))
    if is_run(start):
        if config.training.start_sha256 and not config.lora.rank:
            raise ConfigError(
                f"training.start_sha256: found one for {start}, expected none for a run, whose checkpoints have digests"
            )
        if config.training.start_blocks:
            raise ConfigError(
                f"training.start_blocks: found {config.training.start_blocks} for {start}, expected 0 for a run, whose "
                "student keeps all of its blocks"
            )
        resolved = _from_run(config)
        fingerprints.check_tokenizer(Workdir(start))
        return _with_base(resolved)
    whole = read_config(start, own.param_dtype)
    try:
        architecture = whole.lowest(config.training.start_blocks)
    except ValueError as error:
        raise ConfigError(f"training.start_{error} ({start})") from error
    if config.training.start_sha256 and not config.lora.rank:
        fingerprints.check_start(start, weights_sha256(start), config.training.start_sha256)
    check_export(start)
    student = dataclasses.replace(architecture, **{name: getattr(own, name) for name in HOW_IT_RUNS})
    prompt = dataclasses.replace(config.prompt, tokenizer=config.prompt.tokenizer or start)
    return _with_base(dataclasses.replace(config, student=student, prompt=prompt))


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


def _from_run(config: RunConfig) -> RunConfig:
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


def from_hub(start: str) -> str:
    """The folder of a model named as on Hugging Face's hub in its cache, or `start` itself.

    A path that exists is meant before a name. FileNotFoundError, with the line that downloads, if there is neither.
    """
    if not re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", start) or epath.Path(start).exists():
        return start
    from huggingface_hub import errors, snapshot_download  # slow to import

    try:
        return str(snapshot_download(start, local_files_only=True))
    except errors.HFValidationError:  # a path such as runs/a--b, which no model can be called
        return start
    except errors.LocalEntryNotFoundError:
        raise FileNotFoundError(
            f"training.start: found no {start} here, neither as a path nor in the cache of Hugging Face's hub, "
            f"expected weights; if it is a model of the hub: hf download {start}"
        ) from None


def _with_base(config: RunConfig) -> RunConfig:
    """The config with the digest of the base and the settings of the adapters that training starts from, if any."""
    lora, training = config.lora, config.training
    if not lora.rank:
        return config
    if lora.start:
        lora = adapters_as_in(lora, config.student)
    digest = digest_of(training.start)
    if training.start_sha256:
        fingerprints.check_start(training.start, digest, training.start_sha256)
    return dataclasses.replace(config, lora=lora, training=dataclasses.replace(training, start_sha256=digest))


def digest_of(start: str) -> str:
    """The digest of the base of adapters: of its weights, or of the digests of the checkpoint that a run would load.

    Where the base is a directory of adapters, it covers theirs, too.
    """
    if is_adapter(start):
        return hashlib.sha256(f"{weights_sha256(start)} {digest_of(str(base_of(start)))}".encode()).hexdigest()
    if not is_run(start):
        return weights_sha256(start)
    workdir = Workdir(start)
    order, _ = best_first(workdir.checkpoints, workdir.load_config())
    path = workdir.checkpoints / str(order[0]) / NAME
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: no such file, expected a base with digests; export that run and start from it"
        )
    return sha256(path)
