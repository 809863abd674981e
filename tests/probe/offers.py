"""Small streams for the tests of the probe: an offer is accepted mostly where it names what the newest event does."""

import numpy as np

from prism_jax.streams import Candidate, Event, Step, Stream

THINGS = ("capital letters", "sorting lists", "spring roses", "train tickets", "cheese soup", "tax forms")


def make_stream(number, *, steps=5, most=4):
    rng = np.random.default_rng(number)
    events, made = [], []
    for index in range(steps):
        newest, about = rng.integers(len(THINGS)), rng.integers(len(THINGS), size=most)
        events.append(Event(time=60.0 * index, text=f"The user searches for {THINGS[newest]}, take {index}."))
        offers = tuple(
            Candidate(
                text=f"{'Offer' if rng.random() < 0.5 else 'Suggest'} help {place} with {THINGS[thing]}",
                y_accept=float(rng.random() < (0.9 if thing == newest else 0.1)),
                votes=tuple(bool(vote) for vote in rng.random(3) < (0.9 if thing == newest else 0.1)),
            )
            for place, thing in enumerate(about[: rng.integers(2, most + 1)])
        )
        made.append(Step(event=index, candidates=offers, y_need=float(any(one.y_accept for one in offers))))
    return Stream(id=f"stream_{number}", events=tuple(events), steps=tuple(made))
