"""How well one annotator predicts the others: a reference for a student that ranks offers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from prism_jax.evaluation.replay import PolicyReplay, Replay, decided_rows
from prism_jax.experiments.ranking import Ranked
from prism_jax.scores import Scores
from prism_jax.streams import Step, Stream


def votes_against_votes(streams: Iterable[Stream]) -> Ranked:
    """Pairs votes on acceptance: each vote on an offer is a score, each other annotator's vote on it the label.

    All ordered pairs count, because with two or three votes per offer the others often have no majority.
    """
    return _ranked(
        (float(vote), float(label), stream.id)
        for stream in streams
        for step in stream.steps
        for offer in step.candidates
        for i, vote in enumerate(offer.votes)
        for j, label in enumerate(offer.votes)
        if i != j
    )


def need_against_others(streams: Iterable[Stream]) -> Ranked:
    """Compares each annotator with the others on need: one score and one label per annotator and step.

    The score is whether the annotator accepted any offer. The label is need by the strict definition among the other
    annotators: whether all of them accepted the same offer. A step whose offers have different numbers of votes is left
    out, since votes cannot be assigned to annotators there. In a step without offers, no annotator accepted any.
    """
    return _ranked(
        (float(accepted), float(needed), stream.id)
        for stream in streams
        for step in stream.steps
        for accepted, needed in _need(step)
    )


def _need(step: Step) -> Iterable[tuple[bool, bool]]:
    """For each annotator: whether they accepted any offer, and whether all others accepted the same one."""
    ballots = [offer.votes for offer in step.candidates if offer.votes]
    counts = {len(votes) for votes in ballots} or {len(step.votes)}
    if len(counts) > 1 or max(counts) < 2:
        return
    for i in range(max(counts)):
        others = [votes[:i] + votes[i + 1 :] for votes in ballots]
        yield any(votes[i] for votes in ballots), any(all(votes) for votes in others)


def replay_annotators(streams: Iterable[Stream]) -> Replay | None:
    """Every annotator as a policy that the others judge: one row per annotator and step with at least two ballots.

    `p_accept` is whether the annotator accepted any offer, and `y_first` what share of the others accepted the offers
    that the annotator did (of all offers where the annotator accepted none). Labels are the others': shares of their
    votes, and need where all of them accepted the same offer. Steps are left out as in `need_against_others`, and so
    are steps without offers. None if no step is left.
    """
    rows = []
    for stream in streams:
        for number, step in enumerate(stream.steps):
            ballots = [offer.votes for offer in step.candidates if offer.votes]
            for i, (accepted, needed) in enumerate(_need(step) if ballots else ()):
                shares = np.array([np.mean(votes[:i] + votes[i + 1 :]) for votes in ballots])
                own = np.array([votes[i] for votes in ballots])
                first = shares[own if accepted else ...].mean()
                rows.append((stream.id, number, 1.0, accepted, needed, first, shares.max(), shares.mean()))
    if not rows:
        return None
    columns = list(zip(*rows, strict=True))
    return Replay(np.array(columns[0]), np.array(columns[1]), *(np.array(column, np.float64) for column in columns[2:]))


def annotator_rows(steps: Replay, ratio: float, *, resamples: int) -> tuple[PolicyReplay, ...]:
    """What one annotator's decisions cost the others, beside constants and decisions on the others' own labels.

    The steps are rows of `replay_annotators`; `ratio` is C_FN, with C_FA = 1. Whole streams are resampled.
    """
    everywhere = np.ones(len(steps))
    best = (steps.y_best * (1 + ratio * steps.y_need) >= 1).astype(np.float64)
    made = {
        "never": (0 * everywhere, steps.y_mean),
        "always, a random offer": (everywhere, steps.y_mean),
        "one annotator": (steps.p_accept, steps.y_first),
        "clairvoyant, of the others": (best, steps.y_best),
    }
    return decided_rows(made, steps, ratio, resamples=resamples)


def against_votes(rows: Scores, p: np.ndarray) -> Ranked:
    """Compares a signal with every single vote on the rows' offers, as `votes_against_votes` does for an annotator.

    `p` has one value per row; a row without votes is left out.
    """
    votes = [()] * len(rows) if rows.votes is None else rows.votes
    return _ranked(
        (float(score), float(vote), stream)
        for score, ballot, stream in zip(p, votes, rows.stream, strict=True)
        for vote in ballot
    )


def _ranked(rows: Iterable[tuple[float, float, str]]) -> Ranked:
    p, y, stream = zip(*rows, strict=True)
    return Ranked(np.array(p), np.array(p), np.array(y), np.array(stream, str))
