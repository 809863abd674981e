"""A log of any size as parts of whole people: what the person layer needs, since it goes from answer to answer.

A log in memory is one part. Files of more rows are read once, chunk by chunk, and the offers that were made are written
to temporary files by person. A part is such a file, with about `PART_ROWS` rows in order of person and time, or more
where it has a person with more.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import logging
from jaxtyping import Float64, Int, Int64

from prism_jax.acceptance.cells import is_number
from prism_jax.acceptance.columns import LogColumns, LogError, split_condition
from prism_jax.acceptance.context import folds_of_people
from prism_jax.acceptance.log_tables import ContextColumn, Texts, read_tables
from prism_jax.acceptance.logs import (
    AcceptanceLog,
    check_all_made,
    check_answers,
    check_roles,
    doubted,
    log_of,
    say_texts,
    warn_of_looks,
)
from prism_jax.acceptance.score_maps import Scale
from prism_jax.decision import off_policy
from prism_jax.decision.losses import propensity_weight

FOLDS = 10
"""Most folds of people; there is one per person where there are fewer."""
PART_ROWS = 1 << 18
"""About how many rows a part has; all of them are in memory at once."""
_MOST_SAMPLED = 1 << 18
"""Scores from which their scale is taken."""
_FIELDS = ("person", "time", "accepted", "score", "answered", "propensity")


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
    """What the files hold together."""

    rows: int = 0
    not_made: int = 0  # offers that were not made
    low: float = np.inf  # smallest score of all rows
    high: float = -np.inf  # largest

    def with_rows(self, logged: np.ndarray, score: np.ndarray | None) -> Contents:
        """With some more rows."""
        known = np.zeros(0) if score is None else score[~np.isnan(score)]
        low, high = (known.min(), known.max()) if len(known) else (np.inf, -np.inf)
        silent = int((~logged).sum())
        return Contents(
            self.rows + len(logged), self.not_made + silent, min(self.low, float(low)), max(self.high, float(high))
        )

    @property
    def score_is_probability(self) -> bool:
        """Whether every score lies between 0 and 1."""
        return self.low >= 0 and self.high <= 1


@dataclasses.dataclass(frozen=True)
class Divided:
    """A log in parts."""

    parts: Sequence[PeoplePart | Answers]
    contents: Contents
    scale: Scale  # of the scores: where most of them lie, or none of probabilities
    numbers: Int64[np.ndarray, " people"]  # of those who answered, by name: the order in which the log mentions them
    folds: int
    timed: bool  # whether the log says when offers were made
    left_out: dict[str, str]  # files that cannot be read, with the reason
    doubted: bool = False  # whether offers were not quite drawn with the propensities

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
        rows = answered_rows(log)
        code, person = np.unique(log.person[rows], return_inverse=True)
        fold = folds_of_people(person, FOLDS, seed)

        def of_rows(values: np.ndarray | None) -> np.ndarray | None:
            return None if values is None else values[rows]

        answers = Answers(
            person,
            fold,
            log.time[rows],
            log.accepted[rows],
            of_rows(log.score),
            of_rows(log.answered),
            of_rows(log.propensity),
            tuple(dataclasses.replace(column, values=column.values[rows]) for column in log.context),
            of_rows(truth),
        )
        contents = Contents(log.left_out, log.left_out).with_rows(log.logged, log.score)
        known = np.zeros(0) if log.score is None else log.score[~np.isnan(log.score)]
        sums = None if log.propensity is None else _drawn_sums(log, log.person, len(log.names))[1:]
        drawn = [] if sums is None else off_policy.drawn(*sums, len(log.names))
        scale = Scale() if contents.score_is_probability else _middle_half(known)
        return cls([answers], contents, scale, log.numbers[code], int(fold.max()) + 1, log.timed, {}, doubted(drawn))


def answered_rows(log: AcceptanceLog) -> Int64[np.ndarray, " answers"]:
    """Rows of the offers that were made, by person and time."""
    return log.order[log.logged[log.order]]


def _drawn_sums(
    log: AcceptanceLog, person: Int[np.ndarray, " rows"], people: int, edges: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The fifths of the score, those of these rows unless known, and `off_policy.drawn_sums`."""
    assert log.propensity is not None, "called where there are some"
    score = np.zeros(len(log)) if log.score is None else log.score
    edges = off_policy.edges_of(score) if edges is None else edges
    return edges, *off_policy.drawn_sums(log.logged, log.propensity, score, edges, person, people)


def _no_propensity() -> LogError:
    return LogError("columns: found no propensity, expected propensity=COLUMN: weights are its inverse")


def _middle_half(scores: Float64[np.ndarray, " known"]) -> Scale:
    """Where most scores lie, which a few that are far away do not change."""
    low, first, middle, third, high = np.quantile(scores, (0.01, 0.25, 0.5, 0.75, 0.99))
    width = (third - first) / 1.349 or (high - low) / 4.653 or scores.std() or 1.0
    return Scale(float(middle), float(width))


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
    writer = _Writer(folder, number, columns, shown_only)
    left_out: dict[str, str] = {}
    for file, path in enumerate(paths):
        try:
            writer.add(file, path)
        except LogError as error:
            if not skip_bad:
                raise
            logging.warning("left out: %s", error)
            left_out[path] = str(error)
    if len(left_out) == len(paths):
        reason = next(iter(left_out.values()))
        raise LogError(
            f"{place}: found no file that can be read among {len(paths)}, expected some; the first: {reason}"
        )
    if columns.propensity is None and not shown_only:
        check_all_made(place, writer.contents.not_made, writer.contents.rows)
    return writer.divided(place, seed, left_out, {file for file, path in enumerate(paths) if path in left_out})


