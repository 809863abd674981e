"""Some rows of a log's file as Arrow read them, and each role's column of them as an array."""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float64, Int32

from prism_jax.evaluation.answers.cells import Cells, Kind
from prism_jax.evaluation.answers.columns import Condition, LogColumns, LogError, did_you_mean, split_condition
from prism_jax.evaluation.answers.log_files import first_row, read_log_parts

Texts = collections.Counter[tuple[bool, str]]
CONDITIONAL = ("accepted", "logged", "target")
"""What a condition can say in place of a column."""
MOST_CONTEXT = 200
"""Largest number of context columns."""
MOST_GROUPS = 100
"""Largest number of kinds that a log is divided by."""
FEW_KINDS = 20
"""Number of kinds that a category may have on any number of rows; beyond it, at most half as many as rows."""


@dataclasses.dataclass(frozen=True, repr=False)
class ContextColumn:
    """What was known at the moment of the offer."""

    name: str
    kind: Kind
    # numbers, NaN where missing; of a category places in `levels`, -1 where missing
    values: Float64[np.ndarray, " rows"] | Int32[np.ndarray, " rows"]
    levels: tuple[str, ...] = ()  # the distinct values of a category in sorted order; empty for numbers and flags


def read_tables(
    path: str | os.PathLike[str],
    columns: LogColumns,
    context: Sequence[str] = (),
    kinds: dict[str, set[str]] | None = None,
    texts: Texts | None = None,
    most_bytes: int | None = None,
) -> Iterator[LogTable]:
    """The rows of a file in tables of a bounded number of rows, at least one; `kinds` and `texts` as in `Wanted.of`.

    LogError for a file that cannot be read, one without rows, or one of more than `most_bytes`.
    """
    wanted: Wanted | None = None

    def names(place: str, all_names: tuple[str, ...]) -> Sequence[str]:
        nonlocal wanted
        wanted = Wanted.of(place, all_names, columns, context, kinds, texts)
        return wanted.names

    empty = True
    for start, table in read_log_parts(path, names, most_bytes):
        assert wanted is not None, "the names were asked for first"
        empty = False
        yield LogTable(wanted, table, start)
    if empty:
        raise LogError(f"{path}: found no rows, expected one per offer")


@dataclasses.dataclass(frozen=True)
class Wanted:
    """Which columns of a file are read, and what for."""

    place: str  # of the file, for messages
    columns: LogColumns
    conditions: Mapping[str, Condition]  # what a role of `CONDITIONAL` states, where it is no column
    names: tuple[str, ...]  # of all columns that are read
    context: tuple[str, ...]  # of these, the columns of context
    percent: bool = False  # whether the score is a probability times 100
    kinds: dict[str, set[str]] = dataclasses.field(default_factory=dict)  # of the times that were read, by column
    # rows by whether they count as accepted and by their text, where the condition of `accepted` compares texts
    texts: Texts = dataclasses.field(default_factory=collections.Counter)

    @classmethod
    def of(
        cls,
        place: str,
        names: Sequence[str],
        columns: LogColumns,
        context: Sequence[str] = (),
        kinds: dict[str, set[str]] | None = None,
        texts: Texts | None = None,
    ) -> Wanted:
        """The columns with a role and those of context, of a file with these; LogError for one that is not there.

        `kinds` and `texts` are those of the files before, and are added to. A column may be named by the first line of
        its name, without blanks at the ends, where no other begins so.
        """
        lines = [(name.strip().splitlines() or [""])[0].strip() for name in names]
        of_line = collections.Counter(lines)
        full = {line: name for line, name in zip(lines, names, strict=True) if of_line[line] == 1}
        context = [full.get(name, name) for name in context]
        percent, said = columns.score_unit == "%", columns.roles()
        if percent and full.get(said["score"], said["score"]) not in names:
            said["score"] = columns.score_name or ""
        score_name = columns.score_name or ""
        columns = dataclasses.replace(columns, **{role: full.get(name, name) for role, name in said.items()})
        roles, conditions = columns.roles(), {}
        if columns.target is not None:
            full = {score_name: columns.score or "", **full}  # a condition may name the score without its unit
            columns = dataclasses.replace(columns, target=full.get(columns.target, columns.target))
            roles["target"] = columns.target or ""
        for role in CONDITIONAL:
            condition = split_condition(roles.get(role, ""), names)
            if condition is not None:
                roles[role] = full.get(condition.column, condition.column)
                conditions[role] = dataclasses.replace(condition, column=roles[role])
        target = [roles.pop("target")] if "target" in roles else []
        wanted = {name: role for role, name in roles.items()}
        for name in (*wanted, *target):
            _check_column(place, name, names)
        if columns.target in wanted and "target" not in conditions:
            raise LogError(
                f"--target: found {columns.target!r}, which has a role in --columns, expected a column of its own, or "
                f"a condition such as '{columns.target}>=0.5'"
            )
        if len(context) > MOST_CONTEXT:
            raise LogError(f"context: found {len(context)} columns, expected at most {MOST_CONTEXT}")
        for i, name in enumerate(context):
            _check_column(place, name, names)
            if name in context[:i]:
                raise LogError(f"context: found the column {name!r} twice, expected it once")
            if wanted.get(name) in ("person", "accepted", "answered", "logged", "propensity"):
                raise LogError(f"context: found {name!r}, the column of {wanted[name]}, expected what was known before")
        return cls(
            place,
            columns,
            conditions,
            tuple(sorted({*wanted, *context, *target})),
            tuple(context),
            percent,
            {} if kinds is None else kinds,
            collections.Counter() if texts is None else texts,
        )


