"""How well one annotator foretells the others: what a student that ranks offers can be held against."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from prism_jax.experiments.ranking import Ranked
from prism_jax.scores import Scores
from prism_jax.streams import Step, Stream


def votes_against_votes(streams: Iterable[Stream]) -> Ranked:
    """Acceptance: each vote on an offer as the score, each other annotator's vote on it as the label.

    All ordered pairs, since with two or three votes an offer the others often have no majority.
    """
    return _ranked(
        (float(one), float(other), stream.id)
        for stream in streams
        for step in stream.steps
        for offer in step.candidates
        for i, one in enumerate(offer.votes)
        for j, other in enumerate(offer.votes)
        if i != j
    )


def need_against_others(streams: Iterable[Stream]) -> Ranked:
    """Need: whether an annotator ticked any offer as the score; as the label what the others need.

    By the strict definition, that is whether all others ticked one and the same. Where the offers of a step have
    unequally many votes, nobody knows whose they are: it stands outside. Without offers nobody could tick any.
    """
    return _ranked(
        (float(ticked), float(needed), stream.id)
        for stream in streams
        for step in stream.steps
        for ticked, needed in _need(step)
    )


def _need(step: Step) -> Iterable[tuple[bool, bool]]:
    """For each annotator, whether they ticked any offer, and whether all others ticked one and the same."""
    ballots = [offer.votes for offer in step.candidates if offer.votes]
    counts = {len(votes) for votes in ballots} or {len(step.votes)}
    if len(counts) > 1 or max(counts) < 2:
        return
    for i in range(max(counts)):
        others = [votes[:i] + votes[i + 1 :] for votes in ballots]
        yield any(votes[i] for votes in ballots), any(all(votes) for votes in others)


def against_votes(rows: Scores, p: np.ndarray) -> Ranked:
    """A signal of the rows against every single vote on their offers, as an annotator is measured."""
    votes = [()] * len(rows) if rows.votes is None else rows.votes
    return _ranked(
        (float(score), float(vote), stream)
        for score, ballot, stream in zip(p, votes, rows.stream, strict=True)
        for vote in ballot
    )


def _ranked(rows: Iterable[tuple[float, float, str]]) -> Ranked:
    p, y, stream = zip(*rows, strict=True)
    return Ranked(np.array(p), np.array(p), np.array(y), np.array(stream, str))
