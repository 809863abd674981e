"""Reads an acceptance log: one row per offer, with the person it was made to and whether it was accepted.

The file is CSV or Parquet with columns of any name; `LogColumns` says which is which.
"""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from absl import logging
from jaxtyping import Bool, Float64, Int32, Int64

from prism_jax.acceptance.cells import Cells, Kind
from prism_jax.acceptance.columns import Condition, LogColumns, LogError, did_you_mean, split_condition
from prism_jax.acceptance.log_files import open_log_file
from prism_jax.decision import off_policy
from prism_jax.runtime.shown_text import visible
from prism_jax.runtime.written import look

Texts = collections.Counter[tuple[bool, str]]
MOST_TEXTS = 10
"""Most texts of outcomes that a message lists."""
MOST_CONTEXT = 200
"""Largest number of context columns."""
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


@dataclasses.dataclass(frozen=True, repr=False)
class AcceptanceLog:
    """Offers and their answers, in the order of the file. Names of people do not appear in its representation."""

    names: tuple[str, ...]  # names of the people in sorted order
    person: Int32[np.ndarray, " rows"]  # place of each row's person in `names`
    accepted: Float64[np.ndarray, " rows"]  # 1 or 0; NaN only where no offer was made
    time: Float64[np.ndarray, " rows"]  # seconds; the row's number where the log has no times
    timed: bool  # whether `time` are seconds
    logged: Bool[np.ndarray, " rows"]  # whether the offer was made; all true where the log does not say
    # None in the next three if the log has no such column; NaN where a value is missing
    score: Float64[np.ndarray, " rows"] | None = None  # any number
    answered: Float64[np.ndarray, " rows"] | None = None  # seconds
    propensity: Float64[np.ndarray, " rows"] | None = None  # probability with which the offer was made
    context: tuple[ContextColumn, ...] = ()
    left_out: int = 0  # number of offers that were not made and that the log no longer holds
    mentioned: Int64[np.ndarray, " people"] | None = None  # `numbers` of the log that held them; None for this one

    def __len__(self) -> int:
        return len(self.person)

    def __repr__(self) -> str:
        return f"AcceptanceLog({len(self)} rows, {len(self.names)} people)"

    @property
    def order(self) -> Int64[np.ndarray, " rows"]:
        """Rows sorted by person and time; rows of equal time keep the order of the file."""
        return np.lexsort((self.time, self.person))

    @property
    def score_is_probability(self) -> bool:
        """Whether there is a score and every value of it lies between 0 and 1."""
        return self.score is not None and not bool(((self.score < 0) | (self.score > 1)).any())

    def shown(self) -> AcceptanceLog:
        """The offers that were made, without propensities: a log of these offers and of no others."""
        made = self.logged
        return dataclasses.replace(
            self,
            person=self.person[made],
            accepted=self.accepted[made],
            time=self.time[made],
            logged=made[made],
            score=None if self.score is None else self.score[made],
            answered=None if self.answered is None else self.answered[made],
            propensity=None,
            context=tuple(dataclasses.replace(column, values=column.values[made]) for column in self.context),
            left_out=self.left_out + int((~made).sum()),
            mentioned=self.numbers,
        )

    @property
    def not_made(self) -> int:
        """Number of offers in the file that were not made."""
        return self.left_out + int((~self.logged).sum())

    @property
    def numbers(self) -> Int64[np.ndarray, " people"]:
        """The number of each person, from 1, in the order in which the rows of the file first mention them."""
        if self.mentioned is not None:
            return self.mentioned
        first = np.full(len(self.names), len(self))
        np.minimum.at(first, self.person, np.arange(len(self)))
        return np.argsort(np.argsort(first, kind="stable"), kind="stable") + 1


def read_log(
    path: str | os.PathLike[str],
    columns: LogColumns,
    context: Sequence[str] = (),
    *,
    least_people: int = 2,
    shown_only: bool = False,
) -> AcceptanceLog:
    """Reads an acceptance log from a .csv or .parquet file.

    CSV is UTF-8 with commas and a header. Rows are counted from 0, below the header. Rows that are not in the order of
    time are sorted, with a warning. `context` names columns that were known at the moment of the offer: numbers, flags
    or texts of few kinds. `least_people` is the smallest number that the caller can use, and `shown_only` leaves out
    the offers that were not made (`AcceptanceLog.shown`).

    Raises:
      LogError: in one line, naming the file and where possible the row and column.
    """
    place = str(path)
    check_roles(columns, shown_only)
    file = open_log_file(path)
    wanted = Wanted.of(place, file.names, columns, context)
    table = LogTable(wanted, file.read(wanted.names))
    if not len(table):
        raise LogError(f"{place}: found no rows, expected one per offer")
    names, person = table.cells(table.columns.person).people()
    logged = table.logged()
    if not logged.any():
        raise LogError(f"{place}, column {columns.logged!r}: found no offer that was made, expected some")
    accepted = table.accepted(logged)
    time = table.time()
    log = AcceptanceLog(
        names=names,
        person=person,
        accepted=accepted,
        time=time,
        timed=columns.time is not None,
        logged=logged,
        score=table.score(),
        answered=table.answered(time),
        propensity=table.propensity(logged),
        context=tuple(table.context(name) for name in wanted.context),
    )
    _check_usable(place, log, least_people)
    warn_of_order(place, person, time)
    warn_of_looks(place, [names[i] for i in np.argsort(log.numbers)])
    say_texts(place, wanted.texts)
    return log.shown() if shown_only else log


