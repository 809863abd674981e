"""What a run leaves behind beside its checkpoints, and the check that a folder is this run's (design section 8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from etils import epath

from prism_jax.runtime.config import ConfigError, from_config_dict, to_dict
from prism_jax.runtime.files import read_object, write_json
from prism_jax.training.config import RunConfig
from prism_jax.training.old_names import upgrade

MAY_DIFFER = ("mesh.data", "mesh.fsdp", "mesh.tensor", "training.keep", "training.keep_best")
"""What may change when a run goes on: where it runs and how much of it stays on disk, not what it computes."""


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
    """The config of a run, which an older version may have written.

    Raises:
      FileNotFoundError: when the folder holds no run.
      ConfigError: when its config.json cannot be used.
    """
    path = workdir / "config.json"
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file, expected the workdir of a run (see prism_jax.train)")
    place = f"{path}: config"
    return from_config_dict(RunConfig, upgrade(read_object(path, "prism_jax.train", ConfigError), place), place)


def _flatten(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
