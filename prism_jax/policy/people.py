"""What an agent learns of people: an answer moves the person's rate and alarm and, if asked, the map of everybody.

The store is the state. An answer that the store has seen changes nothing, so a restart may read its input again.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from prism_jax.decision import alarm
from prism_jax.people import recalibration
from prism_jax.people.layer import Belief, update
from prism_jax.people.recalibration import Recalibration
from prism_jax.people.store import PeopleStore, Person, StoreError
from prism_jax.policy.personal import Known, Stated, log_odds
from prism_jax.policy.settings import PeopleSettings

ACCEPTED = "accepted"
"""The outcome that is an answer of 1; any other is one of 0."""
LEAST_THRESHOLD = 1e-9
"""The alarm needs a threshold above 0; only which answers are near the gate depends on it."""
MOST_LOG = 700.0
"""Bound of a logarithm that a double can take the exponential of."""


class Alarms(NamedTuple):
    """What the alarms say.

    Attributes:
      people: Number of people in the store.
      rang: Numbers of the people whose alarm has rung (`Person.number`), ascending.
      pooled: The average of the people's martingales, M; by Ville's inequality it exceeds 1 / alpha with a probability
        of at most alpha, ever, while the probabilities are calibrated.
    """

    people: int
    rang: tuple[int, ...]
    pooled: float


class People:
    """The people that an agent knows.

    Attributes:
      store: The store.
      settings: How it is used.
      rang: The people whose alarm has rung for the first time, in that order; whoever reports them takes them out.
    """

    def __init__(self, store: PeopleStore, settings: PeopleSettings | None = None):
        """Makes the agent's view of a store.

        Args:
          store: An open store; the caller closes it.
          settings: None takes the defaults.
        """
        self.store = store
        self.settings = PeopleSettings() if settings is None else settings
        self.rang: list[Person] = []
        found = store.fact("recalibration") if self.settings.recalibrate else None
        try:
            self._map = recalibration.start(store.population) if found is None else Recalibration(**found)
        except TypeError:
            raise StoreError(f"{store.path}: recalibration: found other keys than an agent keeps there") from None

    def known(self, name: str) -> Known:
        """What is known of a person now."""
        person = self.store.person(name)
        population = self.store.population
        if self.settings.recalibrate:
            population = recalibration.moved(population, self._map)
        return Known(population, person.belief, person.answers, self.settings.optimistic)

    def learn(self, stream: str, offer: str, stated: Stated, outcome: str, time: float | None) -> None:
        """Takes an answer.

        Args:
          stream: Stream of the offer.
          offer: Id of the offer.
          stated: What the offer said of its acceptance.
          outcome: One of `prism_jax.policy.records.OUTCOMES`; what is not accepted counts against the offer.
          time: Time of the answer, on the stream's clock; None keeps that of the answer before.
        """
        if self.store.has_answer(stream, offer):
            return
        y = float(outcome == ACCEPTED)
        before = self.store.person(stated.person)
        known, z = self.known(stated.person), float(log_odds(stated.content))
        belief = update(known.belief, z, y, known.population)
        state = before.alarm
        if stated.answers == before.answers:
            # An answer that came in between was not known to the offer, so it must not move the bets on this one.
            after = alarm.update(np.array(state), stated.p_accept, y, max(stated.threshold, LEAST_THRESHOLD))
            state = tuple(np.asarray(after).tolist())
        facts = {}
        if self.settings.recalibrate:
            after_all = recalibration.update(self._map, z, known.belief, y)
            self._map = Recalibration(*map(float, after_all))
            facts["recalibration"] = self._map._asdict()
        belief = Belief(float(belief.mean), float(belief.variance))
        person = before._replace(belief=belief, answers=before.answers + 1, alarm=state)
        person = person._replace(time=before.time if time is None else time, rang=before.rang or self._rings(person))
        self.store.learn(stream, offer, person, **facts)
        if person.rang and not before.rang:
            self.rang.append(person)

    def alarms(self) -> Alarms:
        """What the alarms of all people say."""
        people = list(self.store)
        if not people:
            return Alarms(0, (), 1.0)
        logs = np.asarray(alarm.log_martingale(np.array([person.alarm for person in people])))
        pooled = math.exp(min(alarm.pooled(logs), MOST_LOG))
        return Alarms(len(people), tuple(person.number for person in people if person.rang), pooled)

    def _rings(self, person: Person) -> bool:
        """Whether a person's alarm rings: at M >= n (n + 1) / alpha for the n-th person in the store.

        The levels alpha / (n (n + 1)) of all people add up to alpha, however many people there will be. One answer,
        before which somebody has no number, multiplies M by 3/2 at most and cannot ring.
        """
        level, n = self.settings.alarm, person.number
        if level is None or n == 0:
            return False
        return float(alarm.log_martingale(np.array(person.alarm))) >= math.log(n * (n + 1) / level)
