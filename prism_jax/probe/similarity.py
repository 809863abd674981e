"""How much an offer's text is like the events before it and like the other offers: cosines of its n-grams.

A value that does not exist, such as the cosine to another offer where there is none, is NaN; the regression puts the
mean of the training rows in its place. The number of offers is no feature: in a judged data set it may tell the labels.
An offer's place in its step is none either: equal cosines count half, whichever offer comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

DECAY = 0.6
"""Weight of an event in the decayed mean, relative to the event after it."""

NAMES = (
    "newest",
    "previous",
    "max",
    "mean",
    "decayed_mean",
    "newest_minus_older",
    "older_below_newest",
    "others_mean",
    "others_max",
    "earlier_offers_max",
    "newest_minus_others",
    "others_below",
)
"""Names of the columns, in order."""


_ROUNDING = 1e-12  # cosines of equal texts differ by less, however they are added up
_BLOCK = 512  # offers whose cosines are computed at once


class Sight(NamedTuple):
    """What the offers of one step see, as numbers of events and offers of the stream."""

    event: int  # the first event that they see
    until: int  # one more than the step's own event, which is the last that they see
    earlier: int  # the first offer of earlier steps that they see
    first: int  # the step's own first offer
    last: int  # one more than its own last offer


def similarities(
    of_event: scipy.sparse.csr_array, of_offer: scipy.sparse.csr_array, sights: Sequence[Sight]
) -> Float[np.ndarray, "offers 12"]:
    """Computes the columns `NAMES` for every offer of a stream, in the order of its steps and their offers.

    An offer sees the newest events up to its step's, the other offers of its step, and the newest of earlier steps. The
    vectors of the texts have unit length.
    """
    rows = [np.zeros((0, len(NAMES)))]
    for block in _blocks(sights):
        event, earlier, (first, last) = block[0].event, block[0].earlier, (block[0].first, block[-1].last)
        to_event = (of_offer[first:last] @ of_event[event : block[-1].until].T).toarray()
        to_offer = (of_offer[first:last] @ of_offer[earlier:last].T).toarray()
        for sight in block:
            own = slice(sight.first - first, sight.last - first)
            rows.append(
                of_step(
                    to_event[own, sight.event - event : sight.until - event],
                    to_offer[own, sight.first - earlier : sight.last - earlier],
                    to_offer[own, sight.earlier - earlier : sight.first - earlier],
                )
            )
    return np.concatenate(rows)


def _blocks(sights: Sequence[Sight]) -> Iterator[Sequence[Sight]]:
    """Cuts the steps into runs of about `_BLOCK` offers and events, whose cosines fit into memory together."""
    start = 0
    for end, sight in enumerate(sights, 1):
        width = max(sight.last - sights[start].first, sight.until - sights[start].event)
        if width >= _BLOCK or end == len(sights):
            yield sights[start:end]
            start = end


def of_step(
    seen: Float[np.ndarray, "k events"], among: Float[np.ndarray, "k k"], earlier: Float[np.ndarray, "k earlier"]
) -> Float[np.ndarray, "k 12"]:
    """The columns of one step's k offers, from their cosines to the events, to each other and to earlier offers."""
    count, events = seen.shape
    newest, older = seen[:, -1], seen[:, :-1]
    decay = DECAY ** np.arange(events - 1, -1, -1)
    is_other = ~np.eye(count, dtype=bool)
    others = among[is_other].reshape(count, count - 1)
    newest_of_others = np.tile(newest, (count, 1))[is_other].reshape(count, count - 1)
    nothing = np.full(count, np.nan)
    alone, begins = count == 1, events == 1
    columns = (
        newest,
        nothing if begins else older[:, -1],
        seen.max(1),
        seen.mean(1),
        seen @ decay / decay.sum(),
        nothing if begins else newest - older.mean(1),
        nothing if begins else _share_below(older, newest),
        nothing if alone else others.mean(1),
        nothing if alone else others.max(1),
        earlier.max(1) if earlier.shape[1] else nothing,
        nothing if alone else newest - newest_of_others.max(1),
        nothing if alone else _share_below(newest_of_others, newest),
    )
    return np.stack(columns, axis=1)


def _share_below(values: Float[np.ndarray, "k n"], bound: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """Share of each row's values below its bound; an equal value, up to rounding, counts half."""
    difference = values - bound[:, None]
    return np.where(np.abs(difference) <= _ROUNDING, 0.5, difference < 0).mean(1)
