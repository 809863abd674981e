"""Requests and answers: what is sent, the key under which its answer is kept, and how a chat completion is read."""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from absl import logging

from prism_jax.remote.endpoints import EndpointConfig
from prism_jax.remote.failures import TransientError
from prism_jax.remote.prices import Price

_REASONING = re.compile(r"\A\s*<think>.*?(?:</think>\s*|\Z)", re.DOTALL)


class TokenLimits(NamedTuple):
    """The most tokens that a request can take: what was reserved of the budget."""

    prompt: int
    completion: int


def read_completion(content: bytes, key: str, price: Price, limits: TokenLimits, seconds: float) -> Answer:
    """The answer in a completion's body to the request of a key, after so many seconds.

    Where the server states no tokens or more than `limits`, those are charged. Raises TransientError if the body is no
    completion.
    """
    try:
        body = json.loads(content)
        choice = body["choices"][0]
        message = choice["message"]
        text, finish = message.get("content"), str(choice.get("finish_reason") or "")
        if not isinstance(text, str | None):
            raise TypeError
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise TransientError("the server's response is no chat completion", billed=True, garbled=True) from None
    if text is not None:  # no reasoning is kept, and a schema does not bind it
        text = storable(_REASONING.sub("", text))
    refused = "the model refused to answer" if message.get("refusal") else ""
    counted = charged(body.get("usage"), ("prompt_tokens", "completion_tokens"), price, limits)
    return Answer(
        text=text or None,
        error=None if text else refused or f"the model gave no text (finish_reason {finish[:40]!r})",
        model=storable(str(body.get("model") or "")),
        key=key,
        seconds=seconds,
        finish=storable(finish),
        **counted,
    )


def charged(usage: Any, names: tuple[str, str], price: Price, limits: TokenLimits) -> dict[str, Any]:
    """When an answer arrived, its tokens and what it cost, as fields of `Answer`; `names` are the keys in `usage`."""
    prompt, completion, known = _usage(usage, names, limits)
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "cost": price.of(*((prompt, completion) if known else limits)),
    }


def _usage(usage: Any, names: tuple[str, str], limits: TokenLimits) -> tuple[int, int, bool]:
    """Tokens of prompt and answer, each as many as possible at most, and whether the server states both."""
    counts = [usage.get(name) if isinstance(usage, dict) else None for name in names]
    stated = [count for count in counts if isinstance(count, int) and count >= 0]
    if len(stated) < 2:
        return 0, 0, False
    if stated[0] > limits.prompt or stated[1] > limits.completion:
        logging.log_first_n(
            logging.WARNING,
            "the server states %.3g and %.3g tokens of prompt and answer; counted are the %d and %d that are possible",
            1,
            *(min(count, 1e300) for count in stated),
            *limits,
        )
    return min(stated[0], limits.prompt), min(stated[1], limits.completion), True


def storable(text: str) -> str:
    """A text that UTF-8 can encode: JSON can escape one half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode("utf-8")


class Message(NamedTuple):
    """One message of a conversation; `role` is `system`, `user` or `assistant`."""

    role: str
    content: str


class Request(NamedTuple):
    """What is asked."""

    messages: tuple[Message, ...]  # the conversation so far, the question last
    schema: Mapping[str, Any] | None = None  # JSON schema of the answer, or None for free text
    name: str = "answer"  # name of the schema: letters, digits, dashes and underscores
    attempt: int = 0  # which asking of the same it is, from 0; a later one is a new request with an answer of its own
    temperature: float | None = None  # in place of the endpoint's, unless that is None as its model refuses any

    def prepared(self, endpoint: EndpointConfig, clean: Callable[[str], str]) -> Prepared:
        """See `prepare`."""
        return prepare(self, endpoint, clean)


class Asked(Protocol):
    """What a client can be asked: a chat completion (`Request`), or a request of another route."""

    def prepared(self, endpoint: EndpointConfig, clean: Callable[[str], str]) -> Prepared:
        """The request as it is sent; `clean` removes personal data from a text."""


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
    key: str  # SHA-256 of the endpoint's address, the body and the attempt, as `encoded` gives it
    path: str = "/chat/completions"  # the route, after the base URL
    # the answer in the body of a response, with key, price, limits and seconds as `read_completion` takes them
    read: Callable[[bytes, str, Price, TokenLimits, float], Answer] = read_completion
    most: TokenLimits | None = None  # the most tokens that it can take; None bounds it as a chat completion
    anew: bool = False  # whether an answer that a cache on the way has kept is no answer


INSTRUCTION = "Answer with one JSON object and nothing else. It must satisfy this JSON schema: "


def prepare(request: Request, endpoint: EndpointConfig, clean: Callable[[str], str]) -> Prepared:
    """The body of a request and its key; `clean` removes personal data from the content of a message."""
    messages = [{"role": role, "content": sendable(clean(content))} for role, content in request.messages]
    body: dict[str, Any] = {"model": endpoint.model, "messages": messages}
    body[endpoint.max_tokens_name] = endpoint.max_tokens
    if endpoint.temperature is not None:
        body["temperature"] = endpoint.temperature if request.temperature is None else request.temperature
    if endpoint.seed is not None:
        body["seed"] = endpoint.seed + request.attempt
    if request.schema is not None:
        _ask_for_schema(body, request, endpoint)
    # Key order is kept, because servers that enforce a schema write its properties in its order.
    return Prepared(*encoded(body, endpoint, request.attempt))


def encoded(body: Mapping[str, Any], endpoint: EndpointConfig, attempt: int = 0) -> tuple[bytes, str]:
    """A body's JSON, and the SHA-256 of the endpoint's address, that, and the attempt where it is not the first."""
    content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    address = endpoint.base_url.rstrip("/").encode()
    again = b"\0%d" % attempt if attempt else b""
    return content, hashlib.sha256(address + b"\0" + content + again).hexdigest()


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


def sendable(text: str) -> str:
    """A text that UTF-8 can encode: halves of surrogate pairs become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")
