"""The scores table: a model's probabilities at every step, with everything needed to evaluate decisions on them.

The table has one row per (step, candidate). Probabilities are raw (temperature T = 1), and calibrated values come from
the maps in calibration.json, unless the column `calibrated` says that they are calibrated. Need belongs to the step and
acceptance to the candidate: p_need and y_need are constant within a step, and the decision of a step uses its candidate
with the highest p_accept of the pass that decides (`Scores.steps`). A log of answers may know nothing of need;
it has none of the columns of need then.

A nullable column is float64 with NaN for null; flags are 0 and 1.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float64, Int, Int32, Int64, Shaped

from prism_jax.scores import agreement
from prism_jax.scores.schema import (
    COLUMNS,
    NEED_TARGETS,
    REQUIRED,
    ScoresError,
    as_column,
    check_extra,
    check_range,
    fail_at,
    in_words,
    is_known,
    object_array,
)
from prism_jax.scores.texts import Numbered, numbered, renumbered
from prism_jax.scores.units import check_people


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Scores:
    """A checked scores table; columns are read-only arrays of one length, None where the table has no such column.

    `from_columns` and `from_rows` convert their input; the constructor takes arrays in their final types. Raises
    ScoresError for an invalid value or combination of values, naming row (from 0) and column.
    """

    stream: Shaped[np.ndarray, "rows"]  # name of the stream, the unit that splits and resampling keep whole
    step: Int64[np.ndarray, "rows"]  # position in the stream's list of steps, from 0
    candidate: Int64[np.ndarray, "rows"]  # number of the offer within its step; all 0 when not given
    # time in seconds, from an origin that is the same for the whole stream
    time: Float64[np.ndarray, "rows"] | None = None
    domain: Shaped[np.ndarray, "rows"] | None = None  # subject area, for example coding, writing or life
    persona: Shaped[np.ndarray, "rows"] | None = None  # kind of user
    # the user; intervals resample people where one has several streams, and no split or fold divides a person
    person: Shaped[np.ndarray, "rows"] | None = None
    split: Shaped[np.ndarray, "rows"] | None = None  # name of the split, for example train, calibration or test
    # number of the cross-validation fold whose test split contains the stream
    fold: Int64[np.ndarray, "rows"] | None = None
    # Pr(need | history) from the fast pass, raw; a table without it has no other column of need either
    p_need_fast: Float64[np.ndarray, "rows"] | None = None
    p_accept_fast: Float64[np.ndarray, "rows"]  # Pr(accept | history, offered) from the fast pass, raw
    # Pr(need | history) from the slow pass, raw; null where there was none
    p_need_slow: Float64[np.ndarray, "rows"] | None = None
    # Pr(accept | history, offered) from the slow pass, raw; null where there was none
    p_accept_slow: Float64[np.ndarray, "rows"] | None = None
    # Pr(accept | history, the written proposal) from the fast pass, raw; null where none was written
    p_accept_written: Float64[np.ndarray, "rows"] | None = None
    y_need: Float64[np.ndarray, "rows"] | None = None  # need label in [0, 1]; null where it was not judged
    y_accept: Float64[np.ndarray, "rows"] | None = None  # acceptance label in [0, 1]; null where it was not observed
    votes: Shaped[np.ndarray, "rows"] | None = None  # raw votes of the annotators, as tuples of bool
    logged: Float64[np.ndarray, "rows"] | None = None  # A, whether the offer was made; null where nothing was logged
    # e = Pr(A = 1 | what the logging policy saw), above 0; null where unknown
    propensity: Float64[np.ndarray, "rows"] | None = None
    p_need_true: Float64[np.ndarray, "rows"] | None = None  # Pr(need | what the prompt shows); simulator only
    # Pr(accept | what the prompt shows, offered); simulator only
    p_accept_true: Float64[np.ndarray, "rows"] | None = None
    # Pr(need and accept | what the prompt shows, offered); simulator only
    p_both_true: Float64[np.ndarray, "rows"] | None = None
    tokens_fast: Float64[np.ndarray, "rows"] | None = None  # number of tokens that the fast pass read and wrote
    tokens_slow: Float64[np.ndarray, "rows"] | None = None  # number of tokens of the slow pass
    tokens_response: Float64[np.ndarray, "rows"] | None = None  # number of tokens of the response
    # share of the fields that the slow pass wrote exactly as the data have them; null without fields
    fields_correct: Float64[np.ndarray, "rows"] | None = None
    # what p_need estimates, the same on every row: `marginal`, as without this column, Pr(need | history);
    # `given_accept`, Pr(need | history, the step's offer accepted)
    need_target: Shaped[np.ndarray, "rows"] | None = None
    # true on every row of a table whose probabilities are calibrated: no map is fitted on them, and none is applied
    calibrated: Float64[np.ndarray, "rows"] | None = None
    # columns that the schema does not know, as arrays of objects by name; they are kept and not read
    extra: Mapping[str, Shaped[np.ndarray, "rows"]] = dataclasses.field(default_factory=dict)
    # texts and numbers of the columns of text that were asked for, and whether in the order of first appearance
    _numbered: dict[str, tuple[list[str], Int32[np.ndarray, "rows"], bool]] = dataclasses.field(
        init=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        for name, array in self.columns().items():
            self._set(name, array)
        self._check()

    def _check(self) -> None:
        columns = self.columns()
        _check_lengths({**columns, **self.extra})
        for name, array in columns.items():
            check_range(name, array, self._numbered[name][0] if name in self._numbered else None)
        agreement.check_need_target(columns)
        agreement.check_calibrated(columns)
        agreement.check_log(columns)
        agreement.check_need(columns)
        agreement.check_slow(columns)
        agreement.check_truth(columns)
        _check_structure(self)
        check_people(columns, self.numbered)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.stream)

    @property
    def has_need(self) -> bool:
        """Whether the table knows of need; without it, p_accept alone can be evaluated."""
        return self.p_need_fast is not None

    @property
    def need_meaning(self) -> str:
        """What p_need estimates, one of `NEED_TARGETS`."""
        return NEED_TARGETS[0] if self.need_target is None else str(self.need_target[0])

    @property
    def need_given_accept(self) -> bool:
        """Whether p_need estimates need given that the step's offer is accepted."""
        return self.need_meaning == "given_accept"

    def columns(self) -> dict[str, np.ndarray]:
        """The columns of the schema that the table has, by name, in the order of the schema."""
        return {name: getattr(self, name) for name in COLUMNS if getattr(self, name) is not None}

    def numbers(self, name: str) -> Float64[np.ndarray, "rows"]:
        """A column of numbers; NaN on every row where the table has none."""
        column = getattr(self, name)
        return np.full(len(self), np.nan) if column is None else column

    def take(self, rows: Int[np.ndarray, "n"] | Bool[np.ndarray, "n"] | slice) -> Scores:
        """A table of some rows, by index, by mask or as a slice of views; ScoresError when no row is selected."""
        taken = copy.copy(self)  # rows of a checked table need no second check
        for name, array in self.columns().items():
            taken._set(name, array[rows])
        object.__setattr__(taken, "extra", {name: array[rows] for name, array in self.extra.items()})
        numbers = {name: (names, codes[rows], False) for name, (names, codes, _) in self._numbered.items()}
        object.__setattr__(taken, "_numbered", numbers)
        _check_lengths(taken.columns())
        return taken

    def numbered(self, name: str) -> Numbered:
        """The distinct texts of a column in the order of their first appearance, and the number of each row's text.

        They are kept with the table, so that texts are compared once.
        """
        known = self._numbered.get(name)
        if known is None or not known[2]:
            names, codes = numbered(getattr(self, name)) if known is None else renumbered(*known[:2])
            self._numbered[name] = names, codes.astype(np.int32), True
        names, codes, _ = self._numbered[name]
        return names, codes.astype(np.int64)

    def with_certain_need(self) -> Scores:
        """The same table with p_need = 1 and y_need = 1 at every step; only acceptance is uncertain."""
        filled = copy.copy(self)  # what is set is valid, so that no second check is needed
        certain = np.broadcast_to(np.float64(1.0), len(self))
        filled._set("p_need_fast", certain)
        filled._set("y_need", certain)
        if self.p_accept_slow is not None:
            filled._set("p_need_slow", np.where(np.isnan(self.p_accept_slow), np.nan, 1.0))
        if self.p_accept_true is not None:
            filled._set("p_need_true", certain)
            filled._set("p_both_true", self.p_accept_true)
        return filled

    def steps(self, thinking: Literal["fast", "slow"] = "fast") -> Scores:
        """A table with one row per step: its candidate with the highest p_accept; the lowest-numbered of a tie.

        Streams are in order of first appearance, their steps in ascending order. The temperature is the same for all
        candidates and preserves ranks, so raw and calibrated probabilities choose the same candidate. Raises
        ScoresError if the p_accept of the pass `thinking`, which ranks the candidates, is null or no column.
        """
        name = f"p_accept_{thinking}"
        column = getattr(self, name)
        if column is None:
            raise ScoresError("found no such column, expected it to rank the candidates of each step", name)
        fail_at(np.isnan(column), name, column, "a number: it ranks the candidates of each step")
        order, starts = _by_step(self)
        if isinstance(order, slice) and len(starts) == len(self):
            return self  # one candidate at every step, in order: a copy would double the memory
        p = column[order]
        best = np.repeat(np.maximum.reduceat(p, starts), np.diff(starts, append=len(p)))
        hits = np.flatnonzero(p == best)
        chosen = hits[np.searchsorted(hits, starts)]
        return self.take(chosen if isinstance(order, slice) else order[chosen])

    def largest(self, column: str) -> Float64[np.ndarray, "steps"]:
        """The largest known value of a column among the candidates of each step, in the order of `steps`.

        NaN where no candidate's value is known, and everywhere without such a column.
        """
        order, starts = _by_step(self)
        values = getattr(self, column)
        if values is not None and isinstance(order, slice) and len(starts) == len(self):
            return values  # one candidate at every step, in order
        return np.full(len(starts), np.nan) if values is None else np.fmax.reduceat(values[order], starts)

    def step_numbers(self) -> Int64[np.ndarray, "rows"]:
        """Numbers the steps: equal where stream and step are."""
        order, starts = _by_step(self)
        numbers = np.empty(len(self), np.int64)
        numbers[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(self)))
        return numbers

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> Scores:
        """Builds a table from one mapping per row; a key that is absent from a row is null there.

        Raises ScoresError for a key that resembles a column's name, too many unknown keys, a missing required key, or
        an invalid value.
        """
        values: dict[str, list[Any]] = {}
        unknown: list[str] = []
        count = 0
        for count, row in enumerate(rows, start=1):
            for name, value in row.items():
                if name not in values:
                    if not is_known(name, count - 1):
                        unknown.append(name)
                        check_extra(unknown, count - 1)
                    values[name] = [None] * (count - 1)
                values[name].append(value)
            for name in () if len(row) == len(values) else values.keys() - row.keys():
                values[name].append(None)
        if count == 0:
            raise ScoresError("found no rows, expected at least one")
        return cls.from_columns(values)

    @classmethod
    def from_columns(cls, values: Mapping[str, Any], texts: Mapping[str, Numbered] | None = None) -> Scores:
        """Builds a table from arrays, or lists with None for null, by column name.

        `texts` has the texts of some columns with their numbers, in any order, where these are known.
        Raises ScoresError for a name that resembles a column's, too many unknown columns, a missing required column, or
        an invalid value.
        """
        unknown = [name for name in values if not is_known(name)]
        check_extra(unknown)
        for name in REQUIRED:
            if name not in values:
                names_found = f"only {', '.join(values)}" if values else "no columns"
                raise ScoresError(f"found {names_found}, expected this column too", name)
        texts = {name: of for name, of in (texts or {}).items() if set(map(type, of[0])) <= {str}}
        columns = {
            name: column if name in texts else as_column(name, column)
            for name, column in values.items()
            if name not in unknown
        }
        columns.setdefault("candidate", np.zeros(len(columns["stream"]), np.int64))
        extra = {name: object_array(list(values[name])) for name in unknown}
        _check_lengths({**columns, **extra})
        table = cls.of_checked({**columns, **extra}, texts)
        table._check()
        return table

    @classmethod
    def of_checked(cls, columns: Mapping[str, np.ndarray], texts: Mapping[str, Numbered] | None = None) -> Scores:
        """Builds a table from arrays in their final types that are known to be valid, without checking them again.

        `texts` has the texts of some columns with their numbers, in any order, where these are known.
        """
        table = object.__new__(cls)
        for field in dataclasses.fields(cls):
            object.__setattr__(table, field.name, None)
        numbers = {name: (of, codes.astype(np.int32, copy=False), False) for name, (of, codes) in (texts or {}).items()}
        object.__setattr__(table, "extra", {name: array for name, array in columns.items() if name not in COLUMNS})
        object.__setattr__(table, "_numbered", numbers)
        for name in columns.keys() - table.extra.keys():
            table._set(name, columns[name])
        return table

    def _set(self, name: str, array: np.ndarray) -> None:
        array = array.view()
        array.flags.writeable = False
        object.__setattr__(self, name, array)


