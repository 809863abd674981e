"""Simulated judges in two pools, as the paper's two pools of language models, and the truth that they err about."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import NamedTuple

from prism_jax.labelling.judges.ballots import Ballots, Item, make_ballots, step_items
from prism_jax.labelling.judges.prompts import MOST_EVENTS, questions
from prism_jax.labelling.judges.simulated import SimulatedJudge
from prism_jax.streams import Stream


class Errors(NamedTuple):
    """How a judge errs: the share of what the user accepts that it accepts, and of the rest that it rejects."""

    sensitivity: float
    specificity: float


POOL_A, POOL_B, ENSEMBLE = "pool A", "pool B", "ensemble"
ERRORS = {POOL_A: Errors(0.9, 0.85), POOL_B: Errors(0.85, 0.75)}
"""The errors of every judge of a pool; pool B is worse, and accepts more of what users reject."""
JUDGES = 3
"""Judges in a pool. The ensemble has two of pool A and one of pool B, as the paper's main panel."""
TRUTH = "the truth"


def panels(streams: Sequence[Stream], seed: int) -> dict[str, Ballots]:
    """The verdicts of both pools and of the ensemble on silence and on every candidate of each step.

    Each judge errs with a seed of its own, which depends on that of the trainings, independently of the others and of
    any student.
    """
    judges = {
        f"{pool[-1]}{number}": SimulatedJudge(
            streams, **ERRORS[pool]._asdict(), seed=1000 * (seed + 1) + 10 * place + number, most_events=MOST_EVENTS
        )
        for place, pool in enumerate(ERRORS)
        for number in range(1, JUDGES + 1)
    }
    asked = [
        (item, {"messages": [{"role": "user", "content": question.text}]})
        for stream in streams
        for item, question in zip(_items(stream), questions(stream, MOST_EVENTS), strict=True)
    ]

    def of(names: Sequence[str]) -> Ballots:
        rows = {item: [json.loads(judges[name](body))["accepted"] for name in names] for item, body in asked}
        return make_ballots(rows, names)

    a, b = ([name for name in judges if name.startswith(pool[-1])] for pool in ERRORS)
    return {ENSEMBLE: of([*a[:2], *b[:1]]), POOL_A: of(a), POOL_B: of(b)}


def truth(streams: Sequence[Stream]) -> Ballots:
    """What the users want, as the ballots of one rater: silence where there is no need, and the offers they accept."""
    rows: dict[Item, list[bool | None]] = {}
    for stream in streams:
        for step in stream.steps:
            silence, *offers = step_items(stream, step)
            rows[silence] = [None if step.y_need is None else step.y_need == 0]
            for item, candidate in zip(offers, step.candidates, strict=True):
                rows[item] = [None if candidate.y_accept is None else candidate.y_accept == 1]
    return make_ballots(rows, [TRUTH])


def _items(stream: Stream) -> list[Item]:
    """What is judged at each step, in the order of the questions about it."""
    return list(itertools.chain.from_iterable(step_items(stream, step) for step in stream.steps))
