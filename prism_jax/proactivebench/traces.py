"""What an agent did, or a teacher or a student, as traces that the official scripts read."""

from __future__ import annotations

import dataclasses
import json
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from prism_jax.agent.records_file import RecordsError, parse_record
from prism_jax.runs.scores_files import deployed_choices
from prism_jax.runtime.files import JsonError, parse_json, read_lines
from prism_jax.streams import Stream
from prism_jax.streams.jsonl import read_streams
from prism_jax.streams.shards import read_files
from prism_jax.streams.traces import Trace, TraceEvent, time_of, write_traces
from prism_jax.streams.types import CONSTANT_OFFER, TASK


def export_traces(records: epath.PathLike, out: epath.PathLike, streams: epath.PathLike | None) -> dict[str, Trace]:
    """Writes a folder of traces, one file per stream of the records; nothing is written if anything is wrong.

    The records are a file that `python -m prism_jax agent` wrote, and `out` does not exist yet, such as
    eval/traces_new/NAME. `streams` are those that the agent was given, for the texts of their events; None takes the
    texts of the records, which have them if the agent ran with --keep_texts. Raises ValueError naming file and line,
    for a file that holds anything else, or an event without a text.
    """
    texts = {stream.id: stream for stream in read_streams(streams)} if streams else {}
    accepted: set[tuple[str, str]] = set()
    events: dict[str, list[TraceEvent]] = {}
    offers: dict[str, list[str | None]] = {}
    for place, record in _records(epath.Path(records)):
        stream = record["stream"]
        if record["kind"] == "outcome":
            if record["outcome"] == "accepted":
                accepted.add((stream, record["offer"]))
            continue
        trace = events.setdefault(stream, [])
        if record["event"] != len(trace):
            raise RecordsError(
                f"{place}: event: found {record['event']}, expected {len(trace)}, the next of {stream!r}"
            )
        trace.append(_event(record, _text(record, texts, place), place))
        offers.setdefault(stream, []).append(record["offer"])
    if not events:
        raise RecordsError(f"{records}: found no decision, expected records of `agent`")
    traces = {
        stream: tuple(
            dataclasses.replace(event, status=(stream, offer) in accepted)
            for event, offer in zip(trace, offers[stream], strict=True)
        )
        for stream, trace in events.items()
    }
    write_traces(out, traces)
    return traces


def export_taught(labelled: epath.PathLike, out: epath.PathLike) -> dict[str, Trace]:
    """Writes a folder of traces of what the teacher did in a file of streams that it labelled with its slow pass.

    It spoke where a candidate has a response, and said the offer that was labelled. An event has no answer where no
    valid one came, or nothing was asked. Raises ValueError naming stream and event, for a file of anything else.
    """
    streams = read_streams(labelled)
    if not any(step.rationale for stream in streams for step in stream.steps):
        raise RecordsError(
            f"{labelled}: found no step with a rationale, expected streams that `label` asked a teacher about "
            "(labelling.passes = slow)"
        )
    traces = {stream.id: tuple(_taught(stream)) for stream in streams}
    write_traces(out, traces)
    return traces


def export_written(written: str, scores: str, calibration: str, out: epath.PathLike) -> dict[str, Trace]:
    """Writes a folder of traces of what the deployed policy did: where it speaks, it says what the student wrote.

    Args:
      written: File, folder or glob of streams with their responses, as scoring wrote them.
      scores: File, folder or glob of their scores, with or without labels; rows of other streams are left out.
      calibration: calibration.json of an evaluation, whose operating point is that of evaluation.json beside it.
      out: Folder of the traces, which does not exist yet.

    Raises:
      ValueError, OSError: naming the file, or the stream and its step, that cannot be used.
    """
    streams = read_files(written)
    choices = deployed_choices(scores, calibration, [stream.id for stream in streams])
    traces = {stream.id: _trace(stream, choices) for stream in streams}
    write_traces(out, traces)
    return traces


def _taught(stream: Stream) -> Iterator[TraceEvent]:
    steps = {step.event: step for step in stream.steps}
    for number, event in enumerate(stream.events):
        unanswered = TraceEvent(time_of(event), event.text)
        step = steps.get(number)
        spoken = next((offer for offer in step.candidates if offer.response), None) if step else None
        if spoken:
            fields = _response(spoken.response, f"stream {stream.id!r}, event {number}")
            task = fields.pop(TASK, None)
            proposal = spoken.said or task or CONSTANT_OFFER.strip()
            yield dataclasses.replace(unanswered, answer=[proposal], response_fields=fields or None)
        else:
            yield dataclasses.replace(unanswered, answer=[]) if step and step.rationale else unanswered


def _trace(stream: Stream, choices: Mapping[tuple[str, int], int]) -> Trace:
    """A stream as a trace, from the number of the candidate that each step offers, -1 for silence."""
    trace = [TraceEvent(time_of(event), event.text) for event in stream.events]
    for number, step in enumerate(stream.steps):
        place = f"stream {stream.id!r}, step {number}"
        if (choice := choices.get((stream.id, number))) is None or choice >= len(step.candidates):
            raise ValueError(f"--scores: {place}: found no row of its candidates, expected the scores of --written")
        said, fields = None, dict[str, Any]()
        if choice >= 0:
            offer = step.candidates[choice]
            if offer.response is None:
                raise ValueError(f"--written: {place}: found no response, expected what `score` writes")
            said, fields = offer.said, _response(offer.response, place)
            fields.pop(TASK, None)
        trace[step.event] = dataclasses.replace(
            trace[step.event], answer=[] if said is None else [said], response_fields=fields or None
        )
    return tuple(trace)


def _records(path: epath.Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in read_lines(path, RecordsError, "the records of an agent"):
        place = f"{path}:{number}"
        yield place, parse_record(line, place)


def _text(record: Mapping[str, Any], texts: Mapping[str, Stream], place: str) -> str:
    stream, event = record["stream"], record["event"]
    if stream in texts and event < len(texts[stream].events):
        return texts[stream].events[event].text
    if isinstance(record.get("text"), str):
        return record["text"]
    raise RecordsError(
        f"{place}: text: found none for event {event} of {reprlib.repr(stream)}, expected it in the record "
        "(--keep_texts) or in --streams"
    )


def _event(record: Mapping[str, Any], text: str, place: str) -> TraceEvent:
    """One event of the official layout: a list with the proposal, or an empty one for silence."""
    response = _response(record["response"], place)
    task = response.pop(TASK, None)
    proposal = record["candidate"] or task or CONSTANT_OFFER.strip()
    return TraceEvent(
        time=f"{record['time']:.3f}",
        text=text,
        answer=[proposal] if record["spoke"] else [],
        response_fields=response or None,
    )


def _response(response: str | None, place: str) -> dict[str, Any]:
    """The keys that the model wrote with its offer; none for silence and for a model that writes no responses."""
    if response is None:
        return {}
    try:
        value = parse_json(response.encode(), f"{place}: response", RecordsError)
    except JsonError as error:
        raise RecordsError(str(error)) from error
    if not isinstance(value, dict):
        raise RecordsError(f"{place}: response: found {json.dumps(value)[:80]}, expected an object with keys")
    return value
