"""Columns of text with many rows: the same text is one object, and codes stand for texts in computations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int64, Shaped

_BATCH = 2**20
"""Rows that are encoded at once, which bounds the memory that encoding needs beside the codes."""


Numbered = tuple[list[str], Int64[np.ndarray, "rows"]]
"""Distinct texts, and the number of each row's text."""


def numbered(texts: Shaped[np.ndarray, "rows"]) -> Numbered:
    """The distinct texts in the order of their first appearance, and the number of each row's text."""
    place: dict[str, int] = {}
    codes = np.empty(len(texts), np.int64)
    for start in range(0, len(texts), _BATCH):
        part = pa.array(texts[start : start + _BATCH], pa.string()).dictionary_encode()
        numbers = [place.setdefault(text, len(place)) for text in part.dictionary.to_pylist()]
        codes[start : start + _BATCH] = np.array(numbers, np.int64)[part.indices.to_numpy()]
    return list(place), codes


def renumbered(names: list[str], codes: Int64[np.ndarray, "rows"]) -> Numbered:
    """`numbered` of some rows whose texts have numbers already, among them perhaps those of other rows."""
    first = np.full(len(names), len(codes))
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    order = np.argsort(first)[: np.count_nonzero(first < len(codes))]
    place = np.empty(len(names), np.int64)
    place[order] = np.arange(len(order))
    return [names[number] for number in order.tolist()], place[codes]


def ordered(names: list[str], codes: Int64[np.ndarray, "rows"]) -> Numbered:
    """The texts of some rows in alphabetical order (of code points), from what `numbered` gives of them."""
    order = sorted(range(len(names)), key=names.__getitem__)
    place = np.empty(len(names), np.int64)
    place[order] = np.arange(len(names))
    return [names[number] for number in order], place[codes]


class Pool:
    """Values of which each is kept once, so that a row costs a pointer and not an object."""

    def __init__(self) -> None:
        self._kept: dict[Any, Any] = {}

    def texts(self, column: pa.Array) -> Shaped[np.ndarray, "rows"]:
        """The rows of a column of text without nulls."""
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        return self._objects(encoded.dictionary.to_pylist())[encoded.indices.to_numpy()]

    def votes(self, column: pa.Array) -> Shaped[np.ndarray, "rows"]:
        """The rows of a column of lists as tuples, of null as an empty one."""
        return self._objects([tuple(votes or ()) for votes in column.to_pylist()])

    def _objects(self, values: list[Any]) -> Shaped[np.ndarray, "values"]:
        array = np.empty(len(values), object)
        array[:] = [self._kept.setdefault(value, value) for value in values]
        return array
