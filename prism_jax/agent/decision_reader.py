"""A reader whose probabilities come from a decision model, in one of the forms of `prism_jax.remote.decisions`.

Each event costs one request: the newest events of the stream, oldest first, so that the server's cache of prompts has
what was sent before, and the question of need with one of acceptance per candidate. A refusal leaves the event
`Unanswered`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from etils import epath

from prism_jax.agent.asking import AskingReader, NoAnswerError, in_brief
from prism_jax.agent.reader import FastReading, Item
from prism_jax.decision.arrays import log_odds
from prism_jax.remote.cache import BudgetSpent
from prism_jax.remote.client import Client
from prism_jax.remote.decisions import MOST, DecisionRequest, Predicate
from prism_jax.remote.failures import EndpointError
from prism_jax.runtime.files import read_object
from prism_jax.streams import Candidate
from prism_jax.streams.fenced import event_text

CERTAIN = 1e-6
"""Probabilities nearer to 0 or 1 count as this near: no decision model is surer than its digits."""


class Questions(NamedTuple):
    """The words of both questions, from the paper's definitions: Pr(help is needed | X), Pr(accepted | X, offer)."""

    need: str = (
        "The messages are what a user did, oldest first. Is help needed at this moment: would this user, at this step, "
        "be better off with help than without?"
    )
    accept: str = (
        "The messages are what a user did, oldest first. If an assistant now made this offer, unasked, would this user "
        "accept it? The offer: {offer}"
    )
    offer: str = "help with what the user is doing"  # stands for a candidate without a text

    def asked(self, candidates: Sequence[Candidate]) -> list[Predicate]:
        """The question of need, and one of acceptance per candidate."""
        texts = [self.offer if offer.text is None else offer.text for offer in candidates]
        words = [self.accept.replace("{offer}", text) for text in texts]
        return [Predicate("need", self.need), *(Predicate(f"accept_{i}", one) for i, one in enumerate(words))]

    @classmethod
    def read(cls, path: epath.PathLike) -> Questions:
        """Reads a JSON object with some of the fields; ValueError names what is wrong in it."""
        tree = read_object(epath.Path(path), "the words of the questions")
        for key, value in tree.items():
            if key not in cls._fields or not isinstance(value, str) or not value.strip():
                expected = f"texts of {', '.join(cls._fields)}"
                raise ValueError(f"{path}: {key}: found {value!r:.80}, expected {expected}")
        questions = cls(**tree)
        if "{offer}" not in questions.accept:
            raise ValueError(f"{path}: accept: found no {{offer}} in it, expected the place of the offer's text")
        return questions


class Slots:
    """The questions of a server of ours (`serve`), which their names alone ask: its calibrated slots."""

    def asked(self, candidates: Sequence[Candidate]) -> list[Predicate]:
        """See `Questions.asked`."""
        names = ["accept" if offer.text is None else f"accept:{offer.text}" for offer in candidates]
        return [Predicate(name, "as trained") for name in ("need", *names)]


SLOTS = "slots"
"""Stands for a file of questions where those of `Slots` are asked."""


class DecisionReader(AskingReader):
    """Reads streams by a decision model; satisfies `prism_jax.agent.reader.Reader`."""

    def __init__(
        self,
        client: Client,
        questions: Questions | Slots | None = None,
        *,
        window: int = 50,
        deadline: float = 10.0,
        cache_key: bool = True,
        form: str = "decisions",
    ) -> None:
        """Asks nothing yet; without questions, the default ones later.

        At most `window`, at least 1, of a stream's newest events are sent. When it is full, the older half goes, so
        that the beginning of the requests, and with it the server's cache of prompts, changes seldom; for that cache,
        `cache_key` names the stream by a hash. An event's answer may take `deadline` seconds. `form` is one of `FORMS`.
        """
        if window < 1:
            raise ValueError(f"window: found {window}, expected at least 1")
        super().__init__(deadline)
        self._client, self._questions = client, questions or Questions()
        self._window, self._names_stream, self._form = window, cache_key, form
        self._texts: dict[str, list[str | tuple[float, str]]] = {}
        self._digest: dict[str, bytes] = {}

    @property
    def sent(self) -> str:
        """What was asked, and what it cost, in words."""
        return "decision model: " + "; ".join(self._client.tally.lines())

    @property
    def mixed(self) -> tuple[str, ...]:  # type: ignore[override]
        """See `AskingReader.mixed`."""
        return self._client.tally.mixed

    def follow(self, items: Sequence[Item]) -> None:
        """Appends events; see `Reader.follow`. Asks nothing."""
        texts = ["".join(event_text(event, self._before(stream, event))) for stream, event, _ in items]
        for (stream, event, offers), text in zip(items, texts, strict=True):
            kept = self._texts.setdefault(stream, [])
            if len(kept) == self._window:
                del kept[: (self._window + 1) // 2]
            kept.append((event.time, event.text) if isinstance(self._questions, Slots) else text)
            self._newest[stream] = event
            seen = json.dumps([text, [offer.text for offer in offers]])
            self._digest[stream] = hashlib.sha256(self._digest.get(stream, b"") + seen.encode()).digest()

    def forget(self, stream: str) -> None:
        """Drops a stream; see `Reader.forget`."""
        for kept in (self._texts, self._newest, self._digest):
            kept.pop(stream, None)

    def history(self, stream: str) -> str:
        """SHA-256 of the texts of the newest event and its offers, and of the same hash after the event before."""
        return self._digest[stream].hex()

    def erase(self) -> None:
        """Deletes the answers that are kept, so that none outlives what it was about; OSError where it cannot."""
        self._client.cache.erase()

    async def _answer(self, stream: str, candidates: Sequence[Candidate]) -> FastReading:
        asked = self._questions.asked(candidates)
        texts = tuple(self._texts[stream])
        name = hashlib.sha256(stream.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        found: list[float | None] = []
        tokens, ends = 0, time.monotonic() + self._deadline
        for start in range(0, len(asked), MOST):
            part = tuple(asked[start : start + MOST])
            cache_key = name if self._names_stream else None
            request = DecisionRequest(texts, part, cache_key, self._form, self.attempt)
            try:
                answer = await self._client.ask(request, deadline=ends - time.monotonic())
            except (BudgetSpent, EndpointError) as error:
                hopeless = f"--decisions: {error}" if isinstance(error, EndpointError) else ""
                words = f"the decision model gave no answer ({in_brief(error)})"
                raise NoAnswerError(words, tokens, hopeless=hopeless) from None
            tokens += answer.prompt_tokens + answer.completion_tokens
            if answer.text is None:
                late = time.monotonic() >= ends
                why = f"within {self._deadline:g} s" if late else f"({in_brief(answer.error)})"
                raise NoAnswerError(f"the decision model gave no answer {why}", tokens, late=late)
            found += json.loads(answer.text)
        if None in found:
            refused = found.index(None)
            question = "of need" if refused == 0 else f"of acceptance of candidate {refused - 1}"
            # as a server of ours does where a question's name is none of its own
            ours = refused == 1 and found.count(None) == len(candidates) and not isinstance(self._questions, Slots)
            hint = f"; one that prism_jax serves is asked by --questions={SLOTS}" if ours else ""
            raise NoAnswerError(f"the decision model refuses the question {question}{hint}", tokens)
        z_need, *z_accept = log_odds(np.array(found, np.float64), CERTAIN).tolist()
        return FastReading(z_need, tuple(z_accept), tokens)
