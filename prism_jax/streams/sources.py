"""Loads the streams that a config names and splits them."""

from __future__ import annotations

import dataclasses
from typing import Literal

from etils import epath

from prism_jax.runtime.dataclass_config import check, check_at_least
from prism_jax.streams.jsonl import read_streams
from prism_jax.streams.proactivebench_source import LAYOUT
from prism_jax.streams.simulator import SimulatorConfig, simulate
from prism_jax.streams.splits import Splits, folds, with_validation
from prism_jax.streams.types import Stream

SOURCES = ("train_source", "calibration_source", "test_source")
"""The fields of `DataConfig` that name one file for each split, in the order of the splits."""
MOST_STREAMS = 1_000_000_000
"""Largest number of simulated streams in a split."""


def local_proactivebench() -> str:
    """ProactiveBench's folder beside the repository; empty without one, by which `DataConfig.source` downloads it."""
    folder = "../shared/proactivebench"
    return folder if epath.Path(folder).is_dir() else ""


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Where streams come from, and how whole streams are split."""

    # data source: `simulator`, `proactivebench`, or `jsonl` (streams in this project's own format)
    name: Literal["simulator", "proactivebench", "jsonl"] = "simulator"
    # For proactivebench, a folder with the layout of its repository, or empty to download the official archive, whose
    # prepared copy lies in the environment's TFDS_DATA_DIR, or else in ~/tensorflow_datasets. For jsonl, a file whose
    # streams are split by folds.
    source: str = ""
    # Path of a file with the training streams (jsonl only). Three files for the three splits take the place of `source`
    # and folds; a file of `curate` can only be a training file.
    train_source: str = ""
    calibration_source: str = ""  # path of a file with the calibration streams
    test_source: str = ""  # path of a file with the test streams
    # ProactiveBench's definition of need: strict (official help_needed), majority, or any_valid
    need: Literal["strict", "majority", "any_valid"] = "strict"
    # `listed` scores each offer of a step; `constant` scores one per step, "an offer", which counts as accepted if any
    # listed one was (ProactiveBench only)
    candidates: Literal["listed", "constant"] = "listed"
    # number of cross-validation folds of a fixed data set; unused by the simulator, which draws new streams for each
    # split
    folds: int = 4
    fold: int = 0  # number of the fold that is the test split, from 0
    calibration: float = 0.25  # share of the other folds' streams that form the calibration split
    split_seed: int = 0  # seed of the shuffle that assigns streams to splits
    # Share of the training streams set aside for validation; 0 is none. Training never sees them, and their loss
    # chooses the best checkpoint, which the calibration split never does.
    validation: float = 0.0
    # domain whose streams training leaves out, and validation with it; calibration and test keep theirs
    without_domain: str = ""
    train_streams: int = 4096  # number of training streams (simulator only)
    calibration_streams: int = 256  # number of calibration streams (simulator only)
    test_streams: int = 512  # number of test streams, on which every offer is made (simulator only)

    def __post_init__(self) -> None:
        sizes = ("train_streams", "calibration_streams", "test_streams")
        check_at_least(self, 1, *sizes)
        for name in sizes:
            check(self, name, getattr(self, name) <= MOST_STREAMS, f"at most {MOST_STREAMS}")
        check_at_least(self, 2, "folds")
        check(self, "fold", 0 <= self.fold < self.folds, f"0 to {self.folds - 1} (folds = {self.folds})")
        check(self, "calibration", 0 < self.calibration < 1, "a share between 0 and 1")
        check(self, "validation", 0 <= self.validation < 1, "a share of at least 0 and below 1")
        if self.candidates == "constant" and self.name != "proactivebench":
            raise ValueError(
                f"candidates: found 'constant' with name = {self.name!r}, expected 'listed': only ProactiveBench's "
                "judges saw every offer of a step"
            )
        self._check_sources()

    def _check_sources(self) -> None:
        """Raises ValueError unless there is one file for all splits, or one for each."""
        if self.source and self.name == "simulator":
            raise ValueError(
                f"source: found {self.source!r} with name = 'simulator', expected none, or name = 'jsonl' to read it"
            )
        fields = [name for name in SOURCES if getattr(self, name)]
        if fields and self.name != "jsonl":
            raise ValueError(
                f"{fields[0]}: found {getattr(self, fields[0])!r} with name = {self.name!r}, expected 'jsonl'"
            )
        if fields and self.source:
            raise ValueError(
                f"source: found {self.source!r} beside {fields[0]}, expected one file for all splits or three for the "
                "three splits"
            )
        for name in SOURCES if fields else ():
            if name not in fields:
                raise ValueError(f"{name}: found none beside {fields[0]}, expected a path: each split has its own file")
        if self.name == "jsonl" and not fields and not self.source:
            raise ValueError(f"source: found none, expected a path for data.name = {self.name!r}")

    @property
    def paths(self) -> tuple[str, ...]:
        """The files or the folder that streams are read from; empty for what is simulated or downloaded."""
        return tuple(filter(None, (self.source, *(getattr(self, name) for name in SOURCES))))

    def __str__(self) -> str:
        """Returns where streams come from, for the terminal and the report."""
        places = {"simulator": "built in", "proactivebench": self.source or "the official archive"}
        return f"{self.name} ({places.get(self.name, ', '.join(self.paths))})"


def expect_sources(data: DataConfig) -> None:
    """Checks, before anything is read, that `DataConfig.paths` are there; FileNotFoundError in one line."""
    for field in ("source", *SOURCES) if data.paths else ():
        path = getattr(data, field)
        if path and data.name == "jsonl" and not epath.Path(path).exists():
            raise FileNotFoundError(
                f"{path}: found no such file, expected in --config.data.{field} a JSONL file of streams, "
                'labelled by a teacher where the pathway curates ("Your own streams" in docs/training.md says how to '
                "make one)"
            )
        if path and data.name == "proactivebench" and not epath.Path(path).is_dir():
            raise FileNotFoundError(
                f"{path}: found no such directory, expected in --config.data.source {LAYOUT}; "
                "--config.data.source= (empty) downloads the official archive"
            )


def load_splits(data: DataConfig, simulator: SimulatorConfig) -> Splits:
    """Loads whole streams for training, validation, calibration and test.

    The simulator draws the streams of each split from numbers of its own (`SIMULATED`); on the test split every offer
    is made, so that costs are observed. Raises ValueError or OSError in one line, for a missing or malformed source, an
    empty split, a stream in two splits, or a curated stream outside the training split.
    """
    expect_sources(data)
    splits = _without_domain(_load(data, simulator), data.without_domain)
    _check_whole(splits, data)
    return with_validation(splits, data.validation, seed=data.split_seed)


def _without_domain(splits: Splits, domain: str) -> Splits:
    """The splits without the training streams of a domain; ValueError if there is none, or nothing else."""
    train = tuple(stream for stream in splits.train if stream.domain != domain)
    if domain and not 0 < len(train) < len(splits.train):
        found = ", ".join(sorted({str(stream.domain) for stream in splits.train}))
        raise ValueError(f"without_domain: found {domain!r}, expected one of several training domains: {found}")
    return dataclasses.replace(splits, train=train) if domain else splits


def _check_whole(splits: Splits, data: DataConfig) -> None:
    """Raises ValueError for a curated stream on which probabilities would be calibrated or results measured."""
    remedy = (
        "--config.data.{}_source names a file that was not curated"
        if data.train_source
        else "give the curated file as --config.data.train_source, and whole streams as "
        "--config.data.calibration_source and --config.data.test_source"
    )
    for name in ("calibration", "test"):
        for stream in getattr(splits, name):
            if stream.curated:
                raise ValueError(
                    f"{name} split, stream {stream.id!r}: found curated rows ({stream.curated}), expected whole "
                    f"streams: what curation keeps would bias the calibration and the results; {remedy.format(name)}"
                )


def _from_files(data: DataConfig) -> Splits:
    """The streams of three files, one for each split; no stream may be in two of them."""
    splits: dict[str, tuple[Stream, ...]] = {}
    places: dict[str, str] = {}
    for name in SOURCES:
        path, split = getattr(data, name), name.removesuffix("_source")
        streams = sorted(read_streams(path), key=lambda stream: stream.id)
        for stream in streams:
            if stream.id in places:
                raise ValueError(
                    f"{path}: stream {stream.id!r}: found it in {places[stream.id]} too, expected every stream in one "
                    "split only"
                )
        places |= dict.fromkeys((stream.id for stream in streams), path)
        splits[split] = tuple(streams)
    return Splits(**splits)


def _load(data: DataConfig, simulator: SimulatorConfig) -> Splits:
    """The splits before validation streams are set aside."""
    if data.name == "simulator":
        return _simulate(data, simulator)
    if data.name == "jsonl":
        if data.train_source:
            return _from_files(data)
        streams = read_streams(data.source)
    else:
        from prism_jax.streams.proactivebench import load  # imports TFDS, which takes seconds

        streams = load(data.source or None, need=data.need, candidates=data.candidates)
    return folds(streams, data.folds, data.fold, calibration=data.calibration, seed=data.split_seed)


SIMULATED = {
    "train": (range(13_200), 1_000_000_000),
    "calibration": (range(13_200, 13_700), 2_000_000_000),
    "test": (range(13_700, 14_200), 3_000_000_000),
}
"""Numbers of the simulated streams that each split draws: first a range, then all from a far number on.

A split's streams therefore do not depend on the sizes of the other splits.
"""


def simulated_index(split: str, i: int) -> int:
    """The number in the population of the simulated stream number `i` of a split (`SIMULATED`)."""
    numbers, offset = SIMULATED[split]
    return numbers[i] if i < len(numbers) else offset + i - len(numbers)


def _simulate(data: DataConfig, simulator: SimulatorConfig) -> Splits:

    def draw(split: str, count: int, logging: Literal["policy", "always"] = "policy") -> tuple[Stream, ...]:
        return tuple(simulate(simulator, simulated_index(split, i), logging) for i in range(count))

    return Splits(
        train=draw("train", data.train_streams),
        calibration=draw("calibration", data.calibration_streams),
        test=draw("test", data.test_streams, "always"),
    )
