"""A log of any size as parts of whole people: what the person layer needs, since it goes from answer to answer.

A log in memory is one part. Files of more rows are read once, chunk by chunk, and the offers that were made are written
to temporary files by person. A part is such a file, with about `PART_ROWS` rows in order of person and time, or more
where it has a person with more.
"""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import logging
from jaxtyping import Float64, Int, Int64

from prism_jax.decision import off_policy
from prism_jax.decision.propensity import propensity_weight
from prism_jax.decision.score_maps import Scale
from prism_jax.evaluation.answers.columns import LogColumns, LogError
from prism_jax.evaluation.answers.context import folds_of_people
from prism_jax.evaluation.answers.log_tables import ContextColumn, Texts, check_groups, read_tables
from prism_jax.evaluation.answers.logs import (
    AcceptanceLog,
    check_all_made,
    check_roles,
    check_whole,
    log_of,
)

FOLDS = 10
"""Most folds of people; there is one per person where there are fewer."""
PART_ROWS = 1 << 18
"""About how many rows a part has; all of them are in memory at once."""
_MOST_SAMPLED = 1 << 18
"""Scores from which their scale is taken."""
_FIELDS = ("person", "time", "accepted", "score", "answered", "propensity", "group")


class Answers(NamedTuple):
    """Answered offers of some people, by person and time."""

    person: Int64[np.ndarray, " rows"]  # place of the person among all who answered, by name
    fold: Int64[np.ndarray, " rows"]  # of the person
    time: Float64[np.ndarray, " rows"]  # seconds; the row's number where the log has no times
    accepted: Float64[np.ndarray, " rows"]  # 1 or 0
    # None in the next three if the log has no such column; NaN where a value is missing
    score: Float64[np.ndarray, " rows"] | None
    answered: Float64[np.ndarray, " rows"] | None  # seconds
    propensity: Float64[np.ndarray, " rows"] | None
    context: tuple[ContextColumn, ...] = ()  # what was known at the moment of the offer, of a log in memory
    truth: Float64[np.ndarray, " rows"] | None = None  # the true probability, where a log in memory is simulated
    group: Int64[np.ndarray, " rows"] | None = None  # the kind of each offer, its place in `Divided.groups`, or -1

    @property
    def scores(self) -> Float64[np.ndarray, " rows"]:
        """The scores; all NaN of a log without."""
        return np.full(len(self.person), np.nan) if self.score is None else self.score

    @property
    def inverse(self) -> Float64[np.ndarray, " rows"]:
        """Clipped inverse propensities; 1 of a log without."""
        ones = np.ones(len(self.person))
        return ones if self.propensity is None else np.asarray(propensity_weight(ones, self.propensity), np.float64)


class PeoplePart(NamedTuple):
    """A file of whole people."""

    path: str
    rows: int
    columns: tuple[str, ...]  # fields of `Answers`, one number of 8 bytes each in every row