def check_roles(columns: LogColumns, shown_only: bool) -> None:
    """Raises a LogError where offers that were not made are to be left out, and no column says which."""
    if shown_only and columns.logged is None:
        raise LogError(
            "--shown_only: found no role logged in --columns, expected logged=COLUMN: which offers were made"
        )


def check_propensities(path: str | os.PathLike[str], log: AcceptanceLog) -> None:
    """Raises a LogError that names both ways out, for a log with offers that were not made and without propensities."""
    if log.propensity is None:
        check_all_made(path, int((~log.logged).sum()), len(log))


def check_all_made(path: str | os.PathLike[str], silent: int, rows: int) -> None:
    """Raises the same error for a log without propensities, of which `silent` offers were not made."""
    if silent:
        raise LogError(
            f"{path}: found {silent} of {rows} offers that were not made and no propensity, expected "
            "propensity=COLUMN: without it, costs would be those of the offers that were made only, which --shown_only "
            "accepts and says in every title"
        )


def doubted(found: list[off_policy.Drawn]) -> bool:
    """Whether offers were not quite drawn with the propensities; raises a LogError where these are clearly wrong."""
    if (reason := off_policy.doubt(found, off_policy.MOST_OFF)) is not None:
        raise LogError(f"{reason}; --shown_only, without propensity=COLUMN, uses none")
    return off_policy.doubt(found) is not None


def _check_usable(place: str, log: AcceptanceLog, least_people: int) -> None:
    """Raises a LogError for a log from which nothing can be learned."""
    answers = log.accepted[log.logged]
    check_answers(place, len(np.unique(log.person[log.logged])), len(answers), int(answers.sum()), least_people)


def check_answers(place: str, people: int, answers: int, accepted: int, least_people: int = 2) -> None:
    """Raises a LogError for too few people with an answer, or answers of one kind."""
    if people < least_people:
        raise LogError(f"{place}: found answers of {people} people, expected at least {least_people}")
    if accepted in (0, answers):
        what = "accepted" if accepted else "rejected"
        raise LogError(f"{place}: found {answers} answers that all {what} the offer, expected both kinds")


def warn_of_order(place: str, person: Int32[np.ndarray, " rows"], time: Float64[np.ndarray, " rows"]) -> None:
    """Says how many rows are earlier than the row before them, where both are of one person."""
    if backwards := int((np.diff(person) == 0)[np.diff(time) < 0].sum()):
        logging.warning("%s: %d rows have an earlier time than the row before them; sorted by time", place, backwards)


def warn_of_looks(place: str, names: Sequence[str]) -> None:
    """Says how many names look like another's, of people in the order in which rows first mention them."""
    alike = collections.defaultdict(list)
    for number, name in enumerate(names, start=1):
        alike[look(name)].append(number)
    if pairs := [numbers for numbers in alike.values() if len(numbers) > 1]:
        logging.warning(
            "%s: %d names of people look like another's, and count as different people; the first are those of the "
            "people whom rows mention as %s; give each person one name",
            place,
            sum(map(len, pairs)),
            " and ".join(f"number {number}" for number in pairs[0][:5]),
        )


def say_texts(place: str, texts: Texts) -> None:
    """Says which texts count as accepted and which as rejected, where a condition compares texts."""
    for holds, word in ((True, "accepted"), (False, "rejected")):
        kinds = [(text, rows) for (same, text), rows in texts.most_common() if same is holds and rows]
        if kinds:
            shown = ", ".join(f"{visible(text)!r:.40} ({rows:,} rows)" for text, rows in kinds[:MOST_TEXTS])
            logging.warning("%s: counted as %s: %s%s", place, word, shown, ", …" if kinds[MOST_TEXTS:] else "")


