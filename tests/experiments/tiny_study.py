"""A small substitute for ProactiveBench."""

import numpy as np

from prism_jax.streams import Candidate, Event, Step, Stream


def stream(number):
    """Six steps of two offers with three votes each; labels follow from the votes as in ProactiveBench."""
    rng = np.random.default_rng(number)
    steps = []
    for event in range(6):
        ballots = rng.random((2, 3)) < 0.5
        ballots[0] |= event % 2 == 0  # so that every stream has steps of both kinds
        offers = tuple(
            Candidate(
                text=f"offer {rng.integers(9)}",
                y_accept=float(ballot.sum() >= 2),
                votes=tuple(ballot.tolist()),
                logged=True,
                propensity=1.0,
            )
            for ballot in ballots
        )
        silence = tuple((~ballots.any(axis=0)).tolist())
        steps.append(Step(event=event, candidates=offers, y_need=float(ballots.all(axis=1).any()), votes=silence))
    events = tuple(Event(time=30.0 * i, text=f"does thing {rng.integers(9)}") for i in range(6))
    return Stream(id=f"s{number}", events=events, steps=tuple(steps), domain="coding")
