"""Requests and answers of the Decisions API, `POST /v1/decisions`, as openai 3.57 sends and reads them.

A request has an input and typed questions. The input is what a user did: each message is an event, the last one the
newest. Predicates named `need` and `accept`, or `accept:TEXT` for the offer TEXT, are answered; every other question is
refused, because the model was trained for these two alone. What the clients send beside is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import pydantic

from prism_jax.agent.steps import AN_OFFER, MOST_CANDIDATES, MOST_EVENT_BYTES
from prism_jax.runtime.written import MOST_SECONDS
from prism_jax.streams import Candidate, Event

NEED = "need"
"""The name of the question whether help is needed."""
MOST_QUESTIONS = 400
MOST_EVENTS = 2048


class FormError(ValueError):
    """A request that nobody can answer: `param` names the place, the message what was found and expected."""

    def __init__(self, param: str, words: str) -> None:
        super().__init__(f"{param}: {words}")
        self.param = param


class Text(pydantic.BaseModel):
    """A part of a message: text."""

    type: Literal["input_text"]
    text: str


class Json(pydantic.BaseModel):
    """A part of a message: an event with its time, `{"time": SECONDS, "text": TEXT}`."""

    type: Literal["input_json"]
    data: dict[str, Any]


Part = Annotated[Text | Json, pydantic.Field(discriminator="type")]


class Message(pydantic.BaseModel):
    """One event: a text, parts of text that are joined, or one JSON part."""

    type: Literal["message"] = "message"
    role: Literal["user"]
    content: str | Annotated[list[Part], pydantic.Field(min_length=1)]


class Question(pydantic.BaseModel):
    """A question, of which the name says what is asked; its other words are not read."""

    type: Literal["predicate", "choice", "score"]
    name: str | None = None


class DecisionsRequest(pydantic.BaseModel):
    """The body of a request."""

    model: str
    input: str | Annotated[list[Message], pydantic.Field(min_length=1, max_length=MOST_EVENTS)]
    questions: Annotated[list[Question], pydantic.Field(min_length=1, max_length=MOST_QUESTIONS)]


class Probability(pydantic.BaseModel):
    """The answer to a predicate."""

    type: Literal["predicate"] = "predicate"
    name: str | None
    probability: float


class Refusal(pydantic.BaseModel):
    """The answer to a question that the model was not trained for."""

    type: Literal["refusal"] = "refusal"
    name: str | None


class InputDetails(pydantic.BaseModel):
    """Of the tokens of the input: those read before and kept, and those kept now for later."""

    cached_tokens: int
    cache_write_tokens: int


class OutputDetails(pydantic.BaseModel):
    """Of the tokens that were written: none."""

    reasoning_tokens: int = 0


class Usage(pydantic.BaseModel):
    """Tokens that the answers stand on, or, of a probe, that were read for them; nothing is written."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int = 0
    output_tokens_details: OutputDetails = OutputDetails()
    total_tokens: int


class Decision(pydantic.BaseModel):
    """The body of an answer."""

    model: str
    answers: list[Probability | Refusal]
    usage: Usage


