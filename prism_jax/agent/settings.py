"""What a deployment may choose without training again: costs, trigger, budgets, critical events, exploration."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from prism_jax.agent.exported import MARGINAL, Thinking, need_target_from, thinking_from
from prism_jax.decision.operating_point import OperatingPoint, SlowTrigger
from prism_jax.runtime.dataclass_config import from_config_dict

MOST_BUDGET = 1000
"""Largest number of a budget: so many times of each stream are kept."""
QUIET = ("snoozed", "muted", "quiet hours", "busy")
"""Why nobody may be interrupted now: what a person asked for, or for `busy` what the host knows."""
POINT_FIELDS = tuple(field.name for field in dataclasses.fields(OperatingPoint))

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Budget:
    """At most so many in any window of a stream's own time."""

    most: int  # largest number, from 0 to `MOST_BUDGET`
    seconds: float = 3600.0  # length of the window (t - seconds, t] that ends with the present event, above 0

    def __post_init__(self) -> None:
        if type(self.most) is not int or not 0 <= self.most <= MOST_BUDGET:
            raise ValueError(f"most: found {self.most!r}, expected a whole number from 0 to {MOST_BUDGET}")
        if not _is_number(self.seconds) or not 0 < self.seconds < math.inf:
            raise ValueError(f"seconds: found {self.seconds!r}, expected a finite number above 0")


@dataclasses.dataclass(frozen=True)
class Exploration:
    """Flips decisions near the boundary at random, so that the log can evaluate and train the next gate."""

    epsilon: float  # probability in (0, 0.5] with which a decision near the boundary is flipped
    # Largest expected loss of one flip, |cost of the offer - cost of silence| in the unit of the costs, above 0.
    # Decisions whose flip would cost more are left alone.
    loss: float = 0.1
    # seed; a decision's draw depends on it, on the stream and on the number of the event, and on nothing else
    seed: int = 0

    def __post_init__(self) -> None:
        if not _is_number(self.epsilon) or not 0 < self.epsilon <= 0.5:
            raise ValueError(f"epsilon: found {self.epsilon!r}, expected a probability in (0, 0.5]")
        if not _is_number(self.loss) or not 0 < self.loss < math.inf:
            raise ValueError(f"loss: found {self.loss!r}, expected a finite cost above 0")
        if type(self.seed) is not int:
            raise ValueError(f"seed: found {self.seed!r}, expected a whole number")


@dataclasses.dataclass(frozen=True)
class Terms:
    """What holds for one event: the settings, with what the event itself asked for."""

    point: OperatingPoint  # costs, trigger and policy
    offers: Budget | None = None  # interruption budget of the stream; None is no limit
    thoughts: Budget | None = None  # slow budget of the stream; None is no limit
    exploration: Exploration | None = None  # none is off
    # what the slow pass does, which the trigger `value` needs; an agent takes it from the export
    thinking: Thinking | None = None
    need_target: str = MARGINAL  # what p_need estimates, one of `NEED_TARGETS`; an agent takes it from the export
    quiet: str | None = None  # why there is no offer now whatever it is worth, one of `QUIET`; None where there may be

    def __post_init__(self) -> None:
        if self.quiet is not None and self.quiet not in QUIET:
            raise ValueError(f"quiet: found {self.quiet!r:.80}, expected one of {', '.join(QUIET)}")

    @functools.cached_property
    def trigger(self) -> SlowTrigger:
        """What triggers the slow pass, by name: what `auto` stands for here."""
        return self.point.triggered(self.thinking is not None).trigger

    @functools.cached_property
    def record(self) -> dict[str, Any]:
        """The terms as keys of a decision record; built once, shared by all records of these terms."""
        point, known = self.point, self.thinking
        return {
            "costs": {"c_fa": point.c_fa, "c_fn": point.c_fn},
            "trigger": {
                "name": self.trigger,
                "margin": point.margin,
                "price": point.price,
                "thinking": known and {**known.moves._asdict(), "tokens": known.tokens},
            },
            "policy": {
                "name": point.policy,
                "fixed_threshold": point.fixed_threshold,
                **({} if self.need_target == MARGINAL else {"need_target": self.need_target}),
            },
            "budgets": {"offers": _plain(self.offers), "thoughts": _plain(self.thoughts)},
            "exploration": _plain(self.exploration),
            **({} if self.quiet is None else {"quiet": self.quiet}),
        }


def terms_from_record(record: Mapping[str, Any]) -> Terms:
    """Reads what `Terms.record` wrote.

    Raises:
      KeyError, TypeError, ValueError: for anything else.
    """
    costs, policy, trigger = record["costs"], record["policy"], record["trigger"]
    numbers = {
        "c_fa": costs["c_fa"],
        "c_fn": costs["c_fn"],
        "margin": trigger["margin"],
        "policy": policy["name"],
        "fixed_threshold": policy["fixed_threshold"],
        "trigger": trigger["name"],
        "price": trigger["price"],
    }
    point = from_config_dict(OperatingPoint, numbers, "decision")
    offers, thoughts = (record["budgets"][kind] for kind in ("offers", "thoughts"))
    return Terms(
        point,
        _from_record(Budget, offers, "budgets.offers"),
        _from_record(Budget, thoughts, "budgets.thoughts"),
        _from_record(Exploration, record["exploration"], "exploration"),
        None if trigger["thinking"] is None else thinking_from(trigger["thinking"]),
        need_target_from(policy),
        record.get("quiet"),
    )


