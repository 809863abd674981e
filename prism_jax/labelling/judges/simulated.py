"""Judges for tests and demonstrations, who know the truth and err at stated rates.

A `SimulatedJudge` is the brain of a fake endpoint: it gets the JSON body of a request and returns the text of an
answer. It recognises the step by the texts of its events, in a question of ours (`prompts.py`) and in one of
ProactiveBench's form (`prism_jax/streams/published/prompts.py`) alike, so its truth about a step is the same in both,
and the same for all judges. Its errors depend only on its own seed and on the question, so they are the same in every
order of requests, and independent of the teacher's and of other judges'.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from prism_jax.labelling.judges.prompts import HISTORY, PROPOSAL, SILENCE, digest
from prism_jax.streams import Step, Stream
from prism_jax.streams.simulator import names, subject
from prism_jax.streams.simulator_text import WORKS


class _Step(NamedTuple):
    """What a user wants at one step."""

    silence: bool  # whether they would accept silence
    offers: Mapping[str | None, bool]  # whether they would accept each candidate, by what is said
    about: str | None  # what an offer in other words has to name; None where all of these are rejected


_REJECTS_ALL = _Step(True, {None: False}, None)
"""A step before the first that a stream has labels of: nothing is needed yet."""


class _Asked(NamedTuple):
    """A question as a judge reads it."""

    left_out: int  # number of events that are not shown
    events: tuple[str, ...]  # texts of the events that are shown
    silence: bool
    offer: str | None  # the proposal; None for an offer without words
    answer: Callable[[bool], dict[str, Any]]  # the answer in the form that the question asks for


class SimulatedJudge:
    """Answers questions about known streams with their labels, flipped at stated rates.

    Where a label was not observed, it is drawn from the true probability, and is then the same for every judge. An
    offer in other words than the candidates' is judged as the first of them if it names what the step is about, and is
    rejected otherwise (`simulator.names`), as it is where that is unknown because the stream is not simulated. Of two
    users who did the same, the first one's labels count.
    """

    def __init__(
        self,
        streams: Iterable[Stream],
        *,
        sensitivity: float = 1.0,
        specificity: float = 1.0,
        seed: int = 0,
        most_events: int = 40,
    ):
        """Learns the labels (0 or 1) or true probabilities of streams.

        Sensitivity is the probability of accepting what the user would accept, specificity that of rejecting what the
        user would reject. `most_events` is that of the questions of our form; the other shows all events.

        Raises:
          ValueError: naming the argument or the stream, for a rate outside [0, 1], or a step without label and truth.
        """
        for name, rate in (("sensitivity", sensitivity), ("specificity", specificity)):
            if not 0 <= rate <= 1:
                raise ValueError(f"{name}: found {rate}, expected a probability in [0, 1]")
        self._rates = {True: sensitivity, False: specificity}
        self._seed, self._most_events = seed, most_events
        self._steps: dict[str, _Step] = {}
        streams = tuple(streams)
        for stream in streams:
            for number, step in enumerate(stream.steps):
                self._steps.setdefault(self._key(stream, step.event), _known(stream, number, step))
        for stream in streams:
            for event in range(stream.steps[0].event if stream.steps else 0):
                self._steps.setdefault(self._key(stream, event), _REJECTS_ALL)

    def __call__(self, body: Mapping[str, Any]) -> str:
        """The answer, as JSON, to the latest user message of a request that is a question about the known streams."""
        for message in reversed(body["messages"]):
            asked = _read(message["content"]) if message["role"] == "user" else None
            step = None if asked is None else self._steps.get(_key_of(asked.left_out, asked.events, self._most_events))
            if asked is not None and step is not None:
                return json.dumps(asked.answer(self._verdict(message["content"], _accepts(step, asked))))
        raise ValueError("messages: found no question about the known streams, expected one")

    def _key(self, stream: Stream, event: int) -> str:
        return _key_of(0, [shown.text for shown in stream.events[: event + 1]], self._most_events)

    def _verdict(self, text: str, accepted: bool) -> bool:
        right = random.Random(f"prism_jax judge {self._seed} {digest(text)}").random() < self._rates[accepted]
        return accepted if right else not accepted


def by_model(judges: Mapping[str, SimulatedJudge]) -> Callable[[Mapping[str, Any]], str]:
    """One brain for several judges behind one endpoint, told apart by the model that a request names."""
    return lambda body: judges[body["model"]](body)


def _key_of(left_out: int, events: Sequence[str], most: int) -> str:
    """A step's name: the number of its events and the texts of the newest."""
    return digest(json.dumps([left_out + len(events), *events[-most:]]))


