"""What a person asked for: more or fewer offers, and when to be left alone.

A preference changes the costs under which the gate decides on that person's events, and so stands in every record.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import re
import zoneinfo
from typing import Any

from prism_jax.agent.settings import QUIET
from prism_jax.agent.state.partition import Partition, StateError
from prism_jax.agent.steps import Observation
from prism_jax.decision.operating_point import LEAST, MOST

LEVELS = range(-2, 3)
"""From much less to much more: a step up halves the cost of an offer that is not wanted, and a step down doubles it."""
_TIME = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")


@dataclasses.dataclass(frozen=True)
class Silence:
    """No offers until a time."""

    reason: str  # `snoozed` or `muted`
    until: float  # in seconds since 1970

    def __post_init__(self) -> None:
        if self.reason not in QUIET[:2]:
            raise ValueError(f"reason: found {self.reason!r:.80}, expected {' or '.join(QUIET[:2])}")
        _check_end(self.until)


@dataclasses.dataclass(frozen=True)
class QuietHours:
    """No offers between two times of every day, the second of which may be on the next one, until a time."""

    begin: str  # such as 22:00
    end: str  # such as 07:00
    zone: str  # time zone by its name, such as Europe/Paris
    until: float  # in seconds since 1970

    def __post_init__(self) -> None:
        for name in ("begin", "end"):
            if not isinstance(value := getattr(self, name), str) or not _TIME.fullmatch(value):
                raise ValueError(f"{name}: found {value!r:.80}, expected a time such as 22:00")
        if self.begin == self.end:
            raise ValueError(f"end: found {self.end}, expected another time than the begin")
        if not is_zone(self.zone):
            raise ValueError(f"zone: found {self.zone!r:.80}, expected a time zone such as Europe/Paris")
        _check_end(self.until)

    def cover(self, now: float) -> bool:
        """Whether a time, in seconds since 1970, is within them."""
        if now >= self.until:
            return False
        time = datetime.datetime.fromtimestamp(now, zoneinfo.ZoneInfo(self.zone)).strftime("%H:%M")
        if self.begin < self.end:
            return self.begin <= time < self.end
        return time >= self.begin or time < self.end


@dataclasses.dataclass(frozen=True)
class Preferences:
    """What a person asked for; ValueError names the field of a value that is out of range."""

    level: int = 0  # one of `LEVELS`
    silence: Silence | None = None
    hours: QuietHours | None = None

    def __post_init__(self) -> None:
        if type(self.level) is not int or self.level not in LEVELS:
            raise ValueError(f"level: found {self.level!r:.80}, expected {LEVELS[0]} to {LEVELS[-1]}")

    @property
    def factor(self) -> float:
        """What the cost of an offer that is not wanted is multiplied by."""
        return 2.0**-self.level

    def quiet(self, now: float) -> str | None:
        """Why the person wants no offer at a time, in seconds since 1970: one of `QUIET`; None where they may."""
        if self.silence is not None and now < self.silence.until:
            return self.silence.reason
        return "quiet hours" if self.hours is not None and self.hours.cover(now) else None


def preferences_of(partition: Partition, person: str) -> Preferences:
    """What a person of a partition asked for; StateError where it cannot be read."""
    rows = partition.rows("SELECT value FROM preferences WHERE person = ?", (person,))
    if not rows:
        return Preferences()
    try:
        tree = json.loads(rows[0][0])
        silence, hours = tree["silence"], tree["hours"]
        if hours is not None and not is_zone(hours["zone"]):  # of another machine, or of before an upgrade
            hours = None
        silent = None if silence is None else Silence(**silence)
        return Preferences(tree["level"], silent, None if hours is None else QuietHours(**hours))
    except (ValueError, TypeError, KeyError) as error:
        raise StateError(f"{partition.path}: preferences: found what is none ({error}), expected one") from None


def keep_preferences(partition: Partition, person: str, preferences: Preferences) -> None:
    """Writes what a person asked for, in a transaction of the caller."""
    value = json.dumps(dataclasses.asdict(preferences))
    partition.rows("INSERT OR REPLACE INTO preferences VALUES (?, ?)", (person, value))


def as_wanted(item: Observation, preferences: Preferences, c_fa: float, now: float) -> Observation:
    """An event with a preference in its costs; `c_fa` is what an unwanted offer costs where the event does not say.

    A cost that is none is left to who refuses it.
    """
    costs = dict(item.costs or {})
    said = costs.get("c_fa", c_fa)
    if preferences.level and type(said) in (int, float) and LEAST <= said <= MOST:
        costs["c_fa"] = min(max(said * preferences.factor, LEAST), MOST)
    if (quiet := preferences.quiet(now)) is not None:
        costs.setdefault("quiet", quiet)
    return item._replace(costs=costs) if costs else item


def is_zone(name: Any) -> bool:
    """Whether this machine knows a time zone."""
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        return False
    return True


def _check_end(until: Any) -> None:
    if isinstance(until, bool) or not isinstance(until, int | float) or not math.isfinite(until):
        raise ValueError(f"until: found {until!r:.80}, expected a time in seconds since 1970")
