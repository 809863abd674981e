"""Asks a teacher about every step of unlabelled streams, and writes its answers into them.

A failed answer leaves the step without a teacher's probabilities, and the row of its question says why. Curation and
training then treat them as missing; nothing is guessed. What a teacher must answer are pydantic models, because servers
may ignore a schema, and every answer is validated again. Their keys stand in the order in which the teacher should
write them, what it observes before what it concludes; none holds free-form reasoning, and other keys are refused.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import pydantic

from prism_jax.labelling.teacher.prompts import Pass, PromptSettings, instructions, question
from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.remote.jobs import all_of
from prism_jax.remote.requests import Message
from prism_jax.remote.structured import Reply
from prism_jax.runtime.dataclass_config import check_at_least
from prism_jax.streams import RESPONSE_KEYS, Candidate, Step, Stream
from prism_jax.streams.traces import says_null
from prism_jax.streams.types import SLOW_FIELDS

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


def _an_offer(text: str) -> str:
    if says_null(text):
        raise ValueError(f"found {text!r}, expected an offer")
    return text


Offer = Annotated[Line, pydantic.AfterValidator(_an_offer)]


class Response(TeacherAnswer):
    """The visible response in ProactiveBench's keys (`template.RESPONSE_KEYS`)."""

    purpose: Line = pydantic.Field(alias="Purpose")
    thoughts: Line = pydantic.Field(alias="Thoughts")
    task: Offer = pydantic.Field(alias="Proactive Task")
    response: Line = pydantic.Field(alias="Response")

    def text(self) -> str:
        """The response as the text that a student is trained to write."""
        return json.dumps(self.model_dump(), ensure_ascii=False)


assert tuple(field.alias for field in Response.model_fields.values()) == RESPONSE_KEYS, "the template's keys"


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


class FastProposal(Fast):
    """A fast answer about an offer of the teacher's own."""

    offer: Offer
    p_accept: Probability


class SlowProposal(Slow):
    """A slow answer about the teacher's own offer, that of the response, which it writes even where it is silent."""

    response: Response
    p_accept: Probability
    speak: bool


@functools.cache
def answer_to(kind: type[Fast] | type[Slow], offers: int | None) -> type[Fast] | type[Slow]:
    """The model of an answer about an offer of the teacher's own (None), or about the listed offers of one step.

    The latter has the probability of each listed offer in `p_accept`; a slow one ends with a response, or null where
    the teacher would stay silent.
    """
    slow = issubclass(kind, Slow)
    if offers is None:
        return SlowProposal if slow else FastProposal
    probabilities = Annotated[list[Probability], pydantic.Field(min_length=offers, max_length=offers)]
    extra: dict[str, Any] = {"p_accept": (probabilities, ...)}
    if slow:
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
    proposal: str | None  # the offer that the teacher wrote; None where it wrote none
    spoke: bool | None  # whether the teacher would make it; None where it did not say
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
    listed: int  # number of offers with a text in the original, which the teacher's own replace unless it is given them


def with_steps(stream: Stream) -> Stream:
    """The stream itself if it has steps, else with one step per event, each with the constant offer."""
    if stream.steps:
        return stream
    return dataclasses.replace(stream, steps=tuple(Step(event=index) for index in range(len(stream.events))))


async def label_stream(stream: Stream, ask: Ask, prompt: PromptSettings, config: LabellingConfig) -> LabelledStream:
    """Asks about all steps of a stream at once; the endpoint's limits decide how many are under way.

    A teacher that proposes itself leaves one candidate at each step, the constant offer, which holds the proposal.

    Raises ValueError naming stream and step, if such a step has candidates with outcomes.
    """
    stream = with_steps(stream)
    for index, step in enumerate(stream.steps):
        if prompt.offers == "own" and any(map(_has_outcome, step.candidates)):
            raise ValueError(
                f"stream {stream.id!r}, steps[{index}]: found candidates with outcomes, expected none: the teacher's "
                "own offer would replace them (prompt.offers = 'given' judges the given candidates)"
            )
    asked = (_label_step(stream, step, ask, prompt, config) for step in stream.steps)
    labelled = await all_of(asked)
    steps, rows = tuple(step for step, _ in labelled), tuple(row for _, rows in labelled for row in rows)
    listed = sum(offer.text is not None for step in stream.steps for offer in step.candidates)
    return LabelledStream(dataclasses.replace(stream, steps=steps), rows, listed)


