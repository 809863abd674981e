"""The people of a store of partitions, as one agent asks for them."""

from __future__ import annotations

import dataclasses
import weakref

from prism_jax.agent.people import People
from prism_jax.agent.personal import KnownPerson, Prediction
from prism_jax.agent.settings import AgentSettings
from prism_jax.agent.state.partition import Partition
from prism_jax.agent.state.store import StateStore
from prism_jax.people.layer import Population
from prism_jax.people.store import Person


class DurablePeople:
    """The people of all partitions, as an agent asks for them; the alarms of each have an equal share of the level.

    While the probabilities are calibrated, any of a partition's alarms ever rings with a probability of at most
    alpha / partitions, and any alarm of the store with one of at most alpha.
    """

    def __init__(self, store: StateStore, settings: AgentSettings) -> None:
        """Raises ValueError for settings that recalibrate: the map of everybody would depend on every partition."""
        if settings.people.recalibrate:
            raise ValueError("recalibrate: found it with a store of partitions, expected none: its map is everybody's")
        alarm = settings.people.alarm
        self._settings = dataclasses.replace(settings.people, alarm=alarm and alarm / store.partitions)
        self._store = store
        self._people: weakref.WeakKeyDictionary[Partition, People] = weakref.WeakKeyDictionary()

    @property
    def population(self) -> Population:
        """What is assumed of people."""
        return self._store.population

    def known(self, name: str) -> KnownPerson:
        """What is known of a person now."""
        return self._of(name).known(name)

    def offered(self, person: str, offer: str) -> None:
        """Notes an offer; see `People.offered`."""
        self._of(person).offered(person, offer)

    def withdrawn(self, offer: str, prediction: Prediction) -> None:
        """Notes that no answer to an offer will come; see `People.withdrawn`."""
        self._of(prediction.person).withdrawn(offer, prediction)

    def learn(self, offer: str, prediction: Prediction, outcome: str, time: float) -> None:
        """Takes the answer to an offer; see `People.learn`."""
        self._of(prediction.person).learn(offer, prediction, outcome, time)

    def take_rung(self) -> list[Person]:
        """The people whose alarm has rung for the first time since this was asked last."""
        rung = [person for people in self._people.values() for person in people.rang]
        for people in self._people.values():
            people.rang.clear()
        return rung

    def _of(self, person: str) -> People:
        partition = self._store.of(person)
        if partition not in self._people:
            self._people[partition] = People(partition.people, self._settings)
        return self._people[partition]
