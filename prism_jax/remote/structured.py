"""Answers as values of a pydantic model: the schema is asked for, and every answer is validated again.

Servers ignore schemas silently, so an answer may be anything. An answer that does not validate goes back to the model
with what is wrong with it; one that never does becomes a stated problem, and not a guess.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pydantic

from prism_jax.remote.client import Client
from prism_jax.remote.requests import Answer, Message, Request

T = TypeVar("T", bound=pydantic.BaseModel)

FEEDBACK = "The answer above cannot be used: "
"""How the message begins that states what is wrong with an answer."""
LONGEST = 600
LONGEST_TOKEN = 32
"""Most characters per token of an answer. English has about four; only a server that ignores limits sends more."""
_BEGINS = re.compile(r'\{\s*["}]')


@dataclass(frozen=True)
class Reply(Generic[T]):
    """What came of asking for a value."""

    value: T | None  # the validated value; None if no answer was valid
    problem: str | None  # why there is no value, in one line; None if there is one
    answers: tuple[Answer, ...]  # every answer, the last one last


async def ask_for(
    client: Client, messages: Iterable[Message], model: type[T], retries: int = 2, attempt: int = 0
) -> Reply[T]:
    """Asks for a value of a pydantic model, whose fields' descriptions are part of the schema that is sent.

    The question is the last of the messages. An invalid answer is returned at most `retries` times, with what is wrong.
    `attempt` is that of `Request`: each asking of the same question has its own.
    """
    conversation, answers, problem = tuple(messages), [], None
    for _ in range(retries + 1):
        request = Request(conversation, schema_of(model), model.__name__, attempt)
        answer = await client.ask(request)
        answers.append(answer)
        if answer.text is None:
            return Reply(None, answer.error, tuple(answers))
        if len(answer.text) > LONGEST_TOKEN * client.endpoint.max_tokens:  # to send it back would cost as much
            limit = f"expected one of at most {client.endpoint.max_tokens:,} tokens"
            return Reply(None, f"found an answer of {len(answer.text):,} characters, {limit}", tuple(answers))
        try:
            return Reply(parse(answer.text, model), None, tuple(answers))
        except ValueError as error:
            cut = "it was cut short at the longest length allowed; " if answer.finish == "length" else ""
            problem = f"{cut}{error}"
        feedback = f"{FEEDBACK}{problem}\nAnswer again, with one JSON object that satisfies the schema."
        conversation = (*conversation, Message("assistant", answer.text), Message("user", feedback))
    return Reply(None, problem, tuple(answers))


@functools.lru_cache
def schema_of(model: type[pydantic.BaseModel]) -> dict[str, Any]:
    """The JSON schema of a model as strict servers take it: every property required, and no others allowed."""
    schema = model.model_json_schema()
    pending = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if isinstance(part.get("properties"), dict):
                part["required"], part["additionalProperties"] = list(part["properties"]), False
            for name in ("default", "title"):
                if not isinstance(part.get(name), dict):  # a property may have such a name
                    part.pop(name, None)
            pending += part.values()
        elif isinstance(part, list):
            pending += part
    return schema


def parse(text: str, model: type[T]) -> T:
    """The value in an answer: one JSON object, which code fences and prose may surround.

    Raises ValueError if there is none, or more than one, or the model rejects it; in one line.
    """
    value = _only_object(text)
    try:
        return model.model_validate_json(json.dumps(value))
    except pydantic.ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        lines = (f"{'.'.join(map(str, detail['loc'])) or 'the object'}: {detail['msg']}" for detail in details)
        raise ValueError("; ".join(lines)[:LONGEST]) from None


def _only_object(text: str) -> dict[str, Any]:
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
    values, begins = [], _BEGINS.search(text)  # a brace before anything else begins no object
    while begins:
        try:
            value, end = decoder.raw_decode(text, begins.start())
        except json.JSONDecodeError as error:  # an object within a broken one is not the answer
            raise ValueError(f"found broken JSON ({error.msg}), expected one JSON object") from None
        except RecursionError:
            raise ValueError("found brackets nested too deep, expected one JSON object") from None
        values.append(value)
        begins = _BEGINS.search(text, end)
    if len(values) != 1:
        raise ValueError(f"found {len(values)} JSON objects, expected one")
    return values[0]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("found a key twice in one object, expected each key once")
    return value


def _constant(name: str) -> float:
    raise ValueError(f"found {name}, expected a finite number")
