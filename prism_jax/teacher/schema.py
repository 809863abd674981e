"""What a teacher must answer, as pydantic models: servers may ignore a schema, so every answer is validated again.

The keys stand in the order in which the teacher should write them: what it observes before what it concludes. No key
holds free-form reasoning, and other keys are refused.
"""

from __future__ import annotations

import functools
import json
from typing import Annotated, Any

import pydantic

from prism_jax.prompting.template import RESPONSE_KEYS, SLOW_FIELDS

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


class Answer(pydantic.BaseModel):
    """The base of all answers: exactly the keys of the schema."""

    model_config = pydantic.ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)


class Response(Answer):
    """The visible response in ProactiveBench's keys (`template.RESPONSE_KEYS`)."""

    purpose: Line = pydantic.Field(alias="Purpose")
    thoughts: Line = pydantic.Field(alias="Thoughts")
    task: Line = pydantic.Field(alias="Proactive Task")
    response: Line = pydantic.Field(alias="Response")

    def text(self) -> str:
        """The response as the text that a student is trained to write."""
        return json.dumps(self.model_dump(), ensure_ascii=False)


assert tuple(field.alias for field in Response.model_fields.values()) == RESPONSE_KEYS, "the template's keys"


class Proposal(Answer):
    """An offer that the teacher proposes itself."""

    offer: Line
    p_accept: Probability


class Fast(Answer):
    """The probability of need; the probabilities of acceptance follow (`answer_to`)."""

    p_need: Probability


class Slow(Answer):
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
    added: dict[str, Any]
    if proposals:
        added = {"proposals": (Annotated[list[Proposal], pydantic.Field(min_length=1, max_length=proposals)], ...)}
    else:
        added = {"p_accept": (Annotated[list[Probability], pydantic.Field(min_length=offers, max_length=offers)], ...)}
    if issubclass(kind, Slow):
        added["response"] = (Response | None, ...)
    return pydantic.create_model(kind.__name__, __base__=kind, **added)
