"""What the gate would have saved or cost where it only watched, beside what the host did."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from prism_jax.agent.people import ACCEPTED
from prism_jax.agent.records import OUTCOMES
from prism_jax.decision.uncertainty import UNDEFINED, Estimate, mean_interval


class ShadowReport(NamedTuple):
    """Counts of decisions, and the mean difference in cost."""

    decisions: int  # that the host made while the gate watched
    host_offers: int  # of these, offers
    gate_offers: int  # offers that the gate would have made
    withheld: Mapping[str, int]  # the host's offers that the gate would not have made, by outcome; `none` has none yet
    added: int  # offers that the gate would have made where the host was silent
    expected_accepted: float  # how many of these would have been accepted, by their calibrated p_accept
    # The gate's cost per decision minus the host's, with its 95 % interval over streams: an offer withheld saves c_fa
    # if it was not accepted, and costs c_fn if it was. Withheld ones without an outcome are left out; added ones are 0.
    withheld_cost: Estimate
    # Of added offers, by what the gate itself expects: (1 - p_accept) c_fa - p_accept p_need c_fn each.
    added_cost: Estimate

    def tree(self) -> dict[str, Any]:
        """The report as plain data."""

        def plain(estimate: Estimate) -> dict[str, float | None]:
            numbers = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
            return {name: None if math.isnan(x) else float(x) for name, x in numbers.items()}

        costs = {"withheld_cost": plain(self.withheld_cost), "added_cost": plain(self.added_cost)}
        return {**self._asdict(), "withheld": dict(self.withheld), **costs}

    def text(self) -> str:
        """The report in words, some lines of Markdown."""
        counts = self.withheld.items()
        outcomes = ", ".join(f"{count} {'not answered' if name == 'none' else name}" for name, count in counts)
        return "\n".join(
            [
                f"The host made {self.host_offers} offers at {self.decisions} decisions, the gate would have made "
                f"{self.gate_offers}.",
                f"Withheld: {sum(self.withheld.values())} ({outcomes}).",
                f"Added: {self.added}, of which {self.expected_accepted:.1f} would be accepted, by the gate's own "
                "probabilities.",
                f"Cost per decision, gate minus host: {_shown(self.withheld_cost)} from what was withheld and "
                f"answered, {_shown(self.added_cost)} from what was added, by the gate's own probabilities.",
            ]
        )


class Watched(NamedTuple):
    """What the report needs of a record."""

    stream: str
    offer: str | None  # of the host; of an outcome, what it is about
    outcome: str | None = None  # None in a decision
    spoke: bool = False
    would_speak: bool = False
    p_need: float | None = None
    p_accept: float | None = None
    c_fa: float = 0.0
    c_fn: float = 0.0


def watched_of(record: Mapping[str, Any]) -> Watched | None:
    """What the report needs of a record; None of one that it has nothing to do with."""
    if record["kind"] == "outcome":
        return Watched(record["stream"], record["offer"], record["outcome"])
    if "shadow" not in record:
        return None
    numbers = record["p_need"], record["p_accept"], record["costs"]["c_fa"], record["costs"]["c_fn"]
    return Watched(record["stream"], record["offer"], None, record["spoke"], record["shadow"]["would_speak"], *numbers)


def shadow_report(records: Iterable[Watched | None]) -> ShadowReport:
    """Compares host and gate on the decisions of a log that the gate only watched, with the outcomes in that log."""
    watched: list[Watched] = []
    outcomes: dict[str | None, str] = {}
    for record in records:
        if record is not None and record.outcome is not None:
            outcomes[record.offer] = record.outcome
        elif record is not None:
            watched.append(record)
    withheld = dict.fromkeys((*OUTCOMES, "none"), 0)
    added, expected = 0, 0.0
    known: dict[str, list[Any]] = {"cost": [], "stream": []}
    believed: dict[str, list[Any]] = {"cost": [], "stream": []}
    for record in watched:
        difference: float | None = 0.0
        if record.spoke and not record.would_speak:
            outcome = outcomes.get(record.offer, "none")
            withheld[outcome] += 1
            difference = {"none": None, ACCEPTED: record.c_fn}.get(outcome, -record.c_fa)
        if difference is not None:
            known["cost"].append(difference)
            known["stream"].append(record.stream)
        gain = 0.0
        if record.would_speak and not record.spoke and record.p_accept is not None and record.p_need is not None:
            added, expected = added + 1, expected + record.p_accept
            gain = (1 - record.p_accept) * record.c_fa - record.p_accept * record.p_need * record.c_fn
        believed["cost"].append(gain)
        believed["stream"].append(record.stream)
    return ShadowReport(
        decisions=len(watched),
        host_offers=sum(record.spoke for record in watched),
        gate_offers=sum(record.would_speak for record in watched),
        withheld=withheld,
        added=added,
        expected_accepted=expected,
        withheld_cost=_mean(known["cost"], known["stream"]),
        added_cost=_mean(believed["cost"], believed["stream"]),
    )


def _mean(values: list[float], streams: list[str]) -> Estimate:
    return mean_interval(np.array(values), np.array(streams)) if values else UNDEFINED


def _shown(estimate: Estimate) -> str:
    if math.isnan(estimate.value):
        return "nothing known"
    ends = "" if math.isnan(estimate.low) else f" [{estimate.low:+.4f}, {estimate.high:+.4f}]"
    return f"{estimate.value:+.4f}{ends}"
