"""Character n-grams of words as sparse TF-IDF vectors; the IDFs come from the training streams only.

A text is lower-cased and cut into words, each with a space on both sides. Its n-grams are the runs of 3 to 5 characters
inside these words, so that "searches" and "search" share most of theirs. A count c has the weight 1 + log c, times the
n-gram's IDF. An n-gram that no training text holds has the IDF of one in no document: what only a new stream talks
about is what tells its texts apart.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import scipy
from jaxtyping import Float

SHORTEST, LONGEST = 3, 5
"""Numbers of characters of an n-gram."""
_WORD = 32  # longest word whose n-grams are remembered


def ngrams(word: str) -> tuple[str, ...]:
    """The n-grams of one lower-case word with a space on both sides; one shorter than n counts once as a whole."""
    return _remembered(word) if len(word) <= _WORD else _cut(word)


def _cut(word: str) -> tuple[str, ...]:
    padded = f" {word} "
    pieces: list[str] = []
    for size in range(SHORTEST, LONGEST + 1):
        pieces += [padded[at : at + size] for at in range(max(1, len(padded) - size + 1))]
        if len(padded) <= size:
            break
    return tuple(pieces)


_remembered = functools.lru_cache(maxsize=65_536)(_cut)


def weigh(text: str) -> dict[str, float]:
    """The n-grams of a text, each with 1 + log of its count."""
    counts: collections.Counter[str] = collections.Counter()
    for word in text.lower().split():
        counts.update(ngrams(word))
    return {name: 1 + math.log(times) for name, times in counts.items()}


@dataclasses.dataclass(frozen=True, eq=False)
class Counted:
    """The n-grams of some texts, such as those of a stream."""

    names: tuple[str, ...]  # the n-gram of each column
    matrix: scipy.sparse.csr_array  # 1 + log of each count, [texts, n-grams]
    distinct: int  # number of distinct texts
    holding: np.ndarray  # number of distinct texts that hold each n-gram, [n-grams]


def count_texts(texts: Sequence[str]) -> Counted:
    """Counts the n-grams of texts."""
    columns: dict[str, int] = {}
    indices: list[int] = []
    values: list[float] = []
    ends = [0]
    for text in texts:
        for name, value in weigh(text).items():
            indices.append(columns.setdefault(name, len(columns)))
            values.append(value)
        ends.append(len(indices))
    shape = (len(texts), max(1, len(columns)))
    matrix = scipy.sparse.csr_array((np.array(values), np.array(indices, np.int64), np.array(ends)), shape=shape)
    first = sorted({text: row for row, text in enumerate(texts)}.values())
    holding = np.asarray((matrix[first] > 0).sum(axis=0)).ravel() if first else np.zeros(shape[1])
    return Counted(tuple(columns), matrix, len(first), holding[: len(columns)].astype(int))


@dataclasses.dataclass(frozen=True)
class Idf:
    """Inverse document frequencies, log((1 + documents) / (1 + documents with the n-gram)) + 1."""

    documents: int  # number of training texts; a text counts once per stream
    frequency: Mapping[str, int]  # number of them that hold each n-gram

    @classmethod
    def fit(cls, counted: Iterable[Counted]) -> Idf:
        """Adds up the texts of several streams."""
        documents, frequency = 0, collections.Counter[str]()
        for texts in counted:
            documents += texts.distinct
            frequency.update(dict(zip(texts.names, texts.holding.tolist(), strict=True)))
        return cls(documents, dict(sorted(frequency.items())))

    def of(self, names: Collection[str]) -> Float[np.ndarray, " n"]:
        """The IDF of each n-gram."""
        holding = np.array([self.frequency.get(name, 0) for name in names], float)
        return np.log((1 + self.documents) / (1 + holding)) + 1

    def vectors(self, counted: Counted) -> scipy.sparse.csr_array:
        """Vectors of unit length, one row per text; a text without n-grams has the vector 0."""
        weights = self.of(counted.names)
        matrix = counted.matrix.copy()
        matrix.data = matrix.data * weights[matrix.indices]
        lengths = np.sqrt(np.asarray((matrix**2).sum(axis=1)).ravel())
        matrix.data /= np.repeat(lengths, np.diff(matrix.indptr))
        return matrix