def _check_lengths(columns: Mapping[str, np.ndarray]) -> None:
    rows = len(columns["stream"])
    if rows == 0:
        raise ScoresError("found no rows, expected at least one")
    for name, array in columns.items():
        if len(array) != rows:
            raise ScoresError(f"found {len(array)} rows, expected {rows}, as many as in stream", name)


def _by_step(scores: Scores) -> tuple[Int[np.ndarray, "rows"] | slice, Int[np.ndarray, "steps"]]:
    """Row numbers ordered by stream (first appearance), step, candidate; and where in that order each step starts.

    The order of rows that are in order already, as most files have them, is a slice: it selects views and no copies.
    """
    return _ordered(scores, scores.numbered("stream")[1])


def _ordered(
    scores: Scores, codes: Int64[np.ndarray, "rows"]
) -> tuple[Int[np.ndarray, "rows"] | slice, Int[np.ndarray, "steps"]]:
    """`_by_step` for known numbers of the streams."""
    order: Int[np.ndarray, "rows"] | slice = slice(None)
    if not _in_order(codes, scores.step, scores.candidate):
        order = np.lexsort((scores.candidate, scores.step, codes))
    step, codes = scores.step[order], codes[order]
    begins_step = (codes[1:] != codes[:-1]) | (step[1:] != step[:-1])
    return order, np.flatnonzero(np.concatenate([[True], begins_step]))


