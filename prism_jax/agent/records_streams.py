"""Decision records as streams to train on: the agent's own log, with what people answered."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from prism_jax.agent.records import NOT_KEPT
from prism_jax.agent.records_file import RecordsError, parse_record
from prism_jax.runtime.files import read_lines
from prism_jax.scores import ScoresError
from prism_jax.scores.records import rows_of_records
from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.published.content import Published


def published_records(records: epath.PathLike) -> Published:
    """The streams of a file of decision records; texts of events that the agent did not keep are left out.

    Every event is a step with all its candidates. Labels and propensities are those of the scores table of the same
    records: an offer that was made has the answer, every other candidate has none. What the agent wrote itself, fields
    and responses, is no example to learn from and is left out. Raises ValueError or OSError naming the line that cannot
    be used.
    """
    streams, _ = read_records(str(records))
    texts = [event.text for stream in streams for event in stream.events]
    dropped = collections.Counter[str]()
    if without := texts.count(NOT_KEPT):
        reason = f"texts of {len(texts):,} events, which say {NOT_KEPT!r}: an agent keeps texts with --keep_texts"
        dropped[reason] = without
    return Published(sorted(streams, key=lambda stream: stream.id), dropped=dropped)


def read_records(records: str) -> tuple[list[Stream], dict[str, str]]:
    """The streams of a file of decision records, and whose they are; errors as of `published_records`."""
    path = epath.Path(records)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file, expected the records of an agent")
    lines = read_lines(path, RecordsError, "the records of an agent")
    log = [parse_record(line, f"{path}:{number}") for number, line in lines]
    try:
        streams = list(_streams(log, records))
    except ScoresError as error:
        place = f"{records}, line {error.row + 1}" if error.row is not None else records
        raise ScoresError(error.problem, error.column, place=place) from None
    if not streams:
        raise RecordsError(f"{records}: found no decision, expected some")
    people = {one["stream"]: one["person"]["name"] for one in log if one["kind"] == "decision" and one.get("person")}
    return streams, people


def _streams(log: list[dict[str, Any]], path: str) -> Iterator[Stream]:
    streams: dict[str, list[Mapping[str, Any]]] = {}
    offers: dict[tuple[str, int], list[Candidate]] = {}
    need: dict[tuple[str, int], float | None] = {}
    for line, row in rows_of_records(log):
        record = log[line]
        place = record["stream"], record["event"]
        try:
            offer = Candidate(
                text=record["candidates"][row["candidate"]],
                y_accept=row["y_accept"],
                logged=row["logged"],
                propensity=row["propensity"],
            )
        except (ValueError, IndexError) as error:
            raise RecordsError(f"{path}:{line + 1}: candidates: {error}") from error
        offers.setdefault(place, []).append(offer)
        need[place] = row["y_need"]
    for line, record in enumerate(log):
        if record["kind"] == "decision":
            own = streams.setdefault(record["stream"], [])
            if record["event"] != len(own):
                raise RecordsError(
                    f"{path}:{line + 1}: event: found {record['event']}, expected {len(own)}, the next of its stream"
                )
            own.append(record)
    for name, own in streams.items():
        try:
            yield Stream(
                id=name,
                domain=own[0]["domain"],
                events=tuple(Event(time=record["time"], text=record.get("text", NOT_KEPT)) for record in own),
                steps=tuple(
                    Step(event=number, candidates=tuple(offers[name, number]), y_need=need[name, number])
                    for number in range(len(own))
                    if (name, number) in offers  # the others' signals are not known
                ),
            )
        except ValueError as error:
            raise RecordsError(f"{path}: stream {name!r}: {error}") from error
