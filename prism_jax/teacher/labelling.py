"""Asks a teacher about every step of unlabelled streams, and writes its answers into them.

A failed answer leaves the step without a teacher's probabilities, and the row of its question says why. Curation and
training then treat them as missing; nothing is guessed. What a teacher must answer are pydantic models, because servers
may ignore a schema, and every answer is validated again. Their keys stand in the order in which the teacher should
write them, what it observes before what it concludes; none holds free-form reasoning, and other keys are refused.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import pydantic

from prism_jax.prompting.template import RESPONSE_KEYS, SLOW_FIELDS
from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.remote.requests import Message
from prism_jax.remote.structured import Reply
from prism_jax.runtime.dataclass_config import check_at_least
from prism_jax.streams import Candidate, Step, Stream
from prism_jax.teacher.prompts import Pass, PromptSettings, instructions, question

MOST_FIELD_CHARACTERS = 400
"""Longest text of a field of the slow pass, and of a value of a response."""


def _one_line(text: str) -> str:
    """The text with single spaces; the template writes a field as one line."""
    words = " ".join(text.split())
    if not words:
        raise ValueError("expected words")
    return words


Probability = Annotated[float, pydantic.Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Line = Annotated[str, pydantic.Field(max_length=MOST_FIELD_CHARACTERS), pydantic.AfterValidator(_one_line)]


class TeacherAnswer(pydantic.BaseModel):
    """The base of all answers: exactly the keys of the schema."""

    model_config = pydantic.ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)


class Response(TeacherAnswer):
    """The visible response in ProactiveBench's keys (`template.RESPONSE_KEYS`)."""

    purpose: Line = pydantic.Field(alias="Purpose")
    thoughts: Line = pydantic.Field(alias="Thoughts")
    task: Line = pydantic.Field(alias="Proactive Task")
    response: Line = pydantic.Field(alias="Response")

    def text(self) -> str:
        """The response as the text that a student is trained to write."""
        return json.dumps(self.model_dump(), ensure_ascii=False)


assert tuple(field.alias for field in Response.model_fields.values()) == RESPONSE_KEYS, "the template's keys"


class Proposal(TeacherAnswer):
    """An offer that the teacher proposes itself."""

    offer: Line
    p_accept: Probability


class Fast(TeacherAnswer):
    """The probability of need; the probabilities of acceptance follow (`answer_to`)."""

    p_need: Probability


class Slow(TeacherAnswer):
    """The fields of the slow pass and the probability of need; acceptance and a response follow (`answer_to`)."""

    if_silent: Line
    if_offered: Line
    evidence: Line
    risk: Line
    p_need: Probability

    def fields(self) -> dict[str, str]:
        """The fields of the slow pass, by name."""
        return {name: getattr(self, name) for name in SLOW_FIELDS}


@functools.cache
def answer_to(kind: type[Fast] | type[Slow], offers: int, proposals: int) -> type[Fast] | type[Slow]:
    """The model of an answer about the offers of one step, with the probability of each listed offer in `p_accept`.

    Above 0, `proposals` is the most offers that the teacher may propose itself under that key, and none are listed. A
    slow answer ends with a response, or null where the teacher would stay silent.
    """
    extra: dict[str, Any]
    if proposals:
        extra = {"proposals": (Annotated[list[Proposal], pydantic.Field(min_length=1, max_length=proposals)], ...)}
    else:
        extra = {"p_accept": (Annotated[list[Probability], pydantic.Field(min_length=offers, max_length=offers)], ...)}
    if issubclass(kind, Slow):
        extra["response"] = (Response | None, ...)
    return pydantic.create_model(kind.__name__, __base__=kind, **extra)


Ask = Callable[[Sequence[Message], type[Any]], Awaitable[Reply[Any]]]
"""Asks a teacher: the messages, and the pydantic model of the answer."""


@dataclasses.dataclass(frozen=True)
class LabellingConfig:
    """How a teacher labels streams."""

    # `fast` asks for the probabilities; `slow` asks for the fields of the slow pass, the probabilities and a response;
    # `both` asks both, and the slow answer's probabilities stay where there is one
    passes: Literal["fast", "slow", "both"] = "slow"
    retries: int = 2  # number of times that a teacher is told what is wrong with an answer and asked again

    def __post_init__(self) -> None:
        check_at_least(self, 0, "retries")

    @property
    def asked(self) -> tuple[Pass, ...]:
        """The passes to ask for, in order."""
        return ("fast", "slow") if self.passes == "both" else (self.passes,)


@dataclasses.dataclass(frozen=True)
class TeacherConfig:
    """The whole config."""

    endpoint: EndpointConfig
    remote: RemoteConfig = dataclasses.field(default_factory=RemoteConfig)
    prompt: PromptSettings = dataclasses.field(default_factory=PromptSettings)
    labelling: LabellingConfig = dataclasses.field(default_factory=LabellingConfig)


class QuestionRow(NamedTuple):
    """One question to a teacher and what came of it."""

    stream: str  # id of the stream
    event: int  # index of the step's event
    thinking: Pass
    p_need: float | None  # None where no valid answer came
    p_accept: tuple[float, ...]  # one per candidate; empty where no valid answer came
    problem: str | None  # why there is no valid answer; None where there is one
    model: str | None  # name of the model as the server reports it
    prompt: str | None  # hash of the last request
    time: str | None  # time of the last answer, in UTC
    asked: int  # number of answers, with those that were not valid
    cost: float  # of all these answers, in US dollars


