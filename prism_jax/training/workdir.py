"""What a run leaves behind beside its checkpoints, and the check that a folder is this run's (design section 8)."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator
from typing import Any

from etils import epath

from prism_jax.config import ConfigError, from_config_dict, to_dict
from prism_jax.streams.jsonl import StreamError, parse_json
from prism_jax.training.config import RunConfig

MAY_DIFFER = ("training.data", "training.fsdp", "training.tensor", "training.keep", "training.keep_best")
"""What may change when a run goes on: where it runs and how much of it stays on disk, not what it computes."""


def on_disk(path: epath.Path) -> bool:
    """Whether a path is a file system's, which can append to files; buckets such as gs:// only take them whole."""
    return "://" not in path.as_posix()


def write_text(path: epath.Path, text: str) -> None:
    """Writes a file under a temporary name and renames it: readers see the old file or the new one."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    partial.replace(path)


def write_json(path: epath.Path, value: Any) -> None:
    """Writes indented JSON, whole or not at all."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_object(path: epath.Path, source: str) -> dict[str, Any]:
    """Reads a file that holds one JSON object.

    Args:
      path: The file.
      source: What writes it, for messages.

    Raises:
      FileNotFoundError: when there is no such file.
      ConfigError: naming the file, when it holds something else.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file, expected what {source} writes")
    try:
        value = parse_json(path.read_bytes(), str(path))
    except StreamError as error:
        raise ConfigError(str(error)) from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: found {reprlib.repr(value)}, expected an object with keys, as {source} writes it")
    return value


def claim(workdir: epath.Path, config: RunConfig) -> None:
    """Makes `workdir` this run's: writes config.json, or checks that the one there says the same (but `MAY_DIFFER`).

    Raises:
      ConfigError: naming the first key that differs, when the folder holds a run of another config.
    """
    path = workdir / "config.json"
    if path.exists():
        found = load_config(workdir)
        expect_config(found, config, str(path))
        if found == config:
            return
    workdir.mkdir(parents=True, exist_ok=True)
    write_json(path, to_dict(config))


def expect_config(found: RunConfig, wanted: RunConfig, place: str) -> None:
    """Checks that a run's config is the wanted one, but for what `MAY_DIFFER` names.

    Raises:
      ConfigError: naming the first key that differs.
    """
    flat = dict(_flatten(to_dict(found)))
    for key, value in _flatten(to_dict(wanted)):
        if flat[key] != value and key not in MAY_DIFFER:
            raise ConfigError(
                f"{place}: config.{key}: found {flat[key]!r}, expected {value!r}; the folder holds a run of another "
                "config, choose another --workdir"
            )


def load_config(workdir: epath.Path) -> RunConfig:
    """The config of a run.

    Raises:
      FileNotFoundError: when the folder holds no run.
      ConfigError: when its config.json cannot be used.
    """
    path = workdir / "config.json"
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file, expected the workdir of a run (see prism_jax.train)")
    return from_config_dict(RunConfig, read_object(path, "prism_jax.train"), f"{path}: config")


def _flatten(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
