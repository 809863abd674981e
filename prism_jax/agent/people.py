"""What an agent learns of people: an answer moves the person's rate and alarm and, if asked, the map of everybody.

The parameters of all people together are fitted to the answers in records, by `fit_from_records`.

The store is the state. An answer that the store has seen changes nothing, so a restart may read its input again.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from prism_jax.agent.personal import KnownPerson, Prediction, prediction_from
from prism_jax.agent.records_file import RecordsError, parse_record, prediction_in
from prism_jax.agent.settings import PeopleSettings
from prism_jax.agent.state.store import StateStore
from prism_jax.decision import alarm
from prism_jax.decision.arrays import sigmoid
from prism_jax.decision.calibration import fit_platt
from prism_jax.decision.person import Belief, Population, clipped_log_odds, update
from prism_jax.people import recalibration
from prism_jax.people.exports import FORMAT, recalibration_from
from prism_jax.people.layer import fit_population
from prism_jax.people.recalibration import Recalibration
from prism_jax.people.store import PeopleStore, Person
from prism_jax.runtime.files import check_absent, encode_json, read_lines, write_bytes

ACCEPTED = "accepted"
"""The outcome that is an answer of 1; any other is one of 0."""
LEAST_THRESHOLD = 1e-9
"""The alarm needs a threshold above 0; only which answers are near the gate depends on it."""
RATINGS = "ratings"
"""The run of answers to offers that nobody made."""


class Alarms(NamedTuple):
    """What the alarms say."""

    people: int  # number of people in the store
    rang: tuple[int, ...]  # numbers of the people whose alarm has rung (`Person.number`), ascending
    # Log of the product of all people's martingales. While the probabilities are calibrated, and people's answers do
    # not depend on each other, it exceeds log(1 / alpha) with a probability of at most alpha, ever.
    log_product: float


class People:
    """The people of a state, as an agent knows them; StoreError where what is kept of them cannot be read.

    The alarms of each partition have an equal share of the level: while the probabilities are calibrated, any of a
    partition's alarms ever rings with a probability of at most alpha / partitions, and any alarm of the state with one
    of at most alpha. `rang` holds the people whose alarm has rung for the first time, in that order; whoever reports
    them takes them out.
    """

    def __init__(self, state: StateStore, settings: PeopleSettings | None = None):
        settings = PeopleSettings() if settings is None else settings
        self.settings = dataclasses.replace(settings, alarm=settings.alarm and settings.alarm / state.partitions)
        self.rang: list[Person] = []
        self._state = state

    @property
    def population(self) -> Population:
        """What is assumed of people."""
        return self._state.population

    def of(self, person: str) -> PeopleStore:
        """Where a person is kept."""
        return self._state.of(person).people

    def known(self, name: str) -> KnownPerson:
        """What is known of a person now."""
        store = self.of(name)
        person, population = store.person(name), store.population
        if self.settings.recalibrate:
            population = recalibration.moved(population, _map_of(store))
        return KnownPerson(population, person.belief, person.answers, self.settings.optimistic)

    def offered(self, person: str, offer: str) -> None:
        """Notes an offer: the person's alarm waits for its answer, unless it waits for another one already.

        So which answers move the alarm is known before any of them, and a bet depends only on what was known when its
        probability was stated. Were it the answers that came first, quick refusals would ring it without reason.
        """
        self.of(person).wait_for(person, offer)

    def withdrawn(self, offer: str, prediction: Prediction) -> None:
        """Notes that no answer to an offer will come.

        A person's alarm that waits for it loses what the worse answer would cost each bet, once.

        Raises:
          StoreError: if it cannot be kept; nothing has then changed.
        """
        store = self.of(prediction.person)
        if store.waits_for(prediction.person) != offer:
            return
        if not store.has_answer(offer):
            person = store.person(prediction.person)
            state = alarm.withdraw(
                np.array(person.alarm), prediction.p_accept, max(prediction.threshold, LEAST_THRESHOLD)
            )
            person = person._replace(alarm=tuple(np.asarray(state).tolist()))
            store.learn(offer, person)
        store.wait_no_more(prediction.person)

    def learn(self, offer: str, prediction: Prediction, outcome: str, time: float) -> None:
        """Takes the answer to an offer; one that was learnt before a restart changes nothing.

        Of `prism_jax.agent.records.OUTCOMES`, all but `accepted` count against the offer. `time` is the answer's, on
        the stream's clock.

        Raises:
          StoreError: if it cannot be kept; nothing has then changed.
        """
        store = self.of(prediction.person)
        watched = store.waits_for(prediction.person) == offer
        if not store.has_answer(offer):
            y = float(outcome == ACCEPTED)
            person = self._answered(prediction, y)._replace(time=time)
            if watched:
                threshold = max(prediction.threshold, LEAST_THRESHOLD)
                state = alarm.update(np.array(person.alarm), prediction.p_accept, y, threshold)
                person = person._replace(alarm=tuple(np.asarray(state).tolist()))
            rings = not person.rang and self._rings(person)
            person = person._replace(rang=person.rang or rings)
            self._learn(offer, person, prediction, y)
            if rings:
                self.rang.append(person)
        if watched:
            store.wait_no_more(prediction.person)

    def rated(self, key: str, person: str, content: float, accepted: bool) -> None:
        """Takes the answer of a person who was asked about an offer that nobody made.

        It moves the person's rate and nothing else: it is no evidence on what was stated of real offers. `key` is the
        id of the question, of which one answer is taken; `content` is the calibrated p_accept for the population.
        """
        if not self.was_rated(key, person):
            prediction = Prediction(person, content, content, 1.0)
            self.of(person).learn(key, self._answered(prediction, float(accepted)), RATINGS)

    def was_rated(self, key: str, person: str) -> bool:
        """Whether a person has answered a question before."""
        return self.of(person).has_answer(key, RATINGS)

    def alarms(self) -> Alarms:
        """What the alarms of all people say; a number is that of a person in their partition."""
        everybody, total = list[Person](), 0.0
        for _, partition in self._state.made():
            people = list(partition.people)
            total += (partition.people.fact("forgotten") or {"log": 0.0})["log"]
            if people:
                total += float(np.sum(alarm.log_martingale(np.array([person.alarm for person in people]))))
            everybody += people
        return Alarms(len(everybody), tuple(person.number for person in everybody if person.rang), total)

    def _answered(self, prediction: Prediction, y: float) -> Person:
        """The person with one answer more."""
        before, known = self.of(prediction.person).person(prediction.person), self.known(prediction.person)
        belief = update(known.belief, float(clipped_log_odds(prediction.content)), y, known.population)
        return before._replace(belief=Belief(float(belief.mean), float(belief.variance)), answers=before.answers + 1)

    def _learn(self, offer: str, person: Person, prediction: Prediction, y: float) -> None:
        """Keeps an answer, with the map of everybody where it follows."""
        store = self.of(person.name)
        if not self.settings.recalibrate:
            store.learn(offer, person)
            return
        before, z = store.person(person.name).belief, float(clipped_log_odds(prediction.content))
        state = Recalibration(*map(float, recalibration.update(_map_of(store), z, before, y)))
        store.learn(offer, person, recalibration=state._asdict())

    def _rings(self, person: Person) -> bool:
        """Whether a person's alarm rings: at M >= n (n + 1) / alpha for the n-th person in the store.

        The levels alpha / (n (n + 1)) of all people add up to alpha, however many people there will be. One answer,
        before which somebody has no number, multiplies M by 3/2 at most and cannot ring.
        """
        level, n = self.settings.alarm, person.number
        if level is None or n == 0:
            return False
        return float(alarm.log_martingale(np.array(person.alarm))) >= math.log(n * (n + 1) / level)


def _map_of(store: PeopleStore) -> Recalibration:
    """The map of everybody; StoreError for another recalibration than an agent keeps."""
    state = store.fact("recalibration")
    if state is None:
        return recalibration.start(store.population)
    return recalibration_from(state, f"{store.path}: recalibration")


def fit_from_records(logs: Sequence[Iterable[dict[str, Any]]], out: str, place: str) -> None:
    """Fits a population to everybody's answers and writes it as JSON.

    The logs of records are in the order in which their answers came, and `place` is what messages call them.

    Raises:
      ValueError, OSError: in one line, for records that cannot be read or that teach nothing; nothing is written then.
    """
    check_absent(out)
    answers = [answer for log in logs for answer in _answers_in(log)]
    names = sorted({prediction.person for prediction, _ in answers})
    kinds = len({accepted for _, accepted in answers})
    if len(names) < 2 or kinds < 2:
        raise ValueError(
            f"{place}: found {len(answers)} answers of {len(names)} people and {kinds} kinds, "
            "expected answers of two people, some accepted and some not"
        )
    population = _fitted(answers)
    if population.scale < 0:
        raise ValueError(
            f"{place}: found a scale of {population.scale:.3g}, expected at least 0: the p_accept of these "
            "records ranks offers the wrong way round"
        )
    write_bytes(out, encode_json({"format": FORMAT, **population._asdict()}))
    shown = ", ".join(f"{name} {value:.3g}" for name, value in population._asdict().items())
    print(f"{len(answers):,} answers of {len(names):,} people: {shown}")


def _fitted(answers: Sequence[tuple[Prediction, bool]]) -> Population:
    """The population of highest prequential likelihood on p_accept as Platt's map corrects it.

    So a new person is met by the corrected p_accept, and nothing is lost at the first offer. The answers of a person
    stand in the order in which they came.
    """
    person = np.unique([prediction.person for prediction, _ in answers], return_inverse=True)[1]
    y = np.array([float(accepted) for _, accepted in answers])
    z = clipped_log_odds([prediction.content for prediction, _ in answers])
    platt = fit_platt(sigmoid(z), y)
    population = fit_population(platt.of_log_odds(z), y, person, calibrated=True)
    return population._replace(scale=population.scale * platt.scale, bias=population.scale * platt.bias)


def read_records(path: epath.PathLike) -> Iterator[dict[str, Any]]:
    """The records of a file; RecordsError names the line that is none."""
    for number, line in read_lines(path, RecordsError, "the records of an agent"):
        place = f"{path}:{number}"
        record = parse_record(line, place)
        if record["kind"] == "decision":
            prediction_in(record, place)
        yield record


def _answers_in(log: Iterable[dict[str, Any]]) -> list[tuple[Prediction, bool]]:
    """What was predicted of answered offers to named people, and whether each was accepted, in the answers' order."""
    made, answers = dict[str, Prediction](), list[tuple[Prediction, bool]]()
    for record in log:
        if record["kind"] == "decision":
            if (prediction := prediction_from(record)) is not None:
                made[record["offer"]] = prediction
        elif record["offer"] in made:
            answers.append((made.pop(record["offer"]), record["outcome"] == ACCEPTED))
    return answers