def _from_record(cls: type[T], value: Any, place: str) -> T | None:
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"{place}: found {value!r:.80}, expected an object with keys, or null")
    return None if value is None else from_config_dict(cls, value, place)


@dataclasses.dataclass(frozen=True)
class Critical:
    """The allow-list: an event whose whole text is one of these always leads to an offer.

    Event texts are untrusted: whoever can write a listed text gets an offer. Python's regular expressions can take very
    long on hostile texts; keep patterns free of nested repetition.
    """

    texts: frozenset[str] = frozenset()  # exact texts
    patterns: tuple[str, ...] = ()  # regular expressions that match the whole text

    def __post_init__(self) -> None:
        for pattern in self.patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"critical: found {pattern!r} ({error}), expected a regular expression") from error

    def __contains__(self, text: str) -> bool:
        return text in self.texts or any(pattern.fullmatch(text) for pattern in self._compiled)

    @functools.cached_property
    def _compiled(self) -> tuple[re.Pattern[str], ...]:
        return tuple(map(re.compile, self.patterns))


@dataclasses.dataclass(frozen=True)
class PeopleSettings:
    """How an agent uses what it knows of people."""

    optimistic: bool = True  # whether doubt about a person counts in favour of an offer (`prism_jax.decision.person`)
    recalibrate: bool = False  # whether everybody's answers also move the map from calibrated to personal probabilities
    # probability in (0, 0.5] that any person's alarm ever rings while the probabilities are calibrated; None watches
    # nobody
    alarm: float | None = 0.05

    def __post_init__(self) -> None:
        if self.alarm is not None and not (_is_number(self.alarm) and 0 < self.alarm <= 0.5):
            raise ValueError(f"alarm: found {self.alarm!r}, expected a probability in (0, 0.5]")


@dataclasses.dataclass(frozen=True)
class AgentSettings:
    """The settings of an agent; none of them needs training."""

    terms: Terms  # what holds for every event that does not say otherwise
    critical: Critical = Critical()  # the allow-list
    redact: bool = True  # whether personal data and secrets are cut from the texts of records
    keep_texts: bool = False  # whether records hold the events' texts; their hash is always there
    # how the agent uses what it knows of people, where it has a store of them
    people: PeopleSettings = dataclasses.field(default_factory=PeopleSettings)

    def describe(self) -> dict[str, Any]:
        """The settings as plain data, for their fingerprint."""
        return {
            "terms": self.terms.record,
            "critical": {"texts": sorted(self.critical.texts), "patterns": list(self.critical.patterns)},
            "redact": self.redact,
            "keep_texts": self.keep_texts,
        }

    def at(self, costs: Mapping[str, Any] | None) -> Terms:
        """The terms of an event, which may ask for fields of `OperatingPoint`, `most_offers`, `offers_window`, `quiet`.

        ValueError names the key, for an unknown one or a value out of range.
        """
        if not costs:
            return self.terms
        for key, value in costs.items():
            if not (_is_number(value) or isinstance(value, str)):  # here, since the cache takes True for 1
                raise ValueError(f"costs.{key}: found {value!r:.80}, expected a finite number or a name")
        return _at(self.terms, tuple(costs.items()))


@functools.lru_cache(maxsize=1024)
def _at(terms: Terms, costs: Iterable[tuple[str, Any]]) -> Terms:
    wanted = dict(costs)
    limits = {key: wanted.pop(key) for key in ("most_offers", "offers_window") if key in wanted}
    quiet = wanted.pop("quiet", terms.quiet)
    for key, value in wanted.items():
        if key not in POINT_FIELDS:
            known = ", ".join((*POINT_FIELDS, "most_offers", "offers_window", "quiet"))
            raise ValueError(f"costs.{key}: found an unknown key, expected one of {known}")
        named = isinstance(getattr(terms.point, key), str)
        if named != isinstance(value, str):
            raise ValueError(f"costs.{key}: found {value!r:.80}, expected {'a name' if named else 'a number'}")
    try:
        changes: dict[str, Any] = {
            key: value if isinstance(value, str) else float(value) for key, value in wanted.items()
        }
        point = dataclasses.replace(terms.point, **changes)
        offers = terms.offers
        if limits:
            if offers is None and "most_offers" not in limits:
                raise ValueError("offers_window: found it without most_offers, expected both: there is no budget yet")
            before = offers or Budget(0)
            offers = Budget(limits.get("most_offers", before.most), limits.get("offers_window", before.seconds))
        return dataclasses.replace(terms, point=point, offers=offers, quiet=quiet)
    except ValueError as error:
        raise ValueError(f"costs.{error}") from error


def _is_number(value: Any) -> bool:
    """Whether a value is a number that a float holds, and a finite one."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value.bit_length() < sys.float_info.max_exp
    return isinstance(value, float) and math.isfinite(value)


def _plain(value: Any) -> dict[str, Any] | None:
    return None if value is None else dataclasses.asdict(value)
