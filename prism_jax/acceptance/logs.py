"""Reads an acceptance log: one row per offer, with the person it was made to and whether it was accepted.

The file is CSV or Parquet with columns of any name; `LogColumns` says which is which.
"""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from absl import logging
from jaxtyping import Bool, Float64, Int32, Int64

from prism_jax.acceptance import log_files
from prism_jax.acceptance.columns import LogColumns, LogError
from prism_jax.acceptance.log_tables import ContextColumn, LogTable, Texts, read_tables
from prism_jax.decision import off_policy
from prism_jax.runtime.shown_text import visible
from prism_jax.runtime.written import look

MOST_TEXTS = 10
"""Most texts of outcomes that a message lists."""


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
    table = _whole(read_tables(path, columns, context, most_bytes=log_files.MOST_BYTES))
    log = log_of(table)
    if not log.logged.any():
        raise LogError(f"{place}, column {columns.logged!r}: found no offer that was made, expected some")
    answers = log.accepted[log.logged]
    check_answers(place, len(np.unique(log.person[log.logged])), len(answers), int(answers.sum()), least_people)
    warn_of_looks(place, [log.names[i] for i in np.argsort(log.numbers)])
    say_texts(place, table.wanted.texts)
    return log.shown() if shown_only else log


def log_of(table: LogTable) -> AcceptanceLog:
    """The rows of a table; says how many are earlier than the row before them, where both are of one person.

    LogError naming the row and column that cannot be read.
    """
    names, person = table.cells(table.columns.person).people()
    logged = table.logged()
    accepted, time = table.accepted(logged), table.time()
    if backwards := int((np.diff(person) == 0)[np.diff(time) < 0].sum()):
        words = "%s: %d rows have an earlier time than the row before them; sorted by time"
        logging.warning(words, table.wanted.place, backwards)
    return AcceptanceLog(
        names=names,
        person=person,
        accepted=accepted,
        time=time,
        timed=table.columns.time is not None,
        logged=logged,
        score=table.score(),
        answered=table.answered(time),
        propensity=table.propensity(logged),
        context=tuple(table.context(name) for name in table.wanted.context),
    )


def _whole(tables: Iterator[LogTable]) -> LogTable:
    """All rows of a file as one table."""
    read: list[LogTable] = []
    for table in tables:
        read.append(table)
        if table.start + len(table) > log_files.MOST_ROWS:
            most = log_files.MOST_ROWS
            raise LogError(f"{table.wanted.place}: found more than {most} rows, expected at most {most}")
    return LogTable(read[0].wanted, pa.concat_tables([table.read for table in read]))


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


def check_answers(place: str, people: int, answers: int, accepted: int, least_people: int = 2) -> None:
    """Raises a LogError for too few people with an answer, or answers of one kind."""
    if people < least_people:
        raise LogError(f"{place}: found answers of {people} people, expected at least {least_people}")
    if accepted in (0, answers):
        what = "accepted" if accepted else "rejected"
        raise LogError(f"{place}: found {answers} answers that all {what} the offer, expected both kinds")


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
