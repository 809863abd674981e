"""What the columns of a table hold, and which roles of a log they seem to have: for who has not named them yet."""

from __future__ import annotations

import csv
import io
import math
import re
import shlex
from collections.abc import Collection, Sequence
from typing import NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from prism_jax.evaluation.answers.cells import WORDS, Cells, is_number, may_be_days
from prism_jax.evaluation.answers.columns import LogColumns, LogError
from prism_jax.evaluation.answers.log_files import read_log_parts
from prism_jax.evaluation.answers.log_tables import LogTable, Wanted
from prism_jax.evaluation.answers.written_times import COUNTS, ORDERS
from prism_jax.report.table import Column, Row, Section, Table, print_all
from prism_jax.runtime.shown_text import visible
from prism_jax.scores.texts import is_moment

_ROWS = 10_000
"""Rows, the first of a file, that are looked at."""
_SHOWN = 3
"""Values that are shown of a column."""
_FEW = 20
"""Most different values of a column that could say what became of an offer."""
_SAID = {
    "time": "time timestamp at when date datetime ts",
    "person": "person user who customer participant subject member account email employee client uid userid",
    "propensity": "propensity e",
    "score": "score confidence probability prob p conf likelihood",
    "logged": "shown logged made displayed offered sent visible",
    "accepted": "accepted accept taken took clicked used outcome response answer result reaction action rating",
}
"""Words in the names of columns that have a role, in the order in which roles are guessed."""
_PERCENT = frozenset(["confidence", "conf", "probability", "prob", "likelihood", "percent", "percentage", "pct"])
"""Words in the names of scores from 0 to 100 that are probabilities times 100."""
_AMBIGUOUS = "time, day/month or month/day"
"""The kind of a column with dates such as 3/4/2026 alone."""
_END = "\r\n"
"""What the writer of CSV puts after a row."""
_YES = {
    "logged": "shown logged made displayed offered sent visible ja oui si sí",
    "accepted": "accepted accept taken took clicked used applied approved kept liked ja oui si sí",
}
"""Texts that say that an offer was made, and that it was accepted."""


class _Looked(NamedTuple):
    """A column of some rows."""

    cells: Cells
    kind: str
    levels: tuple[str, ...]  # distinct values as texts, in the order of the file

    @classmethod
    def of(cls, cells: Cells) -> _Looked:
        """What the cells hold."""
        if not (cells.is_text or cells.is_number or cells.is_flag):
            nested = pa.types.is_nested(cells.values.type)  # Arrow knows no distinct values of these
            values = cells.values.slice(0, _SHOWN) if nested else cells.values.unique()
            levels = tuple(map(str, values.drop_null().to_pylist()))
            return cls(cells, "time" if is_moment(cells.values.type) else str(cells.values.type), levels)
        names, codes = cells.categories()
        levels = tuple(names[code] for code in dict.fromkeys(codes.tolist()) if code >= 0)
        if levels and all(level.lower() in WORDS for level in levels):
            return cls(cells, "true or false", levels)
        if all(map(is_number, levels)):
            return cls(cells, "number" if levels else "nothing", levels)
        if all(is_number(level.removesuffix("%")) for level in levels):
            return cls(cells, "percentage", levels)
        for time_format in (None, ORDERS[0]):
            try:
                cells.times(time_format=time_format)
            except LogError:
                continue
            return cls(cells, "time" if time_format is None else _AMBIGUOUS, levels)
        return cls(cells, "text", levels)

    @property
    def formats(self) -> Sequence[str]:
        """What --time_format could say of the column as a time; nothing where it need not."""
        if self.kind == "number":
            return COUNTS if may_be_days(self.cells.numbers()) else ()
        return ORDERS if self.kind == _AMBIGUOUS else ()

    @property
    def words(self) -> list[str]:
        """Those of the column's name."""
        return re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", self.cells.name).lower())

    def said(self, role: str) -> str | None:
        """What a role says of the column, its name or a condition; None where the role would refuse it."""
        name = self.cells.name
        if role == "time":
            time_format = next(iter(self.formats), None)
            timed = self.kind in ("time", "number", _AMBIGUOUS)
            return name if timed and _mostly(~np.isnan(self.cells.times(None, time_format))) else None
        if role == "person":
            cells = Cells(self.cells.place, name, self.cells.values.drop_null())
            often = len(cells.people()[0]) < len(cells.values)
            return name if often and _mostly(self.cells.values.is_valid().to_numpy()) else None
        if role in ("score", "propensity") and self.kind == "number":
            values = self.cells.numbers()
            values = values[~np.isnan(values)]
            if (values >= 0).all() and (values <= 1).all():
                return name
            percent = (values >= 0).all() and (values <= 100).all() and not _PERCENT.isdisjoint(self.words)
            return (f"{name}%" if percent else name) if role == "score" else None
        if role in ("score", "propensity"):
            return f"{name}%" if role == "score" and self.kind == "percentage" else None
        if role == "logged" and self.cells.values.null_count:
            return None
        if self.kind == "true or false":
            return name
        if len(self.levels) > _FEW:
            return None
        if self.kind == "number" and role == "accepted":
            values = self.cells.numbers()
            least, most = float(np.nanmin(values)), float(np.nanmax(values))
            return f"{name}>={min(math.ceil((least + most + 1) / 2), most)}"
        yes = [level for level in self.levels if level.casefold() in _YES[role].split()]
        return f"{name}=={yes[0]}" if yes and len(self.levels) > 1 else None


def _mostly(known: np.ndarray) -> bool:
    """Whether so few cells are empty that reading the log should name the first, not leave the column out."""
    return bool(known.any() and known.mean() > 0.9)


