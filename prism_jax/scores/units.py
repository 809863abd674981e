"""The independent units of a scores table: its streams, or its people where one of them has several streams.

Answers of one person depend on each other. So intervals resample whole units, and no split or fold divides one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
from jaxtyping import Int, Int64, Shaped

from prism_jax.scores.schema import ScoresError, in_words
from prism_jax.scores.texts import Numbered

Unit = Literal["streams", "people", "days"]
"""Days stand in the place of streams in the records of one person (`records.by_days`)."""


def check_people(columns: Mapping[str, Shaped[np.ndarray, "rows"]], numbers: Callable[[str], Numbered]) -> None:
    """Checks that no split and no fold divides a person.

    The calibration, or the model, would otherwise have seen the people that it is measured on, and results would not
    hold for new people. Who wants to measure known people later leaves out the column `person`. Raises ScoresError
    naming the first row of a person that stands in another split or fold than before. `numbers` gives the texts of a
    column with their numbers.
    """
    if "person" not in columns:
        return
    names, number = numbers("person")
    first = first_rows(number, len(names))[number]
    for name in ("split", "fold"):
        if name not in columns:
            continue
        column = columns[name]
        divided = column != column[first]
        if divided.any():
            row = int(divided.argmax())
            raise ScoresError(
                f"found {in_words(name, column[row])}, expected {in_words(name, column[first[row]])} as elsewhere for "
                f"the same person: constant within a person (row {first[row]}); leave out the column person to measure "
                "people that the calibration knows",
                name,
                row,
            )


def independent_unit(streams: int, people: int | None) -> Unit:
    """What the independent units are: people if they are known and one has several streams, otherwise streams."""
    return "streams" if people is None or people == streams else "people"


def folds_of(
    stream: Shaped[np.ndarray, "rows"], person: Shaped[np.ndarray, "rows"] | None, folds: int
) -> Int64[np.ndarray, "rows"]:
    """Deals people (streams, where nobody is named) to folds as evenly as can be, in an order that their names give."""
    units = stream if person is None else person
    names = sorted(set(units.tolist()), key=lambda name: hashlib.sha256(name.encode()).digest())
    fold = {name: number % folds for number, name in enumerate(names)}
    return np.array([fold[name] for name in units.tolist()], np.int64)


def first_rows(number: Int[np.ndarray, "rows"], count: int) -> Int64[np.ndarray, "names"]:
    """The first row of each of `count` names, from the number of every row's name; each name has a row."""
    first = np.empty(count, np.int64)
    first[number[::-1]] = np.arange(len(number))[::-1]
    return first
