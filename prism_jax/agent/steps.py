"""One event on its way through the agent: what is asked, what each phase adds, and the decision in the end.

A live agent and a replay share two phases: who thinks (`ask_trigger`) and what is done (`settle`). Both work on steps
of distinct streams whose events the ledger has noted as read.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from prism_jax.agent.gating import Choice, by_host, choose, fires, gate_decisions, without_signals
from prism_jax.agent.ledger import Ledger
from prism_jax.agent.personal import KnownPerson, Prediction
from prism_jax.agent.reader import FastReading, Response, Thought
from prism_jax.agent.records import Decision, offer_id
from prism_jax.agent.settings import Terms
from prism_jax.agent.signals import Signals
from prism_jax.streams import Candidate, Event

AN_OFFER = (Candidate(),)
"""The candidates of a step without particular offers: the constant "an offer"."""
MOST_CANDIDATES = 100
"""Largest number of candidates of one event."""
MOST_NAME = 1000
"""Longest name of a stream, an offer, a domain or a person, in characters."""
MOST_EVENT_BYTES = 4 * 2**20
"""Largest size of all texts of an event together, in UTF-8: one text of a million characters fits, whatever its script.
A record repeats no text more than twice, and JSON writes no byte with more than six, so that every record stays below
`prism_jax.runtime.files.MOST_LINE_BYTES`, which a restart accepts."""
_UNREAD, _NO_SIGNALS = FastReading(0.0, (), 0), Signals(0.0, (), 0.0, (), 0)
_UNDECIDED = Choice(False, 0.0, False, None, "")
PHASES = ("read", "think", "decide", "respond")


class Observation(NamedTuple):
    """One event to decide on."""

    stream: str
    event: Event  # what happened; not earlier than the stream's events before
    candidates: tuple[Candidate, ...] = AN_OFFER  # the offers that could be made, at least one
    costs: Mapping[str, Any] | None = None  # what this event changes in the settings (`AgentSettings.at`)
    domain: str = "unknown"  # subject area of the stream, for a calibration per domain
    person: str | None = None  # whose stream it is. The first event of a stream says it; a later one may leave it out.
    spoke: bool | None = None  # whether the host itself makes an offer, where the gate only watches; None asks the gate


def excess(item: Observation) -> str | None:
    """What of an event is more than an agent takes, in words; None where nothing is."""
    if len(item.candidates) > MOST_CANDIDATES:
        return f"candidates: found {len(item.candidates)}, expected at most {MOST_CANDIDATES}"
    for key in ("stream", "domain", "person"):
        if len(getattr(item, key) or "") > MOST_NAME:
            return f"{key}: found {len(getattr(item, key))} characters, expected at most {MOST_NAME}"
    texts = [item.event.text, *(candidate.text for candidate in item.candidates if candidate.text is not None)]
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    if size > MOST_EVENT_BYTES:
        return f"text, candidates: found {size} bytes together, expected at most {MOST_EVENT_BYTES}"
    return None


@dataclasses.dataclass(slots=True)
class Step:
    """One event on its way; each phase fills in what it finds."""

    item: Observation
    number: int  # number of the event in its stream, from 0
    terms: Terms  # the settings, with what the event changes in them
    critical: bool  # whether the event is on the allow-list
    person: str | None = None  # whose stream it is; None where nobody is named
    known: KnownPerson | None = None  # what is known of the person; None without a person, or without a state
    reading: FastReading = _UNREAD  # slots of the fast pass
    fast: Signals = _NO_SIGNALS
    unanswered: str | None = None  # why the reader gave no slots; None where it did
    fired: bool = False  # whether the trigger asked for the slow pass
    thought: Thought | None = None  # slots and fields of the slow pass; None where it did not run
    slow: Signals | None = None  # None where the slow pass did not run
    choice: Choice = _UNDECIDED
    would_speak: bool | None = None  # what the gate would have done, where the host decides
    response: Response | None = None  # None for silence, and from a reader that writes no responses

    @property
    def used(self) -> Signals:
        """Signals of the pass that decides, with the p_accept of the person where one is known."""
        signals = self.fast if self.slow is None else self.slow
        return signals if self.known is None else self.known.predicted(signals)

    def compared(self, signals: Signals) -> Signals:
        """What the trigger and the gate compare, given the signals of a pass."""
        return signals if self.known is None else self.known.optimistic_prediction(signals, self.terms.point.cost_ratio)

    @property
    def prediction(self) -> Prediction | None:
        """What an offer says of its acceptance; None for silence, and where nobody is named."""
        if self.person is None or self.unanswered is not None or not self.choice.spoke:
            return None
        content, used = self.fast if self.slow is None else self.slow, self.used
        threshold = 1.0 if self.choice.threshold is None else min(self.choice.threshold, 1.0)
        return Prediction(self.person, content.accept[used.best], used.accept[used.best], threshold)

    @property
    def offered(self) -> Candidate:
        """The candidate that the deciding pass ranks first."""
        return self.item.candidates[self.used.best]

    @property
    def offer(self) -> str | None:
        """Id of the offer; None for silence."""
        return offer_id(self.item.stream, self.number) if self.choice.spoke else None

    def check_recorded(self, history: str, record: Mapping[str, Any]) -> None:
        """ValueError unless a record is of this event, as which the reader's history has it now, and of its person."""
        place = f"stream {self.item.stream!r}, event {self.number}"
        if (record["event"], record["history"]) != (self.number, history):
            raise ValueError(
                f"{place}: found the history {history[:12]}…, expected {record['history'][:12]}… as recorded: the "
                "input, the model or the context changed"
            )
        named = None if record.get("person") is None else record["person"]["name"]
        if named != self.person:
            raise ValueError(f"{place}: found another person than in the record, expected the same: the input changed")

    def decision(
        self,
        clock: Clock,
        history: str,
        fingerprints: Mapping[str, str],
        *,
        has_slow_pass: bool,
        redact: bool,
        keep_texts: bool,
    ) -> Decision:
        """The decision, after all phases."""
        item, choice, thought, response = self.item, self.choice, self.thought, self.response
        seconds = clock.seconds
        return Decision(
            stream=item.stream,
            event=self.number,
            time=item.event.time,
            domain=item.domain,
            offer=self.offer,
            **choice._asdict(),
            thought=thought is not None,
            fired=self.fired,
            has_slow_pass=has_slow_pass,
            critical=self.critical,
            candidates=tuple(candidate.text for candidate in item.candidates),
            fast=self.fast,
            slow=self.slow,
            history=history,
            text=item.event.text,
            fields=None if thought is None else thought.fields,
            response=None if response is None else response.text,
            terms=self.terms,
            tokens={
                "read": self.reading.tokens,
                "think": 0 if thought is None else thought.tokens,
                "respond": 0 if response is None else response.tokens,
            },
            seconds={
                "read": seconds["read"],
                "think": 0.0 if thought is None else seconds["think"],
                "decide": seconds["decide"],
                "respond": 0.0 if response is None else seconds["respond"],
            },
            fingerprints=fingerprints,
            person=self.person,
            known=self.known,
            unanswered=self.unanswered,
            would_speak=self.would_speak,
            redact=redact,
            keep_texts=keep_texts,
        )


