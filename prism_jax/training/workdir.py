"""The folder of one run: the names of its files, and the check that it belongs to a run with the same config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from etils import epath

from prism_jax.runtime.dataclass_config import ConfigError, from_config_dict, to_dict
from prism_jax.runtime.files import read_object, write_json
from prism_jax.training.run_config import RunConfig

MAY_DIFFER = ("mesh.data", "mesh.fsdp", "mesh.tensor", "training.keep", "training.keep_best", "training.start_sha256")
"""Keys that may change when a run resumes, which affect no result: the device mesh, checkpoints to keep, checks."""


class Workdir:
    """Names every file that a run writes; `prism_jax.report.outputs` writes further ones into the folder.

    `metrics` and `timings` hold one JSON object per step. Runs with equal configs write identical bytes to `metrics`;
    the values that differ between runs are in `timings`. `provenance` holds the command, package versions and commit,
    `fingerprints` the SHA-256 of streams, tokenizer and prompt, and `calibration` the fitted temperatures.
    """

    def __init__(self, path: epath.PathLike):
        """Sets the names; reads and writes nothing."""
        self.path = epath.Path(path)
        self.config = self.path / "config.json"
        self.provenance = self.path / "run.json"
        self.tokenizer = self.path / "tokenizer.json"
        self.fingerprints = self.path / "fingerprints.json"
        self.metrics = self.path / "metrics.jsonl"
        self.timings = self.path / "timings.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.profile = self.path / "profile"
        self.calibration = self.path / "calibration.json"

    def __str__(self) -> str:
        """Returns the path, for messages."""
        return str(self.path)

    @property
    def checkpoints(self) -> epath.Path:
        """The folder of the run's checkpoints, which may not exist yet; a file in its place is an error."""
        folder = self.path / "checkpoints"
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(f"{folder}: found a file, expected a folder of checkpoints or nothing")
        return folder

    def expect_run(self) -> None:
        """FileNotFoundError if the folder holds no run."""
        if not self.config.exists():
            raise FileNotFoundError(f"{self.config}: no such file, expected the workdir of a run (`train` makes it)")

    def load_config(self) -> RunConfig:
        """Reads the run's config.

        FileNotFoundError if the folder holds no run, ConfigError if its config.json cannot be used.
        """
        self.expect_run()
        place = f"{self.config}: config"
        return from_config_dict(RunConfig, read_object(self.config, "prism_jax.train", ConfigError), place)

    def expect_own(self, config: RunConfig) -> RunConfig | None:
        """The config in the folder, if any; ConfigError, as `expect_config` has it, for that of another run."""
        saved = self.load_config() if self.config.exists() else None
        if saved is not None:
            expect_config(saved, config, str(self.config))
        return saved

    def claim(self, config: RunConfig) -> None:
        """Writes config.json, unless there is one, which must be as `expect_config` demands."""
        if self.expect_own(config) != config:
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(self.config, to_dict(config))


def expect_config(saved: RunConfig, expected: RunConfig, place: str) -> None:
    """Checks that a run's config is equal to the expected one, except for the keys in `MAY_DIFFER`.

    ConfigError begins with `place`, such as a file, and names the first key that differs.
    """
    flat = dict(_flatten(to_dict(saved)))
    base = {"training.start_sha256"} if saved.lora.rank else set()  # adapters belong to one base
    for key, value in _flatten(to_dict(expected)):
        if flat[key] != value and key not in {*MAY_DIFFER} - base:
            raise ConfigError(
                f"{place}: config.{key}: found {flat[key]!r}, expected {value!r}; the folder holds a run of another "
                "config, choose another --workdir"
            )


def _flatten(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