def _in_order(*keys: Int64[np.ndarray, "rows"]) -> bool:
    """Whether the rows are in ascending order by the first key, then by the second, and so on."""
    tied = np.ones(len(keys[0]) - 1, bool)
    for key in keys:
        if (tied & (key[1:] < key[:-1])).any():
            return False
        tied &= key[1:] == key[:-1]
    return True


def _check_structure(scores: Scores) -> None:
    """Checks that (stream, step, candidate) is unique, and that columns are constant in the scope of the schema."""
    codes = scores.numbered("stream")[1]
    order, starts = _ordered(scores, codes)
    candidate, within_step = scores.candidate[order], np.ones(len(scores) - 1, bool)
    within_step[starts[1:] - 1] = False
    repeated = within_step & (candidate[1:] == candidate[:-1])
    if repeated.any():
        row = int(np.arange(len(scores))[order][int(repeated.argmax()) + 1])
        key = f"stream {scores.stream[row]!r}, step {scores.step[row]}, candidate {scores.candidate[row]}"
        raise ScoresError(f"found {key} a second time, expected each once", None, row)
    within_stream = codes[order][1:] == codes[order][:-1]
    for name, array in scores.columns().items():
        scope = COLUMNS[name].constant_within
        if scope == "row":
            continue
        values = (scores._numbered[name][1] if name in scores._numbered else array)[order]  # numbers compare faster
        changed = (values[1:] != values[:-1]) & ~((values[1:] != values[1:]) & (values[:-1] != values[:-1]))
        if (changed & (within_step if scope == "step" else within_stream)).any():
            raise _not_constant(scores, name, codes)


def _not_constant(scores: Scores, name: str, codes: Int64[np.ndarray, "rows"]) -> ScoresError:
    """The error for the first row whose value is not that of the first row of its step or stream."""
    array, scope = getattr(scores, name), COLUMNS[name].constant_within
    if scope == "step":
        order, starts = _ordered(scores, codes)
        first = np.empty(len(scores), np.int64)
        first[order] = np.repeat(np.arange(len(scores))[order][starts], np.diff(starts, append=len(scores)))
    else:
        first = np.unique(codes, return_index=True)[1][codes]
    expected = array[first]
    row = int(((array != expected) & ~((array != array) & (expected != expected))).argmax())
    place = f"stream {scores.stream[row]!r}" + (f", step {scores.step[row]}" if scope == "step" else "")
    as_elsewhere = f"{in_words(name, expected[row])} as elsewhere in {place}: constant within a {scope}"
    return ScoresError(f"found {in_words(name, array[row])}, expected {as_elsewhere}", name, row)
