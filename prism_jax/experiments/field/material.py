"""The streams or the log of one source, its folds, and its labels, which go back into what a baseline scored."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from prism_jax.evaluation.answers.columns import LogColumns
from prism_jax.evaluation.replay import Replay, taken
from prism_jax.experiments.field import logs
from prism_jax.experiments.field.interface import Fold, Log, LogFold, has_need
from prism_jax.experiments.field.tfidf import outer_folds
from prism_jax.scores import Scores, ScoresError
from prism_jax.scores.agreement import NEED
from prism_jax.streams import Stream
from prism_jax.streams.edit import without_answers
from prism_jax.streams.published.table import SOURCES
from prism_jax.streams.simulator import SimulatorConfig, simulate
from prism_jax.streams.sources import simulated_index
from prism_jax.streams.stream_columns import offer_columns

MOST_ALONE = 20
"""With at most so many units, each is a fold of its own."""
FOLDS = 5
SIMULATED = 120
"""Number of simulated streams."""
LABELS = ("y_need", "y_accept", "votes", "logged", "propensity")
Key = tuple[str, int, int]


@dataclasses.dataclass(frozen=True)
class Material:
    """The content of one source, as streams or as a log."""

    name: str
    streams: tuple[Stream, ...] = ()  # sorted by id; empty for a log
    log: Log | None = None
    # the publisher's split of streams by id, `train` or `test`; a stream of neither part is in no fold of it
    split: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Whether a baseline must take `streams` or a `log`."""
        return "streams" if self.log is None else "log"

    @property
    def unit(self) -> str:
        """What is divided into folds, and resampled for intervals."""
        return "streams" if self.log is None else "people"

    @property
    def judged(self) -> bool:
        """Whether there are labels of acceptance."""
        steps = (step for stream in self.streams for step in stream.steps)
        return self.log is not None or any(offer.y_accept is not None for step in steps for offer in step.candidates)

    def twins(self) -> list[tuple[str, str]]:
        """Streams of one persona with the same number of steps, of which the second has noise among its events."""
        by_id = {stream.id: stream for stream in self.streams}
        pairs = ((by_id.get(stream.persona), stream) for stream in self.streams if stream.id != stream.persona)
        return [(plain.id, noisy.id) for plain, noisy in pairs if plain and len(plain.steps) == len(noisy.steps)]

    @property
    def units(self) -> tuple[str, ...]:
        """The streams, or the people of a log."""
        if self.log is None:
            return tuple(stream.id for stream in self.streams)
        return tuple(logs.names_of(self.log.answers)[np.unique(self.log.answers.person)].tolist())

    def folds(self, count: int | None = None) -> list[Fold | LogFold]:
        """Training and test parts by whole units, each of which is tested once.

        Without a count, there is one for each unit of at most `MOST_ALONE`, else `FOLDS`; where the publisher has
        divided the streams, its test part is tested once, after a fit on its training part.
        """
        parts = [[stream for stream in self.streams if self.split.get(stream.id) == of] for of in ("train", "test")]
        if count is None and all(parts):
            train, test = parts
            return [Fold(0, train, [without_answers(stream) for stream in test])]
        units = len(self.units)
        count = count or (units if units <= MOST_ALONE else FOLDS)
        if self.log is None:
            return [
                Fold(number, train, [without_answers(stream) for stream in test])
                for number, (train, test) in enumerate(outer_folds(self.streams, count))
            ]
        person = np.unique(self.log.answers.person, return_inverse=True)[1] % count
        return [
            LogFold(number, self.log, np.flatnonzero(person != number), np.flatnonzero(person == number))
            for number in range(count)
        ]

    def whole(self) -> Fold | LogFold:
        """Everything as the test part of a baseline that is not fitted."""
        if self.log is None:
            return Fold(0, (), [without_answers(stream) for stream in self.streams], has_need(self.streams))
        return LogFold(0, self.log, np.zeros(0, np.int64), np.arange(len(self.log.answers)))

    def tested(self, fold: Fold | LogFold) -> list[str]:
        """The units that a fold tests."""
        if isinstance(fold, Fold):
            return [stream.id for stream in fold.test]
        answers = fold.log.answers
        return list(logs.names_of(answers)[np.unique(answers.person[fold.test])])

    def labels(self) -> Mapping[Key, dict[str, Any]]:
        """The labels of every offer, by stream, step and candidate."""
        if self.log is not None:
            answers = self.log.answers
            keys = zip(logs.names_of(answers)[answers.person].tolist(), logs.steps_of(answers).tolist(), strict=True)
            accepted = answers.accepted.tolist()
            return {(*key, 0): {"y_accept": y} for key, y in zip(keys, accepted, strict=True)}
        return dict(_labels(self.streams))

    def labelled(self, scores: Scores) -> Scores:
        """The scores with the labels of this source in place of their own; offers that nobody judged are left out."""
        labels = self.labels()
        columns_of = (scores.stream, scores.step, scores.candidate)
        keys_of = list(zip(*(column.tolist() for column in columns_of), strict=True))
        rows = [labels[key] for key in keys_of]
        for key, row, votes in zip(keys_of, rows, scores.votes if scores.votes is not None else (), strict=False):
            if tuple(votes or ()) not in ((), tuple(row["votes"] or ())):
                place = f"stream {key[0]!r}, step {key[1]}, candidate {key[2]}"
                raise ScoresError(f"{place}: found the votes of another offer, expected {row['votes']}", "votes")
        need = scores.has_need and any(row.get("y_need") is not None for row in rows)
        without = LABELS if need else ("p_need_fast", *LABELS, *NEED)
        columns = {name: column for name, column in scores.columns().items() if name not in without}
        names = [name for name in LABELS if name in rows[0] and (need or name != "y_need")]
        table = Scores.from_columns(columns | {name: [row[name] for row in rows] for name in names})
        return table.take(np.flatnonzero(~np.isnan(np.asarray(table.y_accept, np.float64))))

    def needed(self, steps: Replay) -> Replay:
        """The steps with this source's labels of need, where there are any, whether or not need was scored."""
        if not has_need(self.streams):
            return steps
        labels = {
            (stream.id, number): step.y_need for stream in self.streams for number, step in enumerate(stream.steps)
        }
        known = [labels[key] for key in zip(steps.stream.tolist(), steps.step.tolist(), strict=True)]
        need = np.array([np.nan if y is None else y for y in known], np.float64)
        return taken(dataclasses.replace(steps, y_need=need), ~np.isnan(need))