@dataclasses.dataclass(frozen=True)
class Wanted:
    """Which columns of a file are read, and what for."""

    place: str  # of the file, for messages
    columns: LogColumns
    condition: Condition | None  # what `accepted` states, where it is no column
    names: tuple[str, ...]  # of all columns that are read
    context: tuple[str, ...]  # of these, the columns of context
    kinds: dict[str, set[str]] = dataclasses.field(default_factory=dict)  # of the times that were read, by column
    # rows by whether they count as accepted and by their text, where `condition` compares texts
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
        named = dataclasses.asdict(columns)
        columns = LogColumns(**{role: full.get(name, name) for role, name in named.items()})
        condition = split_condition(columns.accepted, names)
        if condition is not None:
            condition = dataclasses.replace(condition, column=full.get(condition.column, condition.column))
        accepted = condition.column if condition else columns.accepted
        roles = dataclasses.asdict(columns) | {"accepted": accepted}
        wanted = {name: role for role, name in roles.items() if name is not None}
        for name in wanted:
            _check_column(place, name, names)
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
            condition,
            tuple(sorted({*wanted, *context})),
            tuple(context),
            {} if kinds is None else kinds,
            collections.Counter() if texts is None else texts,
        )


class LogTable:
    """Rows of a file, of which the first is number `start`; `whole` says whether these are all rows."""

    def __init__(self, wanted: Wanted, read: pa.Table, start: int = 0, whole: bool = True) -> None:
        self.wanted, self.columns, self._read, self.start, self.whole = wanted, wanted.columns, read, start, whole

    def __len__(self) -> int:
        return len(self._read)

    def cells(self, name: str) -> Cells:
        """One of the columns."""
        return Cells(self.wanted.place, name, self._read[name], self.start, self.whole)

    def times(self, cells: Cells) -> Float64[np.ndarray, " rows"]:
        """Seconds; all rows of a column have times of one kind."""
        return cells.times(self.wanted.kinds.setdefault(cells.name, set()))

    def time(self) -> Float64[np.ndarray, " rows"]:
        """Of the offers; the number of the row in its file where the log has no times."""
        if self.columns.time is None:
            return np.arange(self.start, self.start + len(self._read), dtype=np.float64)
        cells = self.cells(self.columns.time)
        values = self.times(cells)
        _refuse_missing(cells, values, np.ones(len(values), bool), "the time of the offer")
        return values

    def logged(self) -> Bool[np.ndarray, " rows"]:
        """Whether the offer was made."""
        if self.columns.logged is None:
            return np.ones(len(self._read), bool)
        cells = self.cells(self.columns.logged)
        flags = cells.flags()
        _refuse_missing(cells, flags, np.ones(len(flags), bool), "whether the offer was made")
        return flags == 1.0

    def accepted(self, logged: Bool[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"]:
        """1 or 0, and NaN where no offer was made."""
        condition = self.wanted.condition
        cells = self.cells(condition.column if condition else self.columns.accepted)
        values = cells.met(condition, self.wanted.texts) if condition else cells.flags()
        hint = "; logged=COLUMN says which offers were made, and --shown_only leaves out the others"
        hint = "" if self.columns.logged else hint
        _refuse_missing(cells, values, logged, f"an answer to the offer{hint}")
        if (spare := ~logged & (values == 1.0)).any():
            row = int(spare.argmax())
            cells.refuse(row, "an accepted offer that was not made", "no answer there, or the other column for logged")
        return np.where(logged, values, np.nan)

    def score(self) -> Float64[np.ndarray, " rows"] | None:
        """Any numbers; None of a log without."""
        return self.cells(self.columns.score).numbers() if self.columns.score else None

    def answered(self, time: Float64[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"] | None:
        """Seconds, NaN where missing, none before the `time` of the offer; None of a log without."""
        if self.columns.answered is None:
            return None
        if self.columns.time is None:
            raise LogError("columns: found answered without time, expected time=COLUMN beside it")
        cells = self.cells(self.columns.answered)
        values = self.times(cells)
        if (values < time).any():
            row = int((values < time).argmax())
            cells.refuse(row, f"an answer {time[row] - values[row]:.6g} s before its offer", "one after it")
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
                int(certain.argmax()),
                "1 where no offer was made",
                "the probability of an offer on silent rows too, 0 where none was possible, and not the probability "
                "of what was done",
            )
        bad = ~np.isnan(values) & ((values < 0) | (values > 1) | (logged & (values == 0)))
        if bad.any():
            row = int(bad.argmax())
            cells.refuse(row, f"{values[row]:.6g}", expected)
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


def _refuse_missing(
    cells: Cells, values: Float64[np.ndarray, " rows"], where: Bool[np.ndarray, " rows"], expected: str
) -> None:
    missing = np.isnan(values) & where
    if missing.any():
        cells.refuse(int(missing.argmax()), "nothing", expected)


def _check_column(place: str, name: str, names: Sequence[str]) -> None:
    if names.count(name) > 1:
        raise LogError(f"{place}: found {names.count(name)} columns called {name!r}, expected one")
    if name not in names:
        shown = ", ".join(f"{' '.join(column.split()):.40}" for column in names[:30]) + (
            ", …" if len(names) > 30 else ""
        )
        commas = "; a .csv has commas between its columns" if len(names) == 1 and {";", "\t"} & set(names[0]) else ""
        raise LogError(f"{place}: found no column {name!r}{did_you_mean(name, names)}, expected one of {shown}{commas}")
