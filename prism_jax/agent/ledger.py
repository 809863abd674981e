"""What an agent remembers of its streams beside their trunks: clocks, budgets, and offers that await an outcome."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any

from prism_jax.agent.personal import Prediction
from prism_jax.agent.records import OUTCOMES, OfferOutcome
from prism_jax.agent.settings import MOST_BUDGET, Budget
from prism_jax.runtime.written import MOST_SECONDS

MOST_OFFERS = 4096
"""Newest offers of a stream that can still get an outcome, and newest outcomes that are remembered."""


class RefusedError(ValueError):
    """An event or outcome that cannot be taken; nothing has changed."""


class _Stream:
    """One stream; a list that it may never need is made on first use."""

    __slots__ = ("answered", "events", "offers", "open", "person", "thoughts", "time")

    def __init__(self, person: str | None) -> None:
        self.person = person
        self.events = 0
        self.time = -math.inf
        self.offers: deque[float] | None = None
        self.thoughts: deque[float] | None = None
        # when each offer was made, on the stream's clock, and what it said of its acceptance, if somebody is named
        self.open: dict[str, tuple[float, Prediction | None]] | None = None
        self.answered: dict[str, None] | None = None  # in order, as `open`


class Ledger:
    """Clocks, budgets and offers of all streams. A stream that is never heard of takes no memory."""

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}

    def checked(self, items: Iterable[tuple[str, float, str | None]]) -> list[tuple[int, str | None]]:
        """Checks that time goes forward in every stream, and that a stream stays one person's; changes nothing.

        `items` are (stream, time, person) of the next events. The first event of a stream says whose it is; a later one
        may leave it out. Returns the number of each event in its stream, from 0, and whose the stream is.

        Raises:
          RefusedError: naming the stream whose clock jumps back or whose person changes.
        """
        ahead: dict[str, tuple[int, float, str | None]] = {}
        places = []
        for name, time, person in items:
            if name not in ahead:
                known = self._streams.get(name)
                ahead[name] = (0, -math.inf, person) if known is None else (known.events, known.time, known.person)
            number, last, owner = ahead[name]
            if person is not None and person != owner:
                problem = "another person than before" if owner is not None else "a person, and none on its first event"
                raise RefusedError(f"stream {name!r}: person: found {problem}, expected one person per stream")
            if not time >= last:
                raise RefusedError(
                    f"stream {name!r}: time: found {time}, expected at least {last}, that of the event before: "
                    "events are in time order"
                )
            places.append((number, owner))
            ahead[name] = number + 1, time, owner
        return places

    def read(self, name: str, time: float, person: str | None) -> None:
        """Notes that an event was read, and whose stream it is."""
        state = self._streams.get(name)
        if state is None:
            state = self._streams[name] = _Stream(person)
        state.events += 1
        state.time = time

    def skip(self, name: str, events: int, person: str | None) -> None:
        """Begins a stream that has had events of which nothing else is known."""
        state = self._streams[name] = _Stream(person)
        state.events = events

    def decided(
        self, name: str, time: float, *, offer: str | None, counts: bool, thought: bool, prediction: Prediction | None
    ) -> None:
        """Notes a decision; `offer` None is silence.

        `counts` says whether it counts against the interruption budget: an offer for a critical event does not, and
        where the gate only watches, what it would have done does.
        `prediction` is what the offer said of its acceptance, None where nobody is named.
        """
        state = self._streams[name]
        if thought:
            if state.thoughts is None:
                state.thoughts = deque(maxlen=MOST_BUDGET)
            state.thoughts.append(time)
        if counts:
            if state.offers is None:
                state.offers = deque(maxlen=MOST_BUDGET)
            state.offers.append(time)
        if offer is None:
            return
        if state.open is None:
            state.open = {}
        state.open[offer] = time, prediction
        _drop_oldest(state.open)

    def spent(self, name: str, time: float, kind: str, budget: Budget | None) -> bool:
        """Whether a stream's budget of `offers` or `thoughts` is spent at `time`."""
        if budget is None or budget.most == 0:
            return budget is not None
        times: deque[float] | None = getattr(self._streams[name], kind)
        return times is not None and len(times) >= budget.most and times[-budget.most] > time - budget.seconds

    def prediction(self, outcome: OfferOutcome) -> Prediction | None:
        """What the offer of an outcome said of its acceptance, None where nobody is named; changes nothing.

        Raises:
          RefusedError: naming the offer, for one that was not made or has an outcome already, or for a bad value.
        """
        place, state = f"offer {outcome.offer!r}", self._streams.get(outcome.stream)
        if outcome.outcome not in OUTCOMES:
            raise RefusedError(f"{place}: outcome: found {outcome.outcome!r}, expected one of {', '.join(OUTCOMES)}")
        if state is not None and state.answered is not None and outcome.offer in state.answered:
            raise RefusedError(f"{place}: found a second outcome, {outcome.outcome!r}, expected one per offer")
        if state is None or state.open is None or outcome.offer not in state.open:
            raise RefusedError(
                f"{place}: found no such offer in stream {outcome.stream!r}, expected one that was made, and of "
                f"the stream's newest {MOST_OFFERS} without an outcome"
            )
        made, prediction = state.open[outcome.offer]
        if not made <= outcome.time <= MOST_SECONDS:
            raise RefusedError(f"{place}: time: found {outcome.time}, expected at least {made}, the time of the offer")
        return prediction

    def answered(self, outcome: OfferOutcome) -> None:
        """Notes an outcome that `prediction` has checked."""
        state = self._streams[outcome.stream]
        assert state.open is not None, "the offer is open"
        del state.open[outcome.offer]
        if state.answered is None:
            state.answered = {}
        state.answered[outcome.offer] = None
        _drop_oldest(state.answered)

    def unanswered(self, name: str) -> list[tuple[str, Prediction]]:
        """The open offers of a stream to somebody named, and what they said of their acceptance."""
        state = self._streams.get(name)
        made = {} if state is None or state.open is None else state.open
        return [(offer, prediction) for offer, (_, prediction) in made.items() if prediction is not None]

    def has(self, name: str) -> bool:
        """Whether a stream is known."""
        return name in self._streams

    def streams_of(self, person: str) -> list[str]:
        """The streams of a person."""
        return [name for name, state in self._streams.items() if state.person == person]

    def forget(self, name: str) -> None:
        """Drops a stream."""
        self._streams.pop(name, None)


def _drop_oldest(offers: dict[str, Any]) -> None:
    if len(offers) > MOST_OFFERS:
        del offers[next(iter(offers))]
