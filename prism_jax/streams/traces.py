"""Traces: what a model answered at each event of a stream, in the layout of ProactiveBench's `eval/traces_new`.

A folder has one JSON file per stream: a list of events, each with `observation` (`time`, `event`), `agent_response`
and, once it was judged, `judgement`, one verdict per prediction. Answers are read in two ways:

- `official`, as the published scripts do. They take everything but null for a proposal: the texts "null" and "None",
  and the object {"candidate_task": [...]}, which is what the files hold where a request failed.
- `fixed`: a text that only says null is silence, and an answer that is neither a list of texts nor null is no answer.
"""

from __future__ import annotations

import dataclasses
import itertools
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from etils import epath

from prism_jax.runtime.files import check_text, encode_json, new_folder, parse_json, read_bounded
from prism_jax.runtime.schema import Loose, decode, some
from prism_jax.streams.jsonl import StreamError
from prism_jax.streams.proactivebench_source import DOMAINS, Observed
from prism_jax.streams.times import to_seconds
from prism_jax.streams.types import Candidate, Event, Step, Stream

Mode = Literal["official", "fixed"]
NULL_WORDS = ("", "null", "none")
"""Texts that say that nothing is proposed, in lower case and without white space around them."""


def _json(file: str) -> str:
    if not file.endswith(".json"):
        raise ValueError(f"found {reprlib.repr(file)}, expected a name NAME.json")
    return file


class _Absent:
    """The answer of an event that was never asked about; null is an answer."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT = _Absent()


@dataclasses.dataclass(frozen=True)
class TraceEvent:
    """One event and the answer to it."""

    time: str  # in the file's own format
    text: str  # what the user did
    answer: Any = ABSENT  # JSON of `agent_response`: mostly a list of proposals, empty for silence; `ABSENT` without it
    judgement: tuple[bool, ...] | None = None  # verdicts in the file, one per prediction; None where it was not judged
    response_fields: Mapping[str, Any] | None = (
        None  # further keys of the model (`other_infomation`, spelt so in the files)
    )
    status: bool = False  # `task_status` of the file


Trace = tuple[TraceEvent, ...]


@dataclasses.dataclass(frozen=True)
class _Step(Observed):
    agent_response: Any = ABSENT
    judgement: Annotated[tuple[bool, ...], "a list of true and false"] | None = None
    other_infomation: Any = None
    task_status: Any = False


@dataclasses.dataclass(frozen=True)
class _Category(Loose):
    files: Annotated[tuple[Annotated[str, _json], ...], "a list of names NAME.json"]


_STEPS = Annotated[tuple[_Step, ...], "a list of events", some]


class Turn(NamedTuple):
    """What an answer means, read as mode `fixed` does."""

    proposals: tuple[str, ...]  # proposed texts; empty for silence
    failed: bool = False  # whether there is no answer that says what the model wanted


def official_predictions(event: TraceEvent) -> tuple[Any, ...]:
    """The predictions of an answer as the published scripts iterate over it: None is silence, all else a proposal.

    An empty or null answer is one prediction of silence; an object gives its keys and a text its characters. An event
    without an answer has no prediction. Raises StreamError for an answer that cannot be iterated over, at which the
    published script stops.
    """
    if event.answer is ABSENT:
        return ()
    if event.answer is None:
        return (None,)
    if not isinstance(event.answer, list | dict | str):
        raise StreamError(f"agent_response: found {reprlib.repr(event.answer)}, expected a list or null")
    return tuple(event.answer) or (None,)


def fixed_turn(event: TraceEvent) -> Turn:
    """What an answer proposes, with null in words as silence and everything malformed as no answer."""
    if event.answer is None:
        return Turn(())
    if not isinstance(event.answer, list) or not all(text is None or isinstance(text, str) for text in event.answer):
        return Turn((), failed=True)
    return Turn(tuple(text for text in event.answer if text is not None and not says_null(text)))


def says_null(text: str) -> bool:
    """Whether a text says that nothing is proposed."""
    return text.strip().lower() in NULL_WORDS


def read_trace(path: epath.PathLike) -> Trace:
    """Reads one stream's trace; raises StreamError naming file, event and key, for anything but a trace."""
    value = parse_json(read_bounded(path, StreamError), str(path), StreamError)
    return tuple(_event(item, f"{path}: [{i}]") for i, item in enumerate(decode(_STEPS, value, str(path), StreamError)))