class LogTable:
    """Rows of a file, of which the first is number `start`."""

    def __init__(self, wanted: Wanted, read: pa.Table, start: int = 0) -> None:
        self.wanted, self.columns, self.read, self.start = wanted, wanted.columns, read, start

    def __len__(self) -> int:
        return len(self.read)

    def cells(self, name: str) -> Cells:
        """One of the columns."""
        return Cells(self.wanted.place, name, self.read[name], self.start + first_row(self.wanted.place))

    def times(self, cells: Cells) -> Float64[np.ndarray, " rows"]:
        """Seconds; all rows of a column have times of one kind, and all columns a time zone or none."""
        kinds = self.wanted.kinds.setdefault(cells.name, set())
        values = cells.times(kinds, self.columns.time_format)
        if set().union(*self.wanted.kinds.values()) >= {"local", "zoned"}:
            found = "with" if "zoned" in kinds else "without"
            cells.refuse(~np.isnan(values), f"times {found} a time zone", "one on all times of the log or on none")
        return values

    def time(self) -> Float64[np.ndarray, " rows"]:
        """Of the offers; the number of the row in its file where the log has no times."""
        if self.columns.time is None:
            return np.arange(self.start, self.start + len(self.read), dtype=np.float64)
        cells = self.cells(self.columns.time)
        values = self.times(cells)
        _refuse_missing(cells, values, np.ones(len(values), bool), "the time of the offer")
        return values

    def logged(self) -> Bool[np.ndarray, " rows"]:
        """Whether the offer was made."""
        if self.columns.logged is None:
            return np.ones(len(self.read), bool)
        cells, flags = self._flags("logged", self.columns.logged, None)
        _refuse_missing(cells, flags, np.ones(len(flags), bool), "whether the offer was made")
        return flags == 1.0

    def accepted(self, logged: Bool[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"]:
        """1 or 0, and NaN where no offer was made."""
        cells, values = self._flags("accepted", self.columns.accepted, self.wanted.texts)
        hint = (
            f"; logged=COLUMN says which offers were made, such as logged={cells.name}!=null, and --shown_only leaves "
            "out the others; who ignored an offer did not accept it"
        )
        hint = "" if self.columns.logged else hint
        _refuse_missing(cells, values, logged, f"an answer to the offer{hint}")
        if (spare := ~logged & (values == 1.0)).any():
            cells.refuse(
                spare, "an accepted offer that was not made", "no answer there, or the other column for logged"
            )
        return np.where(logged, values, np.nan)

    def _flags(self, role: str, name: str, texts: Texts | None) -> tuple[Cells, Float64[np.ndarray, " rows"]]:
        """The column of a role, or of its condition, and what it says: 1, 0, or NaN where missing."""
        condition = self.wanted.conditions.get(role)
        cells = self.cells(condition.column if condition else name)
        return cells, cells.met(condition, texts) if condition else cells.flags()

    def score(self) -> Float64[np.ndarray, " rows"] | None:
        """Any numbers, or of percentages the probabilities; None of a log without."""
        if self.columns.score is None:
            return None
        cells = self.cells(self.columns.score)
        return cells.percentages() if self.wanted.percent else cells.numbers()

    def answered(self, time: Float64[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"] | None:
        """Seconds, NaN where missing, none before the `time` of the offer; None of a log without."""
        if self.columns.answered is None:
            return None
        if self.columns.time is None:
            raise LogError("columns: found answered without time, expected time=COLUMN beside it")
        cells = self.cells(self.columns.answered)
        values = self.times(cells)
        if (early := values < time).any():
            by = (time - values)[early.argmax()]
            cells.refuse(early, f"an answer {by:.6g} s before its offer", "one after it")
        return values

    def propensity(self, logged: Bool[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"] | None:
        """Probabilities, above 0 where an offer was made; None of a log without."""
        if self.columns.propensity is None:
            return None
        expected = "a probability above 0 and up to 1 for every offer that was made"
        cells = self.cells(self.columns.propensity)
        values = cells.numbers(expected)
        _refuse_missing(cells, values, logged, expected)
        if (certain := ~logged & (values == 1)).any():
            cells.refuse(
                certain,
                "1 where no offer was made",
                "the probability of an offer on silent rows too, 0 where none was possible, and not the probability "
                "of what was done",
            )
        bad = ~np.isnan(values) & ((values < 0) | (values > 1) | (logged & (values == 0)))
        if bad.any():
            cells.refuse(bad, f"{values[bad.argmax()]:.6g}", expected)
        return values

    def target(self) -> Float64[np.ndarray, " rows"] | None:
        """The probability with which a policy to compare makes each offer; None without one.

        A condition does not hold where its value is missing.
        """
        if self.columns.target is None:
            return None
        condition = self.wanted.conditions.get("target")
        if condition is not None:
            return np.nan_to_num(self.cells(condition.column).met(condition))
        expected = "the target's probability of an offer"
        cells = self.cells(self.columns.target)
        values = cells.flags() if cells.kind() == "flag" else cells.numbers(expected)
        _refuse_missing(cells, values, np.ones(len(values), bool), expected)
        if (far := (values < 0) | (values > 1)).any():
            cells.refuse(far, f"{values[far.argmax()]:g}", expected)
        return values

    def context(self, name: str) -> ContextColumn:
        """A column of context, of the kind that its values say."""
        cells = self.cells(name)
        kind = cells.kind()
        if kind == "category":
            levels, codes = cells.categories()
            rows = int((codes >= 0).sum())
            if len(levels) > (most := max(FEW_KINDS, rows // 2)):
                raise LogError(
                    f"{self.wanted.place}, column {name!r}: found texts of {len(levels)} kinds on {rows} rows, "
                    f"expected at most {most}: free text is no context"
                )
            return ContextColumn(name, kind, codes, levels)
        return ContextColumn(name, kind, cells.flags() if kind == "flag" else cells.numbers())

    def group(self) -> ContextColumn | None:
        """The kind of each offer, of few kinds; None of a log without."""
        if self.columns.group is None:
            return None
        levels, codes = self.cells(self.columns.group).categories()
        check_groups(self.wanted.place, self.columns.group, len(levels))
        return ContextColumn(self.columns.group, "category", codes, levels)


def check_groups(place: str, column: str, kinds: int) -> None:
    """Raises a LogError for a group of too many kinds."""
    if kinds > MOST_GROUPS:
        raise LogError(f"{place}, column {column!r}: found {kinds} kinds, expected at most {MOST_GROUPS} for group")


def _refuse_missing(
    cells: Cells, values: Float64[np.ndarray, " rows"], where: Bool[np.ndarray, " rows"], expected: str
) -> None:
    missing = np.isnan(values) & where
    if missing.any():
        cells.refuse(missing, "nothing", expected)


def _check_column(place: str, name: str, names: Sequence[str]) -> None:
    if names.count(name) > 1:
        raise LogError(f"{place}: found {names.count(name)} columns called {name!r}, expected one")
    if name not in names:
        shown = ", ".join(f"{' '.join(column.split()):.40}" for column in names[:30]) + (
            ", …" if len(names) > 30 else ""
        )
        column, _, constant = name.partition("=")
        near = f" (did you mean '{column}=={constant}'?)" if column in names else did_you_mean(name, names)
        raise LogError(f"{place}: found no column {name!r}{near}, expected one of {shown}")
