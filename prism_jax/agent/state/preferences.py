"""What a person asked for: more or fewer offers, and when to be left alone; and what it would have changed.

A preference changes the costs under which the gate decides on that person's events, and so stands in every record.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import re
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from etils import epath

from prism_jax.agent.people import ACCEPTED
from prism_jax.agent.replay import Changes, replay
from prism_jax.agent.settings import QUIET
from prism_jax.agent.state.partition import Partition, StateError
from prism_jax.agent.state.places import readable
from prism_jax.agent.state.schema import parsed, parsed_record
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


MOST_RECORDS = 5000
"""Newest records of a person that a preview looks at."""


class Preview(NamedTuple):
    """A level beside the present one, on the same decisions."""

    decisions: int  # that were looked at
    offers: int  # that the present level makes in them
    fewer: int  # of these, offers that would not be made
    lost: int  # of these, offers that were made and accepted
    more: int  # offers that would be made as well
    expected: float  # of these, how many would be accepted, by their calibrated p_accept


def preview(
    folder: epath.PathLike,
    person: str,
    levels: Sequence[int],
    *,
    since: float,
    c_fa: float,
    current: int = 0,
    most: int = MOST_RECORDS,
) -> dict[int, Preview]:
    """What each level would have done on a person's `most` newest records written since a time, in seconds since 1970.

    Each is compared with the `current` level, of which the same is asked: budgets begin empty for both. What was known,
    who thought, quiet times and chance stay as they were. `c_fa` is what an unwanted offer costs where the event did
    not say. StateError names a file that cannot be read.
    """
    lines = _lines(folder, person, since, most)
    accepted = {record["offer"] for _, record in lines if record.get("outcome") == ACCEPTED}
    decided: dict[int, dict[tuple[str, int], dict[str, Any]]] = {}
    for level in {*levels, current}:
        changed = list(_at(lines, c_fa, Preferences(level).factor))
        again = replay(changed, Changes(thoughts_as_logged=True, partial=True, obeyed=True))
        decided[level] = {(one["stream"], one["event"]): one for one in again if one["kind"] == "decision"}
    made = {level: {place for place, one in own.items() if one["spoke"]} for level, own in decided.items()}
    found = {}
    for level in levels:
        fewer, more = made[current] - made[level], made[level] - made[current]
        lost = sum(decided[current][place]["offer"] in accepted for place in fewer)
        expected = sum(decided[level][place]["p_accept"] or 0.0 for place in more)
        found[level] = Preview(len(decided[level]), len(made[current]), len(fewer), lost, len(more), expected)
    return found


def _lines(
    folder: epath.PathLike, person: str, since: float, most: int
) -> list[tuple[dict[str, Any] | None, dict[str, Any]]]:
    """A person's newest records in their order, each with its event."""
    question = (
        "SELECT item, record FROM log JOIN streams ON log.stream = streams.number LEFT JOIN events "
        "ON events.stream = log.stream AND events.number = log.event "
        "WHERE person = ? AND written >= ? ORDER BY log.number DESC LIMIT ?"
    )
    found: list[tuple[dict[str, Any] | None, dict[str, Any]]] = []
    for place, ask in readable(folder, person):
        rows = ask(question, (person, since, most))[::-1]
        found += [(item and parsed(item, place.path), parsed_record(record, place.path)) for item, record in rows]
    known = {record["offer"] for _, record in found if record["kind"] == "decision"}
    return [line for line in found if line[1]["kind"] == "decision" or line[1]["offer"] in known]


def _at(
    lines: Sequence[tuple[Mapping[str, Any] | None, dict[str, Any]]], c_fa: float, factor: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    for item, record in lines:
        if item is not None:
            cost = (item.get("costs") or {}).get("c_fa", c_fa)
            cost = min(max(cost * factor, LEAST), MOST)
            record = {**record, "costs": {**record["costs"], "c_fa": cost}}
        yield f"stream {record['stream']!r}", record
