"""Requests of the Decisions API, `POST /v1/decisions`: questions about an input, answered by probabilities.

The form is that of openai 3.57 (`client.decisions.create`), which vLLM 0.33 and others serve. Of its kinds of questions
these are predicates alone.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from prism_jax.remote.endpoints import EndpointConfig
from prism_jax.remote.failures import TransientError
from prism_jax.remote.prices import Price
from prism_jax.remote.requests import Answer, Prepared, TokenLimits, charged, encoded, sendable, storable

MOST = 64
"""Most questions of one request. The form allows 400, and vLLM no more than these."""
THOUGHT = 64
"""Tokens of an answer, hidden reasoning included, that are reserved for each question."""


class Predicate(NamedTuple):
    """A question that is answered by the probability of yes."""

    name: str
    instructions: str


class DecisionRequest(NamedTuple):
    """Predicates about an input. The text of its `Answer` is JSON: a probability for each, null for a refusal."""

    # texts, each a message of the user, oldest first; or events with their times in seconds
    input: tuple[str | tuple[float, str], ...]
    questions: tuple[Predicate, ...]  # at most `MOST`
    # names what shares its beginning with this input, for the server's cache of prompts; None leaves it out
    cache_key: str | None = None

    def prepared(self, endpoint: EndpointConfig, clean: Callable[[str], str]) -> Prepared:
        """See `Asked.prepared`."""
        names = tuple(sendable(clean(one.name)) for one in self.questions)
        body: dict[str, Any] = {
            "model": endpoint.model,
            "input": [_message(item, clean) for item in self.input],
            "questions": [
                {"type": "predicate", "name": name, "instructions": sendable(clean(one.instructions))}
                for name, one in zip(names, self.questions, strict=True)
            ],
        }
        if self.cache_key is not None:
            body["prompt_cache_key"] = self.cache_key
        content, key = encoded(body, endpoint)
        # Servers may count the input once for each question.
        most = TokenLimits(len(content) * len(names), THOUGHT * len(names))
        return Prepared(content, key, "/decisions", functools.partial(read_decision, names=names), most)


def _message(item: str | tuple[float, str], clean: Callable[[str], str]) -> dict[str, Any]:
    if isinstance(item, str):
        return {"role": "user", "content": sendable(clean(item))}
    event = {"time": item[0], "text": sendable(clean(item[1]))}
    return {"role": "user", "content": [{"type": "input_json", "data": event}]}


def read_decision(
    content: bytes, key: str, price: Price, limits: TokenLimits, seconds: float, *, names: Sequence[str]
) -> Answer:
    """The answer in a response's body to a request of predicates with these names; errors as of `read_completion`."""
    try:
        body = json.loads(content)
        answers = [_probability(*pair) for pair in zip(body["answers"], names, strict=True)]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        words = f"the server's response is no decision on {len(names)} predicates, in their order"
        raise TransientError(words, billed=True, garbled=True) from None
    return Answer(
        text=json.dumps(answers),
        error=None,
        model=storable(str(body.get("model") or "")),
        key=key,
        seconds=seconds,
        **charged(body.get("usage"), ("input_tokens", "output_tokens"), price, limits),
    )


def _probability(answer: Any, name: str) -> float | None:
    """The probability in an answer to the question of a name, which a server may leave out; None for a refusal."""
    if answer.get("name") not in (None, name):
        raise ValueError
    if answer["type"] == "refusal":
        return None
    p = answer["probability"]
    if answer["type"] != "predicate" or type(p) not in (int, float) or not 0 <= p <= 1:
        raise ValueError
    return float(p)
