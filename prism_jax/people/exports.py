"""The exported form of a store of people, and its population: strict reading of plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from prism_jax.decision import alarm
from prism_jax.decision.person import Population
from prism_jax.people.recalibration import Recalibration
from prism_jax.runtime.files import check_keys, check_text

FORMAT = 1
LARGEST = 100.0
"""Largest size of a parameter of the population, in log-odds or their square."""
MOST_WHOLE = 2**53
_STORE = ("format", "population", "recalibration", "forgotten", "highest_number", "records", "people")
_PERSON = ("number", "name", "mean", "variance", "answers", "time", "alarm", "rang", "answered")


class StoreError(ValueError):
    """A store, or an export of one, that cannot be used; the message names the file, what was found and expected."""


class StoreContent(NamedTuple):
    """The content of an export, checked; people are objects with the keys that `PeopleStore.describe` gives."""

    population: Population
    recalibration: Mapping[str, float] | None
    forgotten: Mapping[str, float] | None
    highest_number: int
    records: list[tuple[str, str]]
    people: list[Mapping[str, Any]]


def read_export(tree: Any, place: str) -> StoreContent:
    """Reads what `PeopleStore.describe` gave; messages start with `place`, such as the file's name.

    Raises StoreError naming the key, for anything else.
    """
    tree = _object(tree, _STORE, place)
    if tree["format"] != FORMAT:
        raise StoreError(f"{place}: format: found {tree['format']!r:.40}, expected {FORMAT}")
    recalibration, forgotten = tree["recalibration"], tree["forgotten"]
    if recalibration is not None:
        recalibration = recalibration_from(recalibration, f"{place}: recalibration")._asdict()
    if forgotten is not None:
        _number(_object(forgotten, ("log",), f"{place}: forgotten")["log"], f"{place}: forgotten.log")
    people = [_person(row, f"{place}: people[{i}]") for i, row in enumerate(_list(tree["people"], f"{place}: people"))]
    highest = _whole(tree["highest_number"], f"{place}: highest_number", max([0, *(row["number"] for row in people)]))
    return StoreContent(
        population_from(tree["population"], f"{place}: population"),
        recalibration,
        forgotten,
        highest,
        [_pair(row, f"{place}: records[{i}]") for i, row in enumerate(_list(tree["records"], f"{place}: records"))],
        people,
    )


def population_from(tree: Any, place: str) -> Population:
    """Reads numbers named as the fields of `Population`; the key `format` may stand beside them.

    Raises StoreError naming the key, for anything else. A negative scale would say that the score ranks offers the
    wrong way round.
    """
    numbers = dict(tree) if isinstance(tree, Mapping) else tree
    if isinstance(numbers, dict) and numbers.pop("format", FORMAT) != FORMAT:
        raise StoreError(f"{place}.format: found {tree['format']!r:.40}, expected {FORMAT}")
    numbers = _object(numbers, Population._fields, place)
    least = {"scale": 0.0, "bias": -LARGEST, "spread": 1e-9, "drift": 0.0}
    return Population(*(_number(numbers[key], f"{place}.{key}", least[key], LARGEST) for key in Population._fields))


def recalibration_from(tree: Any, place: str) -> Recalibration:
    """Reads the state of the recalibration.

    Raises StoreError naming the key, for anything but the five numbers of a covariance and its mean.
    """
    numbers = _object(tree, Recalibration._fields, place)
    state = Recalibration(
        *(_number(numbers[key], f"{place}.{key}", -LARGEST, LARGEST) for key in Recalibration._fields)
    )
    if min(state.variance_scale, state.variance_bias, 1.0) < 0 or (
        state.covariance**2 > state.variance_scale * state.variance_bias * (1 + 1e-9)
    ):
        raise StoreError(f"{place}: found {state!r:.200}, expected variances and a covariance")
    return state


def _person(tree: Any, place: str) -> Mapping[str, Any]:
    row = _object(tree, _PERSON, place)
    _text(row["name"], f"{place}.name")
    _number(row["mean"], f"{place}.mean")
    _number(row["variance"], f"{place}.variance", 0.0, LARGEST**2)
    _whole(row["number"], f"{place}.number", 1)
    _whole(row["answers"], f"{place}.answers", 0)
    if row["time"] is not None:
        _number(row["time"], f"{place}.time")
    if type(row["rang"]) is not bool:
        raise StoreError(f"{place}.rang: found {row['rang']!r:.40}, expected true or false")
    state = _list(row["alarm"], f"{place}.alarm")
    if len(state) != alarm.COMPONENTS:
        raise StoreError(f"{place}.alarm: found {len(state)} numbers, expected {alarm.COMPONENTS}")
    for value in state:
        _number(value, f"{place}.alarm", -1e9, 1e9)
    pairs = [_pair(pair, f"{place}.answered") for pair in _list(row["answered"], f"{place}.answered")]
    return {**row, "answered": pairs}


def _object(tree: Any, keys: tuple[str, ...], place: str) -> Mapping[str, Any]:
    if not isinstance(tree, Mapping):
        raise StoreError(f"{place}: found {type(tree).__name__}, expected an object with the keys {', '.join(keys)}")
    check_keys(tree, keys, place, StoreError)
    return tree


def _list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise StoreError(f"{place}: found {type(value).__name__}, expected a list")
    return value


def _pair(value: Any, place: str) -> tuple[str, str]:
    if not isinstance(value, list) or len(value) != 2:
        raise StoreError(f"{place}: found {type(value).__name__}, expected a list of two texts")
    first, second = ("" if text == "" else _text(text, place) for text in value)  # a store's own offers have no run
    return first, second


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise StoreError(f"{place}: found {type(value).__name__}, expected words")
    check_text(value, place, StoreError)
    return value


def _whole(value: Any, place: str, least: int) -> int:
    if type(value) is not int or not least <= value <= MOST_WHOLE:
        raise StoreError(f"{place}: found {value!r:.40}, expected a whole number of at least {least}")
    return value


def _number(value: Any, place: str, low: float = -1e18, high: float = 1e18) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high:  # false for NaN
        raise StoreError(f"{place}: found {value!r:.40}, expected a number from {low:g} to {high:g}")
    return float(value)
