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
from absl import logging
from jaxtyping import Bool, Float64, Int32

from prism_jax.evaluation.answers.columns import Condition, LogError
from prism_jax.evaluation.answers.written_times import COUNTS, ORDERS, TIMES, AmbiguousDateError, moment_of, order_of
from prism_jax.runtime.written import MISSING, MOST_SECONDS, one_spelling, tidy
from prism_jax.scores.schema import are_dates
from prism_jax.scores.texts import as_seconds, is_moment, is_text

Kind = Literal["number", "flag", "category"]
WORDS = {
    word: 1.0 - no for pair in ("true false", "yes no", "t f", "y n", "1 0") for no, word in enumerate(pair.split())
}
MOST = 1e100
"""The largest number in a log: squares of it, and sums of these, are finite."""
UNITS = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
"""In which times are counted, and how many of each are a second."""
DAYS_TO_1970 = 25_569
"""By which day spreadsheets count 1970-01-01."""
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
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

    def refuse(self, rows: int | Bool[np.ndarray, " rows"], found: str, expected: str) -> NoReturn:
        """Raises a LogError about one row, or about the first of several, which names up to five."""
        first, *others = [rows] if isinstance(rows, int) else np.flatnonzero(rows).tolist()
        more = f"; {len(others):,} more such {'rows' if others[1:] else 'row'}: " if others else ""
        more += ", ".join(str(self.start + row) for row in others[:4]) + ", …" * (len(others) > 4)
        raise LogError(
            f"{self.place}, row {self.start + first}, column {self.name!r}: found {found}, expected {expected}{more}"
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
            self.refuse(~known[person], "nothing", f"{expected}; nan, null and none are no names")
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
            return self._parsed(number_of, expected)
        if not (self.is_number or self.is_flag):
            self.refuse_type(expected)
        signed = self.values.cast(pa.int8()) if self.is_flag else self.values
        values = np.asarray(signed.cast(pa.float64(), safe=False).to_numpy(), np.float64)
        self._refuse_huge(values, expected)
        return values

    def percentages(self) -> Float64[np.ndarray, " rows"]:
        """Probabilities that are written times 100, with or without a sign for it; NaN where missing."""
        expected = "a percentage from 0 to 100"
        values = self._without_sign().numbers(expected)
        if (far := (values < 0) | (values > 100)).any():
            self.refuse(far, f"{values[far.argmax()]:.6g}", expected)
        if np.nanmax(values, initial=-np.inf) <= 1 and np.nanmax(values, initial=0) > 0:
            words = "%s, column %r: no percentage is above 1; if these are probabilities, take the %% from the role"
            logging.warning(words, self.place, self.name)
        return values / 100

    def _without_sign(self) -> Cells:
        """The cells without the sign of a percentage at the ends of texts."""
        if not self.is_text:
            return self
        return Cells(self.place, self.name, pc.replace_substring_regex(self.values, r"\s*%\s*$", ""), self.start)

    def flags(self) -> Float64[np.ndarray, " rows"]:
        """1, 0, or NaN where missing."""
        expected = "true or false, or 1 or 0 (another column needs a condition such as rating>=4 or outcome==taken)"
        values = self._parsed(_flag, expected) if self.is_text else self.numbers(expected)
        bad = ~np.isnan(values) & (values != 0.0) & (values != 1.0)
        if bad.any():
            self.refuse(bad, f"{values[bad.argmax()]:.6g}", expected)
        return values

    def met(
        self, condition: Condition, texts: collections.Counter[tuple[bool, str]] | None = None
    ) -> Float64[np.ndarray, " rows"]:
        """1 where the condition holds, 0 where it does not, NaN where the value is missing.

        The constant null stands for a missing value. A percentage is compared by its number. A text is compared without
        blanks at its ends and whatever its case; to `texts`, which counts rows by whether the condition holds and their
        text, those of these rows are added.
        """
        if condition.constant.lower() == "null" and condition.comparison in ("==", "!="):
            return COMPARE[condition.comparison](self.categories()[1] < 0, True).astype(np.float64)
        try:
            constant = number_of(condition.constant)
        except ValueError:
            constant = np.nan
        if np.isfinite(constant):
            values = self._without_sign().numbers(f"a number to compare with {constant:g}")
            return np.where(np.isnan(values), np.nan, COMPARE[condition.comparison](values, constant))
        if condition.comparison not in ("==", "!=") or not (self.is_text or self.is_flag):
            raise LogError(
                f"{self.place}, column {self.name!r}: found the condition {condition.comparison} "
                f"{condition.constant!r}, expected a number to compare with, or == or != and a text"
            )
        levels, codes = self.categories()
        wanted = tidy(condition.constant).casefold()
        compare = COMPARE[condition.comparison]
        same = np.array([*(compare(level.casefold(), wanted) for level in levels), False])  # the last is missing
        if texts is not None:
            rows = np.bincount(codes[codes >= 0], minlength=len(levels)).tolist()
            for text, number, holds in zip(levels, rows, same[:-1], strict=True):
                texts[bool(holds), text] += number
        return np.where(codes < 0, np.nan, same[codes])

    def times(self, kinds: set[str] | None = None, time_format: str | None = None) -> Float64[np.ndarray, " rows"]:
        """Seconds; timestamps without a time zone are taken as UTC; NaN where missing.

        All values of a column are of one kind; `kinds` holds that of the rows before, and is added to. `time_format` is
        one of `written_times.TIME_FORMATS`, for dates or numbers that can be read in two ways.
        """
        kinds = set() if kinds is None else kinds
        if is_moment(self.values.type):
            if self.values.null_count < len(self.values):
                kinds.add("zoned" if getattr(self.values.type, "tz", None) else "local")
            values = np.asarray(as_seconds(self.values).to_numpy(), np.float64)
            self._refuse_far(values, MOST_SECONDS)
            return values
        return self._counted(kinds, time_format) if self._counts(kinds) else self._written(kinds, time_format)

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

    def _counts(self, kinds: set[str]) -> bool:
        """Whether times are numbers, which of texts the first says."""
        if not self.is_text or kinds:
            return not self.is_text or not kinds.isdisjoint(UNITS)
        words = (text.strip() for text in self.values.to_pylist() if text is not None)
        return is_number(next((word for word in words if word.lower() not in MISSING), ""))

    def _counted(self, kinds: set[str], time_format: str | None) -> Float64[np.ndarray, " rows"]:
        """Seconds of numbers, all in one unit: that in which none is beyond the year 5138.

        Days as spreadsheets count them look like seconds of one day, so `time_format` must say what such numbers are.
        """
        values = self.numbers(TIMES)
        size, days = np.abs(values), (values - DAYS_TO_1970) * 86_400
        if time_format == "days" and not (np.abs(days) > MOST_SECONDS).any():
            kinds.add("seconds")
            return days
        if time_format == "days":
            self.refuse(int(np.nanargmax(size)), f"{np.nanmax(size):.15g}", "days as spreadsheets count them")
        if time_format != "seconds" and not kinds and may_be_days(values):
            row = int((~np.isnan(values)).argmax())
            day = datetime.datetime.fromtimestamp(float(days[row]), datetime.UTC)
            found = f"{values[row]:.15g}, which is seconds or, as spreadsheets count days, {day:%Y-%m-%d %H:%M}"
            self.refuse(row, found, " or ".join(f"--time_format={name}" for name in COUNTS))
        largest = size[~np.isnan(size)].max(initial=0.0)
        unit = next((name for name, per in UNITS.items() if largest <= MOST_SECONDS * per), "nanoseconds")
        kinds.add(unit)
        self._refuse_far(values, MOST_SECONDS * UNITS[unit])
        other = size < MOST_SECONDS * UNITS[unit] / 1e3 if unit != "seconds" else np.zeros(len(size), bool)
        if other.any() or not kinds <= {unit}:
            self.refuse(int(other.argmax()), f"{values[other.argmax()]:.15g}", f"{unit} since 1970, as on other rows")
        return values / UNITS[unit]

    def _refuse_far(self, values: Float64[np.ndarray, " rows"], most: float) -> None:
        dates = any(are_dates(values // 10.0**digits) for digits in (0, 4, 6, 9))  # of the time of day
        if (far := (np.abs(values) > most) | (dates & ~np.isnan(values))).any():
            expected = f"{TIMES}; dates have marks between day, month and year"
            self.refuse(far, f"{values[far.argmax()]:.17g}", expected)

    def _written(self, kinds: set[str], time_format: str | None) -> Float64[np.ndarray, " rows"]:
        """Seconds of times in words, all with a time zone or none, and with days and months in one order."""
        order = time_format if time_format in ORDERS else next(iter(kinds.intersection(ORDERS)), None)
        if order is None:
            try:
                order = order_of(self.values.to_pylist())
            except AmbiguousDateError as error:
                expected = f"{' or '.join(f'--time_format={name}' for name in ORDERS)}: no date of the column tells"
                self.refuse(error.row, str(error), expected)
            kinds |= set() if order is None else {order}

        def seconds(text: str) -> float:
            moment = moment_of(text, order)
            kinds.add("local" if moment.tzinfo is None else "zoned")
            if kinds >= {"local", "zoned"}:
                raise ValueError("time zones on some rows only")
            return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()

        dates = f" with dates in the order {order}" if order else ""
        return self._parsed(seconds, f"{TIMES}{dates}; a time zone on all rows or on none")

    def _parsed(self, parse: Callable[[str], float], expected: str) -> Float64[np.ndarray, " rows"]:
        """Parses every text; missing ones become NaN."""
        values, bad, found = np.empty(len(self.values)), np.zeros(len(self.values), bool), ""
        for row, text in enumerate(self.values.to_pylist()):
            word = "" if text is None else text.strip()
            try:
                values[row] = np.nan if word.lower() in MISSING else parse(word)
            except (ValueError, OverflowError):
                found = found or word
                values[row], bad[row] = np.nan, True
        if found:
            hint = "; score=COLUMN% reads percentages" if found.endswith("%") else ""
            self.refuse(bad, f"a text of {len(found)} characters", f"{expected}{hint}")
        self._refuse_huge(values, expected)
        return values

    def _refuse_huge(self, values: Float64[np.ndarray, " rows"], expected: str) -> None:
        huge = np.abs(values) > MOST  # false for NaN
        if huge.any():
            first = values[huge.argmax()]
            if np.isinf(first):
                self.refuse(huge, "an infinite number", expected)
            self.refuse(huge, f"{first:.6g}", f"{expected} from {-MOST:g} to {MOST:g}")


def may_be_days(values: Float64[np.ndarray, " rows"]) -> bool:
    """Whether all numbers that are known may be the days of 1954 to 2119 as spreadsheets count them."""
    known = values[~np.isnan(values)]
    return bool(len(known)) and bool(((known >= 20_000) & (known <= 80_000)).all())


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
    return number_of(text) if value is None else value


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        number_of(text)
    except ValueError:
        return False
    return True


def number_of(text: str) -> float:
    """The number that a text is; raises a ValueError for another one, such as 1_5, which Python reads as 15."""
    return float("" if "_" in text else text)
