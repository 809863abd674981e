"""Requests and answers: what is sent, the key under which its answer is kept, and what came back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from prism_jax.remote.config import EndpointConfig


class Message(NamedTuple):
    """One message of a conversation; `role` is `system`, `user` or `assistant`."""

    role: str
    content: str


class Request(NamedTuple):
    """What is asked."""

    messages: tuple[Message, ...]  # the conversation so far, the question last
    schema: Mapping[str, Any] | None = None  # JSON schema of the answer, or None for free text
    name: str = "answer"  # name of the schema: letters, digits, dashes and underscores


@dataclass(frozen=True)
class Answer:
    """What came of a request."""

    text: str | None  # the model's text, without its reasoning; None if there is none
    error: str | None  # why there is no text, in one line; None if there is one
    model: str  # the model that answered, as the server names it
    key: str  # SHA-256 of the whole request as it was sent
    time: str = ""  # when the answer arrived, UTC, ISO 8601; empty if none did
    prompt_tokens: int = 0  # tokens of the prompt, as the server counts them
    completion_tokens: int = 0  # tokens of the answer, as the server counts them
    cost: float = 0.0  # what the request cost, in USD; also where the answer comes from the cache
    cached: bool = False  # whether the answer comes from the cache, so that this run paid nothing for it
    seconds: float = 0.0  # time from the first attempt to the answer
    finish: str = ""  # why the model stopped, as the server says: `stop`, or `length` for an answer that was cut short


class Prepared(NamedTuple):
    """A request as it is sent."""

    content: bytes  # the JSON body, encoded; its length bounds the tokens of the prompt
    key: str  # SHA-256 of the endpoint's address and the body


INSTRUCTION = "Answer with one JSON object and nothing else. It must satisfy this JSON schema: "


def prepare(request: Request, endpoint: EndpointConfig, clean: Callable[[str], str]) -> Prepared:
    """The body of a request and its key; `clean` removes personal data from the content of a message."""
    messages = [{"role": role, "content": _sendable(clean(content))} for role, content in request.messages]
    body: dict[str, Any] = {"model": endpoint.model, "messages": messages}
    body[endpoint.max_tokens_name] = endpoint.max_tokens
    if endpoint.temperature is not None:
        body["temperature"] = endpoint.temperature
    if endpoint.seed is not None:
        body["seed"] = endpoint.seed
    if request.schema is not None:
        _ask_for_schema(body, request, endpoint)
    # Key order is kept, because servers that enforce a schema write its properties in its order.
    content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    address = endpoint.base_url.rstrip("/").encode()
    return Prepared(content, hashlib.sha256(address + b"\0" + content).hexdigest())


def _ask_for_schema(body: dict[str, Any], request: Request, endpoint: EndpointConfig) -> None:
    """Adds the schema to a body, in the way that the endpoint understands."""
    if endpoint.schema == "json_schema":
        schema = {"name": request.name, "schema": request.schema, "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return
    if endpoint.schema == "json_object":
        body["response_format"] = {"type": "json_object"}
    words = INSTRUCTION + json.dumps(request.schema, ensure_ascii=False)
    first = body["messages"][0] if body["messages"] else {"role": ""}
    if first["role"] == "system":
        first["content"] += f"\n\n{words}"
    else:
        body["messages"].insert(0, {"role": "system", "content": words})


def _sendable(text: str) -> str:
    """A text that UTF-8 can encode: halves of surrogate pairs become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")
