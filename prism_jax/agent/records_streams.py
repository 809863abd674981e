"""Decision records as streams to train on: the agent's own log, with what people answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from prism_jax.agent.records import NOT_KEPT
from prism_jax.agent.records_file import RecordsError, parse_record
from prism_jax.runtime.files import check_absent, read_lines
from prism_jax.scores import ScoresError
from prism_jax.scores.records import rows_of_records
from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.jsonl import write_streams


def streams_from_records(records: str, out: str) -> str:
    """Writes the streams of a file of decision records, and returns in words what was written.

    Every event is a step with all its candidates. Labels and propensities are those of the scores table of the same
    records: an offer that was made has the answer, every other candidate has none. What the agent wrote itself, fields
    and responses, is no example to learn from and is left out.

    Raises:
      FileExistsError: if there is something at `out`.
      ValueError, OSError: naming the line that cannot be used.
    """
    check_absent(out)
    streams, _ = read_records(records)
    write_streams(out, streams)
    offers = [offer for stream in streams for step in stream.steps for offer in step.candidates]
    events = [event for stream in streams for event in stream.events]
    counts = {
        "streams": len(streams),
        "events": len(events),
        "offers made": sum(bool(offer.logged) for offer in offers),
        "of them with an answer": sum(offer.y_accept is not None for offer in offers),
        "events with need judged": sum(step.y_need is not None for stream in streams for step in stream.steps),
    }
    written = f"streams: {out}: " + ", ".join(f"{count} {name}" for name, count in counts.items())
    without = sum(event.text == NOT_KEPT for event in events)
    return written + (
        f"\n{without} of {len(events)} events have no text and say {NOT_KEPT!r}: an agent keeps texts with --keep_texts"
        if without
        else ""
    )


def read_records(records: str) -> tuple[list[Stream], dict[str, str]]:
    """The streams of a file of decision records, and whose they are; errors as of `streams_from_records`."""
    path = epath.Path(records)
    if not path.exists():
        raise FileNotFoundError(f"--records: {path}: no such file, expected the records of an agent")
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