class Problem(pydantic.BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(pydantic.BaseModel):
    """The body of every answer that is none."""

    error: Problem


class Asked(NamedTuple):
    """What a request asks of the model."""

    events: tuple[Event, ...]
    candidates: tuple[Candidate, ...]  # distinct, at least one
    caller: str = ""  # whose request it is: streams are kept for each caller alone


class Answered(NamedTuple):
    """The calibrated slots after the newest event."""

    p_need: float
    p_accept: Mapping[Candidate, float]
    tokens: int = 0  # that the answers stand on
    cached: int = 0  # that were read before and kept
    kept: int = 0  # that were read now and kept


def asked_of(request: DecisionsRequest, caller: str = "") -> Asked | None:
    """What a request asks; None where no question is answered. FormError names what is out of range."""
    names = [(f"questions[{i}].name", _name(question)) for i, question in enumerate(request.questions)]
    if isinstance(request.input, str):
        return asked_about(names, [("input", request.input)], caller)
    places = [f"input[{number}].content" for number in range(len(request.input))]
    contents = [_content(*pair) for pair in zip(request.input, places, strict=True)]
    return asked_about(names, list(zip(places, contents, strict=True)), caller)


def asked_about(
    names: Sequence[tuple[str, str | None]], items: Sequence[tuple[str, str | Mapping[str, Any]]], caller: str
) -> Asked | None:
    """What names of questions ask about events, texts or `{"time": SECONDS, "text": TEXT}`, each with its place.

    None stands for the name of a question that nobody answers. Result and errors are those of `asked_of`.
    """
    wanted = [offer for offer in (_offer(*pair) for pair in names) if offer is not None]
    candidates = tuple(dict.fromkeys(wanted))
    if not (candidates or any(name == NEED for _, name in names)):
        return None
    if len(candidates) > MOST_CANDIDATES:
        raise FormError("questions", f"found {len(candidates)} offers, expected at most {MOST_CANDIDATES}")
    asked = Asked(tuple(_events(items)), candidates or AN_OFFER, caller)
    texts = [candidate.text or "" for candidate in asked.candidates]
    events = [(place, [one.text]) for (place, _), one in zip(items, asked.events, strict=True)]
    for place, own in [("questions", texts), *events]:
        if (size := sum(len(text.encode("utf-8", "surrogatepass")) for text in own)) > MOST_EVENT_BYTES:
            raise FormError(place, f"found {size} bytes of text, expected at most {MOST_EVENT_BYTES}")
    return asked


def decision_of(request: DecisionsRequest, answered: Answered | None) -> Decision:
    """The answers in the order of the questions; refusals where nothing was asked."""
    answers: list[Probability | Refusal] = []
    for question in request.questions:
        p = probability_of(_name(question), answered)
        answers.append(Refusal(name=question.name) if p is None else Probability(name=question.name, probability=p))
    found = answered or Answered(math.nan, {})
    details = InputDetails(cached_tokens=found.cached, cache_write_tokens=found.kept)
    usage = Usage(input_tokens=found.tokens, input_tokens_details=details, total_tokens=found.tokens)
    return Decision(model=request.model, answers=answers, usage=usage)


def probability_of(name: str | None, answered: Answered | None) -> float | None:
    """The answer to the question of a name; None for one that the model was not trained for."""
    if answered is None or name == NEED:
        return answered and answered.p_need
    offer = _offer("name", name)
    return None if offer is None else answered.p_accept[offer]


def _name(question: Question) -> str | None:
    """The name of a predicate; None for questions of other kinds, which nobody answers."""
    return question.name if question.type == "predicate" else None


def _offer(place: str, name: str | None) -> Candidate | None:
    """The offer that the question of a name asks about; None for one that asks about none."""
    kind, colon, text = (name or "").partition(":")
    if kind != "accept":
        return None
    if not colon:
        return AN_OFFER[0]
    try:
        return Candidate(text=text)
    except ValueError as error:
        raise FormError(place, str(error)) from None


def _content(message: Message, place: str) -> str | Mapping[str, Any]:
    """The text of a message, or the data of its one JSON part."""
    if isinstance(message.content, str):
        return message.content
    parts = [part for part in message.content if isinstance(part, Json)]
    if parts and len(message.content) > 1:
        raise FormError(place, f"found {len(message.content)} parts, expected one JSON part, or texts alone")
    return parts[0].data if parts else "".join(part.text for part in message.content if isinstance(part, Text))


def _events(items: Sequence[tuple[str, str | Mapping[str, Any]]]) -> list[Event]:
    """The events of an input; without a time of its own, one is at the same time as the event before it."""
    events: list[Event] = []
    for place, item in items:
        if isinstance(item, str):
            events.append(_event(events[-1].time if events else 0.0, item, place))
        else:
            events.append(_timed(item, place, events[-1].time if events else -math.inf))
    return events


def _event(time: float, text: str, place: str) -> Event:
    try:
        return Event(time=time, text=text)
    except ValueError as error:
        raise FormError(place, str(error)) from None


def _timed(data: Mapping[str, Any], place: str, least: float) -> Event:
    """The event of an object with its time, not earlier than `least`."""
    time: Any = data.get("time")
    text: Any = data.get("text")
    is_number = isinstance(time, int | float) and not isinstance(time, bool)
    if len(data) != 2 or not is_number or not abs(time) <= MOST_SECONDS or not isinstance(text, str):
        raise FormError(place, f'found {dict(data)!r:.80}, expected {{"time": SECONDS, "text": TEXT}}')
    if time < least:
        raise FormError(place, f"found the time {time}, expected at least {least}: events are in time order")
    return _event(float(time), text, place)
