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
from jaxtyping import Bool, Float64, Int32, Int64, Shaped

from prism_jax.evaluation.answers import log_files
from prism_jax.evaluation.answers.columns import LogColumns, LogError, split_condition
from prism_jax.evaluation.answers.log_tables import ContextColumn, LogTable, Texts, read_tables
from prism_jax.runtime.shown_text import visible
from prism_jax.runtime.written import look

_OF_ROWS = ("person", "accepted", "time", "logged", "score", "answered", "propensity", "target")
ONE_PERSON = "Where people are spoken of, {} stand: one person answered."
"""What is said of a log by days or answers."""
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
    # None in the next four if the log has no such column; NaN where a value is missing
    score: Float64[np.ndarray, " rows"] | None = None  # any number
    answered: Float64[np.ndarray, " rows"] | None = None  # seconds
    propensity: Float64[np.ndarray, " rows"] | None = None  # probability with which the offer was made
    target: Float64[np.ndarray, " rows"] | None = None  # the same of a policy to compare; no value is missing
    context: tuple[ContextColumn, ...] = ()
    group: ContextColumn | None = None  # a category, such as the surface of the offer
    left_out: int = 0  # number of offers that were not made and that the log no longer holds
    unit: str = "people"  # what `person` tells apart: of the log of one person days, or answers (`by_days`)
    mentioned: Int64[np.ndarray, " people"] | None = None  # `numbers` of the log that held them; None for this one
    place: str = "log"  # its file, for messages

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

    def take(self, rows: Shaped[np.ndarray, " taken"]) -> AcceptanceLog:
        """Some rows, by their numbers or a mask, with the numbers that people have in all."""
        columns = {name: getattr(self, name) for name in _OF_ROWS}
        context = tuple(dataclasses.replace(column, values=column.values[rows]) for column in self.context)
        taken = {name: column[rows] for name, column in columns.items() if column is not None}
        group = None if self.group is None else dataclasses.replace(self.group, values=self.group.values[rows])
        return dataclasses.replace(self, **taken, context=context, group=group, mentioned=self.numbers)

    def shown(self) -> AcceptanceLog:
        """The offers that were made, without propensities: a log of these offers and of no others."""
        return dataclasses.replace(self.take(self.logged), propensity=None, left_out=self.not_made)

    def by_days(self, *, several: bool = False) -> AcceptanceLog:
        """The log of one person with days (of UTC) in the place of people; each row where none or one is known.

        These rows may be some of a log of `several` days.
        """
        day = np.floor(self.time / 86_400).astype(np.int64)
        if several or (self.timed and len(np.unique(day[self.logged])) > 1):
            known, codes = np.unique(day, return_inverse=True)
            names, unit = tuple(known.astype("datetime64[D]").astype(str).tolist()), "days"
        else:
            names, codes, unit = tuple(f"{row:09d}" for row in range(len(self))), np.arange(len(self)), "answers"
        return dataclasses.replace(self, names=names, person=codes.astype(np.int32), mentioned=None, unit=unit)

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
    shown_only: bool = False,
    one_person: bool = False,
) -> AcceptanceLog:
    """Reads an acceptance log from a .csv or .parquet file.

    CSV is UTF-8 with a header, and commas, semicolons or tabs between columns. Messages count rows of Parquet from 0,
    and of CSV from the header, which is row 1. Rows that are not in the order of time are sorted, with a warning.
    `context` names columns that were known at the moment of the offer: numbers, flags or texts of few kinds.
    `shown_only` leaves out the offers that were not made (`AcceptanceLog.shown`). A log with answers of one person is
    refused, or where `one_person` allows it, by its days (`AcceptanceLog.by_days`).

    Raises:
      LogError: in one line, naming the file and where possible the row and column.
    """
    place = str(path)
    check_roles(columns, shown_only)
    table = _whole(read_tables(path, columns, context, most_bytes=log_files.MOST_BYTES))
    log = log_of(table)
    if not log.logged.any():
        raise LogError(f"{place}, column {columns.logged!r}: found no offer that was made, expected some")
    who, people = log.person[log.logged], len(log.names)
    answers = np.stack([np.bincount(who, minlength=people), np.bincount(who, log.accepted[log.logged], people)], axis=1)
    names = [log.names[i] for i in np.argsort(log.numbers)]
    check_whole(place, columns, answers.astype(np.int64), names, table.wanted.texts, least_people=2 - one_person)
    log = log.shown() if shown_only else log
    return log.by_days() if len(np.unique(who)) == 1 else log


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
        target=table.target(),
        context=tuple(table.context(name) for name in table.wanted.context),
        group=table.group(),
        place=table.wanted.place,
    )


def _whole(tables: Iterator[LogTable]) -> LogTable:
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


def check_all_made(path: str | os.PathLike[str], silent: int, rows: int) -> None:
    """Raises a LogError that names both ways out, for a log without propensities and with `silent` offers not made."""
    if silent:
        raise LogError(
            f"{path}: found {silent} of {rows} offers that were not made and no propensity, expected "
            "propensity=COLUMN: without it, costs would be those of the offers that were made only, which --shown_only "
            "accepts and says in every title"
        )


def check_whole(
    place: str,
    columns: LogColumns,
    answers: Int64[np.ndarray, "people 2"],
    names: Sequence[str],
    texts: Texts,
    least_people: int = 2,
) -> None:
    """Raises a LogError for too few people with an answer, or answers of one kind; else warns of what looks wrong.

    `answers` are the numbers of answers and of those that accepted of each person, in any order. `names` are those of
    the people in the order in which rows first mention them, and `texts` those of outcomes.
    """
    people, (number, accepted) = int((answers[:, 0] > 0).sum()), answers.sum(axis=0).tolist()
    condition = split_condition(columns.accepted, ())
    if texts and not accepted and condition is not None and condition.comparison == "==":
        raise LogError(
            f"{place}, column {condition.column!r}: found no row with the text {condition.constant!r}, "
            "expected the text of accepted offers"
        )
    if people < least_people:
        raise LogError(
            f"{place}: found answers of {people} {'person' if people == 1 else 'people'}, expected at least "
            f"{least_people}; `evaluate`, `promise` and `counterfactual` take one person's, by the days that "
            "time=COLUMN tells"
        )
    if accepted in (0, number):
        what = "accepted" if accepted else "rejected"
        raise LogError(f"{place}: found {number} answers that all {what} the offer, expected both kinds")
    _warn_of_looks(place, names)
    _say_texts(place, texts)


def _warn_of_looks(place: str, names: Sequence[str]) -> None:
    """Says how many names look like another's, of people in the order in which rows first mention them."""
    alike = collections.defaultdict(list)
    for name in names:
        alike[look(name)].append(name)
    if pairs := [several for several in alike.values() if len(several) > 1]:
        logging.warning(
            "%s: %d names of people look like another's, and count as different people, first %s; give each person one "
            "name",
            place,
            sum(map(len, pairs)),
            " and ".join(f"{name!r:.80}" for name in pairs[0][:5]),
        )


def _say_texts(place: str, texts: Texts) -> None:
    """Says which texts count as accepted and which as rejected, where a condition compares texts."""
    for holds, word in ((True, "accepted"), (False, "rejected")):
        kinds = [(text, rows) for (same, text), rows in texts.most_common() if same is holds and rows]
        if kinds:
            shown = ", ".join(f"{visible(text)!r:.40} ({rows:,} rows)" for text, rows in kinds[:MOST_TEXTS])
            logging.warning("%s: counted as %s: %s%s", place, word, shown, ", …" if kinds[MOST_TEXTS:] else "")
