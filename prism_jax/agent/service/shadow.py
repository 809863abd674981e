"""What the gate would have saved or cost where it only watched, beside what the host did (docs/service.md)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from prism_jax.agent.people import ACCEPTED
from prism_jax.agent.records import OUTCOMES
from prism_jax.decision import arrays
from prism_jax.decision.uncertainty import Cells, interval


class Cost(NamedTuple):
    """The gate's cost per decision minus the host's; NaN where it is not known."""

    value: float
    least: float  # the mean if every answer that is missing were the best one for the gate
    most: float  # the mean if it were the worst one
    low: float  # lower end of the 95 % interval of `least` over streams
    high: float  # upper end of that of `most`


UNKNOWN = Cost(*[math.nan] * 5)


class ShadowReport(NamedTuple):
    """Counts of decisions, and mean differences in cost."""

    decisions: int  # that the host made while the gate watched
    host_offers: int  # of these, offers
    gate_offers: int  # offers that the gate would have made
    withheld: Mapping[str, int]  # the host's offers that the gate would not have made, by outcome; `none` has none yet
    unjudged: int  # accepted ones of these of which nobody judged whether help was needed
    different: int  # offers of the host among several candidates: the gate's may be another one
    added: int  # offers that the gate would have made where the host was silent
    expected_accepted: float  # how many of these would have been accepted, by their calibrated p_accept
    # At the host's offers. One withheld costs c_fn if it was accepted and needed, and saves c_fa if it was not.
    # Where nobody said, need is p_need, and a missing answer what the gate expects. The value is NaN where it depends
    # on another candidate of a `different` offer, or on a probability that nobody knows.
    withheld_cost: Cost
    judged_cost: Cost  # the same without the model's word: the others are needed as often as the judged ones
    # Of added offers, by what the gate itself expects: (1 - p_accept) c_fa - p_accept p_need c_fn each.
    added_cost: Cost

    def tree(self) -> dict[str, Any]:
        """The report as plain data."""

        def plain(cost: Cost) -> dict[str, float | None]:
            return {name: None if math.isnan(x) else float(x) for name, x in cost._asdict().items()}

        costs = {name: plain(value) for name, value in self._asdict().items() if isinstance(value, Cost)}
        return {**self._asdict(), "withheld": dict(self.withheld), **costs}

    def text(self) -> str:
        """The report in words, some lines of Markdown."""
        counts = self.withheld.items()
        outcomes = ", ".join(f"{count} {'not answered' if name == 'none' else name}" for name, count in counts)
        lines = [
            f"The host made {self.host_offers} offers at {self.decisions} decisions, the gate would have made "
            f"{self.gate_offers}.",
            f"Withheld: {sum(self.withheld.values())} ({outcomes}).",
            f"Added: {self.added}, of which {self.expected_accepted:.1f} would be accepted, by the gate's own "
            "probabilities.",
            f"Cost per decision, gate minus host: {_shown(self.withheld_cost)} at the host's offers, "
            f"{_shown(self.added_cost)} at added ones, by the gate's own probabilities.",
        ]
        if self.unjudged:
            lines.append(
                f"Nobody judged whether {self.unjudged} of the accepted ones were needed: p_need stands for that, the "
                f"model's own word. By the judged ones alone, if the others are like them: {_shown(self.judged_cost)}."
            )
        if self.withheld["none"]:
            lines.append(
                "An offer without an answer counts by the gate's own probabilities; the range is from all dismissed to "
                "all accepted and needed."
            )
        if self.different:
            several = f"At {self.different} offers the host had several candidates, and the gate may mean another one"
            unknown = ": there is no estimate, only the range" if math.isnan(self.withheld_cost.value) else ""
            lines.append(f"{several}{unknown}.")
        return "\n".join(lines)


class Watched(NamedTuple):
    """What the report needs of a record."""

    stream: str
    offer: str | None  # of the host; of an outcome, what it is about
    outcome: str | None = None  # None in a decision
    needed: bool | None = None  # of an outcome: whether help was needed, where somebody judged it
    spoke: bool = False
    would_speak: bool = False
    several: bool = False  # whether there was more than one candidate
    p_need: float = math.nan
    p_accept: float = math.nan
    c_fa: float = 0.0
    c_fn: float = 0.0

    @property
    def offer_minus_silence(self) -> float:
        """What an offer costs more than silence, by the gate's own probabilities; NaN without them."""
        return (1 - self.p_accept) * self.c_fa - self.p_accept * self.p_need * self.c_fn


def watched_of(record: Mapping[str, Any]) -> Watched | None:
    """What the report needs of a record; None of one that it has nothing to do with."""
    if record["kind"] == "outcome":
        return Watched(record["stream"], record["offer"], record["outcome"], record.get("needed"))
    if "shadow" not in record:
        return None
    return Watched(
        record["stream"],
        record["offer"],
        spoke=record["spoke"],
        would_speak=record["shadow"]["would_speak"],
        several=len(record["candidates"]) > 1,
        p_need=math.nan if record["p_need"] is None else record["p_need"],
        p_accept=math.nan if record["p_accept"] is None else record["p_accept"],
        c_fa=record["costs"]["c_fa"],
        c_fn=record["costs"]["c_fn"],
    )