def _labels(streams: Sequence[Stream]) -> Iterator[tuple[Key, dict[str, Any]]]:
    for stream in streams:
        for number, step in enumerate(stream.steps):
            for index, offer in enumerate(step.candidates):
                columns = offer_columns(stream, step, offer, split="test", fold=0)
                yield (stream.id, number, index), {name: columns[name] for name in LABELS}


def read(name: str, place: str, roles: LogColumns | None = None, **settings: str) -> Material:
    """Reads one entry of --sources: `simulator`, `log` with a file, or a name of `SOURCES` with a folder or a file.

    `roles` are the columns of a log without a known layout, `settings` the reader's own, such as `need`. ValueError or
    OSError in one line, for an unknown name, a place that is missing, or what the reader refuses.
    """
    known = (*SOURCES, "log", "simulator")
    if name not in known:
        raise ValueError(f"sources: found {name!r}, expected one of {', '.join(known)}")
    if (name == "simulator") == bool(place):
        expected = "simulator alone" if place else f"{name}=PATH"
        raise ValueError(f"sources: found {name}{place and f'={place}'}, expected {expected}")
    if name == "simulator":
        config = SimulatorConfig()
        drawn = [simulate(config, simulated_index("test", number), "always") for number in range(SIMULATED)]
        return Material(name, tuple(sorted(drawn, key=lambda stream: stream.id)))
    if name == "log":
        return Material(place.rpartition("/")[2].partition(".")[0], log=logs.read(place, roles))
    published = SOURCES[name].read(place, **settings)
    return Material(name, tuple(sorted(published.streams, key=lambda stream: stream.id)), split=published.split)