def _read(content: str) -> _Asked | None:
    """The question that a message asks, in one of the two forms; None where it asks none."""
    try:
        return _ours(content) if content.startswith(HISTORY) else _official(json.loads(content))
    except (ValueError, AttributeError, StopIteration, TypeError, KeyError, IndexError):
        return None


def _ours(content: str) -> _Asked:
    history, asked, *_ = content.split("\n\n")
    lines = [json.loads(line) for line in history.split("\n")[1:]]
    events = tuple(line["event"] for line in lines if "event" in line)
    offer = json.loads(asked.partition("\n")[2]) if asked.startswith(PROPOSAL) else None
    return _Asked(lines[0].get("left_out", 0), events, asked == SILENCE, offer, lambda accepted: {"accepted": accepted})


def _official(form: dict[str, Any]) -> _Asked:
    """A question of ProactiveBench's form: a list of observations, and the proposed task or null right after it."""
    values = list(form.values())
    place = next(place for place, value in enumerate(values) if isinstance(value, list))
    task = values[place + 1]
    if not isinstance(task, str | None):
        raise TypeError(f"found {task!r}, expected a task or null")
    return _Asked(0, tuple(observed["event"] for observed in values[place]), task is None, task, _officially)


def _officially(accepted: bool) -> dict[str, Any]:
    thought = "This is what I want now." if accepted else "This is not what I want now."
    return {"thought": thought, "judgement": "accepted" if accepted else "rejected"}


def _accepts(step: _Step, asked: _Asked) -> bool:
    if asked.silence:
        return step.silence
    first = next(iter(step.offers.values()))
    if asked.offer is None or asked.offer in step.offers:
        return step.offers.get(asked.offer, first)
    return first and step.about is not None and names(asked.offer, step.about)


def _known(stream: Stream, number: int, step: Step) -> _Step:
    silence, offers = _truth(stream, number, None), dict[str | None, bool]()
    for place, offer in enumerate(step.candidates):
        offers.setdefault(offer.said, _truth(stream, number, place))
    about = subject(stream, step.event) if stream.domain in WORKS else None
    return _Step(silence, offers, about)


def _truth(stream: Stream, number: int, candidate: int | None) -> bool:
    """Whether the user would accept a candidate, or silence: the label, or a draw from the true probability."""
    step, wanted = stream.steps[number], candidate is not None
    if candidate is None:
        label, p = step.y_need, step.p_need_true
    else:
        label, p = step.candidates[candidate].y_accept, step.candidates[candidate].p_accept_true
    if label is None and p is None:
        raise ValueError(
            f"stream {stream.id!r}, step {number}: found neither label nor true probability of "
            f"{'acceptance' if wanted else 'need'}, expected one for a simulated judge"
        )
    if label is None:
        assert p is not None, "checked above"
        positive = random.Random(f"prism_jax truth {stream.id} {number} {candidate}").random() < p
    elif label in (0.0, 1.0):
        positive = label == 1.0
    else:
        raise ValueError(
            f"stream {stream.id!r}, step {number}: found the soft label {label}, expected 0 or 1 for a simulated judge"
        )
    return positive == wanted
