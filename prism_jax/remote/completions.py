"""Reads a chat completion: the text without reasoning, the tokens and the cost."""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

from prism_jax.remote.failures import TransientError
from prism_jax.remote.prices import Price
from prism_jax.remote.requests import Answer

_REASONING = re.compile(r"\A\s*<think>.*?(?:</think>\s*|\Z)", re.DOTALL)


def read(content: bytes, key: str, price: Price, worst: float, seconds: float) -> Answer:
    """The answer in a completion's body.

    Args:
      content: The body of the response.
      key: Hash of the request.
      price: What tokens cost.
      worst: The most that the request can cost, in USD; counted where the server states no tokens.
      seconds: Time since the request was sent.

    Raises:
      TransientError: if the body is no completion.
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
        text = _storable(_REASONING.sub("", text))
    prompt, completion, known = _usage(body.get("usage"))
    return Answer(
        text=text or None,
        error=None if text else _why_empty(message, finish),
        model=_storable(str(body.get("model") or "")),
        key=key,
        time=datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        prompt_tokens=prompt,
        completion_tokens=completion,
        cost=price.of(prompt, completion) if known else worst,
        seconds=seconds,
        finish=_storable(finish),
    )


def _usage(usage: Any) -> tuple[int, int, bool]:
    """Tokens of prompt and answer, and whether the server states both."""
    counts = [usage.get(name) if isinstance(usage, dict) else None for name in ("prompt_tokens", "completion_tokens")]
    known = [count for count in counts if isinstance(count, int) and 0 <= count < 2**53]
    return (known[0], known[1], True) if len(known) == 2 else (0, 0, False)


def _why_empty(message: dict[str, Any], finish: str) -> str:
    if message.get("refusal"):
        return "the model refused to answer"
    return f"the model gave no text (finish_reason {finish[:40]!r})"


def _storable(text: str) -> str:
    """A text that UTF-8 can encode: JSON can escape one half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode("utf-8")
