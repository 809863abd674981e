"""The loop of the command: lines in, records out, in batches of whatever has arrived.

Records leave in the order of the lines. A bad line stops the loop, after the records of all lines before it; or it is
reported, counted and left out.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from prism_jax.agent.decider import Decider
from prism_jax.agent.ledger import RefusedError
from prism_jax.agent.lines import InputLines, LineError, Where, parse_line
from prism_jax.agent.records import Decision, OfferOutcome, encode
from prism_jax.agent.steps import PHASES, Observation
from prism_jax.runtime.personal_data import without_personal_data
from prism_jax.runtime.shown_text import visible

KEPT = 1 << 17
"""Percentiles are of the newest events, so many; counts and means are of all."""
WRITTEN = ("think", "respond")
"""Phases that run at some events only; their numbers are of these."""


class _Numbers:
    """Numbers of one kind, the newest of which are kept."""

    def __init__(self) -> None:
        self.count, self.total = 0, 0.0
        self._kept = array("d")

    def add(self, value: int | float) -> None:
        if self.count < KEPT:
            self._kept.append(value)
        else:
            self._kept[self.count % KEPT] = value
        self.count += 1
        self.total += value

    def row(self) -> tuple[float, ...]:
        """Mean, P50, P95, P99."""
        kept = np.frombuffer(self._kept, np.float64)
        return self.total / self.count, *(float(p) for p in np.percentile(kept, (50, 95, 99)))


class Statistics:
    """Adds up decisions: `events` counts all, `offers` and `thoughts` those with an offer and with a slow pass.

    `unanswered` counts those to which the reader gave no signals.
    """

    def __init__(self) -> None:
        self.events = self.offers = self.thoughts = self.unanswered = 0
        self._seconds = {phase: _Numbers() for phase in (*PHASES, "all")}
        self._tokens = {phase: _Numbers() for phase in ("read", *WRITTEN)}

    def add(self, decision: Decision) -> None:
        """Adds one decision."""
        self.events += 1
        self.offers += decision.spoke
        self.thoughts += decision.thought
        self.unanswered += decision.unanswered is not None
        ran = {"think": decision.thought, "respond": decision.spoke}
        for phase, seconds in decision.seconds.items():
            if ran.get(phase, True):
                self._seconds[phase].add(seconds)
        self._seconds["all"].add(sum(decision.seconds.values()))
        for phase, tokens in decision.tokens.items():
            if ran.get(phase, True):
                self._tokens[phase].add(tokens)

    def lines(self) -> Iterator[str]:
        """Yields a table for the terminal: seconds, then tokens, by phase."""
        if self.events == 0:
            yield "no events"
            return
        unanswered = f", {self.unanswered} without an answer" if self.unanswered else ""
        yield f"{self.events} events, {self.offers} offers, {self.thoughts} thought about{unanswered}"
        yield f"{'':18}{'events':>8}{'mean':>10}{'P50':>10}{'P95':>10}{'P99':>10}"
        for unit, numbers in (("seconds", self._seconds), ("tokens", self._tokens)):
            for phase, kind in numbers.items():
                if kind.count:
                    shown = "".join(f"{value:>10.4g}" for value in kind.row())
                    yield f"{unit + ', ' + phase:18}{kind.count:>8}{shown}"


@dataclasses.dataclass
class InputLoop:
    """Answers lines of input with records."""

    agent: Decider
    write: Callable[[bytes], None]  # writes one record, which the agent's state has already, where it has one
    place: str  # name of the input, for messages
    skip_bad: bool = False  # whether bad lines are reported and left out instead of stopping
    report: Callable[[str], None] = print  # prints the messages of bad lines and alarms
    batch: int = 256  # largest number of lines that are decided together
    statistics: Statistics = dataclasses.field(default_factory=Statistics)
    skipped: int = 0  # number of bad lines so far

    def answer(self, lines: InputLines) -> None:
        """Answers every line until the input ends.

        Raises:
          ValueError: naming the first bad line, unless `skip_bad`.
        """
        while batch := lines.batch(self.batch):
            self._answer([(number, line, lines.where(line)) for number, line in batch])

    def _answer(self, batch: Sequence[tuple[int, bytes, Where | None]]) -> None:
        pending: list[tuple[str, Observation, Where | None]] = []
        for number, line, where in batch:
            place = f"{self.place}:{number}"
            try:
                item = parse_line(line, place)
            except LineError as error:
                self._decide(pending)
                self._bad(str(error))
                continue
            if isinstance(item, Observation):
                pending.append((place, item, where))
            else:
                self._decide(pending)  # an outcome may stand right behind the event of its offer
                self._take(place, item, where)
        self._decide(pending)

    def _decide(self, pending: list[tuple[str, Observation, Where | None]]) -> None:
        """Decides on the pending events and writes their records in order, up to a line that stops the loop."""
        if not pending:
            return
        places, items, where = zip(*pending, strict=True)
        pending.clear()
        for place, found in zip(places, self.agent.observe_each(items, skip=self.skip_bad, places=where), strict=False):
            if isinstance(found, RefusedError):
                self._bad(f"{place}: {found}")
            else:
                self.statistics.add(found.decision)
                self.write(found.line)

    def _take(self, place: str, item: OfferOutcome, where: Where | None) -> None:
        try:
            outcome = self.agent.outcome(**item._asdict(), place=where)
        except RefusedError as error:
            return self._bad(f"{place}: {error}")
        while self.agent.people is not None and self.agent.people.rang:  # by their numbers: messages name nobody
            person = self.agent.people.rang.pop(0)
            self.report(
                f"alarm: the answers of person {person.number} no longer agree with the probabilities stated before "
                f"them, after {person.answers} answers"
            )
        self.write(encode(outcome.record()))

    def _bad(self, message: str) -> None:
        clean = without_personal_data(message)
        if not self.skip_bad:
            raise LineError(clean)
        self.skipped += 1
        self.report(f"skipped: {visible(clean)}")
