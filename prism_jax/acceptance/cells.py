"""Turns one column of a file into an array, or says which row cannot be turned."""

from __future__ import annotations

import collections
import datetime
import operator
from collections.abc import Callable
from typing import Any, Literal, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float64, Int32

from prism_jax.acceptance.columns import Condition, LogError
from prism_jax.runtime.written import MISSING, MOST_SECONDS, SECONDS, one_spelling, tidy
from prism_jax.scores.schema import are_dates
from prism_jax.scores.texts import as_seconds, is_moment, is_text

Kind = Literal["number", "flag", "category"]
WORDS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "t": 1.0, "f": 0.0, "1": 1.0, "0": 0.0}
MOST = 1e100
"""The largest number in a log: squares of it, and sums of these, are finite."""
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}


class Cells:
    """Some rows of a column as Arrow read them, with dictionaries resolved, and the place that its errors name.

    The first row is number `start`.
    """

    def __init__(self, place: str, name: str, values: pa.ChunkedArray, start: int = 0) -> None:
        self.place, self.name, self.start = place, name, start
        self.values = values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
        if is_text(self.values.type):
            self.values = self.values.cast(pa.string())

    def refuse(self, row: int, found: str, expected: str) -> NoReturn:
        """Raises a LogError about one row."""
        raise LogError(
            f"{self.place}, row {self.start + row}, column {self.name!r}: found {found}, expected {expected}"
        )

    def refuse_type(self, expected: str) -> NoReturn:
        """Raises a LogError about the column's type."""
        raise LogError(f"{self.place}, column {self.name!r}: found the type {self.values.type}, expected {expected}")

    @property
    def is_text(self) -> bool:
        """Whether the column holds texts, as every column of a CSV file does."""
        return pa.types.is_string(self.values.type)

    @property
    def is_number(self) -> bool:
        """Whether the file says that the column holds numbers."""
        kind = self.values.type
        return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)

    @property
    def is_flag(self) -> bool:
        """Whether the file says that the column holds true and false."""
        return pa.types.is_boolean(self.values.type)

    def people(self) -> tuple[tuple[str, ...], Int32[np.ndarray, " rows"]]:
        """Names in sorted order, and each row's place among them."""
        expected = "a name or number of the person"
        if not (self.is_text or pa.types.is_integer(self.values.type)):
            self.refuse_type(f"texts or integers: {expected}")
        names, person = _codes(self.values.cast(pa.string()), one_spelling)
        known = np.array([*(name.lower() not in MISSING for name in names), False])  # the last is null
        if not known[person].all():
            self.refuse(int((~known[person]).argmax()), "nothing", f"{expected}; nan, null and none are no names")
        return names, person

    def categories(self) -> tuple[tuple[str, ...], Int32[np.ndarray, " rows"]]:
        """Levels in sorted order, and each row's place among them; -1 where the value is missing."""
        texts = self.values.cast(pa.string())
        missing = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(texts)), value_set=pa.array(MISSING))
        return _codes(pc.if_else(missing, pa.scalar(None, pa.string()), texts), tidy)

    def numbers(self, expected: str = "a number") -> Float64[np.ndarray, " rows"]:
        """Numbers, NaN where missing; infinities, and numbers beyond `MOST`, are refused."""
        if pa.types.is_null(self.values.type):
            return np.full(len(self.values), np.nan)
        if self.is_text:
            return self._parsed(float, expected)
        if not (self.is_number or self.is_flag):
            self.refuse_type(expected)
        signed = self.values.cast(pa.int8()) if self.is_flag else self.values
        values = np.asarray(signed.cast(pa.float64(), safe=False).to_numpy(), np.float64)
        self._refuse_huge(values, expected)
        return values

    def flags(self) -> Float64[np.ndarray, " rows"]:
        """1, 0, or NaN where missing."""
        expected = "true or false, or 1 or 0 (another column needs a condition such as rating>=4 or outcome==taken)"
        values = self._parsed(_flag, expected) if self.is_text else self.numbers(expected)
        bad = ~np.isnan(values) & (values != 0.0) & (values != 1.0)
        if bad.any():
            row = int(bad.argmax())
            self.refuse(row, f"{values[row]:.6g}", expected)
        return values

    def met(
        self, condition: Condition, texts: collections.Counter[tuple[bool, str]] | None = None
    ) -> Float64[np.ndarray, " rows"]:
        """1 where the condition holds, 0 where it does not, NaN where the value is missing.

        A text is compared without blanks at its ends and whatever its case; to `texts`, which counts rows by whether
        the condition holds and their text, those of these rows are added.
        """
        try:
            constant = float(condition.constant)
        except ValueError:
            constant = np.nan
        if np.isfinite(constant):
            values = self.numbers(f"a number to compare with {constant:g}")
            return np.where(np.isnan(values), np.nan, COMPARE[condition.comparison](values, constant))
        if condition.comparison != "==" or not (self.is_text or self.is_flag):
            raise LogError(
                f"{self.place}, column {self.name!r}: found the condition {condition.comparison} "
                f"{condition.constant!r}, expected a number to compare with, or == and a text"
            )
        levels, codes = self.categories()
        wanted = tidy(condition.constant).casefold()
        same = np.array([*(level.casefold() == wanted for level in levels), False])  # the last is missing
        if texts is not None:
            rows = np.bincount(codes[codes >= 0], minlength=len(levels)).tolist()
            for text, number, holds in zip(levels, rows, same[:-1], strict=True):
                texts[bool(holds), text] += number
        return np.where(codes < 0, np.nan, same[codes])

    def times(self, kinds: set[str] | None = None) -> Float64[np.ndarray, " rows"]:
        """Seconds; timestamps without a time zone are taken as UTC; NaN where missing.

        All texts of a column are of one kind; `kinds` holds that of the rows before, and is added to.
        """
        expected = "seconds, or a timestamp such as 2025-01-31T09:30:00Z"
        if is_moment(self.values.type):
            values = np.asarray(as_seconds(self.values).to_numpy(), np.float64)
        elif self.is_text:
            values = self._times_of_texts(expected, set() if kinds is None else kinds)
        else:
            values = self.numbers(expected)
        if (far := (np.abs(values) > MOST_SECONDS) | (are_dates(values) & ~np.isnan(values))).any():
            self.refuse(int(far.argmax()), f"{values[far.argmax()]:.15g}", SECONDS)
        return values

    def kind(self) -> Kind:
        """What a context column holds: "number", "flag" or "category"; a text column is judged by all its values."""
        if self.is_flag:
            return "flag"
        if self.is_number or pa.types.is_null(self.values.type):
            return "number"
        if not self.is_text:
            self.refuse_type("numbers, flags (true or false) or texts of few kinds")
        levels = [level.strip().lower() for level in self.categories()[0]]
        if levels and all(level in WORDS and level not in "01" for level in levels):
            return "flag"
        return "number" if all(is_number(level) for level in levels) else "category"

    def _times_of_texts(self, expected: str, kinds: set[str]) -> Float64[np.ndarray, " rows"]:
        """Seconds, or ISO 8601, whichever the first text is; all with a time zone, or none."""
        if not kinds:
            words = (text.strip() for text in self.values.to_pylist() if text is not None)
            if is_number(next((word for word in words if word.lower() not in MISSING), "")):
                kinds.add("seconds")
        if "seconds" in kinds:
            return self._parsed(float, expected)

        def seconds(text: str) -> float:
            moment = datetime.datetime.fromisoformat(text)
            kinds.add("local" if moment.tzinfo is None else "zoned")
            if len(kinds) > 1:
                raise ValueError("time zones on some rows only")
            return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()

        return self._parsed(seconds, f"{expected}; a time zone on all rows or on none")

    def _parsed(self, parse: Callable[[str], float], expected: str) -> Float64[np.ndarray, " rows"]:
        """Parses every text; missing ones become NaN."""
        values = np.empty(len(self.values))
        for row, text in enumerate(self.values.to_pylist()):
            word = "" if text is None else text.strip()
            try:
                values[row] = np.nan if word.lower() in MISSING else parse(word)
            except (ValueError, OverflowError):
                self.refuse(row, f"a text of {len(word)} characters", expected)
        self._refuse_huge(values, expected)
        return values

    def _refuse_huge(self, values: Float64[np.ndarray, " rows"], expected: str) -> None:
        huge = np.abs(values) > MOST  # false for NaN
        if huge.any():
            row = int(huge.argmax())
            if np.isinf(values[row]):
                self.refuse(row, "an infinite number", expected)
            self.refuse(row, f"{values[row]:.6g}", f"{expected} from {-MOST:g} to {MOST:g}")


def _codes(
    texts: pa.ChunkedArray, spelling: Callable[[str], str]
) -> tuple[tuple[str, ...], Int32[np.ndarray, " rows"]]:
    """Distinct texts in sorted order, and each row's place among them; -1 for null. `spelling` gives each its form."""
    encoded = pa.chunked_array([texts.combine_chunks()]).dictionary_encode().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    levels = [spelling(level) for level in encoded.dictionary.to_pylist()]
    place = {level: number for number, level in enumerate(sorted(set(levels)))}
    places = np.array([*map(place.__getitem__, levels), -1], np.int32)
    codes = encoded.indices.fill_null(len(levels)).to_numpy(zero_copy_only=False)
    return tuple(place), places[codes]


def _flag(text: str) -> float:
    value = WORDS.get(text.lower())
    return float(text) if value is None else value


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
