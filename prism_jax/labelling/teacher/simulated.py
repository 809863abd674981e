"""A teacher that knows the simulator's truth and errs as configured: the brain of a fake endpoint.

It recognises a question by its text, so it stands in for any model behind the real client, and proposes offers itself
where it is shown none. Its errors depend only on its seed and the question.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import random
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, get_args

from prism_jax.labelling.teacher.prompts import Offers, PromptSettings, question
from prism_jax.runtime.dataclass_config import check, check_at_least, check_shares
from prism_jax.streams import RESPONSE_KEYS, Candidate, Step, Stream
from prism_jax.streams import simulator_text as text
from prism_jax.streams.simulator import subject
from prism_jax.streams.types import SLOW_FIELDS


@dataclasses.dataclass(frozen=True)
class TeacherQuality:
    """How a simulated teacher errs."""

    blur: float = 0.5  # standard deviation of its errors in log-odds, drawn independently for each probability
    bias: float = 0.0  # what it adds to all log-odds; above 0 it overestimates need and acceptance
    field_errors: float = 0.02  # share of the fields of the slow pass that it takes from another step
    response_errors: float = 0.02  # share of the responses that it takes from another step
    threshold: float = 0.5  # probability of acceptance from which on it would speak
    seed: int = 0  # seed of its errors

    def __post_init__(self) -> None:
        check_at_least(self, 0, "blur")
        check_shares(self, "a share in [0, 1]", "field_errors", "response_errors", "threshold")
        check(self, "bias", math.isfinite(self.bias), "a finite number of log-odds")


class _StepTruth(NamedTuple):
    """What the teacher knows about a step."""

    p_need: float
    p_accept: tuple[float, ...]
    rationale: Mapping[str, str]
    response: Mapping[str, str]  # to offers that it is given
    offer: str  # what it would propose itself, which names what the step is about


class SimulatedTeacher:
    """Answers questions about streams with true probabilities and rationales, each with as many events as the settings.

    Before the first step of a stream it sees neither need nor an offer that would be accepted.

    Raises ValueError naming the stream and the step whose truth is not known.
    """

    def __init__(self, streams: Iterable[Stream], prompt: PromptSettings, quality: TeacherQuality):
        self._quality, self._truths = quality, dict[str, _StepTruth]()
        known, begun = [], []
        for stream in streams:
            known += [(stream, step) for step in stream.steps]
            begun += [(stream, _begun(event)) for event in range(stream.steps[0].event if stream.steps else 0)]
        for stream, step in known:
            self._truths[_key(stream, step, prompt, "given")] = _truth_of(stream, step)
        self._steps = list(self._truths.values())
        for stream, step in (*known, *begun):
            for offers in get_args(Offers):
                self._truths.setdefault(_key(stream, step, prompt, offers), _truth_of(stream, step))

    def __call__(self, body: Mapping[str, Any]) -> str:
        """The answer to the JSON body of a request, as text; raises KeyError for a step that it does not know."""
        system, user = (message["content"] for message in body["messages"][:2])  # feedback on an answer comes later
        key = _hash(user)
        step_truth, slow = self._truths[key], f'"{next(iter(SLOW_FIELDS))}"' in system
        rng = random.Random(f"prism_jax teacher {self._quality.seed} {key} {slow}")
        answer = self._answer(step_truth, slow, '"p_accept" (a list' not in system, rng)
        return json.dumps(answer, ensure_ascii=False)

    def _answer(self, step_truth: _StepTruth, slow: bool, own: bool, rng: random.Random) -> dict[str, Any]:
        p_need = self._blurred(step_truth.p_need, rng)
        p_accept = [self._blurred(p, rng) for p in step_truth.p_accept]
        answer: dict[str, Any] = {}
        if slow:
            for name in SLOW_FIELDS:
                source = rng.choice(self._steps) if rng.random() < self._quality.field_errors else step_truth
                answer[name] = source.rationale[name]
        answer["p_need"] = p_need
        if not slow and not own:
            return answer | {"p_accept": p_accept}
        source = rng.choice(self._steps) if rng.random() < self._quality.response_errors else step_truth
        speaks = max(p_accept) >= self._quality.threshold
        if not own:
            return answer | {"p_accept": p_accept, "response": dict(source.response) if speaks else None}
        if not slow:
            return answer | {"offer": source.offer, "p_accept": p_accept[0]}
        response = {**source.response, RESPONSE_KEYS[2]: source.offer}
        return answer | {"response": response, "p_accept": p_accept[0], "speak": speaks}

    def _blurred(self, p: float, rng: random.Random) -> float:
        """A true probability with this teacher's bias and noise in log-odds."""
        log_odds = math.log(p / (1 - p)) + self._quality.bias + self._quality.blur * rng.gauss(0.0, 1.0)
        return round(0.5 * (1 + math.tanh(0.5 * log_odds)), 4)


def _begun(event: int) -> Step:
    """A step before a stream's first: nothing is needed yet."""
    offer = Candidate(p_accept_true=0.02)
    return Step(event=event, candidates=(offer,), p_need_true=0.02, rationale=dict.fromkeys(SLOW_FIELDS, "just begun"))


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
    offer = text.OFFERS[stream.domain][step.event % 2].format(item=subject(stream, step.event))
    return _StepTruth(p_need, tuple(p for p in p_accept if p is not None), step.rationale, response, offer)


def _key(stream: Stream, step: Step, prompt: PromptSettings, offers: Offers) -> str:
    shown = dataclasses.replace(prompt, offers=offers)
    return _hash(question(stream.events[: step.event + 1], step.candidates, shown))


def _hash(content: str) -> str:
    return hashlib.sha256(content.encode("utf-8")).hexdigest()


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
            return json.dumps({**truth.response, task: truth.offer})
        return json.dumps({purpose: "To go on.", thoughts: "No help is needed.", task: None, response: None})


def _event_in(turn: str) -> str:
    value, _ = json.JSONDecoder().raw_decode(turn, turn.index('{"Time": '))
    return value["Event"]
