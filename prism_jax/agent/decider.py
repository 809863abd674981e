"""What an agent does, wherever its state is: it decides at the events of live streams whether to offer help."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from prism_jax.agent.exported import Exported, fingerprint
from prism_jax.agent.gating import check_trigger
from prism_jax.agent.ledger import Ledger, RefusedError
from prism_jax.agent.lines import Where
from prism_jax.agent.people import People
from prism_jax.agent.personal import prediction_from
from prism_jax.agent.reader import FastReading, Reader, ThinkRequest, Thought, Unanswered
from prism_jax.agent.records import Decision, OfferOutcome, Written, counts_against_budget
from prism_jax.agent.settings import AgentSettings, Terms
from prism_jax.agent.signals import Signals, probabilities, signals_of
from prism_jax.agent.steps import AN_OFFER, Clock, Observation, Step, ask_trigger, excess, note, settle, waves
from prism_jax.streams import Candidate, Event

P = ParamSpec("P")
R = TypeVar("R")
Self = TypeVar("Self", bound="Decider")


def alone(method: Callable[Concatenate[Self, P], R]) -> Callable[Concatenate[Self, P], R]:
    """Runs a method of an agent in one thread at a time: reader, budgets and people change together."""

    @functools.wraps(method)
    def locked(self: Self, /, *arguments: P.args, **keywords: P.kwargs) -> R:
        with self._lock:
            return method(self, *arguments, **keywords)

    return locked


class Decider:
    """Decides on many interleaved streams. Threads may share an agent, which answers their calls one after the other.

    Attributes:
      reader: The language model.
      exported: Calibration, operating point and fingerprints of the model.
      settings: Costs, budgets, allow-list, exploration.
      people: The people that the agent knows; None where it has no state.
      fingerprints: SHA-256 of `model`, `calibration` and `config`; the last covers the settings too.
      programs: Number of programs that were compiled before the first event; 0 without a warm-up.
    """

    def __init__(
        self,
        reader: Reader,
        exported: Exported,
        settings: AgentSettings | None = None,
        people: People | None = None,
    ):
        """Makes an agent on a reader; without settings, at the operating point of the export.

        `people` is what is known of people; None decides alike for everybody.

        Raises:
          ValueError: if the reader has a slow pass for which there is no calibration, or the trigger needs to know
            more of it than the export says.
        """
        if reader.has_slow_pass and not exported.has_slow_pass:
            raise ValueError("calibration: found no maps of the slow pass, expected them: the reader has a slow pass")
        self.reader, self.exported = reader, exported
        settings = AgentSettings(Terms(exported.point)) if settings is None else settings
        terms = dataclasses.replace(settings.terms, thinking=exported.thinking, need_target=exported.need_target)
        if reader.has_slow_pass:
            check_trigger(terms)
        self.settings = dataclasses.replace(settings, terms=terms)
        self.people = people
        parts = [exported.fingerprints["config"], self.settings.describe()]
        if people is not None:
            parts += [dataclasses.asdict(self.settings.people), people.population._asdict()]
        config = fingerprint(parts)
        self.fingerprints = {**exported.fingerprints, "config": config}
        self.closing = contextlib.ExitStack()
        self._ledger = Ledger()
        self._lock = threading.RLock()

    def __enter__(self) -> Decider:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes what `closing` has: the state that `Agent.load` has opened."""
        self.closing.close()

    def observe(
        self,
        stream: str,
        event: Event,
        candidates: Sequence[Candidate | str] | None = None,
        *,
        costs: Mapping[str, Any] | None = None,
        domain: str = "unknown",
        person: str | None = None,
    ) -> Decision:
        """Reads one event of a stream, not earlier than those before, and decides.

        Without candidates, the offer is the constant "an offer". `costs` is what this event changes in the settings
        (`AgentSettings.at`). A stream's first event says whose stream it is.

        Raises:
          RefusedError: naming stream and field, for an event that cannot be decided on.
        """
        if isinstance(candidates, str):
            raise RefusedError(f"stream {stream!r}: candidates: found one text, expected a list of offers")
        try:
            texts = AN_OFFER if candidates is None else candidates
            offers = tuple(Candidate(text=one) if isinstance(one, str) else one for one in texts)
        except ValueError as error:
            raise RefusedError(f"stream {stream!r}: candidates: {error}") from error
        return self.observe_many([Observation(stream, event, offers, costs, domain, person)])[0]

    @alone
    def observe_many(self, items: Sequence[Observation]) -> list[Decision]:
        """Reads events of many streams in batches, and decides on each; one decision per item, in their order.

        Several events of one stream are decided one after the other, in their order.

        Raises:
          RefusedError: naming stream and field, for an event that cannot be decided on. If the streams are distinct,
            nothing has then changed.
        """
        return self._observe(items)

    @alone
    def observe_each(
        self, items: Sequence[Observation], *, skip: bool, places: Sequence[Where | None] = ()
    ) -> list[Written | RefusedError]:
        """Decides on events as `observe_many`, each by itself; in place of one that cannot be taken stands why.

        Unless refused events are to `skip`, nothing after the first of them is decided on, and the list ends there.
        A state keeps the `places` of the events in their input.
        """
        found: dict[int, Written | RefusedError] = {
            i: RefusedError(said) for i, said in enumerate(self.refusals(items)) if said is not None
        }
        for wave in waves(items):
            group = [i for i in wave if i not in found]
            for own in (group, *([i] for i in group)):  # one by one where the reader refuses one of them
                end = _first_refused(found, len(items), skip)
                own = [i for i in own if i not in found and i < end]
                try:
                    decided = self._observe([items[i] for i in own]) if own else []
                    found.update(zip(own, map(Written.of, decided), strict=True))
                except RefusedError as error:
                    if len(own) == 1:
                        found[own[0]] = error
        return [found[i] for i in range(min(_first_refused(found, len(items), skip) + 1, len(items)))]

    @alone
    def check(self, items: Sequence[Observation]) -> None:
        """Raises RefusedError where `observe_many` would refuse an item, but for what the reader alone can refuse."""
        self._steps(items)

    @alone
    def refusals(self, items: Sequence[Observation]) -> list[str | None]:
        """The message with which `observe_many` would refuse each item if all refused items were left out; else None.

        The reader can still refuse an item.
        """
        try:
            self._steps(items)
        except RefusedError:
            pass
        else:
            return [None] * len(items)
        accepted: list[Observation] = []
        messages: list[str | None] = []
        for item in items:
            try:
                self._steps([*accepted, item])
            except RefusedError as error:
                messages.append(str(error))
            else:
                messages.append(None)
                accepted.append(item)
        return messages

    @alone
    def resume_many(self, items: Sequence[Observation], records: Sequence[Mapping[str, Any]]) -> None:
        """Reads events again that were decided before a restart; the agent is then as it was after their decisions.

        `records` has the decision record of each event. ValueError names the stream of an event that is not the one
        that was decided on.
        """
        steps = self._steps(items)
        for wave in waves(items):
            self._read([steps[i] for i in wave], follow=True)
            for i in wave:
                record = records[i]
                steps[i].check_recorded(self.reader.history(items[i].stream), record)
                self._ledger.decided(
                    items[i].stream,
                    items[i].event.time,
                    offer=record["offer"],
                    counts=counts_against_budget(record),
                    thought=record["thought"],
                    prediction=prediction_from(record),
                )

    @alone
    def recall(self, outcome: OfferOutcome) -> None:
        """Takes an outcome again, of a resumed stream whose people have kept what it taught; errors as of `outcome`."""
        self._ledger.prediction(outcome)
        self._ledger.answered(outcome)

    @alone
    def unload(self, stream: str) -> None:
        """Drops a stream that can be resumed; nothing is withdrawn of it."""
        self.reader.forget(stream)
        self._ledger.forget(stream)

    @alone
    def outcome(
        self,
        stream: str,
        offer: str,
        outcome: str,
        time: float,
        *,
        needed: bool | None = None,
        place: Where | None = None,
    ) -> OfferOutcome:
        """Takes what became of an offer: one of `prism_jax.agent.records.OUTCOMES`, at a time not before the offer.

        `needed` says whether help was needed, where somebody judged it. A state keeps its `place` in the input.

        Raises:
          RefusedError: naming the offer, for one that was not made or has an outcome already, or for a bad value.
        """
        answer = OfferOutcome(stream, offer, outcome, time, needed)
        self._take_answer(answer, place)
        return answer

    @alone
    def forget(self, stream: str) -> None:
        """Drops a stream that has ended: its trunk, budgets and open offers.

        Its name must not be used again: the ids of its offers would repeat.
        """
        self._withdraw(stream)
        self.unload(stream)

    @alone
    def forget_person(self, person: str) -> None:
        """Deletes what is kept of a person, with all their streams, events and records."""
        for stream in self._ledger.streams_of(person):
            self.forget(stream)

    def _observe(self, items: Sequence[Observation]) -> list[Decision]:
        return self._observe_checked(self._steps(items))

    def _observe_checked(self, steps: Sequence[Step]) -> list[Decision]:
        """Reads events that were checked, and decides on each; RefusedError where the reader cannot take one."""
        decisions: dict[int, Decision] = {}
        for wave in waves([step.item for step in steps]):
            decisions.update(zip(wave, self._decide([steps[i] for i in wave]), strict=True))
        return [decisions[i] for i in range(len(steps))]

    def _withdraw(self, stream: str) -> None:
        """Nobody waits for the answers to a stream's offers any more."""
        for offer, prediction in self._ledger.unanswered(stream):
            if self.people is not None:
                self.people.withdrawn(offer, prediction)

    def _take_answer(self, answer: OfferOutcome, place: Where | None) -> None:
        """Takes an outcome, which a state keeps with its place in the input."""
        self._answered(answer)

    def _answered(self, answer: OfferOutcome) -> None:
        prediction = self._ledger.prediction(answer)
        if prediction is not None and self.people is not None:
            self.people.learn(answer.offer, prediction, answer.outcome, answer.time)
        self._ledger.answered(answer)

    def _steps(self, items: Sequence[Observation]) -> list[Step]:
        """Checks all items before any is read."""
        for item in items:
            if problem := excess(item):
                raise RefusedError(f"stream {item.stream!r:.80}: {problem}")
        places = self._ledger.checked((item.stream, item.event.time, item.person) for item in items)
        steps = []
        for item, (number, person) in zip(items, places, strict=True):
            if not item.candidates:
                raise RefusedError(f"stream {item.stream!r}: candidates: found none, expected at least one")
            try:
                terms = self.settings.at(item.costs)
                if self.reader.has_slow_pass:
                    check_trigger(terms)
            except ValueError as error:
                raise RefusedError(f"stream {item.stream!r}: {error}") from error
            steps.append(Step(item, number, terms, item.event.text in self.settings.critical, person))
        return steps

    def _decide(self, steps: Sequence[Step]) -> list[Decision]:
        """Decides on events of distinct streams."""
        clock = Clock()
        # Fast pass.
        answered = []
        for step, reading in zip(steps, self._read(steps), strict=True):
            if isinstance(reading, Unanswered):
                step.unanswered, step.fast = reading.reason, Signals.unknown(len(step.item.candidates))
                step.reading = FastReading(0.0, (), reading.tokens)
            else:
                step.reading = reading
                answered.append(step)
        clock.ends("read")
        fast = self._signals("fast", answered, [step.reading for step in answered])
        for step, signals in zip(answered, fast, strict=True):
            step.fast = signals
        for step in steps:
            if self.people is not None and step.person is not None:
                step.known = self.people.known(step.person)
        # Slow pass, where the trigger fires and the stream's slow budget lasts.
        thinking = ask_trigger(answered, self._ledger) if self.reader.has_slow_pass else []
        clock.ends("decide")
        if thinking:
            self._think(thinking)
            clock.ends("think")
        # Gate, exploration, budgets, allow-list.
        settle(steps, self._ledger)
        clock.ends("decide")
        self._respond([step for step in steps if step.choice.spoke and step.would_speak is None])
        clock.ends("respond")
        return [self._noted(step, clock) for step in steps]

    def _read(self, steps: Sequence[Step], *, follow: bool = False) -> Sequence[FastReading | Unanswered]:
        items = [(step.item.stream, step.item.event, step.item.candidates) for step in steps]
        readings: Sequence[FastReading | Unanswered] = ()
        try:
            if follow:
                self.reader.follow(items)
            else:
                readings = self.reader.observe(items)
        except ValueError as error:  # no trunk has changed
            raise RefusedError(str(error)) from error
        for step in steps:
            self._ledger.read(step.item.stream, step.item.event.time, step.person)
        return readings

    def _think(self, steps: Sequence[Step]) -> None:
        thoughts = self.reader.think([ThinkRequest(step.item.stream, step.item.candidates) for step in steps])
        for step, thought, signals in zip(steps, thoughts, self._signals("slow", steps, thoughts), strict=True):
            step.thought, step.slow = thought, signals

    def _respond(self, steps: Sequence[Step]) -> None:
        """Writes the responses of the offers; where all are silent, nothing is asked of the reader."""
        if not (steps and self.reader.writes_responses):
            return
        requests = [
            (step.item.stream, step.offered, None if step.thought is None else step.thought.fields) for step in steps
        ]
        for step, response in zip(steps, self.reader.respond(requests), strict=True):
            step.response = response

    def _signals(self, thinking: str, steps: Sequence[Step], slots: Sequence[FastReading | Thought]) -> list[Signals]:
        need, accept = [], []
        for step, read in zip(steps, slots, strict=True):
            if len(read.z_accept) != len(step.item.candidates):
                raise ValueError(
                    f"stream {step.item.stream!r}: found {len(read.z_accept)} accept slots, expected "
                    f"{len(step.item.candidates)}, one per candidate"
                )
            first, *rest = probabilities((read.z_need, *read.z_accept), step.item.stream)
            need.append(first)
            accept.append(rest)
        return signals_of(self.exported.maps, thinking, need, accept, [step.item.domain for step in steps])

    def _noted(self, step: Step, clock: Clock) -> Decision:
        note(step, self._ledger)
        if self.people is not None and step.prediction is not None and step.offer is not None:
            self.people.offered(step.prediction.person, step.offer)
        history = self.reader.history(step.item.stream)
        return step.decision(
            clock,
            history,
            self.fingerprints,
            has_slow_pass=self.reader.has_slow_pass,
            redact=self.settings.redact,
            keep_texts=self.settings.keep_texts,
        )


def _first_refused(found: Mapping[int, Written | RefusedError], count: int, skip: bool) -> int:
    """The place of the first event that was refused; `count` where there is none, or all are skipped."""
    return count if skip else min((i for i, one in found.items() if isinstance(one, RefusedError)), default=count)
