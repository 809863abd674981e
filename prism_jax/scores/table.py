"""The scores table: what a model says at every step, and all that decision science needs to know about it.

One row per (step, candidate). Signals are raw (T = 1); calibrated values come from the temperatures in
calibration.json. Need belongs to the step and acceptance to the candidate: p_need and y_need are constant within a
step, and a step's decision uses its candidate of highest p_accept (`Scores.steps`).

A nullable column is float64 with NaN for null; flags are 0 and 1.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float64, Int, Int64, Shaped

from prism_jax.scores.schema import COLUMNS, REQUIRED, ScoresError, as_column, check_known, check_range, fail_at, shown


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Scores:
    """A checked scores table; columns are read-only arrays of one length, None where the table has no such column.

    Built with `from_columns` or `from_rows`, which convert; the constructor takes the arrays as they are held.

    Attributes:
      stream: Names the stream, the unit that splits and resampling never cut.
      step: Position in the stream's list of steps, from 0.
      candidate: Number of the offer within its step; all 0 when not given.
      time: Seconds, from an origin that the stream shares.
      domain: For example coding, writing, life.
      persona: Which kind of user.
      split: For example train, calibration, test.
      fold: The cross-validation fold that holds the stream out.
      p_need_fast: Pr(need | history) from the fast pass, raw.
      p_accept_fast: Pr(accept | history, offered) from the fast pass, raw.
      p_need_slow: The same from the slow pass; null where none ran.
      p_accept_slow: The same from the slow pass; null where none ran.
      y_need: Need label in [0, 1]; null where it was not judged.
      y_accept: Acceptance label in [0, 1]; null where it was not observed.
      votes: Raw votes of the annotators: tuples of bool.
      logged: A, whether the offer was made; null where nothing was logged.
      propensity: e = Pr(A = 1 | what the logging policy saw), above 0.
      p_need_true: Pr(need | what the prompt shows); simulator only.
      p_accept_true: Pr(accept | what the prompt shows, offered); simulator only.
      p_both_true: Pr(need and accept | what the prompt shows, offered); simulator only.
      tokens_fast: Tokens that the fast pass read and wrote.
      tokens_slow: Tokens of the slow pass.
      tokens_response: Tokens of the response.

    Raises:
      ScoresError: for a value or a combination that no table may hold, naming row (from 0) and column.
    """

    stream: Shaped[np.ndarray, "rows"]
    step: Int64[np.ndarray, "rows"]
    candidate: Int64[np.ndarray, "rows"]
    time: Float64[np.ndarray, "rows"] | None = None
    domain: Shaped[np.ndarray, "rows"] | None = None
    persona: Shaped[np.ndarray, "rows"] | None = None
    split: Shaped[np.ndarray, "rows"] | None = None
    fold: Int64[np.ndarray, "rows"] | None = None
    p_need_fast: Float64[np.ndarray, "rows"]
    p_accept_fast: Float64[np.ndarray, "rows"]
    p_need_slow: Float64[np.ndarray, "rows"] | None = None
    p_accept_slow: Float64[np.ndarray, "rows"] | None = None
    y_need: Float64[np.ndarray, "rows"] | None = None
    y_accept: Float64[np.ndarray, "rows"] | None = None
    votes: Shaped[np.ndarray, "rows"] | None = None
    logged: Float64[np.ndarray, "rows"] | None = None
    propensity: Float64[np.ndarray, "rows"] | None = None
    p_need_true: Float64[np.ndarray, "rows"] | None = None
    p_accept_true: Float64[np.ndarray, "rows"] | None = None
    p_both_true: Float64[np.ndarray, "rows"] | None = None
    tokens_fast: Float64[np.ndarray, "rows"] | None = None
    tokens_slow: Float64[np.ndarray, "rows"] | None = None
    tokens_response: Float64[np.ndarray, "rows"] | None = None

    def __post_init__(self) -> None:
        for name, array in self.columns().items():
            self._set(name, array)
        _check_lengths(self.columns())
        for name, array in self.columns().items():
            check_range(name, array)
        _check_log(self)
        _check_slow(self)
        _check_structure(self)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.stream)

    def columns(self) -> dict[str, np.ndarray]:
        """The columns that the table has, by name, in the schema's order."""
        return {name: getattr(self, name) for name in COLUMNS if getattr(self, name) is not None}

    def take(self, rows: Int[np.ndarray, "n"] | Bool[np.ndarray, "n"]) -> Scores:
        """The given rows, by index or by mask.

        Raises:
          ScoresError: for no rows at all.
        """
        taken = copy.copy(self)  # rows of a checked table need no second check
        for name, array in self.columns().items():
            taken._set(name, array[rows])
        _check_lengths(taken.columns())
        return taken

    def steps(self) -> Scores:
        """One row per step: its candidate of highest p_accept_fast, the lowest-numbered of several.

        Streams come in order of first appearance, their steps in ascending order. A temperature is the same for all
        candidates and keeps ranks, so raw and calibrated signals choose the same candidate.
        """
        order, starts = _by_step(self)
        p = self.p_accept_fast[order]
        best = np.repeat(np.maximum.reduceat(p, starts), np.diff(starts, append=len(p)))
        hits = np.flatnonzero(p == best)
        return self.take(order[hits[np.searchsorted(hits, starts)]])

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> Scores:
        """Builds a table from one mapping per row; a key that a row lacks is null there.

        Raises:
          ScoresError: for an unknown key, a missing required one, or a value that no table may hold.
        """
        values: dict[str, list[Any]] = {}
        count = 0
        for count, row in enumerate(rows, start=1):
            for name, value in row.items():
                if name not in values:
                    check_known(name, count - 1)
                    values[name] = [None] * (count - 1)
                values[name].append(value)
            for column in values.values():
                if len(column) < count:
                    column.append(None)
        if count == 0:
            raise ScoresError("found no rows, expected at least one")
        return cls.from_columns(values)

    @classmethod
    def from_columns(cls, values: Mapping[str, Any]) -> Scores:
        """Builds a table from arrays, or lists with None for null, by column name.

        Raises:
          ScoresError: for an unknown column, a missing required one, or a value that no table may hold.
        """
        for name in values:
            check_known(name)
        for name in REQUIRED:
            if name not in values:
                has = f"only {', '.join(values)}" if values else "no columns"
                raise ScoresError(f"found {has}, expected this column too", name)
        columns = {name: as_column(name, column) for name, column in values.items()}
        columns.setdefault("candidate", np.zeros(len(columns["stream"]), np.int64))
        _check_lengths(columns)
        return cls(**columns)

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