class Contents(NamedTuple):
    """What some rows of a log hold together."""

    rows: int = 0
    not_made: int = 0  # offers that were not made
    low: float = np.inf  # smallest score of all rows
    high: float = -np.inf  # largest
    sample: Float64[np.ndarray, " sampled"] = np.zeros(0)  # one in `every` scores
    every: int = 1
    edges: Float64[np.ndarray, " edges"] | None = None  # of the fifths of the score, by the first rows
    totals: Float64[np.ndarray, "groups 7"] = np.zeros((6, 7))  # `off_policy.drawn_sums`
    units: Float64[np.ndarray, "people groups 3"] = np.zeros((0, 6, 3))
    answers: Int64[np.ndarray, "people 2"] = np.zeros((0, 2), np.int64)  # of each person, and those that accepted

    def with_rows(self, log: AcceptanceLog, person: Int[np.ndarray, " rows"], people: int) -> Contents:
        """With some more rows, of people of these numbers below `people`."""
        known = np.zeros(0) if log.score is None else log.score[~np.isnan(log.score)]
        sample, every = np.concatenate([self.sample, known[:: self.every]]), self.every
        while len(sample) > _MOST_SAMPLED:
            sample, every = sample[::2], 2 * every
        who, accepted = person[log.logged], log.accepted[log.logged]
        answers = np.stack([np.bincount(who, minlength=people), np.bincount(who, accepted, people)], axis=1)
        more = self._replace(
            rows=self.rows + len(log) + log.left_out,
            not_made=self.not_made + log.not_made,
            low=min(self.low, float(known.min(initial=np.inf))),
            high=max(self.high, float(known.max(initial=-np.inf))),
            sample=sample,
            every=every,
            answers=_added(answers.astype(np.int64), self.answers),
        )
        if log.propensity is None:
            return more
        score = np.zeros(len(log)) if log.score is None else log.score
        edges = off_policy.edges_of(score) if self.edges is None else self.edges
        totals, units = off_policy.drawn_sums(log.logged, log.propensity, score, edges, person, people)
        return more._replace(edges=edges, totals=self.totals + totals, units=_added(units, self.units))

    @property
    def scale(self) -> Scale:
        """Where most of the scores lie, which a few that are far away do not change; none of probabilities."""
        if self.low >= 0 and self.high <= 1:
            return Scale()
        low, first, middle, third, high = np.quantile(self.sample, (0.01, 0.25, 0.5, 0.75, 0.99))
        width = (third - first) / 1.349 or (high - low) / 4.653 or self.sample.std() or 1.0
        return Scale(float(middle), float(width))

    def doubted(self) -> bool:
        """Whether offers were not quite drawn with the propensities; LogError where these are clearly wrong."""
        found = off_policy.drawn(self.totals, self.units, len(self.units))
        if (reason := off_policy.doubt(found, off_policy.MOST_OFF)) is not None:
            raise LogError(f"{reason}; --shown_only, without propensity=COLUMN, uses none")
        return off_policy.doubt(found) is not None


def _added(more: np.ndarray, before: np.ndarray) -> np.ndarray:
    """The sums of people, of whom some are new."""
    more[: len(before)] += before
    return more


@dataclasses.dataclass(frozen=True)
class Divided:
    """A log in parts."""

    parts: Sequence[PeoplePart | Answers]
    contents: Contents
    numbers: Int64[np.ndarray, " people"]  # of those who answered, by name: the order in which the log mentions them
    folds: int
    timed: bool  # whether the log says when offers were made
    left_out: dict[str, str]  # files that cannot be read, with the reason
    doubted: bool = False  # whether offers were not quite drawn with the propensities
    unit: str = "people"  # what stands in their place (`AcceptanceLog.unit`)
    groups: Sequence[str] | None = None  # the kinds of offers; None where no column has the role
    place: str = "log"  # its file or files, for messages

    @property
    def scored(self) -> bool:
        """Whether the log has scores."""
        first = self.parts[0]
        return "score" in first.columns if isinstance(first, PeoplePart) else first.score is not None

    @classmethod
    def of_log(
        cls,
        log: AcceptanceLog,
        *,
        weighted: bool = False,
        seed: int = 0,
        truth: Float64[np.ndarray, " rows"] | None = None,
    ) -> Divided:
        """A log in memory, as one part; `truth` is that of each row of the log.

        LogError for a weighted study of a log without propensities, or where offers contradict these.
        """
        if weighted and log.propensity is None:
            raise _no_propensity()
        answered = log.take(answered_rows(log))
        code, person = np.unique(answered.person, return_inverse=True)
        fold = folds_of_people(person, FOLDS, seed)
        answers = Answers(
            person,
            fold,
            answered.time,
            answered.accepted,
            answered.score,
            answered.answered,
            answered.propensity,
            answered.context,
            None if truth is None else truth[answered_rows(log)],
            None if answered.group is None else answered.group.values.astype(np.int64),
        )
        contents = Contents().with_rows(log, log.person, len(log.names))
        folds, doubted = int(fold.max()) + 1, contents.doubted()
        groups = None if log.group is None else log.group.levels
        numbers = log.numbers[code]
        return cls([answers], contents, numbers, folds, log.timed, {}, doubted, log.unit, groups, log.place)


