"""Where the offers and answers of a log stand in lanes that one scan runs over.

A log is cut into lanes, each a sequence of whole people, and all lanes advance together in one `lax.scan`. The number
of lanes is chosen so that they hold at most twice as many places as there are slots, also when one person has most of
the answers. A slot holds at most one offer, which is predicted, and then at most one answer, which is seen: that of its
offer, or a late one. Slots without an offer are added where several answers came between two offers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float64, Int, Int64, Shaped

MOST_LANES = 4096
"""Largest number of lanes; more would not make a scan faster."""


class Lanes(NamedTuple):
    """Where the rows of a log stand in its lanes."""

    step: Int64[np.ndarray, " rows"]  # place of each row's offer, with `lane`
    lane: Int64[np.ndarray, " rows"]
    answer_step: Int64[np.ndarray, " rows"]  # place of its answer, seen after the offer of that place
    answer_lane: Int64[np.ndarray, " rows"]
    arrives: Bool[np.ndarray, " rows"]  # false where the answer came after the person's last offer, and moves nothing
    known: Int64[np.ndarray, " rows"]  # number of the person's answers that had come before each row's offer
    shape: tuple[int, int]  # number of steps and of lanes
    first: Bool[np.ndarray, "steps lanes"]  # whether a person begins

    def spread(self, values: Shaped[np.ndarray, " rows"]) -> Float64[np.ndarray, "steps lanes"]:
        """One value per row, put at its offer; empty places hold 0."""
        out = np.zeros(self.shape)
        out[self.step, self.lane] = values
        return out

    def spread_answers(self, values: Shaped[np.ndarray, " rows"]) -> Float64[np.ndarray, "steps lanes"]:
        """One value per row, put at its answer; empty places hold 0."""
        out = np.zeros(self.shape)
        out[self.answer_step[self.arrives], self.answer_lane[self.arrives]] = values[self.arrives]
        return out

    def padded(self) -> Lanes:
        """The same with empty places at the end, so that logs of about one size share a few shapes.

        A compiled scan is one of a shape; the places are at most a quarter more in each direction.
        """
        steps, number = (_round_up(size) for size in self.shape)
        first = np.zeros((steps, number), bool)
        first[: self.shape[0], : self.shape[1]] = self.first
        return self._replace(shape=first.shape, first=first)


def _round_up(size: int) -> int:
    """The next number of three binary digits and zeros."""
    unit = 1 << max(0, size.bit_length() - 3)
    return -(-size // unit) * unit


def lanes(
    person: Int[np.ndarray, " rows"],
    time: Float[np.ndarray, " rows"] | None = None,
    answered: Float[np.ndarray, " rows"] | None = None,
) -> Lanes:
    """Cuts a log into lanes; raises ValueError for an empty one.

    Rows of one person stand in the order in which they happened. `time` is that of each offer, needed beside `answered`
    only, the time of each answer: it is known at the person's later offers whose time is this or after it. NaN, and
    None for all, count as answered at once.
    """
    rows = len(person)
    if not rows:
        raise ValueError("person: found no rows, expected at least one")
    order = np.argsort(person, kind="stable")
    begins = np.flatnonzero(np.diff(person[order], prepend=person[order[0]] - 1))
    counts = np.diff(begins, append=rows)
    after, turn = np.arange(rows), np.zeros(rows, np.int64)
    if answered is not None:
        assert time is not None, "times of answers need times of offers"
        answer_time = np.where(np.isnan(answered), time, answered)[order]
        after, turn = _after(np.repeat(np.arange(len(begins)), counts), time[order], answer_time)
    answers = np.bincount(after, minlength=rows)
    slots = np.maximum(answers, 1)
    offer = np.cumsum(slots) - slots
    step, lane, first = _cut(offer[begins], int(slots.sum()))
    earlier = np.cumsum(answers) - answers
    position = np.empty(rows, np.int64)
    position[order] = np.arange(rows)
    place = offer[after] + turn
    ends = np.repeat(begins + counts - 1, counts)
    return Lanes(
        step[offer][position],
        lane[offer][position],
        step[place][position],
        lane[place][position],
        (after < ends)[position],
        (earlier - np.repeat(earlier[begins], counts))[position],
        first.shape,
        first,
    )


def _after(
    person: Int64[np.ndarray, " rows"], time: Float64[np.ndarray, " rows"], answer_time: Float64[np.ndarray, " rows"]
) -> tuple[Int64[np.ndarray, " rows"], Int64[np.ndarray, " rows"]]:
    """For each answer, the row of the last offer that did not know it, and its turn among the answers after that offer.

    Rows stand by person, and by the time of their offer; `answer_time` is the time of the answer.
    """
    rows = len(person)
    # Answers sort before offers of the same time. A person's offers before an answer in this order did not know it.
    is_offer = np.repeat([False, True], rows)
    order = np.lexsort((is_offer, np.concatenate([answer_time, time]), np.tile(person, 2)))
    offers = np.empty(2 * rows, np.int64)
    offers[order] = np.cumsum(is_offer[order])
    after = np.maximum(offers[:rows] - 1, np.arange(rows))
    by_arrival = np.lexsort((answer_time, after))
    place = np.empty(rows, np.int64)
    place[by_arrival] = np.arange(rows)
    answers = np.bincount(after, minlength=rows)
    return after, place - (np.cumsum(answers) - answers)[after]


def _cut(
    begins: Int64[np.ndarray, " people"], slots: int
) -> tuple[Int64[np.ndarray, " slots"], Int64[np.ndarray, " slots"], Bool[np.ndarray, "steps lanes"]]:
    """The step and lane of each slot, and where people begin."""
    counts = np.diff(begins, append=slots)
    number = int(np.clip(slots // counts.max(), 1, MOST_LANES))
    # A lane takes the people who begin in its share of the slots, so it holds at most slots / number + the longest.
    lane_of_person = begins * number // slots
    lane = np.repeat(lane_of_person, counts)
    lane_begins = np.searchsorted(lane_of_person, np.arange(number))
    starts = np.append(begins, slots)[lane_begins]
    step = np.arange(slots) - starts[lane]
    first = np.zeros((int(step.max()) + 1, number), bool)
    first[step[begins], lane_of_person] = True
    return step, lane, first
