"""Requests of the Decisions API, `POST /v1/decisions`: questions about an input, answered by probabilities.

The form is that of openai 3.57 (`client.decisions.create`), which vLLM 0.33 and others serve. Of its kinds of questions
these are predicates alone.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from prism_jax.remote.endpoints import EndpointConfig
from prism_jax.remote.failures import TransientError
from prism_jax.remote.prices import Price
from prism_jax.remote.requests import Answer, Prepared, TokenLimits, charged, encoded, sendable, storable

MOST = 400
"""Most questions of one request."""


class Predicate(NamedTuple):
    """A question that is answered by the probability of yes."""

    name: str
    instructions: str


class DecisionRequest(NamedTuple):
    """Predicates about an input. The text of its `Answer` is JSON: a probability for each, null for a refusal."""

    input: tuple[str, ...]  # texts, each a message of the user, oldest first
    questions: tuple[Predicate, ...]  # at most `MOST`
    # names what shares its beginning with this input, for the server's cache of prompts; None leaves it out
    cache_key: str | None = None

    def prepared(self, endpoint: EndpointConfig, clean: Callable[[str], str]) -> Prepared:
        """See `Asked.prepared`."""
        body: dict[str, Any] = {
            "model": endpoint.model,
            "input": [{"role": "user", "content": sendable(clean(text))} for text in self.input],
            "questions": [
                {"type": "predicate", "name": one.name, "instructions": sendable(clean(one.instructions))}
                for one in self.questions
            ],
        }
        if self.cache_key is not None:
            body["prompt_cache_key"] = self.cache_key
        read = functools.partial(read_decision, count=len(self.questions))
        return Prepared(*encoded(body, endpoint), "/decisions", read)


def read_decision(content: bytes, key: str, price: Price, limits: TokenLimits, seconds: float, *, count: int) -> Answer:
    """The answer in a response's body to a request of `count` predicates; errors as of `read_completion`."""
    try:
        body = json.loads(content)
        answers = [_probability(answer) for answer in body["answers"]]
        if len(answers) != count:
            raise ValueError
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        words = f"the server's response is no decision on {count} predicates"
        raise TransientError(words, billed=True, garbled=True) from None
    return Answer(
        text=json.dumps(answers),
        error=None,
        model=storable(str(body.get("model") or "")),
        key=key,
        seconds=seconds,
        **charged(body.get("usage"), ("input_tokens", "output_tokens"), price, limits),
    )


def _probability(answer: Any) -> float | None:
    if answer["type"] == "refusal":
        return None
    p = answer["probability"]
    if answer["type"] != "predicate" or type(p) not in (int, float) or not 0 <= p <= 1:
        raise ValueError
    return float(p)
