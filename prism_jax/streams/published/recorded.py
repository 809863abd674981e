"""Recorded answers of models on event streams, in ProactiveBench's layout: one file MODEL/STREAM.json each.

A file is a list of steps {observation: {time, event}, agent_response: [offer] or [], other_infomation: {Purpose,
Thoughts, Response}} (the last key is spelt so in the source). All models saw the same events, so the answers of a step
become the candidates of one step: a stream per model would put one session into several splits.

The answers are texts without probabilities, and three kinds of them are not what they seem: the offers "null" and
"None" are silence; a `agent_response` that is an object {candidate_task: [...]} is the input, left in place where the
request had failed; and an offer that is no text is no offer. The last two are no answers, and a warning counts them.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import reprlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from etils import epath

from prism_jax.runtime.files import parse_json, read_bounded
from prism_jax.runtime.schema import decode, some
from prism_jax.streams import RESPONSE_KEYS, Event, Step, Stream
from prism_jax.streams.jsonl import StreamError
from prism_jax.streams.proactivebench_source import DOMAINS, Observed
from prism_jax.streams.published.answers import answer_text, candidates_of
from prism_jax.streams.published.content import Published
from prism_jax.streams.times import to_seconds

OFFER = RESPONSE_KEYS[2]
"""The key of what an answer proposes."""
_FAILED = "candidate_task"


@dataclasses.dataclass(frozen=True)
class _Step(Observed):
    agent_response: Any = None
    other_infomation: Any = None


_STEPS = Annotated[tuple[_Step, ...], "a list of steps", some]


class ModelAnswer(NamedTuple):
    """What one model answered at one step."""

    model: str  # name of the model's folder
    event: int  # index of the newest event that it saw
    texts: Mapping[str, str | None]  # by `RESPONSE_KEYS`, None where it gave none; no "Proactive Task" is silence


@dataclasses.dataclass(frozen=True)
class Recording:
    """The answers of all models on one stream."""

    stream: Stream  # the stream without steps
    answers: tuple[ModelAnswer, ...]  # by event and model; failed ones are missing


def read_recorded(path: epath.PathLike) -> Published:
    """Reads recorded answers, in one folder per model or in that of a single one, as streams of all models' offers.

    One stream per name of a file, sorted by it. A step has each distinct offer once, in an order that tells nothing
    about the models, with the model's answer as its response where it is complete; a step without offers has the
    constant candidate. `Step.recorded` holds, by the model's name, whether it made an offer (1) or was silent (0).

    Raises:
      FileNotFoundError: if there are no such files.
      StreamError: naming file and step, for anything else than the layout, or models that saw different events.
    """
    recordings, dropped = read_recordings(path)
    streams = []
    for recording in recordings:
        by_event = itertools.groupby(recording.answers, key=lambda answer: answer.event)
        steps = tuple(_step(recording.stream.id, event, list(answers)) for event, answers in by_event)
        streams.append(dataclasses.replace(recording.stream, steps=steps))
    return Published(streams, dropped=dropped)


def read_recordings(path: epath.PathLike) -> tuple[list[Recording], collections.Counter[str]]:
    """Reads recorded answers as `read_recorded` does; returns each of them, and how many are missing and why."""
    path = epath.Path(path)
    events: dict[str, tuple[epath.Path, list[tuple[str, str]]]] = {}
    answers: dict[str, list[ModelAnswer]] = collections.defaultdict(list)
    dropped = collections.Counter[str]()
    for file in _files(path):
        model, name = file.parent.name, file.stem
        own_events = []
        value = parse_json(read_bounded(file, StreamError), str(file), StreamError)
        for index, step in enumerate(decode(_STEPS, value, str(file), StreamError)):
            place, moment = f"{file}: [{index}]", step.observation
            own_events.append((moment.time, moment.event))
            answer = _answer(step, place, model, index)
            if answer is None:
                dropped[f"steps of {model} without an answer: the request failed or its offer is no text"] += 1
            else:
                answers[name].append(answer)
        first, expected = events.setdefault(name, (file, own_events))
        _check_same(file, own_events, first, expected)
    recordings = [
        Recording(
            _bare(name, *events[name]), tuple(sorted(answers[name], key=lambda answer: (answer.event, answer.model)))
        )
        for name in sorted(events)
    ]
    return recordings, dropped


def _files(path: epath.Path) -> list[epath.Path]:
    """The files of all models, sorted; a folder of files is one model."""
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: found no such folder, expected one with a folder MODEL of files STREAM.json")
    files = sorted(file for file in path.iterdir() if file.suffix == ".json")
    files_of_folders = sorted(
        file for folder in path.iterdir() if folder.is_dir() for file in folder.iterdir() if file.suffix == ".json"
    )
    if bool(files) == bool(files_of_folders):
        contents = f"{files[0].name} beside {files_of_folders[0]}" if files else "no file"
        raise FileNotFoundError(
            f"{path}: found {contents}, expected files STREAM.json either in it or in its folders, one per model"
        )
    return files or files_of_folders


def _answer(step: _Step, place: str, model: str, event: int) -> ModelAnswer | None:
    """The answer of a step; None where the request failed or the offer is no text."""
    response, fields = step.agent_response, step.other_infomation
    if isinstance(response, dict) and response.keys() == {_FAILED}:
        return None
    if not isinstance(response, list) or len(response) > 1:
        raise StreamError(
            f"{place}.agent_response: found {reprlib.repr(response)}, expected a list with at most one offer"
        )
    if response and not isinstance(response[0], str | None):
        return None
    texts = {OFFER: answer_text(response[0] if response else None, f"{place}.agent_response[0]")}
    if not isinstance(fields, dict):
        raise StreamError(f"{place}.other_infomation: found {reprlib.repr(fields)}, expected an object with keys")
    for key in RESPONSE_KEYS:
        if key != OFFER:
            texts[key] = answer_text(fields.get(key), f"{place}.other_infomation.{key}")
    return ModelAnswer(model, event, texts)


def _check_same(file: epath.Path, events: list[Any], first: epath.Path, expected: list[Any]) -> None:
    for index, (event, reference) in enumerate(itertools.zip_longest(events, expected)):
        if event != reference:
            raise StreamError(
                f"{file}: [{index}].observation: found {reprlib.repr(event)}, expected {reprlib.repr(reference)} as in "
                f"{first}: models of one stream saw the same events"
            )


def _bare(name: str, file: epath.Path, events: Sequence[tuple[str, str]]) -> Stream:
    """The stream without steps; an event stamped before the one that precedes it takes that one's time."""
    try:
        seconds = itertools.accumulate(to_seconds([time for time, _ in events]), max)
    except ValueError as error:
        raise StreamError(f"{file}: {error}") from error
    prefix = name.split("_")[0]
    return Stream(
        id=name,
        domain=DOMAINS.get(prefix, prefix) or "unknown",
        events=tuple(Event(time=time, text=text) for time, (_, text) in zip(seconds, events, strict=True)),
        steps=(),
    )


def _step(stream: str, event: int, answers: list[ModelAnswer]) -> Step:
    return Step(
        event=event,
        candidates=candidates_of(stream, event, [answer.texts for answer in answers]),
        recorded={answer.model: float(answer.texts[OFFER] is not None) for answer in answers},
    )
