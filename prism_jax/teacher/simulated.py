"""A teacher that knows the simulator's truth and errs as configured: the brain of a fake endpoint.

It recognises a question by its text, so it stands in for any model behind the real client. Its errors depend only on
its seed and the question.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import random
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from prism_jax.prompting.template import RESPONSE_KEYS, SLOW_FIELDS
from prism_jax.runtime.dataclass_config import check_at_least
from prism_jax.streams import Step, Stream
from prism_jax.teacher.prompts import PromptSettings, question


@dataclasses.dataclass(frozen=True)
class TeacherQuality:
    """How a simulated teacher errs."""

    blur: float = 0.5  # standard deviation of its errors in log-odds, drawn independently for each probability
    bias: float = 0.0  # what it adds to all log-odds; above 0 it overestimates need and acceptance
    field_errors: float = 0.02  # share of the fields of the slow pass that it takes from another step
    response_errors: float = 0.02  # share of the responses that it takes from another step
    threshold: float = 0.5  # probability of acceptance from which on it writes a response
    seed: int = 0  # seed of its errors

    def __post_init__(self) -> None:
        check_at_least(self, 0, "blur")
        for name in ("field_errors", "response_errors", "threshold"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected a share in [0, 1]")
        if not math.isfinite(self.bias):
            raise ValueError(f"bias: found {self.bias}, expected a finite number of log-odds")


class _StepTruth(NamedTuple):
    """What the teacher knows about a step."""

    p_need: float
    p_accept: tuple[float, ...]
    rationale: Mapping[str, str]
    response: Mapping[str, str]


class SimulatedTeacher:
    """Answers questions, with these prompt settings, about streams with true probabilities and rationales.

    Raises ValueError naming the stream and the step whose truth is not known.
    """

    def __init__(self, streams: Iterable[Stream], prompt: PromptSettings, quality: TeacherQuality):
        self._prompt, self._quality = prompt, quality
        self._truths: dict[str, _StepTruth] = {}
        for stream in streams:
            for step in stream.steps:
                content = question(stream.events[: step.event + 1], step.candidates, prompt)
                self._truths[_hash(content)] = _truth_of(stream, step)
        self._steps = list(self._truths.values())

    def __call__(self, body: Mapping[str, Any]) -> str:
        """The answer to the JSON body of a request, as text; raises KeyError for a step that it does not know."""
        system, user = (message["content"] for message in body["messages"][:2])  # feedback on an answer comes later
        key = _hash(user)
        step_truth, slow = self._truths[key], f'"{next(iter(SLOW_FIELDS))}"' in system
        rng = random.Random(f"prism_jax teacher {self._quality.seed} {key} {slow}")
        return json.dumps(self._answer(step_truth, slow, rng), ensure_ascii=False)

    def _answer(self, step_truth: _StepTruth, slow: bool, rng: random.Random) -> dict[str, Any]:
        p_need = self._blurred(step_truth.p_need, rng)
        p_accept = [self._blurred(p, rng) for p in step_truth.p_accept]
        fields: dict[str, Any] = {}
        if slow:
            for name in SLOW_FIELDS:
                source = rng.choice(self._steps) if rng.random() < self._quality.field_errors else step_truth
                fields[name] = source.rationale[name]
        answer = fields | {"p_need": p_need}
        if self._prompt.proposals:
            answer["proposals"] = self._proposals(step_truth, p_accept[0], rng)
        else:
            answer["p_accept"] = p_accept
        if slow:
            errs = rng.random() < self._quality.response_errors
            offers = max(p_accept) >= self._quality.threshold
            source = rng.choice(self._steps) if errs else step_truth
            answer["response"] = dict(source.response) if offers else None
        return answer

    def _proposals(self, step_truth: _StepTruth, p_accept: float, rng: random.Random) -> list[dict[str, Any]]:
        """As many offers as it may propose, which a user would all take for the step's first candidate."""
        task = step_truth.response[RESPONSE_KEYS[2]]
        further_offers = [
            {"offer": f"{task} (way {number})", "p_accept": self._blurred(step_truth.p_accept[0], rng)}
            for number in range(2, self._prompt.proposals + 1)
        ]
        return [{"offer": task, "p_accept": p_accept}, *further_offers]

    def _blurred(self, p: float, rng: random.Random) -> float:
        """A true probability with this teacher's bias and noise in log-odds."""
        log_odds = math.log(p / (1 - p)) + self._quality.bias + self._quality.blur * rng.gauss(0.0, 1.0)
        return round(0.5 * (1 + math.tanh(0.5 * log_odds)), 4)


def _truth_of(stream: Stream, step: Step) -> _StepTruth:
    p_need, p_accept = step.p_need_true, [offer.p_accept_true for offer in step.candidates]
    if p_need is None or None in p_accept or step.rationale is None:
        raise ValueError(
            f"stream {stream.id!r}, event {step.event}: found no truth, expected true probabilities and a rationale"
        )
    newest = stream.events[step.event].text
    response = {
        RESPONSE_KEYS[0]: f"Works on {stream.domain}.",
        RESPONSE_KEYS[1]: f"{step.rationale['evidence'].capitalize()}.",
        RESPONSE_KEYS[2]: f"help after: {newest}",
        RESPONSE_KEYS[3]: "Shall I?",
    }
    return _StepTruth(p_need, tuple(p for p in p_accept if p is not None), step.rationale, response)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


@dataclasses.dataclass(frozen=True)
class AgentQuality:
    """How a simulated agent errs."""

    errors: float = 0.05  # share of the events at which it answers as if at another step
    eagerness: float = 0.5  # 1 less the probability of acceptance from which on it speaks; at 1 it always speaks
    seed: int = 0  # seed of its errors

    def __post_init__(self) -> None:
        for name in ("errors", "eagerness"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected a share in [0, 1]")


class SimulatedAgent:
    """Answers as ProactiveBench's agent about streams with true probabilities (`label --agent`), whatever the prompt.

    It recognises a step by the events in the user's turns, alone or amid instructions, and is silent where a stream
    has no step. Raises ValueError naming the stream and the step whose truth is not known.
    """

    def __init__(self, streams: Iterable[Stream], quality: AgentQuality):
        self._quality = quality
        self._truths: dict[str, _StepTruth | None] = {}
        for stream in streams:
            steps = {step.event: _truth_of(stream, step) for step in stream.steps}
            texts = [event.text for event in stream.events]
            for number in range(len(texts)):
                self._truths[_hash(json.dumps(texts[: number + 1]))] = steps.get(number)
        self._steps = [truth for truth in self._truths.values() if truth is not None]

    def __call__(self, body: Mapping[str, Any]) -> str:
        """The answer to the JSON body of a request, as text; raises KeyError for a stream that it does not know."""
        turns = (message["content"] for message in body["messages"] if message["role"] == "user")
        key = _hash(json.dumps([_event_in(turn) for turn in turns]))
        truth = self._truths[key]
        rng = random.Random(f"prism_jax agent {self._quality.seed} {key}")
        if rng.random() < self._quality.errors:
            truth = rng.choice(self._steps)
        purpose, thoughts, task, response = RESPONSE_KEYS
        if truth is not None and max(truth.p_accept) >= 1 - self._quality.eagerness:
            return json.dumps(dict(truth.response))
        return json.dumps({purpose: "To go on.", thoughts: "No help is needed.", task: None, response: None})


def _event_in(turn: str) -> str:
    """The text of the event in a user's turn."""
    value, _ = json.JSONDecoder().raw_decode(turn, turn.index('{"Time": '))
    return value["Event"]
