"""Columns of text with many rows: the same text is one object, and codes stand for texts in computations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int, Int32, Num, Shaped

_BATCH = 2**20
"""Rows that are encoded at once, which bounds the memory that encoding needs beside the codes."""


Numbered = tuple[list[str], Int[np.ndarray, "rows"]]
"""Distinct texts, and the number of each row's text."""


def numbered(texts: Shaped[np.ndarray, "rows"]) -> Numbered:
    """The distinct texts in the order of their first appearance, and the number of each row's text."""
    pool, codes = Pool(), np.empty(len(texts), np.int64)
    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]
        begins = np.flatnonzero(np.concatenate([[True], batch[1:] != batch[:-1]]))  # rows of a stream often follow
        runs = np.diff(begins, append=len(batch))
        codes[start : start + _BATCH] = np.repeat(pool.numbers(batch[begins].tolist()), runs)
    return pool.values, codes


def renumbered(names: list[str], codes: Int[np.ndarray, "rows"]) -> Numbered:
    """`numbered` of some rows whose texts have numbers already, among them perhaps those of other rows."""
    first = np.full(len(names), len(codes))
    begins = np.flatnonzero(np.append(True, codes[1:] != codes[:-1])[: len(codes)])  # rows of a text often follow
    first[codes[begins][::-1]] = begins[::-1]
    order = np.argsort(first)[: np.count_nonzero(first < len(codes))]
    place = np.empty(len(names), np.int64)
    place[order] = np.arange(len(order))
    return [names[number] for number in order.tolist()], place[codes]


def ordered(names: list[str], codes: Int[np.ndarray, "rows"]) -> Numbered:
    """The texts of some rows in alphabetical order (of code points), from what `numbered` gives of them."""
    order = sorted(range(len(names)), key=names.__getitem__)
    place = np.empty(len(names), np.int64)
    place[order] = np.arange(len(names))
    return [names[number] for number in order], place[codes]


def as_numpy(column: pa.Array) -> Num[np.ndarray, "rows"]:
    """The numbers of an Arrow column, null as NaN; without nulls, pandas is not imported, which takes 0.2 s."""
    return column.to_numpy(zero_copy_only=False) if column.null_count else np.from_dlpack(column)


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type is one of texts, without a dictionary."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_moment(kind: pa.DataType) -> bool:
    """Whether an Arrow type is one of timestamps or dates."""
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind)


def as_seconds(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Timestamps of any unit, or dates, as seconds since 1970; without a time zone they are taken as UTC."""
    moments = column.cast(pa.timestamp("ms")) if pa.types.is_date(column.type) else column
    counts = moments.cast(pa.int64()).cast(pa.float64(), safe=False)
    import pyarrow.compute as pc  # takes 0.05 s, and most tables need none of it

    return pc.divide(counts, {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[moments.type.unit])


class Pool:
    """Distinct values and their numbers, so that a row costs four bytes and not an object."""

    def __init__(self) -> None:
        self._place: dict[Any, int] = {}

    @property
    def values(self) -> list[Any]:
        """The values in the order of their numbers; texts may be among them that no row has."""
        return list(self._place)

    def texts(self, column: pa.Array, spelling: Callable[[str], str] = str) -> Int32[np.ndarray, "rows"]:
        """The numbers of the rows of a column of text without nulls; `spelling` gives each text its form."""
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        return self.numbers([*map(spelling, encoded.dictionary.to_pylist())])[as_numpy(encoded.indices)]

    def votes(self, column: pa.Array) -> Int32[np.ndarray, "rows"]:
        """The numbers of the rows of a column of lists, which are kept as tuples; null is an empty one."""
        return self.numbers([tuple(votes or ()) for votes in column.to_pylist()])

    def numbers(self, values: list[Any]) -> Int32[np.ndarray, "values"]:
        """The numbers of values that can be compared."""
        for value in dict.fromkeys(values):
            self._place.setdefault(value, len(self._place))
        return np.fromiter(map(self._place.__getitem__, values), np.int32, len(values))