def _has_outcome(offer: Candidate) -> bool:
    return offer.y_accept is not None or offer.logged is not None or bool(offer.votes)


async def _label_step(
    stream: Stream, step: Step, ask: Ask, prompt: PromptSettings, config: LabellingConfig
) -> tuple[Step, list[QuestionRow]]:
    """Asks for the passes one after the other; a later valid answer replaces an earlier one."""
    own = prompt.offers == "own"
    content = question(stream.events[: step.event + 1], step.candidates, prompt)
    labelled, rows = _unlabelled(step, own), []
    for thinking in config.asked:
        messages = (Message("system", instructions(thinking, prompt)), Message("user", content))
        kind = answer_to(Fast if thinking == "fast" else Slow, None if own else len(step.candidates))
        reply = await ask(messages, kind)
        if reply.value is not None:
            labelled = _labelled(step, reply.value)
        rows.append(_row(stream, step, thinking, reply))
    return labelled, rows


def _unlabelled(step: Step, own: bool) -> Step:
    """The step without an earlier teacher's answers, and where it is to be the teacher's own, without offers."""
    offers = tuple(dataclasses.replace(offer, teacher_accept=None, response=None) for offer in step.candidates)
    return dataclasses.replace(step, candidates=(Candidate(),) if own else offers, teacher_need=None, rationale=None)


def _labelled(step: Step, answer: Fast | Slow) -> Step:
    """The step with an answer's numbers and texts."""
    return dataclasses.replace(
        step,
        candidates=_candidates(step, answer),
        teacher_need=answer.p_need,
        rationale=answer.fields() if isinstance(answer, Slow) else None,
    )


def _candidates(step: Step, answer: Fast | Slow) -> tuple[Candidate, ...]:
    """The constant offer with what the teacher proposes, or the step's candidates with the teacher's probabilities.

    Of the latter, the response belongs to the offer that it repeats. Where it repeats none, as with the constant offer,
    it belongs to the one that is likeliest accepted.
    """
    proposal, spoke = _proposal(answer)
    response: Response | None = getattr(answer, "response", None)
    text = response.text() if response is not None and spoke else None
    if isinstance(answer, FastProposal | SlowProposal):
        return (Candidate(proposal=proposal, teacher_accept=answer.p_accept, response=text),)
    offers = [
        dataclasses.replace(offer, teacher_accept=p, response=None)
        for offer, p in zip(step.candidates, _p_accept(answer), strict=True)
    ]
    if text is not None:
        answered = max(offers, key=lambda offer: (offer.said == proposal, offer.teacher_accept or 0.0))
        offers[offers.index(answered)] = dataclasses.replace(answered, response=text)
    return tuple(offers)


def _proposal(answer: Fast | Slow) -> tuple[str | None, bool | None]:
    """The offer that a teacher wrote, and whether it would make it; None where the answer does not say."""
    if isinstance(answer, FastProposal):
        return answer.offer, None
    if isinstance(answer, SlowProposal):
        return answer.response.task, answer.speak
    response: Response | None = getattr(answer, "response", None)
    spoke = response is not None if isinstance(answer, Slow) else None
    return None if response is None else response.task, spoke


def _p_accept(answer: Fast | Slow) -> tuple[float, ...]:
    """The probabilities of acceptance, of the listed offers or of the teacher's own."""
    p: list[float] | float = getattr(answer, "p_accept", [])
    return tuple(p) if isinstance(p, list) else (p,)


def _row(stream: Stream, step: Step, thinking: Pass, reply: Reply[Any]) -> QuestionRow:
    newest = reply.answers[-1] if reply.answers else None
    proposal, spoke = (None, None) if reply.value is None else _proposal(reply.value)
    return QuestionRow(
        stream=stream.id,
        event=step.event,
        thinking=thinking,
        p_need=None if reply.value is None else reply.value.p_need,
        p_accept=() if reply.value is None else _p_accept(reply.value),
        proposal=proposal,
        spoke=spoke,
        problem=reply.problem,
        model=None if newest is None else newest.model,
        prompt=None if newest is None else newest.key,
        time=None if newest is None else newest.time,
        asked=len(reply.answers),
        cost=sum(answer.cost for answer in reply.answers),
    )
