"""Judges for tests and demonstrations, who know the truth and err at stated rates.

A `SimulatedJudge` is the brain of a fake endpoint: it gets the JSON body of a request and returns the text of an
answer. Its errors depend only on its own seed and on the question, so they are the same in every order of requests, and
independent of the teacher's and of other judges'.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prism_jax.judges.prompts import Question, digest, history_of, questions
from prism_jax.streams import Stream


class SimulatedJudge:
    """Answers questions about known streams with their labels, flipped at stated rates.

    Where a label was not observed, it is drawn from the true probability, and is then the same for every judge. A
    proposal that the known streams do not hold, such as a teacher's, is judged as the first candidate of its step.
    Questions of equal text are one question: of two users who did the same, the first one's label counts.
    """

    def __init__(
        self,
        streams: Iterable[Stream],
        *,
        sensitivity: float = 1.0,
        specificity: float = 1.0,
        seed: int = 0,
        most_events: int = 40,
        seen_as: Callable[[str], str] | None = None,
    ):
        """Learns the labels (0 or 1) or true probabilities of streams.

        Sensitivity is the probability of accepting what the user would accept, specificity that of rejecting what the
        user would reject. `most_events` is that of the questions, and `seen_as` what an endpoint sees of a text, where
        the client changes it, such as by redaction.

        Raises:
          ValueError: naming the argument or the stream, for a rate outside [0, 1], or a step without label and truth.
        """
        for name, rate in (("sensitivity", sensitivity), ("specificity", specificity)):
            if not 0 <= rate <= 1:
                raise ValueError(f"{name}: found {rate}, expected a probability in [0, 1]")
        self._rates = {True: sensitivity, False: specificity}
        self._seed = seed
        self._accepted: dict[str, bool] = {}
        self._any_offer: dict[str, bool] = {}
        seen = seen_as or (lambda text: text)
        for stream in streams:
            for question in questions(stream, most_events):
                text, accepted = seen(question.text), _truth(stream, question)
                self._accepted.setdefault(digest(text), accepted)
                if question.candidate == 0:
                    self._any_offer.setdefault(digest(history_of(text)), accepted)

    def __call__(self, body: Mapping[str, Any]) -> str:
        """The answer, as JSON, to the latest user message of a request that is a question about the known streams."""
        for message in reversed(body["messages"]):
            if message["role"] == "user":
                accepted = self._accepted.get(digest(message["content"]))
                if accepted is None:
                    accepted = self._any_offer.get(digest(history_of(message["content"])))
                if accepted is not None:
                    return json.dumps({"accepted": self._verdict(message["content"], accepted)})
        raise ValueError("messages: found no question about the known streams, expected one")

    def _verdict(self, text: str, accepted: bool) -> bool:
        right = random.Random(f"prism_jax judge {self._seed} {digest(text)}").random() < self._rates[accepted]
        return accepted if right else not accepted


def by_model(judges: Mapping[str, SimulatedJudge]) -> Callable[[Mapping[str, Any]], str]:
    """One brain for several judges behind one endpoint, told apart by the model that a request names."""
    return lambda body: judges[body["model"]](body)


def _truth(stream: Stream, question: Question) -> bool:
    """Whether the user would accept: the label, or a draw from the true probability."""
    step = stream.steps[question.step]
    if question.candidate is None:
        label, p = step.y_need, step.p_need_true
        wanted = False
    else:
        label, p = step.candidates[question.candidate].y_accept, step.candidates[question.candidate].p_accept_true
        wanted = True
    if label is None and p is None:
        raise ValueError(
            f"stream {stream.id!r}, step {question.step}: found neither label nor true probability of "
            f"{'acceptance' if wanted else 'need'}, expected one for a simulated judge"
        )
    if label is None:
        assert p is not None, "checked above"
        positive = random.Random(f"prism_jax truth {stream.id} {question.step} {question.candidate}").random() < p
    elif label in (0.0, 1.0):
        positive = label == 1.0
    else:
        raise ValueError(
            f"stream {stream.id!r}, step {question.step}: found the soft label {label}, expected 0 or 1 for a "
            "simulated judge"
        )
    return positive == wanted
