"""Requests and answers of System One, `POST /v1/systemone`, as typesafe-sdk 0.7.5 sends and reads them.

A request has a state and typed questions by name. The state is what a user did: a text, which is one event, or an array
of events, oldest first, each a text or `{"time": SECONDS, "text": TEXT}`. Of the questions, nouls with the names of
the predicates of `prism_jax.agent.service.form` are answered; the form has no refusal, so that all others are left out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pydantic

from prism_jax.agent.service.form import (
    MOST_EVENTS,
    MOST_QUESTIONS,
    Answered,
    Asked,
    FormError,
    asked_about,
    probability_of,
)


class Question(pydantic.BaseModel):
    """A question, of which its name says what is asked; its words are not read."""

    type: Literal["noul", "choice", "score", "box"]


class SystemOneRequest(pydantic.BaseModel):
    """The body of a request."""

    model: str
    state: str | dict[str, Any] | list[Any]
    questions: Annotated[dict[str, Question], pydantic.Field(min_length=1, max_length=MOST_QUESTIONS)]
    assets: dict[str, Any] | None = None
    images: list[Any] | None = None  # what Ollama's form has in their place


class NoulAnswer(pydantic.BaseModel):
    """The answer to a noul: the probability of yes."""

    type: Literal["noul"] = "noul"
    noul: float


class Usage(pydantic.BaseModel):
    """Tokens that the answers stand on, or, of a probe, that were read for them; nothing is written."""

    input_tokens: int
    output_tokens: int = 0


class SystemOneAnswers(pydantic.BaseModel):
    """The body of an answer."""

    model: str
    answers: dict[str, NoulAnswer]
    usage: Usage


def asked_of(request: SystemOneRequest, caller: str = "") -> Asked:
    """What a request asks; FormError names what is out of range, or says that no question is answered."""
    for place, beside in (("assets", request.assets), ("images", request.images)):
        if beside is not None:
            raise FormError(place, f"found {len(beside)}, expected none: the model reads text alone")
    listed = request.state if isinstance(request.state, list) else [request.state]
    if not 1 <= len(listed) <= MOST_EVENTS:
        raise FormError("state", f"found {len(listed)} events, expected 1 to {MOST_EVENTS}")
    items = [("state" if listed is not request.state else f"state[{i}]", item) for i, item in enumerate(listed)]
    for place, item in items:
        if not isinstance(item, str | dict):
            raise FormError(place, f'found {item!r:.80}, expected a text, or {{"time": SECONDS, "text": TEXT}}')
    asked = asked_about(
        [(f"questions.{name}", _known(name, one)) for name, one in request.questions.items()], items, caller
    )
    if asked is None:
        found = ", ".join(f"{one.type} {name}" for name, one in request.questions.items())
        raise FormError("questions", f"found {found:.80}, expected a noul of the name need, accept or accept:TEXT")
    return asked


def answers_of(request: SystemOneRequest, answered: Answered) -> SystemOneAnswers:
    """The answers to the questions that have one."""
    found = {name: probability_of(_known(name, one), answered) for name, one in request.questions.items()}
    answers = {name: NoulAnswer(noul=p) for name, p in found.items() if p is not None}
    return SystemOneAnswers(model=request.model, answers=answers, usage=Usage(input_tokens=answered.tokens))


def _known(name: str, question: Question) -> str | None:
    """The name of a noul; None for questions of other kinds, which nobody answers."""
    return name if question.type == "noul" else None