def answered_rows(log: AcceptanceLog) -> Int64[np.ndarray, " answers"]:
    """Rows of the offers that were made, by person and time."""
    return log.order[log.logged[log.order]]


def _no_propensity() -> LogError:
    return LogError("columns: found no propensity, expected propensity=COLUMN: weights are its inverse")


def read_people(part: PeoplePart) -> Iterator[Answers]:
    """The rows of a part that is a file."""
    table = np.fromfile(part.path).reshape(-1, len(part.columns))
    columns = {name: table[:, i].copy() for i, name in enumerate(part.columns)}
    yield Answers(
        person=columns["person"].astype(np.int64),
        fold=columns["fold"].astype(np.int64),
        time=columns["time"],
        accepted=columns["accepted"],
        score=columns.get("score"),
        answered=columns.get("answered"),
        propensity=columns.get("propensity"),
        group=columns["group"].astype(np.int64) if "group" in columns else None,
    )


def divide(
    place: str,
    paths: Sequence[str],
    columns: LogColumns,
    folder: Path,
    *,
    number: int,
    shown_only: bool = False,
    weighted: bool = False,
    skip_bad: bool = False,
    seed: int = 0,
) -> Divided:
    """Divides the rows of files by person.

    Args:
      place: Names all files, for messages.
      paths: Files, .csv or .parquet, all with the same columns.
      columns: Says which columns are which.
      folder: Where the parts are written.
      number: How many parts.
      shown_only: Whether offers that were not made are left out, and need no propensities.
      weighted: Whether the study needs propensities.
      skip_bad: Whether files that cannot be read are left out; else the first raises its error.
      seed: Seed of the folds.

    Raises:
      LogError: naming the file and where possible the row and column; or if too few people answered.
    """
    check_roles(columns, shown_only)
    if weighted and (columns.propensity is None or shown_only):
        raise _no_propensity()
    folder.mkdir(parents=True, exist_ok=True)
    left_out: dict[str, str] = {}
    for by_days in (False, True):
        writer = _Writer(folder, number, columns, shown_only, by_days)
        for path in paths:
            try:
                if path not in left_out:
                    writer.add(path)
            except LogError as error:
                if not skip_bad:
                    raise
                logging.warning("left out: %s", error)
                left_out[path] = str(error)
        if columns.time is None or (writer.contents.answers[:, 0] > 0).sum() != 1:
            break  # one person's are read again, by days
    if len(left_out) == len(paths):
        reason = next(iter(left_out.values()))
        raise LogError(
            f"{place}: found no file that can be read among {len(paths)}, expected some; the first: {reason}"
        )
    if columns.propensity is None and not shown_only:
        check_all_made(place, writer.contents.not_made, writer.contents.rows)
    return writer.divided(place, seed, left_out)


