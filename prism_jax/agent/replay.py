"""Replay: decides again on a log of records, under other costs, maps, policies or narrower margins, without a model.

A log knows the signals of every event that the model read, and those of the slow pass where it ran. What would have
been found by thinking where nobody thought, it cannot know: a replay that needs it stops and names the record.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from prism_jax.agent.gating import check_trigger
from prism_jax.agent.ledger import Ledger, RefusedError
from prism_jax.agent.personal import known_person_from
from prism_jax.agent.reader import FastReading, Response, Thought
from prism_jax.agent.records import NOT_KEPT
from prism_jax.agent.records_file import RecordsError
from prism_jax.agent.settings import AgentSettings, Budget, Exploration, Terms, terms_from_record
from prism_jax.agent.signals import Signals, signals_of
from prism_jax.agent.steps import Clock, Observation, Step, ask_trigger, note, settle, waves
from prism_jax.decision.calibration import Map
from prism_jax.streams import Candidate, Event

BATCH = 1024
"""Records that are decided on together."""
_FROM_LOG = ("candidates", "fingerprints", "history", "seconds")
_Line = tuple[str, Mapping[str, Any]]  # place for messages, and record


@dataclasses.dataclass(frozen=True)
class Changes:
    """What a replay changes; what is not given stays as each record has it."""

    point: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # fields of `OperatingPoint` by name
    # the calibration map of each signal, such as `need_fast`; None keeps the calibrated values of the log
    maps: Mapping[str, Map] | None = None
    need_target: str | None = None  # what p_need means to the maps; None where nobody says
    offers: Budget | None = None  # interruption budget
    thoughts: Budget | None = None  # slow budget
    exploration: Exploration | None = None  # draws as the log did where the seed is the same
    no_exploration: bool = False
    thoughts_as_logged: bool = False  # who thought stays as it was; otherwise the trigger is asked again
    partial: bool = False  # streams may begin in their middle; budgets then do not know of what came before
    obeyed: bool = False  # whether the gate decides where the host did, and the gate only watched

    def at(self, terms: Terms) -> Terms:
        """The terms of a record with the changes; raises ValueError naming the field, for a value out of range."""
        return dataclasses.replace(
            terms,
            point=AgentSettings(terms).at(self.point).point,
            offers=self.offers or terms.offers,
            thoughts=self.thoughts or terms.thoughts,
            exploration=None if self.no_exploration else self.exploration or terms.exploration,
        )


def replay(records: Iterable[_Line], changes: Changes | None = None) -> Iterator[dict[str, Any]]:
    """Yields one record per line of a log, decided again, with the seconds and fingerprints of the log.

    Outcomes of offers that the replay does not make are left out. `records` holds (place for messages, record) of every
    line of the log, in its order, and every stream from its first event, unless the changes are `partial`. `changes`
    None reproduces every decision.

    Raises:
      RecordsError: naming the record, where the log cannot know what the replay needs, or is not a log.
    """
    log = _Log(changes or Changes())
    lines = iter(records)
    while batch := list(itertools.islice(lines, BATCH)):
        yield from log.again(batch)


class _Log:
    """Decides again on parts of a log, one after the other."""

    def __init__(self, changes: Changes):
        self._changes = changes
        self._ledger = Ledger()
        self._made: set[str] = set()

    def again(self, lines: Sequence[_Line]) -> Iterator[dict[str, Any]]:
        steps = {i: self._step(*line) for i, line in enumerate(lines) if line[1]["kind"] == "decision"}
        places = list(steps)
        for wave in waves([step.item for step in steps.values()]):
            self._decide([(steps[places[i]], *lines[places[i]]) for i in wave])
        for i, (_, record) in enumerate(lines):
            if record["kind"] == "outcome":
                if record["offer"] in self._made:
                    yield dict(record)
            else:
                yield self._record(steps[i], record)

    def _step(self, place: str, record: Mapping[str, Any]) -> Step:
        """What the log knows of one event before it is decided on."""
        try:
            candidates = tuple(Candidate(text=text) for text in record["candidates"])
            event = Event(time=record["time"], text=record.get("text", NOT_KEPT))
            person = record.get("person")
            name = None if person is None else person["name"]
            spoke = record["spoke"] if "shadow" in record and not self._changes.obeyed else None
            item = Observation(record["stream"], event, candidates, None, record["domain"], name, spoke)
            terms = self._changes.at(terms_from_record(record))
            check_trigger(terms)
            if self._changes.need_target not in (None, terms.need_target):
                raise ValueError(
                    f"calibration: need_target: found {self._changes.need_target}, expected {terms.need_target}, as "
                    "p_need of the record"
                )
            step = Step(item, record["event"], terms, record["critical"], name)
            step.known = None if person is None else known_person_from(person)
            step.reading = FastReading(0.0, (), record["tokens"]["read"])
            step.unanswered = record.get("unanswered")
            known = step.unanswered is None
            step.fast = self._signals("fast", record) if known else Signals.unknown(len(candidates))
        except (KeyError, TypeError, ValueError) as error:
            raise RecordsError(f"{place}: {_message(error)}") from error
        return step

    def _signals(self, thinking: str, record: Mapping[str, Any]) -> Signals:
        count = len(record["candidates"])
        raw, calibrated = (
            _slots(record[thinking][form], f"{thinking}.{form}", count) for form in ("raw", "calibrated")
        )
        maps, domain = self._changes.maps, record["domain"]
        if maps is not None:
            if f"need_{thinking}" not in maps:
                raise ValueError(f"calibration: found no map of the {thinking} pass, expected it: the pass decided")
            return signals_of(maps, thinking, [raw[0]], [raw[1]], [domain])[0]
        return Signals(*raw, *calibrated, best=max(range(count), key=raw[1].__getitem__))

    def _decide(self, wave: Sequence[tuple[Step, str, Mapping[str, Any]]]) -> None:
        """Decides on events of distinct streams, as an agent does."""
        for step, place, _ in wave:
            if self._changes.partial and not self._ledger.has(step.item.stream):
                self._ledger.skip(step.item.stream, step.number, step.person)
            try:
                ((number, _),) = self._ledger.checked([(step.item.stream, step.item.event.time, step.person)])
            except RefusedError as error:
                raise RecordsError(f"{place}: {error}") from error
            if number != step.number:
                raise RecordsError(f"{place}: event: found {step.number}, expected {number}, the next of its stream")
            self._ledger.read(step.item.stream, step.item.event.time, step.person)
        steps = [step for step, _, _ in wave]
        read = [step for step, _, record in wave if record["has_slow_pass"] and step.unanswered is None]
        if self._changes.thoughts_as_logged:
            thinking = [step for step, _, record in wave if record["thought"]]
        else:
            thinking = ask_trigger(read, self._ledger)
        for step, place, record in wave:
            if any(step is chosen for chosen in thinking):
                self._think(step, place, record)
        settle(steps, self._ledger)
        for step, _, record in wave:
            same = record["spoke"] and record["chosen"] == step.used.best
            if step.choice.spoke and same:  # of another offer, nobody knows what would have been said
                if record["response"] is not None:
                    step.response = Response(record["response"], record["tokens"]["respond"])
                self._made.add(record["offer"])
            note(step, self._ledger)

    def _think(self, step: Step, place: str, record: Mapping[str, Any]) -> None:
        if record["slow"] is None:
            raise RecordsError(
                f"{place}: stream {step.item.stream!r}, event {step.number}: found no slow pass, expected one: the "
                f"trigger {_words(step.terms)} fires, and the log cannot know what thinking would have found"
            )
        try:
            step.slow = self._signals("slow", record)
        except (KeyError, TypeError, ValueError) as error:
            raise RecordsError(f"{place}: {_message(error)}") from error
        step.thought = Thought(0.0, (), record["fields"], record["tokens"]["think"])

    def _record(self, step: Step, record: Mapping[str, Any]) -> dict[str, Any]:
        made = step.decision(
            Clock(),
            record["history"],
            record["fingerprints"],
            has_slow_pass=record["has_slow_pass"],
            redact=False,  # as they are in the log
            keep_texts="text" in record,
        ).record()
        again = {**record, **{key: value for key, value in made.items() if key not in _FROM_LOG}}
        if step.would_speak is None:
            again.pop("shadow", None)
        return again


def _words(terms: Terms) -> str:
    point = terms.point
    return f"margin of {point.margin:g}" if terms.trigger == "margin" else f"value at a price of {point.price:g}"


def _slots(recorded: Mapping[str, Any], name: str, count: int) -> tuple[float, tuple[float, ...]]:
    """Reads the probabilities of a pass, raw or calibrated: of need, and of the acceptance of each candidate."""
    if type(recorded["p_accept"]) is not list or len(recorded["p_accept"]) != count:
        raise ValueError(
            f"{name}.p_accept: found {recorded['p_accept']!r:.80}, expected {count} numbers, one per candidate"
        )
    for key, value in [("p_need", recorded["p_need"]), *(("p_accept", value) for value in recorded["p_accept"])]:
        if type(value) not in (int, float) or not 0 <= value <= 1:
            raise ValueError(f"{name}.{key}: found {value!r:.80}, expected a probability")
    return recorded["p_need"], tuple(recorded["p_accept"])


def _message(error: Exception) -> str:
    return f"{error.args[0]}: found no such key, expected it" if isinstance(error, KeyError) else str(error)
