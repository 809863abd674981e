"""What a preference would have changed: a person's decisions again, from their records, before anything is saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from etils import epath

from prism_jax.agent.people import ACCEPTED
from prism_jax.agent.replay import Changes, replay
from prism_jax.agent.state.places import readable
from prism_jax.agent.state.preferences import Preferences
from prism_jax.agent.state.schema import parsed, parsed_record
from prism_jax.decision.operating_point import LEAST
from prism_jax.decision.operating_point import MOST as MOST_COST

MOST = 5000
"""Newest records of a person that are looked at."""


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
    most: int = MOST,
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
            cost = min(max(cost * factor, LEAST), MOST_COST)
            record = {**record, "costs": {**record["costs"], "c_fa": cost}}
        yield f"stream {record['stream']!r}", record
