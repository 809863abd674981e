"""One partition of an agent's state: a SQLite file with some streams, their decisions and outcomes, and their people.

What a batch changes is one transaction, and on the disk when it ends.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from prism_jax.agent.lines import LineError, Where, observation_at
from prism_jax.agent.records import OfferOutcome, encode
from prism_jax.agent.state.owned_file import OwnedFile
from prism_jax.agent.state.schema import StateError, parsed, parsed_record
from prism_jax.agent.steps import Observation
from prism_jax.runtime.files import MOST_LINE_BYTES
from prism_jax.streams import Candidate, Event

KEPT_SECONDS = 7 * 86400.0
"""How long the answer to a request with a key of its own is kept."""
_LOG = "INSERT INTO log (stream, event, offer, time, written, record, answer) VALUES (?, ?, ?, ?, ?, ?, ?)"
_TO_ERASE = "INSERT OR REPLACE INTO facts VALUES ('erase', '{}')"
"""Notes, with a deletion, that copies of what was deleted are still in the file."""


class Known(NamedTuple):
    """A stream of the partition."""

    number: int
    person: str | None
    kind: str  # which agent decides on it


class Partition(OwnedFile):
    """An open partition, which this process owns. One thread at a time may use it."""

    # Streams

    def claim(self, stream: str, person: str | None) -> None:
        """Notes, in the partition of a stream's name, whose it is."""
        if self.claimed(stream) is not None:  # one of which nothing came
            self.rows(_TO_ERASE)
        self.rows("INSERT OR REPLACE INTO claims VALUES (?, ?)", (stream, person))

    def claimed(self, stream: str) -> tuple[str | None] | None:
        """Whose a stream is, by its claim; None where nobody has claimed it."""
        found = self.rows("SELECT person FROM claims WHERE stream = ?", (stream,))
        return found[0] if found else None

    def stream(self, name: str) -> Known | None:
        """A stream of this partition; None for a new one."""
        found = self.rows("SELECT number, person, kind FROM streams WHERE name = ?", (name,))
        return Known(*found[0]) if found else None

    def open_stream(self, name: str, person: str | None, kind: str) -> Known:
        """A stream of this partition, made where it is new."""
        known = self.stream(name)
        if known is None:
            self.rows("INSERT INTO streams (name, person, kind) VALUES (?, ?, ?)", (name, person, kind))
            known = self.stream(name)
        assert known is not None, "it was made"
        return known

    def knows(self, person: str) -> bool:
        """Whether anything is kept of a person."""
        places = ("streams WHERE person", "people WHERE name", "preferences WHERE person", "signins WHERE person")
        return any(self.rows(f"SELECT 1 FROM {place} = ? LIMIT 1", (person,)) for place in places)

    def append(
        self,
        stream: Known,
        kept: Mapping[str, Any],
        record: Mapping[str, Any],
        line: bytes,
        answer: Mapping[str, Any],
        written: float,
    ) -> None:
        """Adds an event, as `item_of` or `item_at` keep it, with the record of its decision and that as its `line`.

        Of an offer of ours it has the answer, too, whose texts are whole. StateError for a record that is too long.
        """
        if len(line) > MOST_LINE_BYTES:
            raise StateError(f"{self.path}: found a record of {len(line)} bytes, expected at most {MOST_LINE_BYTES}")
        self.rows("INSERT INTO events VALUES (?, ?, ?)", (stream.number, record["event"], json.dumps(kept)))
        is_ours = record["offer"] is not None and "shadow" not in record
        offered = json.dumps(answer) if is_ours else None
        self.rows(_LOG, (stream.number, record["event"], record["offer"], record["time"], written, line, offered))

    def answer(self, stream: Known, outcome: OfferOutcome, written: float) -> None:
        """Adds the record of an outcome."""
        record = outcome.record()
        self.rows(_LOG, (stream.number, None, outcome.offer, record["time"], written, encode(record), None))

    def note_input(self, place: Where) -> None:
        """Notes how far a file of input was taken."""
        self.rows("INSERT OR REPLACE INTO facts VALUES (?, ?)", (f"input {place.path}", json.dumps(place)))

    def input(self, path: str) -> Where | None:
        """How far a file of input was taken; None for another one."""
        found = self.rows("SELECT value FROM facts WHERE name = ?", (f"input {path}",))
        return Where(*json.loads(found[0][0])) if found else None

    def lines(self) -> Iterator[bytes]:
        """The records of the log, each as its line, in its order."""
        after = 0
        while rows := self.rows("SELECT number, record FROM log WHERE number > ? ORDER BY number LIMIT 1000", (after,)):
            after = rows[-1][0]
            yield from (record for _, record in rows)

    def outcome(self, stream: str, offer: str) -> dict[str, Any] | None:
        """The record of an offer's outcome; None where there is none yet."""
        found = self.rows(
            "SELECT record FROM log JOIN streams ON log.stream = streams.number "
            "WHERE name = ? AND event IS NULL AND offer = ?",
            (stream, offer),
        )
        return parsed_record(found[0][0], self.path) if found else None

    def history(self, stream: Known, after: int, most: int) -> list[tuple[int, Observation | None, dict[str, Any]]]:
        """What a stream's log has behind a number, at most so many, in its order: number, event and record.

        The event is None where the record is that of an outcome.
        """
        found = self.rows(
            "SELECT log.number, name, person, item, record FROM log JOIN streams ON log.stream = streams.number "
            "LEFT JOIN events ON events.stream = log.stream AND events.number = log.event "
            "WHERE log.stream = ? AND log.number > ? ORDER BY log.number LIMIT ?",
            (stream.number, after, most),
        )
        return [
            (
                number,
                None if item is None else _observation(name, person, parsed(item, self.path)),
                parsed_record(record, self.path),
            )
            for number, name, person, item, record in found
        ]

    # Requests with a key of their own

    def answered(self, key: str) -> tuple[bytes, Any] | None:
        """The digest of an earlier request's body and the answer to it; None where there was none."""
        found = self.rows("SELECT digest, answer FROM requests WHERE key = ?", (_hash(key),))
        return (found[0][0], parsed(f'{{"answer": {found[0][1]}}}', self.path)["answer"]) if found else None

    def note_answer(self, key: str, stream: Known, digest: bytes, answer: Any, written: float) -> None:
        """Keeps the answer to a request, and lets those go that are older than `KEPT_SECONDS`."""
        self.rows("DELETE FROM requests WHERE written < ?", (written - KEPT_SECONDS,))
        self.rows(
            "INSERT INTO requests VALUES (?, ?, ?, ?, ?)",
            (_hash(key), stream.number, digest, json.dumps(answer), written),
        )

    # Deletion

    def forget_person(self, person: str) -> list[str]:
        """Deletes a person with all their streams, events, records and answers; returns the names of the streams."""
        with self.transaction():
            names = [name for (name,) in self.rows("SELECT name FROM streams WHERE person = ?", (person,))]
            self.rows("DELETE FROM streams WHERE person = ?", (person,))
            for table in ("preferences", "signins"):
                self.rows(f"DELETE FROM {table} WHERE person = ?", (person,))
            self.people.forget(person)
            self.rows(_TO_ERASE)
        return names

    def forget_learnt(self, person: str) -> None:
        """Deletes what was learnt of a person, and leaves their streams and records."""
        with self.transaction():
            self.people.forget(person)

    def end_signins(self) -> None:
        """Deletes links and sessions that have ended."""
        if self.rows("SELECT 1 FROM signins WHERE until <= ? LIMIT 1", (self._clock(),)):
            with self.transaction():
                self.rows("DELETE FROM signins WHERE until <= ?", (self._clock(),))

    def old_streams(self, before: float) -> list[tuple[int, str, str | None]]:
        """Number, name and person of the streams of which nothing was written since a time, in seconds since 1970."""
        return self.rows(  # type: ignore[return-value]
            "SELECT number, name, person FROM streams "
            "WHERE (SELECT max(written) FROM log WHERE stream = streams.number) < ?",
            (before,),
        )

    def waited_for(self, stream: int, person: str) -> dict[str, Any] | None:
        """The record of a stream's offer whose answer a person's alarm waits for; None where it waits for another."""
        found = self.rows(
            "SELECT record FROM log WHERE stream = ? AND event IS NOT NULL "
            "AND offer = (SELECT offer FROM watched WHERE person = ?)",
            (stream, person),
        )
        return parsed_record(found[0][0], self.path) if found else None

    def delete_stream(self, number: int) -> None:
        """Deletes a stream with its events and records, in a transaction of the caller."""
        self.rows("DELETE FROM answers WHERE offer IN (SELECT offer FROM log WHERE stream = ?)", (number,))
        self.rows("DELETE FROM streams WHERE number = ?", (number,))
        self.rows(_TO_ERASE)

    def claims(self, person: str | None = None) -> list[tuple[str, str | None]]:
        """The streams that are claimed here, of one person or of all, and whose each is."""
        where = "" if person is None else " WHERE person = ?"
        return self.rows(  # type: ignore[return-value]
            f"SELECT stream, person FROM claims{where}", () if person is None else (person,)
        )

    def unclaim(self, streams: Collection[str]) -> None:
        """Deletes the claims on streams, and calls `erase`."""
        if streams:
            with self.transaction():
                for stream in streams:
                    self.rows("DELETE FROM claims WHERE stream = ?", (stream,))
                self.rows(_TO_ERASE)
        self.erase()

    def erase(self) -> None:
        """Leaves no copy of what was deleted in the file, or in the log of its changes.

        Raises:
          StateError: where another process reads the file for longer than a few seconds.
        """
        if self.people.fact("erase") is None:
            return
        self.rows("VACUUM")
        if not self._empty_log(waits=True):
            raise StateError(f"{self.path}: found it in use, expected it free to leave no copy of what was deleted")
        with self.transaction():
            self.rows("DELETE FROM facts WHERE name = 'erase'")