class _Writer:
    """Writes rows by person: first with the numbers of person and file, then sorted, with places and folds."""

    def __init__(self, folder: Path, number: int, columns: LogColumns, shown_only: bool) -> None:
        self.columns, self.shown_only = columns, shown_only
        self.paths = [folder / f"people-{i:05d}.f64" for i in range(number)]
        self.number_of: dict[str, int] = {}  # of each person, from 0, in the order in which files mention them
        self.contents = Contents()
        self.kinds: dict[str, set[str]] = {}  # of times, by column
        self.texts: Texts = collections.Counter()  # of outcomes
        self.edges: np.ndarray | None = None  # of the fifths of the score, by the first rows
        self.totals, self.units = np.zeros((6, 7)), np.zeros((0, 6, 3))  # `off_policy.drawn_sums`
        self.sample, self.every = np.zeros(0), 1  # one in so many scores
        absent = {name for name in ("score", "answered", "propensity") if getattr(columns, name) is None}
        absent |= {"propensity"} if shown_only else set()
        self.fields = tuple(name for name in _FIELDS if name not in absent)

    def add(self, file: int, path: str) -> None:
        """Writes the rows of a file; if it cannot be read to its end, its people and contents are not kept."""
        people, before = len(self.number_of), self.contents
        kept = self.sample, self.every, {name: set(kinds) for name, kinds in self.kinds.items()}, self.texts.copy()
        drawn = self.edges, self.totals, self.units

        try:
            for table in read_tables(path, self.columns, kinds=self.kinds, texts=self.texts):
                self._write(file, log_of(table), before.rows)
        except LogError:
            self.contents, (self.sample, self.every, self.kinds, self.texts) = before, kept
            self.edges, self.totals, self.units = drawn
            self.number_of = dict(list(self.number_of.items())[:people])
            raise

    def _write(self, file: int, log: AcceptanceLog, rows_before: int) -> None:
        for place in np.argsort(log.numbers).tolist():  # those that are new get the next numbers
            self.number_of.setdefault(log.names[place], len(self.number_of))
        person = np.array([self.number_of[name] for name in log.names])[log.person]
        if "propensity" in self.fields:
            self.edges, totals, units = _drawn_sums(log, person, len(self.number_of), self.edges)
            units[: len(self.units)] += self.units
            self.totals, self.units = self.totals + totals, units
        score = log.shown().score if self.shown_only else log.score
        self.contents = self.contents.with_rows(log.logged, score)
        if score is not None:
            self._keep(score[~np.isnan(score)])
        values = {"person": person, "time": log.time if log.timed else log.time + rows_before}
        columns = (values[name] if name in values else getattr(log, name) for name in self.fields)
        rows = np.column_stack([np.full(len(log), file), *columns])[log.logged]
        bucket = rows[:, 1].astype(np.int64) % len(self.paths)
        order = np.argsort(bucket, kind="stable")
        edges = np.searchsorted(bucket[order], np.arange(len(self.paths) + 1))
        for i, path in enumerate(self.paths):
            if edges[i] < edges[i + 1]:
                with path.open("ab") as out:
                    rows[order[edges[i] : edges[i + 1]]].tofile(out)

    def _keep(self, scores: Float64[np.ndarray, " known"]) -> None:
        """Adds to the sample of scores, and thins it where it is too large."""
        self.sample = np.concatenate([self.sample, scores[:: self.every]])
        while len(self.sample) > _MOST_SAMPLED:
            self.sample, self.every = self.sample[::2], 2 * self.every

    def divided(self, place: str, seed: int, left_out: dict[str, str], bad: set[int]) -> Divided:
        """Sorts the rows of each part; LogError if too few people answered."""
        names = np.array(list(self.number_of), object)
        answered = np.zeros(len(names), bool)
        answers = accepted = 0
        for path in filter(Path.exists, self.paths):
            rows = self._rows(path, bad)
            answered[rows[:, 1].astype(np.int64)] = True
            answers, accepted = answers + len(rows), accepted + int(rows[:, 3].sum())
        by_name = np.flatnonzero(answered)[np.argsort(names[answered])]
        condition = split_condition(self.columns.accepted, ())
        if answers and not accepted and condition is not None and not is_number(condition.constant):
            raise LogError(
                f"{place}, column {condition.column!r}: found no answer with the text {condition.constant!r}, "
                "expected the text of accepted offers"
            )
        check_answers(place, len(by_name), answers, accepted)
        warn_of_looks(place, list(self.number_of))
        say_texts(place, self.texts)
        rank = np.zeros(len(names))
        rank[by_name] = np.arange(len(by_name))
        fold = folds_of_people(np.arange(len(by_name)), FOLDS, seed)
        parts = []
        for path in filter(Path.exists, self.paths):
            rows = self._rows(path, bad)
            rows[:, 1] = rank[rows[:, 1].astype(np.int64)]
            rows[:, 0] = fold[rows[:, 1].astype(np.int64)]
            rows = rows[np.lexsort((rows[:, 2], rows[:, 1]))]
            rows.tofile(path)
            if len(rows):
                parts.append(PeoplePart(str(path), len(rows), ("fold", *self.fields)))
        timed = self.columns.time is not None
        doubtful = doubted(off_policy.drawn(self.totals, self.units, len(self.units)))
        scale = Scale() if self.contents.score_is_probability else _middle_half(self.sample)
        return Divided(parts, self.contents, scale, by_name + 1, int(fold.max()) + 1, timed, left_out, doubtful)

    def _rows(self, path: Path, bad: set[int]) -> Float64[np.ndarray, "rows fields"]:
        rows = np.fromfile(path).reshape(-1, 1 + len(self.fields))
        return rows[~np.isin(rows[:, 0], list(bad))] if bad else rows