class _Change(NamedTuple):
    """The gate's cost minus the host's at one decision."""

    least: float = 0.0
    value: float = 0.0
    most: float = 0.0
    open: float = 0.0  # what is to be added if help was needed: c_fn of an accepted offer that nobody judged
    judged: float = 0.0  # c_fn of an accepted offer that was judged
    needed: float = 0.0  # the same if it was needed


def _at_offer(of: Watched, answer: Watched | None) -> _Change:
    """The change at an offer of the host, whose candidate is known to be the gate's unless there are several."""
    accepted = answer is not None and answer.outcome == ACCEPTED
    if of.would_speak:
        if not of.several:
            return _Change()
        return _Change(0.0 if accepted else -of.c_fa, math.nan, 0.0 if answer and not accepted else of.c_fa)
    if answer is None:
        return _Change(-of.c_fa, math.nan if of.several else -of.offer_minus_silence, of.c_fn)
    if not accepted:  # another candidate may have been accepted, if help was needed
        missed = of.c_fn if of.several and answer.needed is not False else 0.0
        return _Change(-of.c_fa, math.nan if missed else -of.c_fa, missed - of.c_fa)
    if answer.needed is None:
        return _Change(open=of.c_fn)
    cost = of.c_fn * answer.needed
    return _Change(cost, cost, cost, 0.0, of.c_fn, cost)


def shadow_report(records: Iterable[Watched | None]) -> ShadowReport:
    """Compares host and gate on the decisions of a log that the gate only watched, with the outcomes in that log."""
    watched: list[Watched] = []
    answers: dict[str | None, Watched] = {}
    for record in records:
        if record is not None and record.outcome is not None:
            answers[record.offer] = record
        elif record is not None:
            watched.append(record)
    withheld = dict.fromkeys((*OUTCOMES, "none"), 0)
    at_offers, believed, at_added = [], [], []
    for record in watched:
        change, answer = _Change(), answers.get(record.offer)
        if record.spoke:
            change = _at_offer(record, answer)
            if not record.would_speak:
                withheld[answer.outcome if answer and answer.outcome else "none"] += 1
        word = record.p_need * change.open if change.open else 0.0
        least, most = (0.0, change.open) if math.isnan(word) else (word, word)
        at_offers.append(change)
        believed.append(_Change(change.least + least, change.value + word, change.most + most))
        more = record.offer_minus_silence if record.would_speak and not record.spoke else 0.0
        at_added.append(_Change(-record.c_fn, more, record.c_fa) if math.isnan(more) else _Change(more, more, more))
    streams = [record.stream for record in watched]
    added = [record.p_accept for record in watched if record.would_speak and not record.spoke]
    return ShadowReport(
        decisions=len(watched),
        host_offers=sum(record.spoke for record in watched),
        gate_offers=sum(record.would_speak for record in watched),
        withheld=withheld,
        unjudged=sum(change.open > 0 for change in at_offers),
        different=sum(record.spoke and record.several for record in watched),
        added=len(added),
        expected_accepted=float(np.nansum(added)),
        withheld_cost=_mean(believed, streams),
        judged_cost=_mean(
            [change._replace(value=change.least if change.least == change.most else math.nan) for change in at_offers],
            streams,
        ),
        added_cost=_mean(at_added, streams),
    )


def _mean(changes: Sequence[_Change], streams: Sequence[str]) -> Cost:
    """The mean over decisions; the share of open ones that were needed is that of the judged ones."""
    columns = np.array(changes, np.float64).reshape(-1, len(_Change._fields)).T
    _, values, _, opened, judged, _ = columns
    if not changes or (opened.any() and not judged.any()):
        return UNKNOWN
    unit = arrays.in_order(np.array(streams))[1]
    sums = [np.bincount(unit, column) for column in (*np.delete(columns, 1, axis=0), np.ones(len(unit)))]

    def ends(totals: np.ndarray) -> np.ndarray:
        least, most, to_judge, of_judged, needed, count = np.moveaxis(totals, -1, 0)
        missed = np.where(to_judge > 0, to_judge * needed / of_judged, 0.0)
        return np.stack([least + missed, most + missed], axis=-1) / count[..., None]

    with np.errstate(invalid="ignore", divide="ignore"):
        found = interval(Cells.of_units(np.stack(sums, axis=1)), ends)
    least, most = found.value.tolist()
    value = float(values.mean()) + least - float(columns[0].mean())
    return Cost(value, least, most, float(found.low[0]), float(found.high[1]))


def _shown(cost: Cost) -> str:
    if math.isnan(cost.least):
        return "nothing known"
    said = [] if math.isnan(cost.value) else [f"{cost.value:+.4f}"]
    if cost.least != cost.most:
        said.append(f"from {cost.least:+.4f} to {cost.most:+.4f}")
    ends = "" if math.isnan(cost.low) else f" [{cost.low:+.4f}, {cost.high:+.4f}]"
    return f"{', '.join(said)}{ends}"
