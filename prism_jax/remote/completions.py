"""Reads a chat completion: the text without reasoning, the tokens and the cost."""

from __future__ import annotations

import datetime
import json
import re
from typing import Any, NamedTuple

from absl import logging

from prism_jax.remote.failures import TransientError
from prism_jax.remote.prices import Price
from prism_jax.remote.requests import Answer

_REASONING = re.compile(r"\A\s*<think>.*?(?:</think>\s*|\Z)", re.DOTALL)


class Most(NamedTuple):
    """The most tokens that a request can take: what was reserved of the budget."""

    prompt: int
    completion: int


def read(content: bytes, key: str, price: Price, most: Most, seconds: float) -> Answer:
    """The answer in a completion's body to the request of a key, after so many seconds.

    Where the server states no tokens or more than `most`, those are charged.

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
    prompt, completion, known = _usage(body.get("usage"), most)
    return Answer(
        text=text or None,
        error=None if text else _why_empty(message, finish),
        model=_storable(str(body.get("model") or "")),
        key=key,
        time=datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        prompt_tokens=prompt,
        completion_tokens=completion,
        cost=price.of(*((prompt, completion) if known else most)),
        seconds=seconds,
        finish=_storable(finish),
    )


def _usage(usage: Any, most: Most) -> tuple[int, int, bool]:
    """Tokens of prompt and answer, each as many as possible at most, and whether the server states both."""
    counts = [usage.get(name) if isinstance(usage, dict) else None for name in ("prompt_tokens", "completion_tokens")]
    known = [count for count in counts if isinstance(count, int) and count >= 0]
    if len(known) < 2:
        return 0, 0, False
    if known[0] > most.prompt or known[1] > most.completion:
        logging.log_first_n(
            logging.WARNING,
            "the server states %.3g and %.3g tokens of prompt and answer; counted are the %d and %d that are possible",
            1,
            *(min(count, 1e300) for count in known),
            *most,
        )
    return min(known[0], most.prompt), min(known[1], most.completion), True


def _why_empty(message: dict[str, Any], finish: str) -> str:
    if message.get("refusal"):
        return "the model refused to answer"
    return f"the model gave no text (finish_reason {finish[:40]!r})"


def _storable(text: str) -> str:
    """A text that UTF-8 can encode: JSON can escape one half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode("utf-8")
