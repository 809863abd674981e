"""Seconds and tokens of an agent by phase: mean and percentiles, in bounded memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np

from prism_jax.policy.records import Decision
from prism_jax.policy.steps import PHASES

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
    """Adds up decisions: `events` counts all, `offers` and `thoughts` those with an offer and with a slow pass."""

    def __init__(self) -> None:
        self.events = self.offers = self.thoughts = 0
        self._seconds = {phase: _Numbers() for phase in (*PHASES, "all")}
        self._tokens = {phase: _Numbers() for phase in ("read", *WRITTEN)}

    def add(self, decision: Decision) -> None:
        """Adds one decision."""
        self.events += 1
        self.offers += decision.spoke
        self.thoughts += decision.thought
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
        yield f"{self.events} events, {self.offers} offers, {self.thoughts} thought about"
        yield f"{'':18}{'events':>8}{'mean':>10}{'P50':>10}{'P95':>10}{'P99':>10}"
        for unit, numbers in (("seconds", self._seconds), ("tokens", self._tokens)):
            for phase, kind in numbers.items():
                if kind.count:
                    shown = "".join(f"{value:>10.4g}" for value in kind.row())
                    yield f"{unit + ', ' + phase:18}{kind.count:>8}{shown}"
