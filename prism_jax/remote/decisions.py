"""Requests of decision models: yes-or-no questions about an input, answered by probabilities, in one of two forms.

`POST /v1/decisions` is that of openai 3.57 (`client.decisions.create`), which vLLM 0.33 and others serve; its questions
here are predicates alone. `POST /v1/systemone` is that of typesafe-sdk 0.7.5; its questions here are nouls alone.
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


class Form(NamedTuple):
    """How a request is written, and its answers are read."""

    path: str  # after the base URL
    # input and questions in the body, from texts or events with times, and from names with their instructions
    asked: Callable[[Sequence[str | tuple[float, str]], Sequence[tuple[str, str]]], dict[str, Any]]
    # the probability for each name in a body, None for a refusal; LookupError, TypeError or ValueError for others
    answers: Callable[[Any, Sequence[str]], list[float | None]]
    has_cache_key: bool = False


class DecisionRequest(NamedTuple):
    """Predicates about an input. The text of its `Answer` is JSON: a probability for each, null for a refusal."""

    # texts, each a message of the user, oldest first; or events with their times in seconds
    input: tuple[str | tuple[float, str], ...]
    questions: tuple[Predicate, ...]  # at most `MOST`
    # names what shares its beginning with this input, for the server's cache of prompts; None leaves it out
    cache_key: str | None = None
    form: str = "decisions"  # of `FORMS`
    attempt: int = 0  # which asking of the same it is, from 0; a later one is a new request with an answer of its own

    def prepared(self, endpoint: EndpointConfig, clean: Callable[[str], str]) -> Prepared:
        """See `Asked.prepared`."""
        form = FORMS[self.form]

        def sent(text: str) -> str:
            return sendable(clean(text))

        items = [sent(one) if isinstance(one, str) else (one[0], sent(one[1])) for one in self.input]
        questions = [(sent(one.name), sent(one.instructions)) for one in self.questions]
        names = tuple(name for name, _ in questions)
        body = {"model": endpoint.model, **form.asked(items, questions)}
        if form.has_cache_key and self.cache_key is not None:
            body["prompt_cache_key"] = self.cache_key
        content, key = encoded(body, endpoint, self.attempt)
        # Servers may count the input once for each question.
        most = TokenLimits(len(content) * len(names), THOUGHT * len(names))
        read = functools.partial(read_decision, names=names, form=form)
        return Prepared(content, key, form.path, read, most, anew=self.attempt > 0)


def read_decision(
    content: bytes, key: str, price: Price, limits: TokenLimits, seconds: float, *, names: Sequence[str], form: Form
) -> Answer:
    """The answer in a response's body to a request of predicates with these names; errors as of `read_completion`."""
    try:
        body = json.loads(content)
        answers = form.answers(body["answers"], names)
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


def _decisions(items: Sequence[str | tuple[float, str]], questions: Sequence[tuple[str, str]]) -> dict[str, Any]:
    return {
        "input": [{"role": "user", "content": one if isinstance(one, str) else _json(one)} for one in items],
        "questions": [{"type": "predicate", "name": name, "instructions": words} for name, words in questions],
    }


def _json(event: tuple[float, str]) -> list[dict[str, Any]]:
    return [{"type": "input_json", "data": {"time": event[0], "text": event[1]}}]


def _predicates(answers: Any, names: Sequence[str]) -> list[float | None]:
    return [_predicate(*pair) for pair in zip(answers, names, strict=True)]


def _predicate(answer: Any, name: str) -> float | None:
    """The probability in an answer to the question of a name, which a server may leave out; None for a refusal."""
    if answer.get("name") not in (None, name):
        raise ValueError
    return None if answer["type"] == "refusal" else _probability(answer, "predicate", "probability")


def _system_one(items: Sequence[str | tuple[float, str]], questions: Sequence[tuple[str, str]]) -> dict[str, Any]:
    return {
        "state": [one if isinstance(one, str) else {"time": one[0], "text": one[1]} for one in items],
        "questions": {name: {"type": "noul", "instructions": words} for name, words in questions},
    }


def _nouls(answers: Any, names: Sequence[str]) -> list[float | None]:
    """The form has no refusal: a server that does not answer a question leaves it out."""
    return [_probability(answers[name], "noul", "noul") if name in answers else None for name in names]


def _probability(answer: Any, kind: str, key: str) -> float:
    p = answer[key]
    if answer["type"] != kind or type(p) not in (int, float) or not 0 <= p <= 1:
        raise ValueError
    return float(p)


FORMS = {
    "decisions": Form("/decisions", _decisions, _predicates, has_cache_key=True),
    "systemone": Form("/systemone", _system_one, _nouls),
}
"""The forms by what stands before the base URL, as in `systemone:https://HOST/v1`; without it, it is `decisions`."""


def form_of(address: str) -> tuple[str, str]:
    """The name of the form of an address, and its base URL."""
    name, colon, url = address.partition(":")
    return (name, url) if colon and name in FORMS else ("decisions", address)
