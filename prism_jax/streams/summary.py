"""Counts the contents of a set of streams: events, steps, candidates and labels of each kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from prism_jax.streams.types import Stream


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """Counts over a set of streams."""

    streams: int
    events: int
    steps: int
    candidates: int  # offers listed at the steps, including the constant "an offer"
    need_labels: int  # steps with a need label
    needed: float  # sum of the need labels; for hard labels, the number of steps that need help
    accept_labels: int  # candidates with an acceptance label
    accepted: float  # sum of the acceptance labels; for hard labels, the number of accepted offers
    silence_labels: int  # steps whose silence was judged

    @property
    def judgements(self) -> int:
        """Number of judged offers and silences: the rows of ProactiveBench's reward data, with candidates "listed"."""
        return self.accept_labels + self.silence_labels

    def __str__(self) -> str:
        """The summary in one line, for the terminal."""
        return (
            f"{self.streams} streams, {self.events:,} events, {self.steps:,} steps, {self.candidates:,} candidates; "
            f"{self.judgements:,} judgements: {self.accept_labels:,} of offers ({self.accepted:g} accepted), "
            f"{self.silence_labels:,} of silence; help needed at {self.needed:g} of {self.need_labels:,} judged steps"
        )


def summarise(streams: Sequence[Stream]) -> dict[str, Summary]:
    """Counts per domain, in alphabetical order, followed by the total under the key "all"."""
    by_domain = {
        domain: _count([stream for stream in streams if stream.domain == domain])
        for domain in sorted({stream.domain for stream in streams})
    }
    return {**by_domain, "all": _count(streams)}


def _count(streams: Sequence[Stream]) -> Summary:
    steps = [step for stream in streams for step in stream.steps]
    candidates = [candidate for step in steps for candidate in step.candidates]
    needs = [step.y_need for step in steps if step.y_need is not None]
    accepts = [candidate.y_accept for candidate in candidates if candidate.y_accept is not None]
    return Summary(
        streams=len(streams),
        events=sum(len(stream.events) for stream in streams),
        steps=len(steps),
        candidates=len(candidates),
        need_labels=len(needs),
        needed=float(sum(needs)),
        accept_labels=len(accepts),
        accepted=float(sum(accepts)),
        silence_labels=sum(bool(step.votes) for step in steps),
    )
