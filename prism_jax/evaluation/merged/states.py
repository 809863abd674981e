"""What states are made of, and how they merge: numbers, arrays, dictionaries of them, and tables of units.

Merging is commutative and associative, up to the rounding of sums of floats. A state has a form without pickles for
files: `encode` gives arrays by name, `decode` the state again.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64, Int64, Shaped, UInt64

from prism_jax.decision.off_policy import Moments
from prism_jax.decision.uncertainty import Cells, Resampled, resampled_sums, unit_keys

State = Any
"""A number, an array, a dictionary of states, or what has a method `merge` of its own."""
MOST_KEPT = 1 << 16
"""Up to so many units the sums of each are kept; of more, only those of every resample."""


@runtime_checkable
class Statistic(Protocol):
    """A statistic of rows, computed from states of parts of them."""

    def init(self) -> State:
        """The state of no rows."""
        return {}

    def add(self, state: State, rows: Any) -> State:
        """The state with some more rows: scores in which every step is whole, or answers of whole people."""


def merge(first: State, second: State) -> State:
    """The state of the rows of both; neither is changed. Dictionaries merge by key, numbers and arrays add up."""
    if isinstance(first, dict):
        both = {key: merge(value, second[key]) if key in second else value for key, value in first.items()}
        return both | {key: value for key, value in second.items() if key not in first}
    if hasattr(first, "merge"):
        return first.merge(second)
    return first + second


@dataclasses.dataclass(frozen=True, eq=False)
class UnitSums:
    """Sums of some columns over each unit (stream or person), or over resamples where there are too many units.

    The weights of a resample follow from a unit's name, so it does not matter in which part its rows are. Sums of
    resamples are made only once there are more than `most` units; names are not kept then.
    """

    columns: tuple[str, ...]  # names of the columns
    names: tuple[str, ...]  # of the units in alphabetical order; empty once there are more than `most`
    sums: Float64[np.ndarray, "units columns"]
    resamples: int  # how many resamples there are beyond `most` units
    seed: int
    most: int
    keys: UInt64[np.ndarray, "all_units"] | None = None  # of all units, ascending; None while names are kept
    totals: Float64[np.ndarray, "columns"] | None = None
    replicates: Float64[np.ndarray, "resamples columns"] | None = None

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        columns: Mapping[str, Float64[np.ndarray, "units"]],
        *,
        resamples: int,
        seed: int,
        most: int | None = None,
    ) -> UnitSums:
        """The sums of columns over units, whose names are in alphabetical order."""
        sums, most = np.stack(list(columns.values()), axis=1), MOST_KEPT if most is None else most
        return cls(tuple(columns), tuple(names), sums, resamples, seed, most)._bounded()

    def merge(self, other: UnitSums) -> UnitSums:
        """The sums over the units of both."""
        if self.keys is None and other.keys is None:
            names = sorted({*self.names, *other.names})
            place = {name: i for i, name in enumerate(names)}
            sums = np.zeros((len(names), self.sums.shape[1]))
            for part in (self, other):
                sums[[place[name] for name in part.names]] += part.sums
            return dataclasses.replace(self, names=tuple(names), sums=sums)._bounded()
        parts: list[Any] = [self._resampled(), other._resampled()]
        return dataclasses.replace(
            parts[0],
            keys=np.union1d(*(part.keys for part in parts)),
            totals=parts[0].totals + parts[1].totals,
            replicates=parts[0].replicates + parts[1].replicates,
        )

    @property
    def number(self) -> int:
        """The number of units; of more than `most`, of different keys."""
        return len(self.names) if self.keys is None else len(self.keys)

    def cells(self, columns: Sequence[str] | None = None) -> Cells | Resampled:
        """The units for an interval of a statistic of these columns, of all without any."""
        names = self.columns if columns is None else columns
        chosen = [self.columns.index(name) for name in names]
        if self.keys is None:
            return Cells.of_units(self.sums[:, chosen])
        assert self.totals is not None and self.replicates is not None, "they stand beside the keys"
        return Resampled(self.totals[chosen], self.replicates[:, chosen], len(self.keys))

    def _bounded(self) -> UnitSums:
        return self if len(self.names) <= self.most else self._resampled()

    def _resampled(self) -> UnitSums:
        if self.keys is not None:
            return self
        keys = unit_keys(self.names)
        return dataclasses.replace(
            self,
            names=(),
            sums=self.sums[:0],
            keys=np.unique(keys),
            totals=self.sums.sum(axis=0),
            replicates=resampled_sums(keys, self.sums, self.resamples, self.seed),
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Streams:
    """What must hold for a stream or a person across parts: 32 bytes for each of them.

    A stream has one value of what is constant within it. Its steps stand in one part, or in parts that follow each
    other. `divided` counts the streams with two values, `returning` those whose steps do not follow each other.
    """

    keys: UInt64[np.ndarray, "streams"]  # ascending
    constants: UInt64[np.ndarray, "streams"]  # a key of the values that are constant within it
    first: Int64[np.ndarray, "streams"]  # smallest step
    last: Int64[np.ndarray, "streams"]  # largest step
    divided: int = 0
    returning: int = 0

    @classmethod
    def of(
        cls,
        keys: UInt64[np.ndarray, "streams"],
        constants: UInt64[np.ndarray, "streams"],
        first: Int64[np.ndarray, "streams"] | None = None,
        last: Int64[np.ndarray, "streams"] | None = None,
    ) -> Streams:
        """The streams of one part, each with the key of its constants and its steps; people have no steps."""
        order = np.argsort(keys)
        nothing = np.zeros(len(keys), np.int64)
        ends = [nothing if end is None else np.asarray(end, np.int64)[order] for end in (first, last)]
        return cls(keys[order], constants[order], ends[0], ends[1])

    def __len__(self) -> int:
        """Number of streams."""
        return len(self.keys)

    def merge(self, other: Streams) -> Streams:
        """The streams of both parts."""
        keys = np.concatenate([self.keys, other.keys])
        order = np.argsort(keys, kind="stable")
        columns = (
            np.concatenate([getattr(part, name) for part in (self, other)])[order]
            for name in ("constants", "first", "last")
        )
        keys, (constants, first, last) = keys[order], columns
        again = np.flatnonzero(keys[1:] == keys[:-1])
        divided = int((constants[again] != constants[again + 1]).sum())
        apart = (last[again] < first[again + 1]) | (last[again + 1] < first[again])
        first[again], last[again] = np.minimum(first[again], first[again + 1]), np.maximum(last[again], last[again + 1])
        kept = np.ones(len(keys), bool)
        kept[again + 1] = False
        return Streams(
            keys[kept],
            constants[kept],
            first[kept],
            last[kept],
            self.divided + other.divided + divided,
            self.returning + other.returning + int((~apart).sum()),
        )

    def shared(self, other: Streams) -> int:
        """How many are in both."""
        return len(np.intersect1d(self.keys, other.keys))


@dataclasses.dataclass(frozen=True, eq=False)
class Keys:
    """Which units there are: 8 bytes for each."""

    keys: UInt64[np.ndarray, "units"]  # ascending

    @classmethod
    def of(cls, names: Sequence[str]) -> Keys:
        """The units with these names."""
        return cls(np.unique(unit_keys(names)))

    def merge(self, other: Keys) -> Keys:
        """The units of both."""
        return Keys(np.union1d(self.keys, other.keys))

    def __len__(self) -> int:
        """Number of units."""
        return len(self.keys)


@dataclasses.dataclass(frozen=True, eq=False)
class Beginning:
    """The first rows of some columns, in the order of the parts: merging keeps what comes first."""

    columns: Mapping[str, Shaped[np.ndarray, "rows"]]
    most: int

    def __len__(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def merge(self, other: Beginning) -> Beginning:
        """The first rows of both, those of `self` before."""
        if len(self) >= self.most or not len(other):
            return self
        if not len(self):
            return other
        joined = {name: np.concatenate([self.columns[name], other.columns[name]])[: self.most] for name in self.columns}
        return Beginning(joined, self.most)


@dataclasses.dataclass(frozen=True)
class Largest:
    """The largest of some numbers."""

    value: float

    def merge(self, other: Largest) -> Largest:
        """The larger one."""
        return self if self.value >= other.value else other


_STORED: dict[str, type] = {}
"""The classes that `encode` can write, by name."""


def stored(cls: type) -> type:
    """Lets a class of frozen fields stand in files of states."""
    _STORED[cls.__name__] = cls
    return cls


for _class in (UnitSums, Streams, Keys, Beginning, Largest, Moments):
    stored(_class)


def encode(state: State) -> dict[str, np.ndarray]:
    """The state as arrays by name, for `np.savez`; `decode` reads it again without loading code."""
    arrays: dict[str, np.ndarray] = {}

    def tree(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            if value.dtype == object:
                return ["texts", value.tolist()]
            arrays[f"a{len(arrays)}"] = value
            return ["array", len(arrays) - 1]
        if isinstance(value, Mapping):
            return ["dict", [[tree(key), tree(item)] for key, item in value.items()]]
        if names := _fields(value):
            return ["of", type(value).__name__, [[name, tree(getattr(value, name))] for name in names]]
        if isinstance(value, tuple):
            return ["tuple", [tree(item) for item in value]]
        return ["value", value.item() if isinstance(value, np.generic) else value]

    text = json.dumps(tree(state))
    return arrays | {"tree": np.frombuffer(text.encode(), np.uint8)}


def decode(arrays: Mapping[str, np.ndarray]) -> State:
    """The state that `encode` wrote; ValueError or KeyError for anything else."""

    def value_of(tree: Any) -> Any:
        kind, *content = tree
        if kind == "array":
            return arrays[f"a{content[0]}"]
        if kind == "texts":
            texts = np.empty(len(content[0]), object)
            texts[:] = content[0]
            return texts
        if kind == "dict":
            return {value_of(key): value_of(item) for key, item in content[0]}
        if kind == "tuple":
            return tuple(map(value_of, content[0]))
        if kind == "of":
            return _STORED[content[0]](**{name: value_of(item) for name, item in content[1]})
        return content[0]

    return value_of(json.loads(bytes(arrays["tree"])))


def _fields(value: Any) -> tuple[str, ...]:
    """The names of the fields of a dataclass or a named tuple; none for anything else."""
    if dataclasses.is_dataclass(value):
        return tuple(field.name for field in dataclasses.fields(value))
    return getattr(value, "_fields", ())