def refuse_log(path: str, pattern: str, more: Sequence[str]) -> NoReturn:
    """Prints the columns of a log, and raises a LogError that says how to name their roles.

    The command that the error says has the `pattern` that named the log, and `more` arguments.
    """
    table, roles = look(path)
    print_all([table])
    words = ["python", "-m", "prism_jax", "evaluate", f"--scores={pattern}", *roles, *more]
    unknown = "; COLUMN is the one of who was asked, or of what they answered, such as outcome==taken"
    if "logged=COLUMN" in roles[0]:
        unknown += ", or of which offers were made: some have no answer, and logged=ANSWER!=null leaves these out"
    either = "; FORMAT is day/month or month/day, of numbers seconds or days" if "--time_format=FORMAT" in roles else ""
    if any("need" in row.name.lower() for row in table.sections[0].rows):
        either += (
            "; a table of moments with probabilities of need and of acceptance is a scores file, whose columns are "
            "stream, step, p_need_fast, p_accept_fast, y_need, y_accept (docs/scores.md)"
        )
    raise LogError(
        f"{path}: found a log of answers without --columns, expected the roles of its columns, such as "
        f"{shlex.join(words)}{unknown if '=COLUMN' in roles[0] else ''}{either}"
    )


def look(path: str) -> tuple[Table, list[str]]:
    """The columns of a .csv or .parquet file, and the arguments of `evaluate` that name their likely roles.

    Roles are guessed from the names of columns and the first rows. Where the column of a role that a log needs is not
    found, it is COLUMN; a log needs logged where an offer has no answer.

    Raises:
      LogError: for a file that cannot be read.
    """
    read = next(read_log_parts(path, lambda _, names: names), None)
    if read is None:
        raise LogError(f"{path}: found no rows, expected one per offer")
    rows = read[1].slice(0, _ROWS)
    names = rows.column_names
    columns = [_Looked.of(Cells(path, name, cells)) for name, cells in zip(names, rows.columns, strict=True)]
    roles = _agreeing(path, rows, _roles([column for column in columns if names.count(column.cells.name) == 1]))
    of_column = {column: f"{role}={said}" for role, (column, said) in roles.items()}
    shown = tuple(
        Row(
            visible(column.cells.name),
            (
                column.kind,
                ", ".join(f"{visible(' '.join(level.split())):.20}" for level in column.levels[:_SHOWN]),
                of_column.get(column.cells.name, ""),
            ),
        )
        for column in columns
    )
    headings = (Column("holds", text=True), Column("values", text=True), Column("role", text=True))
    title = f"The columns of {path}, by its first {len(rows):,} rows"
    said = {"person": "COLUMN", "accepted": "COLUMN"} | {role: said for role, (_, said) in roles.items()}
    items = io.StringIO()
    csv.writer(items).writerow(f"{role}={text}" for role, text in said.items())  # its line's end has it quote others
    more = ["--shown_only"] if "logged" in said and "propensity" not in said else []
    if any(of_column.get(column.cells.name) == f"time={column.cells.name}" and column.formats for column in columns):
        more.append("--time_format=FORMAT")
    return Table(title, "column", headings, (Section("", shown),)), [
        f"--columns={items.getvalue().removesuffix(_END)}",
        *more,
    ]


def _roles(columns: Sequence[_Looked]) -> dict[str, tuple[str, str]]:
    """The column of each role that one seems to have, and what the role says of it."""
    roles: dict[str, tuple[str, str]] = {}
    for role in _SAID:
        taken = {name for name, _ in roles.values()}
        for column in sorted(columns, key=lambda column: len(column.words)):  # `time` before `time_since_issued`
            if column.cells.name in taken or set(column.words).isdisjoint(_SAID[role].split()):
                continue
            try:
                said = column.said(role)
            except LogError:
                continue
            if said is not None:
                roles[role] = column.cells.name, said
                break
    return roles | _by_content([column for column in columns if column.cells.name not in dict(roles.values())], roles)


def _by_content(columns: Sequence[_Looked], known: Collection[str]) -> dict[str, tuple[str, str]]:
    """The roles of columns whose names say none, beside those that are known: the only time, percentage, yes or no.

    Of two that say yes or no, the one without an answer at some offers is about the answer.
    """
    of_two = [one for one in columns if len(one.levels) == 2 and one.kind in ("true or false", "text")]
    partly = [one for one in of_two if one.cells.values.null_count]
    guesses = {
        "time": [one for one in columns if one.kind in ("time", _AMBIGUOUS)],
        "score": [one for one in columns if one.kind == "percentage"],
        "accepted": partly or of_two,
        "logged": [one for one in of_two if partly and one not in partly and "accepted" not in known],
    }
    said = {role: [(one.cells.name, one.said(role)) for one in few] for role, few in guesses.items()}
    found = {role: [(name, text) for name, text in few if text is not None] for role, few in said.items()}
    return {role: few[0] for role, few in found.items() if len(few) == 1 and role not in known}


def _agreeing(path: str, rows: pa.Table, roles: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """The roles without those that a log would refuse beside the others; logged is COLUMN where answers are missing."""
    if "person" not in roles or "accepted" not in roles:
        return roles
    columns = LogColumns(**{role: said for role, (_, said) in roles.items()})  # no time is read
    table = LogTable(Wanted.of(path, rows.column_names, columns), rows)
    logged = table.logged()
    try:
        table.accepted(logged)
    except LogError:
        if "logged" not in roles:
            return roles | {"logged": ("", "COLUMN")}
        return _agreeing(path, rows, {role: column for role, column in roles.items() if role != "logged"})
    try:
        table.propensity(logged)
    except LogError:
        return {role: column for role, column in roles.items() if role != "propensity"}
    return roles
