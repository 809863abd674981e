"""The schema of the scores table: its columns, the values that each may hold, and the error for invalid tables."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Num, Shaped

from prism_jax.runtime.written import MISSING, MOST_SECONDS, SECONDS, one_spelling

Kind = Literal["text", "index", "time", "unit", "label", "flag", "count", "votes"]
Scope = Literal["row", "step", "stream"]

_EXPECTED: dict[Kind, str] = {
    "text": "a non-empty string",
    "index": "an integer of at least 0",
    "time": SECONDS,
    "unit": "a number in [0, 1]",
    "label": "a number in [0, 1]",
    "flag": "true or false",
    "count": "an integer of at least 0",
    "votes": "a list of true and false",
}


class ScoresError(ValueError):
    """A scores table that is not valid; the message names the place, what was found and what was expected.

    `problem` is the part of the message that says what was found and expected. The column and the row, from 0, at fault
    are None where it is a whole row, or the whole table. `place` is the file, `scores` where it is not known.
    """

    def __init__(self, problem: str, column: str | None = None, row: int | None = None, place: str = "scores"):
        where = place if row is None else f"{place}, row {row}"
        super().__init__(": ".join([where if column is None else f"{where}, {column}", problem]))
        self.problem, self.column, self.row, self.place = problem, column, row, place

    def __reduce__(self) -> tuple[Any, ...]:
        """What makes the same error in another process."""
        return type(self), (self.problem, self.column, self.row, self.place)


@dataclasses.dataclass(frozen=True)
class Column:
    """The values that a column may hold: their kind, whether null is allowed, and the scope in which they are equal."""

    kind: Kind
    nullable: bool = False
    constant_within: Scope = "row"

    @property
    def expected(self) -> str:
        """A description of the allowed values, for error messages."""
        return _EXPECTED[self.kind] + (" or null" if self.nullable else "")


COLUMNS: dict[str, Column] = {
    "stream": Column("text"),
    "step": Column("index"),
    "candidate": Column("index"),
    "time": Column("time", nullable=True, constant_within="step"),
    "domain": Column("text", constant_within="stream"),
    "persona": Column("text", constant_within="stream"),
    "person": Column("text", constant_within="stream"),
    "split": Column("text", constant_within="stream"),
    "fold": Column("index", constant_within="stream"),
    "p_need_fast": Column("unit", constant_within="step"),
    "p_accept_fast": Column("unit"),
    "p_need_slow": Column("unit", nullable=True, constant_within="step"),
    "p_accept_slow": Column("unit", nullable=True),
    "p_accept_written": Column("unit", nullable=True),
    "y_need": Column("label", nullable=True, constant_within="step"),
    "y_accept": Column("label", nullable=True),
    "votes": Column("votes", nullable=True),
    "logged": Column("flag", nullable=True),
    "propensity": Column("unit", nullable=True),
    "p_need_true": Column("unit", nullable=True, constant_within="step"),
    "p_accept_true": Column("unit", nullable=True),
    "p_both_true": Column("unit", nullable=True),
    "tokens_fast": Column("count", nullable=True),
    "tokens_slow": Column("count", nullable=True),
    "tokens_response": Column("count", nullable=True),
    "fields_correct": Column("unit", nullable=True, constant_within="step"),
    "need_target": Column("text"),
    "calibrated": Column("flag"),
}
NEED_TARGETS = ("marginal", "given_accept")
"""What p_need estimates: Pr(need), or Pr(need | the step's offer accepted). One value per table."""
REQUIRED = ("stream", "step", "p_accept_fast")


MOST_EXTRA = 100
"""Largest number of columns that the schema does not know."""
_SIMILAR = 0.7
"""Similarity of names (`difflib`) from which on an unknown one is taken for a misspelt column."""


def is_known(name: str, row: int | None = None) -> bool:
    """Whether `name` is a column of the schema.

    Raises ScoresError for an unknown name that resembles a column's, which it suggests.
    """
    if name in COLUMNS:
        return True
    if name == "steps":
        expected = "expected a scores table, which `python -m prism_jax score` makes of streams"
        raise ScoresError(f"found {name!r}, as files of streams have it, {expected}", None, row)
    if f"{name}_fast" in COLUMNS:
        raise ScoresError(f"unknown column {name!r}; did you mean '{name}_fast'?", None, row)
    if similar := difflib.get_close_matches(name, COLUMNS, n=1, cutoff=_SIMILAR):
        raise ScoresError(f"unknown column {name!r}; did you mean {similar[0]!r}?", None, row)
    return False


def check_extra(names: Collection[str], row: int | None = None) -> None:
    """Raises a ScoresError for too many columns that the schema does not know."""
    if len(names) > MOST_EXTRA:
        raise ScoresError(f"found more than {MOST_EXTRA} unknown columns, expected at most {MOST_EXTRA}", None, row)


def as_column(name: str, values: Any) -> np.ndarray:
    """Converts an array, or a list with None for null, to the array that holds the column `name` in memory.

    Raises ScoresError for a value of the wrong type, or null in a column that is not nullable.
    """
    spec = COLUMNS[name]
    if name == "person":
        values = object_array([one_spelling(value) if isinstance(value, str) else value for value in values])
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise ScoresError(f"found the shape {values.shape}, expected one value per row", name)
        if values.dtype.kind in {"index": "iu", "flag": "fiub", "label": "fiub", "text": "U", "votes": ""}.get(
            spec.kind, "fiu"
        ):
            return values.astype({"index": np.int64, "text": object}.get(spec.kind, np.float64), copy=False)
        if spec.kind == "text" and values.dtype == object and set(map(type, values)) <= {str}:
            return values  # as they are: a list of millions of texts would be a second copy
    values = list(values)
    if not set(map(type, values)) <= _PLAIN[spec.kind] | ({type(None)} if spec.nullable else set()):
        for row, value in enumerate(values):
            _check_value(name, spec, row, value)
    if spec.kind == "text":
        return object_array(values)
    if spec.kind == "votes":
        shared: dict[tuple[bool, ...], tuple[bool, ...]] = {}  # equal votes are one object
        every = (tuple(map(bool, votes or ())) for votes in values)
        return object_array([shared.setdefault(votes, votes) for votes in every])
    nulls = sum(value is None for value in values)
    try:
        array = np.array(values, np.int64 if spec.kind == "index" else np.float64)
    except OverflowError:
        array = np.full(len(values), np.nan)
    if np.count_nonzero(np.isnan(array)) != nulls:  # a NaN in a list is an error: null is None
        for row, value in enumerate(values):
            _check_value(name, spec, row, value)
    return array


def object_array(values: list[Any]) -> Shaped[np.ndarray, "rows"]:
    """A vector of objects with the given values as elements, even where these are sequences."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


_PLAIN: dict[Kind, set[type]] = {
    "text": {str},
    "index": {int},
    "time": {int, float},
    "unit": {int, float},
    "label": {int, float, bool},
    "flag": {bool},
    "count": {int},
    "votes": set(),
}
"""Types whose values are valid without a check of each one."""


def _check_value(name: str, spec: Column, row: int, value: Any) -> None:
    if value is None and spec.nullable:
        return
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool) and -(2**63) <= int(value) < 2**63
    valid = {
        "text": isinstance(value, str),
        "index": whole,
        "count": whole,
        "flag": isinstance(value, bool | np.bool_),
        "label": whole or isinstance(value, bool | np.bool_ | float | np.floating),
        "votes": isinstance(value, list | tuple) and all(isinstance(vote, bool | np.bool_) for vote in value),
    }.get(spec.kind, whole or isinstance(value, float | np.floating))
    if not valid or value != value:
        value_text = "null" if value is None else repr(_plain(value))
        raise ScoresError(f"found {value_text}, expected {spec.expected}", name, row)


def fail_at(invalid: Bool[np.ndarray, "rows"], name: str, values: Any, expected: str) -> None:
    """Raises for the first row where `invalid` holds."""
    if invalid.any():
        row = int(invalid.argmax())
        raise ScoresError(f"found {in_words(name, values[row])}, expected {expected}", name, row)


def in_words(name: str, value: Any) -> str:
    """Formats a value of a checked column for a message; NaN in a nullable column is shown as null."""
    if value != value and COLUMNS[name].nullable:
        return "null"
    return repr(int(value) if COLUMNS[name].kind == "count" and float(value).is_integer() else _plain(value))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def check_range(name: str, array: np.ndarray, texts: Sequence[str] | None = None) -> None:
    """Checks that every value of a column is in the allowed range; `texts` has all texts of one of text, if known."""
    spec = COLUMNS[name]
    if spec.kind == "votes":
        return
    if spec.kind == "text":
        for text in dict.fromkeys(array.tolist()) if texts is None else texts:
            if text == "" or (name == "person" and text.lower() in MISSING):
                no_word = " that is no word for a missing value" if name == "person" else ""
                fail_at(array == text, name, array, f"{spec.expected}{no_word}")
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                fail_at(array == text, name, array, "text that UTF-8 can encode")
        return
    if spec.kind == "time":
        valid = (np.abs(array) <= MOST_SECONDS) & (not are_dates(array))
    elif spec.kind in ("unit", "label"):
        valid = (array >= 0) & (array <= 1)
    elif spec.kind == "flag":
        valid = (array == 0) | (array == 1)
    else:
        valid = (array >= 0) & (array < 2**63) & (array == np.floor(array))
    if not valid.all():
        fail_at(~valid & ~(np.isnan(array) & spec.nullable), name, array, spec.expected)


def are_dates(times: Num[np.ndarray, " rows"]) -> bool:
    """Whether all known times, three or more, are dates in digits such as 20261127, and no seconds."""
    known = times[~np.isnan(times)]
    if len(known) < 3 or not ((known >= 1900_01_01) & (known <= 2099_12_31)).all():
        return False
    parts = ((known // 100 % 100, 1, 12), (known % 100, 1, 31), (known % 1, 0, 0))
    return all(((low <= part) & (part <= high)).all() for part, low, high in parts)