class _Writer:
    """Writes rows by person: first with the numbers of people, then sorted, with their places and folds.

    Days stand in their place where the log is one person's.
    """

    def __init__(self, folder: Path, number: int, columns: LogColumns, shown_only: bool, by_days: bool) -> None:
        self.columns, self.shown_only, self.by_days = columns, shown_only, by_days
        self.paths = [folder / f"people-{i:05d}.f64" for i in range(number)]
        for path in self.paths:
            path.write_bytes(b"")
        self.number_of: dict[str, int] = {}  # of each person, from 0, in the order in which files mention them
        self.group_of: dict[str, int] = {}  # of each kind of offer, the same
        self.contents = Contents()
        self.kinds: dict[str, set[str]] = {}  # of times, by column
        self.texts: Texts = collections.Counter()  # of outcomes
        absent = {name for name in ("score", "answered", "propensity", "group") if getattr(columns, name) is None}
        absent |= {"propensity"} if shown_only else set()
        self.fields = tuple(name for name in _FIELDS if name not in absent)

    def add(self, path: str) -> None:
        """Writes the rows of a file; if it cannot be read to its end, nothing of it is kept."""
        people, sizes = len(self.number_of), [part.stat().st_size for part in self.paths]
        groups = len(self.group_of)
        kept = self.contents, {name: set(kinds) for name, kinds in self.kinds.items()}, self.texts.copy()
        try:
            for table in read_tables(path, self.columns, kinds=self.kinds, texts=self.texts):
                self._write(path, log_of(table), kept[0].rows)
        except LogError:
            self.contents, self.kinds, self.texts = kept
            self.number_of = dict(list(self.number_of.items())[:people])
            self.group_of = dict(list(self.group_of.items())[:groups])
            for part, size in zip(self.paths, sizes, strict=True):
                os.truncate(part, size)
            raise

    def _write(self, file: str, log: AcceptanceLog, rows_before: int) -> None:
        log = log.by_days(several=True) if self.by_days else log
        for place in np.argsort(log.numbers).tolist():  # those that are new get the next numbers
            self.number_of.setdefault(log.names[place], len(self.number_of))
        log = log.shown() if self.shown_only else log
        person = np.array([self.number_of[name] for name in log.names])[log.person]
        self.contents = self.contents.with_rows(log, person, len(self.number_of))
        values = {"person": person, "time": log.time if log.timed else log.time + rows_before}
        if log.group is not None:
            codes = [self.group_of.setdefault(level, len(self.group_of)) for level in log.group.levels]
            check_groups(file, log.group.name, len(self.group_of))
            values["group"] = np.array([*codes, -1])[log.group.values]  # the last has none
        columns = (values[name] if name in values else getattr(log, name) for name in self.fields)
        rows = np.column_stack([np.zeros(len(log)), *columns])[log.logged]  # the first is the fold
        bucket = rows[:, 1].astype(np.int64) % len(self.paths)
        order = np.argsort(bucket, kind="stable")
        edges = np.searchsorted(bucket[order], np.arange(len(self.paths) + 1))
        for i, path in enumerate(self.paths):
            if edges[i] < edges[i + 1]:
                with path.open("ab") as out:
                    rows[order[edges[i] : edges[i + 1]]].tofile(out)

    def divided(self, place: str, seed: int, left_out: dict[str, str]) -> Divided:
        """Sorts the rows of each part; LogError if too few people answered."""
        names = np.array(list(self.number_of), object)
        check_whole(place, self.columns, self.contents.answers, names.tolist(), self.texts)
        answered = self.contents.answers[:, 0] > 0
        by_name = np.flatnonzero(answered)[np.argsort(names[answered])]
        rank = np.zeros(len(names), np.int64)
        rank[by_name] = np.arange(len(by_name))
        fold = folds_of_people(np.arange(len(by_name)), FOLDS, seed)
        parts = []
        for path in self.paths:
            rows = np.fromfile(path).reshape(-1, 1 + len(self.fields))
            person = rank[rows[:, 1].astype(np.int64)]
            rows[:, 0], rows[:, 1] = fold[person], person
            rows = rows[np.lexsort((rows[:, 2], person))]
            rows.tofile(path)
            if len(rows):
                parts.append(PeoplePart(str(path), len(rows), ("fold", *self.fields)))
        timed, doubted = self.columns.time is not None, self.contents.doubted()
        unit = "days" if self.by_days else "people"
        groups = None if self.columns.group is None else list(self.group_of)
        folds = int(fold.max()) + 1
        return Divided(parts, self.contents, by_name + 1, folds, timed, left_out, doubted, unit, groups, place)
