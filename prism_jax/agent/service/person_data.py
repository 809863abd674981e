"""Reads what the store has of one person: one offer, when it began, and all of it as a file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from etils import epath

from prism_jax.agent.state.places import readable
from prism_jax.agent.state.preferences import Preferences
from prism_jax.agent.state.reading import all_logged
from prism_jax.agent.state.schema import parsed, parsed_record
from prism_jax.people.store import Person

MOST_EVENTS = 500
"""Events that are read at once."""


class Offer(NamedTuple):
    """An offer of a person, and what an outcome of it says."""

    stream: str
    offer: str
    time: float  # the newest of the stream, on its clock; not before the offer
    outcome: str | None  # what became of it; None where nobody said so yet


def offer_of(folder: epath.PathLike, person: str, number: int) -> Offer | None:
    """A person's offer by the number of its record; None where they have none. StateError for an unread file."""
    asked = (
        "SELECT name, offer, stream FROM log JOIN streams ON log.stream = streams.number "
        "WHERE log.number = ? AND person = ? AND event IS NOT NULL AND offer IS NOT NULL"
    )
    for place, ask in readable(folder, person):
        for name, offer, stream in ask(asked, (number, person)):
            ((newest,),) = ask("SELECT max(time) FROM log WHERE stream = ?", (stream,))
            said = ask("SELECT record FROM log WHERE stream = ? AND event IS NULL AND offer = ?", (stream, offer))
            return Offer(name, offer, newest, parsed_record(said[0][0], place.path)["outcome"] if said else None)
    return None


class Span(NamedTuple):
    """What a person's records reach over."""

    first: float | None  # when the first was written, in seconds since 1970; None without any
    newest: int | None  # number of the newest in its file, which no other record ever gets


def span_of(folder: epath.PathLike, person: str) -> Span:
    """What a person's records reach over. StateError for an unread file."""
    asked = "SELECT min(written), max(log.number) FROM log JOIN streams ON log.stream = streams.number WHERE person = ?"
    return next((Span(*ask(asked, (person,))[0]) for _, ask in readable(folder, person)), Span(None, None))


def exported(folder: epath.PathLike, person: str, preferences: Preferences, known: Person) -> bytes:
    """Everything of a person as one object of JSON. StateError for an unread file."""
    learnt = {**known._asdict(), "belief": known.belief._asdict()}
    events, records = list(_events(folder, person)), list[dict[str, Any]]()
    for one in all_logged(folder, person=person):
        told = {} if one.answer is None else {"answer": one.answer}
        records.append({"written": one.written, "record": one.record, **told})
    kinds = [one["record"]["kind"] for one in records]
    counts = {"streams": len({one["stream"] for one in events}), "events": len(events)}
    counts |= {"decisions": kinds.count("decision"), "outcomes": kinds.count("outcome")}
    found = {
        "person": person,
        "since": span_of(folder, person).first,  # in seconds since 1970; null without a record
        "counts": counts,
        "preferences": dataclasses.asdict(preferences),
        "learnt": learnt,
        "events": events,
        "records": records,
    }
    return json.dumps(found, indent=1).encode()


def _events(folder: epath.PathLike, person: str) -> Iterator[dict[str, Any]]:
    asked = (
        "SELECT stream, events.number, name, kind, item FROM events JOIN streams ON events.stream = streams.number "
        "WHERE person = ? AND (stream, events.number) > (?, ?) ORDER BY stream, events.number LIMIT ?"
    )
    place, more = (0, 0), True
    while more:
        found: list[tuple[Any, ...]] = []
        for file, ask in readable(folder, person):
            found = [(*row[:-1], parsed(row[-1], file.path)) for row in ask(asked, (person, *place, MOST_EVENTS))]
        for stream, number, name, kind, item in found:
            place = stream, number
            yield {"stream": name, "kind": kind, "event": number, **item}
        more = len(found) == MOST_EVENTS
