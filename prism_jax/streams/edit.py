"""Copies of streams with changed steps or candidates: the classes are frozen and nested, so an edit rebuilds them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar, overload

from prism_jax.streams.types import Candidate, Step, Stream

StepT = TypeVar("StepT", bound=Step)


def map_steps(stream: Stream, change: Callable[[Step], Step]) -> Stream:
    """Returns the stream with every step replaced; `change` is called once per step, in order."""
    return dataclasses.replace(stream, steps=tuple(change(step) for step in stream.steps))


@overload
def map_candidates(value: Stream, change: Callable[[Candidate], Candidate]) -> Stream: ...


@overload
def map_candidates(value: StepT, change: Callable[[Candidate], Candidate]) -> StepT: ...


def map_candidates(value: Stream | Step, change: Callable[[Candidate], Candidate]) -> Stream | Step:
    """Returns the stream, or the single step, with every candidate replaced; `change` is called once each, in order.

    A step of which no candidate changes stays the same object.
    """
    if isinstance(value, Stream):
        return map_steps(value, lambda step: map_candidates(step, change))
    changed = tuple(change(candidate) for candidate in value.candidates)
    same = all(new is old for new, old in zip(changed, value.candidates, strict=True))
    return value if same else dataclasses.replace(value, candidates=changed)


def without_answers(stream: Stream) -> Stream:
    """Returns what an unlabelled stream shows: its events, where its steps are, and the texts of their candidates.

    No label, vote, log, truth, rationale, response or teacher's probability is left, nor the persona.
    """
    steps = (
        Step(event=step.event, candidates=tuple(Candidate(text=offer.text) for offer in step.candidates))
        for step in stream.steps
    )
    return Stream(id=stream.id, events=stream.events, steps=tuple(steps), domain=stream.domain)


def keep_candidates(stream: Stream, keep: Callable[[Candidate], bool]) -> Stream | None:
    """Returns the stream without the candidates that `keep` rejects; None where no candidate is left.

    A step that loses all of its candidates is dropped; the events stay. `keep` is called once per candidate, in order.
    """
    steps = []
    for step in stream.steps:
        kept = tuple(candidate for candidate in step.candidates if keep(candidate))
        if kept:
            steps.append(dataclasses.replace(step, candidates=kept))
    return dataclasses.replace(stream, steps=tuple(steps)) if steps else None