def read_traces(folder: epath.PathLike) -> dict[str, Trace]:
    """Reads every trace of a folder, by the file's name without its ending, in the order of the names.

    Raises FileNotFoundError if there is no such folder, or no JSON file in it.
    """
    folder = epath.Path(folder)
    paths = sorted(path for path in folder.iterdir() if path.suffix == ".json") if folder.is_dir() else []
    if not paths:
        raise FileNotFoundError(f"{folder}: found no file NAME.json there, expected one per stream")
    return {path.stem: read_trace(path) for path in paths}


def write_traces(folder: epath.PathLike, traces: Mapping[str, Trace]) -> None:
    """Writes a folder of traces, complete or not at all; raises FileExistsError if it exists.

    Raises ValueError for a stream whose name is not a file's name.
    """
    check_names(traces)
    with new_folder(folder) as partial:
        for name, trace in traces.items():
            (partial / f"{name}.json").write_bytes(encode_json([_encode(event) for event in trace]))


def check_names(names: Iterable[str]) -> None:
    """Raises ValueError for a stream whose name is not a file's name."""
    for name in names:
        if not name or name.startswith(".") or "/" in name:
            raise ValueError(f"stream {reprlib.repr(name)}: found no file name, expected one without / and first .")


def time_of(event: Event) -> str:
    """An event's time as a trace states it: as its source wrote it, or in seconds."""
    return f"{event.time:.3f}" if event.time_text is None else event.time_text


def read_categories(path: epath.PathLike) -> dict[str, tuple[str, ...]]:
    """Reads splits.json: the streams of each category by its name; raises StreamError naming file and category."""
    value = parse_json(read_bounded(path, StreamError), str(path), StreamError)
    files = decode(Mapping[str, _Category], value, str(path), StreamError)
    return {name: tuple(file.removesuffix(".json") for file in content.files) for name, content in files.items()}


def trace_stream(name: str, trace: Sequence[TraceEvent]) -> Stream:
    """A trace as a stream for judges: one step per answer, whose candidates are the predictions that are texts.

    A judge who is asked about silence and about every candidate serves both ways of reading an answer. A candidate is
    logged if it is a proposal in mode `fixed`. An event without an answer has no step. If times cannot be read, they
    are the numbers of the events; a time never runs backwards.
    """
    try:
        seconds: Sequence[float] = tuple(itertools.accumulate(to_seconds([event.time for event in trace]), max))
    except ValueError:
        seconds = [float(number) for number in range(len(trace))]
    steps = []
    for number, event in enumerate(trace):
        if event.answer is ABSENT:
            continue
        texts = [
            prediction
            for prediction in official_predictions(event)
            if isinstance(prediction, str) and prediction.strip()
        ]
        proposals = fixed_turn(event).proposals
        offers = tuple(Candidate(text=text, logged=text in proposals) for text in texts)
        steps.append(Step(event=number, candidates=offers or (Candidate(logged=False),)))
    prefix = name.split("_")[0]
    return Stream(
        id=name,
        domain=DOMAINS.get(prefix, prefix or "unknown"),
        events=tuple(
            Event(time=time, text=event.text, time_text=event.time) for time, event in zip(seconds, trace, strict=True)
        ),
        steps=tuple(steps),
    )


def _event(step: _Step, place: str) -> TraceEvent:
    """One event of a file; `place` starts every message."""
    answer, fields = step.agent_response, step.other_infomation
    for text in answer if isinstance(answer, list | dict) else ():
        if isinstance(text, str):
            check_text(text, f"{place}.agent_response", StreamError)
    return TraceEvent(
        time=step.observation.time,
        text=step.observation.event,
        answer=answer,
        judgement=step.judgement,
        response_fields=fields if isinstance(fields, dict) else None,
        status=step.task_status is True,
    )


def _encode(event: TraceEvent) -> dict[str, Any]:
    encoded: dict[str, Any] = {"observation": {"time": event.time, "event": event.text}}
    if event.answer is not ABSENT:
        encoded["agent_response"] = event.answer
    encoded["task_status"] = event.status
    if event.response_fields is not None:
        encoded["other_infomation"] = dict(event.response_fields)
    if event.judgement is not None:
        encoded["judgement"] = list(event.judgement)
    return encoded
