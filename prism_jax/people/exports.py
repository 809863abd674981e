"""The exported form of a store of people, and its population: strict reading of plain data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from prism_jax.decision import alarm
from prism_jax.decision.person import Population
from prism_jax.people.recalibration import Recalibration
from prism_jax.runtime.schema import Words, between, decode

FORMAT = 1
LARGEST = 100.0
"""Largest size of a parameter of the population, in log-odds or their square."""


class StoreError(ValueError):
    """A store, or an export of one, that cannot be used; the message names the file, what was found and expected."""


def _components(state: tuple[float, ...]) -> tuple[float, ...]:
    if len(state) != alarm.COMPONENTS:
        raise ValueError(f"found {len(state)} numbers, expected {alarm.COMPONENTS}")
    return state


def _words_or_none(text: str) -> str:
    if text and not text.strip():  # a store's own offers have no run
        raise ValueError(f"found {text!r:.40}, expected words, or an empty text")
    return text


_Size = Annotated[float, between(-LARGEST, LARGEST)]
_Anything = Annotated[float, between(-1e18, 1e18)]
_Count = Annotated[int, between(0, 2**53)]
_Part = Annotated[str, _words_or_none]
_Pair = tuple[_Part, _Part]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Person:
    """A person as `PeopleStore.describe` gives them."""

    number: Annotated[int, between(1, 2**53)]
    name: Words
    mean: _Anything
    variance: Annotated[float, between(0.0, LARGEST**2)]
    answers: _Count
    time: _Anything | None
    alarm: Annotated[tuple[Annotated[float, between(-1e9, 1e9)], ...], _components]
    rang: bool
    answered: tuple[_Pair, ...]


def _in_bounds(population: Population) -> Population:
    least = {
        "scale": 0.0,
        "bias": -LARGEST,
        "spread": 1e-9,
        "drift": 0.0,
    }  # with a negative scale, offers rank reversed
    for name, number in population._asdict().items():
        if not least[name] <= number <= LARGEST:
            raise ValueError(f"{name}: found {number}, expected a number from {least[name]:g} to {LARGEST:g}")
    return population


_Population = Annotated[Population, _in_bounds]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Recalibration:
    scale: _Size
    bias: _Size
    variance_scale: Annotated[float, between(0.0, LARGEST)]
    variance_bias: Annotated[float, between(0.0, LARGEST)]
    covariance: _Size

    def __post_init__(self) -> None:
        if self.covariance**2 > self.variance_scale * self.variance_bias * (1 + 1e-9):
            raise ValueError(f"covariance: found {self.covariance}, expected that of these variances")


@dataclasses.dataclass(frozen=True)
class _Forgotten:
    """What remains of people who were deleted."""

    log: _Anything


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreContent:
    """The content of an export, checked."""

    format: Literal[1]
    population: _Population
    recalibration: Annotated[_Recalibration, dataclasses.asdict] | None
    forgotten: Annotated[_Forgotten, dataclasses.asdict] | None
    highest_number: _Count
    records: tuple[_Pair, ...]
    people: tuple[_Person, ...]

    def __post_init__(self) -> None:
        if self.highest_number < max([0, *(person.number for person in self.people)]):
            raise ValueError(f"highest_number: found {self.highest_number}, expected at least that of every person")


def read_export(tree: Any, place: str) -> StoreContent:
    """Reads what `PeopleStore.describe` gave; messages start with `place`, such as the file's name.

    Raises StoreError naming the key, for anything else.
    """
    return decode(StoreContent, tree, place, StoreError)


def population_from(tree: Any, place: str) -> Population:
    """Reads numbers named as the fields of `Population`; the key `format` may stand beside them.

    Raises StoreError naming the key, for anything else.
    """
    if isinstance(tree, Mapping) and "format" in tree:
        if tree["format"] != FORMAT:
            raise StoreError(f"{place}: format: found {tree['format']!r:.40}, expected {FORMAT}")
        tree = {key: tree[key] for key in tree if key != "format"}
    return decode(_Population, tree, place, StoreError)


def recalibration_from(tree: Any, place: str) -> Recalibration:
    """Reads the state of the recalibration.

    Raises StoreError naming the key, for anything but the five numbers of a covariance and its mean.
    """
    return Recalibration(**dataclasses.asdict(decode(_Recalibration, tree, place, StoreError)))