class LabelledStream(NamedTuple):
    """A stream with a teacher's answers, and a row per question."""

    stream: Stream
    rows: tuple[QuestionRow, ...]


def with_steps(stream: Stream) -> Stream:
    """The stream itself if it has steps, else with one step per event, each with the constant offer."""
    if stream.steps:
        return stream
    return dataclasses.replace(stream, steps=tuple(Step(event=index) for index in range(len(stream.events))))


async def label_stream(stream: Stream, ask: Ask, prompt: PromptSettings, config: LabellingConfig) -> LabelledStream:
    """Asks about all steps of a stream at once; the endpoint's limits decide how many are under way.

    Raises ValueError naming stream and step, if offers are to be proposed at a step whose candidates have outcomes.
    """
    stream = with_steps(stream)
    for index, step in enumerate(stream.steps):
        if prompt.proposals and any(_has_outcome(offer) for offer in step.candidates):
            raise ValueError(
                f"stream {stream.id!r}, steps[{index}]: found candidates with outcomes, expected none: a teacher's own "
                "proposals would replace them (prompt.proposals = 0 judges the given candidates)"
            )
    labelled = await asyncio.gather(*(_label_step(stream, step, ask, prompt, config) for step in stream.steps))
    steps = tuple(step for step, _ in labelled)
    return LabelledStream(dataclasses.replace(stream, steps=steps), tuple(row for _, rows in labelled for row in rows))


def _has_outcome(offer: Candidate) -> bool:
    return offer.y_accept is not None or offer.logged is not None or bool(offer.votes)


async def _label_step(
    stream: Stream, step: Step, ask: Ask, prompt: PromptSettings, config: LabellingConfig
) -> tuple[Step, list[QuestionRow]]:
    """Asks for the passes one after the other; a later valid answer replaces an earlier one."""
    content = question(stream.events[: step.event + 1], step.candidates, prompt)
    labelled, rows = _unlabelled(step), []
    for thinking in config.asked:
        messages = (Message("system", instructions(thinking, prompt)), Message("user", content))
        kind = answer_to(Fast if thinking == "fast" else Slow, len(step.candidates), prompt.proposals)
        reply = await ask(messages, kind)
        if reply.value is not None:
            labelled = _labelled(step, reply.value)
        rows.append(_row(stream, step, thinking, reply))
    return labelled, rows


def _unlabelled(step: Step) -> Step:
    """The step without an earlier teacher's answers."""
    offers = tuple(dataclasses.replace(offer, teacher_accept=None, response=None) for offer in step.candidates)
    return dataclasses.replace(step, candidates=offers, teacher_need=None, rationale=None)


def _labelled(step: Step, answer: Fast | Slow) -> Step:
    """The step with an answer's numbers and texts.

    The response belongs to the offer that it repeats. Where it repeats none, as with the constant offer, it belongs to
    the one that is likeliest accepted.
    """
    offers = _offers(step, answer)
    response: Response | None = getattr(answer, "response", None)
    if response is not None:
        offer_answered = max(offers, key=lambda offer: (offer.text == response.task, offer.teacher_accept or 0.0))
        offers[offers.index(offer_answered)] = dataclasses.replace(offer_answered, response=response.text())
    return dataclasses.replace(
        step,
        candidates=tuple(offers),
        teacher_need=answer.p_need,
        rationale=answer.fields() if isinstance(answer, Slow) else None,
    )


def _offers(step: Step, answer: Fast | Slow) -> list[Candidate]:
    """The step's candidates, or the teacher's own proposals, with its probabilities and without responses."""
    proposals: list[Proposal] | None = getattr(answer, "proposals", None)
    if proposals is not None:
        return [Candidate(text=proposal.offer, teacher_accept=proposal.p_accept) for proposal in proposals]
    return [
        dataclasses.replace(offer, teacher_accept=p, response=None)
        for offer, p in zip(step.candidates, _p_accept(answer), strict=True)
    ]


def _p_accept(answer: Fast | Slow) -> list[float]:
    """The probabilities of acceptance, of listed offers or of the teacher's own."""
    proposals: list[Proposal] | None = getattr(answer, "proposals", None)
    listed: list[float] = getattr(answer, "p_accept", [])
    return listed if proposals is None else [proposal.p_accept for proposal in proposals]


def _row(stream: Stream, step: Step, thinking: Pass, reply: Reply[Any]) -> QuestionRow:
    newest = reply.answers[-1] if reply.answers else None
    return QuestionRow(
        stream=stream.id,
        event=step.event,
        thinking=thinking,
        p_need=None if reply.value is None else reply.value.p_need,
        p_accept=() if reply.value is None else tuple(_p_accept(reply.value)),
        problem=reply.problem,
        model=None if newest is None else newest.model,
        prompt=None if newest is None else newest.key,
        time=None if newest is None else newest.time,
        asked=len(reply.answers),
        cost=sum(answer.cost for answer in reply.answers),
    )


assert len(RESPONSE_KEYS) == len(Response.model_fields), "a response has the template's keys"