def item_of(item: Observation) -> dict[str, Any]:
    """An event as the store has it, with its texts."""
    texts = {"text": item.event.text, "candidates": [one.text for one in item.candidates]}
    return {"time": item.event.time, **texts, **_costs_of(item)}


def item_at(item: Observation, place: Where | None) -> dict[str, Any]:
    """An event as the store has it without its texts: where it stands in a file of input, if it does."""
    at = None if place is None else {"input": place.path, "begin": place.begin, "end": place.end}
    return {"time": item.event.time, "at": at, **_costs_of(item)}


def _costs_of(item: Observation) -> dict[str, Any]:
    return {**({"costs": dict(item.costs)} if item.costs else {}), "domain": item.domain}


def _observation(stream: str, person: str | None, kept: dict[str, Any]) -> Observation:
    if "text" in kept:
        offers = tuple(Candidate(text=text) for text in kept["candidates"])
    elif kept["at"] is None:
        raise LineError(
            f"stream {stream!r}: found no texts of its events, from which it would be read again, expected them: begin "
            "a stream of another name, and keep texts from its first event on (--keep_texts)"
        )
    else:
        found = observation_at(kept["at"], stream)
        kept, offers = {**kept, "text": found.event.text}, tuple(found.candidates)
    event = Event(time=kept["time"], text=kept["text"])
    return Observation(stream, event, offers, kept.get("costs"), kept["domain"], person)


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