def _check_log(scores: Scores) -> None:
    """Checks what labels, log and propensities say of each other (maths section 4, positivity)."""
    none = np.full(len(scores), np.nan)
    y_accept, logged, propensity = (
        none if column is None else column for column in (scores.y_accept, scores.logged, scores.propensity)
    )
    silent, known = logged == 0, ~np.isnan(propensity)
    fail_at(propensity == 0, "propensity", propensity, "above 0: inverse weights need every offer possible")
    fail_at(silent & (propensity == 1), "propensity", propensity, "below 1 where logged is false")
    fail_at(
        silent & ~np.isnan(y_accept),
        "y_accept",
        y_accept,
        "null where logged is false: nobody saw the answer to an offer that was not made",
    )
    fail_at(
        (logged == 1) & ~known & (silent.any() and known.any()),
        "propensity",
        propensity,
        "a number, as other rows have one and some offers were not made (logged is false)",
    )


def _check_slow(scores: Scores) -> None:
    """Checks that the slow pass's two signals come together."""
    need, accept = scores.p_need_slow, scores.p_accept_slow
    if need is not None and accept is not None:
        fail_at(np.isnan(accept) & ~np.isnan(need), "p_accept_slow", accept, "a number, as p_need_slow has one")
        fail_at(np.isnan(need) & ~np.isnan(accept), "p_need_slow", need, "a number, as p_accept_slow has one")
    elif need is not None or accept is not None:
        missing, present = ("p_accept_slow", "p_need_slow") if accept is None else ("p_need_slow", "p_accept_slow")
        raise ScoresError(f"found no such column beside {present}, expected both or neither", missing)


def _stream_codes(scores: Scores) -> Int64[np.ndarray, "rows"]:
    """Numbers the streams by first appearance."""
    return pa.array(scores.stream).dictionary_encode().indices.to_numpy().astype(np.int64)


def _by_step(scores: Scores) -> tuple[Int[np.ndarray, "rows"], Int[np.ndarray, "steps"]]:
    """Rows ordered by stream (first appearance), step, candidate; and where in that order each step starts."""
    codes = _stream_codes(scores)
    order = np.lexsort((scores.candidate, scores.step, codes))
    new = (np.diff(codes[order]) != 0) | (np.diff(scores.step[order]) != 0)
    return order, np.flatnonzero(np.concatenate([[True], new]))


def _check_structure(scores: Scores) -> None:
    """Checks that (stream, step, candidate) is unique, and what must be constant within a step or a stream."""
    order, starts = _by_step(scores)
    first_of_step = np.empty(len(scores), np.int64)
    first_of_step[order] = np.repeat(order[starts], np.diff(starts, append=len(order)))
    codes = _stream_codes(scores)
    first_of_stream = np.unique(codes, return_index=True)[1][codes]
    same = (first_of_step[order[1:]] == first_of_step[order[:-1]]) & (np.diff(scores.candidate[order]) == 0)
    if same.any():
        row = int(order[int(same.argmax()) + 1])
        key = f"stream {scores.stream[row]!r}, step {scores.step[row]}, candidate {scores.candidate[row]}"
        raise ScoresError(f"found {key} a second time, expected each once", None, row)
    for name, array in scores.columns().items():
        scope = COLUMNS[name].constant_within
        if scope == "row":
            continue
        first = array[first_of_step if scope == "step" else first_of_stream]
        bad = (array != first) & ~((array != array) & (first != first))
        if bad.any():
            row = int(bad.argmax())
            place = f"stream {scores.stream[row]!r}" + (f", step {scores.step[row]}" if scope == "step" else "")
            expected = f"{shown(name, first[row])} as elsewhere in {place}: constant within a {scope}"
            raise ScoresError(f"found {shown(name, array[row])}, expected {expected}", name, row)