class Clock:
    """Adds up the seconds of each phase of a batch."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._last = time.perf_counter()

    def ends(self, phase: str) -> None:
        """Ends a phase, which began when the one before ended."""
        now = time.perf_counter()
        self.seconds[phase] += now - self._last
        self._last = now


def waves(items: Sequence[Observation]) -> Iterator[list[int]]:
    """Yields the indices of the first event of every stream, then of the second, and so on."""
    groups: list[list[int]] = []
    seen: dict[str, int] = {}
    for i, item in enumerate(items):
        place = seen.get(item.stream, 0)
        seen[item.stream] = place + 1
        if place == len(groups):
            groups.append([])
        groups[place].append(i)
    yield from groups


def ask_trigger(steps: Sequence[Step], ledger: Ledger) -> list[Step]:
    """Sets `fired` of steps with fast signals, and returns those whose stream's slow budget lasts for the slow pass.

    The decisions on a critical event, and where a person wants quiet, are known without thinking.
    """
    for step, fired in zip(steps, fires([s.terms for s in steps], [s.compared(s.fast) for s in steps]), strict=True):
        step.fired = fired and not step.critical and step.terms.quiet is None
    return [step for step in steps if step.fired and not _spent(step, ledger, "thoughts")]


def settle(steps: Sequence[Step], ledger: Ledger) -> None:
    """Sets `choice` of steps whose signals are final: gate, exploration, interruption budget, allow-list."""
    for step in steps:
        if step.unanswered is not None:
            step.choice = without_signals(step.unanswered, critical=step.critical)
    answered = [step for step in steps if step.unanswered is None]
    deciding = [s.compared(s.fast if s.slow is None else s.slow) for s in answered]
    for step, gate in zip(answered, gate_decisions([s.terms for s in answered], deciding), strict=True):
        if step.known is not None:
            gate = gate._replace(
                threshold=step.known.threshold_on_predicted(gate.threshold, step.terms.point.cost_ratio)
            )
        step.choice = choose(
            step.item.stream,
            step.number,
            step.terms,
            gate,
            step.used,
            critical=step.critical,
            budget_spent=_spent(step, ledger, "offers"),
            slow_budget_spent=step.fired and step.slow is None,
        )
    for step in steps:
        if step.item.spoke is not None:
            step.would_speak, step.choice = step.choice.spoke, by_host(step.choice, step.item.spoke)


def note(step: Step, ledger: Ledger) -> None:
    """Notes a settled step in the ledger: its offer and its thought count against the budgets of later events."""
    ledger.decided(
        step.item.stream,
        step.item.event.time,
        offer=step.offer,
        counts=(step.choice.spoke if step.would_speak is None else step.would_speak) and not step.critical,
        thought=step.slow is not None,
        prediction=step.prediction,
    )


def _spent(step: Step, ledger: Ledger, kind: str) -> bool:
    """Whether the stream's budget of `offers` or `thoughts` is spent."""
    return ledger.spent(step.item.stream, step.item.event.time, kind, getattr(step.terms, kind))
