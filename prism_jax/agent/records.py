"""Decision records: what the agent writes down of every event, silence included, and of every outcome.

A record is one line of JSON. The texts that a decision carries are whole; those of its record are redacted, and the
event's text is left out, unless the agent's settings say otherwise.
`prism_jax.scores` turns records into a scores table; docs/agent.md lists every key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from prism_jax.agent.personal import KnownPerson
from prism_jax.agent.settings import Terms
from prism_jax.agent.signals import Signals
from prism_jax.runtime.personal_data import in_json, without_personal_data

FORMAT = 1
OUTCOMES = ("accepted", "dismissed", "ignored")
SIGNALS = ("p_need", "p_accept", "p_need_fast", "p_accept_fast", "fast")
"""Keys of a decision record that are null where the reader gave no answer."""
NOT_KEPT = "not recorded"
"""Stands for the text of an event whose record does not hold it."""


class Decision(NamedTuple):
    """One decision, with everything that led to it."""

    stream: str  # name of the stream
    event: int  # number of the event in its stream, from 0
    time: float  # time of the event in seconds
    domain: str  # subject area of the stream
    offer: str | None  # id of the offer, which its outcome names; None for silence
    spoke: bool  # whether an offer was made
    reason: str  # the decision in words, such as "silent: 0.41 < 0.62"
    threshold: float | None  # the least p_accept at which the policy offers; None where no p_accept suffices
    thought: bool  # whether the slow pass ran and its signals decided
    fired: bool  # whether the trigger asked for the slow pass
    has_slow_pass: bool  # whether the model has a slow pass
    critical: bool  # whether the event is on the allow-list
    explored: bool  # whether chance took the other decision than the gate
    propensity: float  # Pr(offer) under the deployed policy, given all that the agent knew
    candidates: tuple[str | None, ...]  # texts of the step's offers; None is the constant "an offer"
    fast: Signals  # signals of the fast pass
    slow: Signals | None  # signals of the slow pass; None where it did not run
    history: str  # hash of what the model had read
    text: str  # text of the event
    fields: Mapping[str, str] | None  # fields that the slow pass wrote; None where it did not run
    response: str | None  # JSON that goes with the offer; None for silence, and of a model that writes no responses
    terms: Terms  # costs, trigger, policy and budgets
    tokens: Mapping[str, int]  # tokens by phase: `read`, `think` (written) and `respond` (written)
    # seconds by phase (`read`, `think`, `decide`, `respond`); events of one batch wait for it together
    seconds: Mapping[str, float]
    fingerprints: Mapping[str, str]  # SHA-256 of `model`, `calibration` and `config`
    person: str | None = None  # whose stream it is; None where nobody is named
    known: KnownPerson | None = None  # what was known of the person; None without a state
    unanswered: str | None = None  # why the reader gave no signals, which are then NaN; None where it did
    would_speak: bool | None = None  # what the gate would have done, where the host decided; None where the gate did
    redact: bool = True  # whether personal data and secrets are cut from its record's texts (`AgentSettings.redact`)
    keep_texts: bool = False  # whether its record holds the event's text (`AgentSettings.keep_texts`)

    @property
    def signals(self) -> Signals:
        """The signals on which the gate decided, with the person's p_accept where the person is known."""
        signals = self.fast if self.slow is None else self.slow
        return signals if self.known is None else self.known.predicted(signals)

    @property
    def p_need(self) -> float:
        """The calibrated p_need on which the gate decided."""
        return self.signals.need

    @property
    def p_accept(self) -> float:
        """The calibrated p_accept, of the chosen candidate, on which the gate decided."""
        return self.signals.accept[self.signals.best]

    @property
    def candidate(self) -> str | None:
        """Text of the chosen candidate: of highest p_accept, the first of a tie. None is the constant "an offer"."""
        return self.candidates[self.signals.best]

    def record(self) -> dict[str, Any]:
        """The decision as plain data, as `redact` and `keep_texts` ask for it."""
        clean = without_personal_data if self.redact else str
        response = in_json(self.response, clean) if self.redact and self.response is not None else self.response
        fast, signals = self.fast, self.signals
        texts = [None if text is None else clean(text) for text in self.candidates]
        known = {} if self.known is None else self.known.record()
        unknown = {} if self.unanswered is None else {"unanswered": self.unanswered, **dict.fromkeys(SIGNALS)}
        return {
            "format": FORMAT,
            "kind": "decision",
            "stream": self.stream,
            "event": self.event,
            "time": self.time,
            "offer": self.offer,
            "spoke": self.spoke,
            "reason": self.reason,
            "p_need": signals.need,
            "p_accept": signals.accept[signals.best],
            "p_need_fast": fast.need,
            "p_accept_fast": fast.accept[fast.best],
            "threshold": self.threshold,
            "thought": self.thought,
            "fired": self.fired,
            "has_slow_pass": self.has_slow_pass,
            "critical": self.critical,
            "explored": self.explored,
            "propensity": self.propensity,
            "chosen": signals.best,
            "candidate": texts[signals.best],
            "candidates": texts,
            "response": response,
            "fields": None if self.fields is None else {key: clean(text) for key, text in self.fields.items()},
            "fast": fast.record(),
            "slow": None if self.slow is None else self.slow.record(),
            **self.terms.record,
            "domain": self.domain,
            **({} if self.person is None else {"person": {"name": self.person, **known}}),
            "history": self.history,
            **({"text": clean(self.text)} if self.keep_texts else {}),
            **({} if self.would_speak is None else {"shadow": {"would_speak": self.would_speak}}),
            "tokens": self.tokens,
            "seconds": self.seconds,
            "fingerprints": self.fingerprints,
            **unknown,
        }


class OfferOutcome(NamedTuple):
    """What became of an offer."""

    stream: str  # name of the stream
    offer: str  # id of the offer
    outcome: str  # one of `OUTCOMES`; `ignored` means that it was seen and not answered
    time: float  # time in seconds, on the stream's clock
    needed: bool | None = None  # whether help was needed, where somebody judged it

    def record(self) -> dict[str, Any]:
        """The outcome as plain data."""
        return {"format": FORMAT, "kind": "outcome", **self._asdict()}


def counts_against_budget(record: Mapping[str, Any]) -> bool:
    """Whether a decision record counts against its stream's interruption budget (`Ledger.decided`)."""
    shadow = record.get("shadow")
    speaks = record["offer"] is not None if shadow is None else shadow["would_speak"]
    return speaks and not record["critical"]


def offer_id(stream: str, event: int) -> str:
    """The id of the offer at one event; distinct events have distinct ids."""
    return f"{stream}/{event}"


def encode(record: Mapping[str, Any]) -> bytes:
    """A record as its line of JSON."""
    return (json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")


class Written(NamedTuple):
    """A decision with its record."""

    decision: Decision
    record: dict[str, Any]
    line: bytes  # the record as its line of JSON

    @classmethod
    def of(cls, decision: Decision) -> Written:
        """Writes a decision's record."""
        record = decision.record()
        return cls(decision, record, encode(record))
