"""The people of a store of partitions, as one agent asks for them."""

from __future__ import annotations

import dataclasses

from prism_jax.agent.people import People
from prism_jax.agent.personal import KnownPerson, Prediction
from prism_jax.agent.settings import AgentSettings
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
        self._rang: list[Person] = []

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
        people = self._of(prediction.person)
        people.learn(offer, prediction, outcome, time)
        self._rang += people.rang

    def take_rung(self) -> list[Person]:
        """The people whose alarm has rung for the first time since this was asked last."""
        rang, self._rang = self._rang, []
        return rang

    def _of(self, person: str) -> People:
        return People(self._store.of(person).people, self._settings)
