"""Getting to know a person: they rate a few offers, chosen so that their answers say most about their own rate.

A file of scenarios has one JSON object per line: `events`, the texts that a user saw or did, the newest last; `offer`,
the text of the offer (null is "an offer"); optional `domain`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from etils import epath

from prism_jax.agent.agent import Agent
from prism_jax.agent.decider import Decider
from prism_jax.agent.loading import exported_model
from prism_jax.agent.people import People
from prism_jax.agent.settings import PeopleSettings
from prism_jax.agent.signals import Signals
from prism_jax.agent.state.store import StateStore
from prism_jax.runtime.files import read_lines
from prism_jax.runtime.schema import Words, decode, read_json, some
from prism_jax.runtime.shown_text import visible
from prism_jax.streams import Candidate, Event

_ANSWERS = {"y": True, "yes": True, "n": False, "no": False}


class ScenarioError(ValueError):
    """A file of scenarios that cannot be used; the message names file and line, what was found and expected."""


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A situation with an offer."""

    events: Annotated[tuple[Words, ...], some]  # texts of the events, the newest last
    offer: Words | None  # text of the offer; None is "an offer"
    domain: Words = "unknown"

    @property
    def id(self) -> str:
        """Says whether two scenarios are the same."""
        return hashlib.sha256(json.dumps(dataclasses.astuple(self)).encode()).hexdigest()[:16]


def read_scenarios(path: epath.PathLike) -> list[Scenario]:
    """Reads a file of scenarios; ScenarioError names the line that is none, or says that no line is there."""
    scenarios = []
    for number, line in read_lines(path, ScenarioError, "scenarios"):
        place = f"{path}:{number}"
        scenarios.append(decode(Scenario, read_json(line, place, ScenarioError), place, ScenarioError))
    if not scenarios:
        raise ScenarioError(f"{path}: found no scenario, expected one per line")
    return scenarios


def score(agent: Decider, scenarios: Sequence[Scenario]) -> list[float]:
    """The calibrated p_accept of each scenario's offer, for the population."""
    probabilities = []
    for number, scenario in enumerate(scenarios):
        stream = f"scenario {number}"
        *before, last = (Event(time=float(i), text=text) for i, text in enumerate(scenario.events))
        for event in before:
            agent.observe(stream, event, domain=scenario.domain)
        decision = agent.observe(stream, last, (Candidate(text=scenario.offer),), domain=scenario.domain)
        agent.forget(stream)
        probabilities.append(decision.fast.accept[0])
    return probabilities


def rate(
    store: StateStore, person: str, scenarios: Sequence[Scenario], p_accept: Sequence[float], most: int, ask: Ask
) -> int:
    """Asks a person about the offers that say most about them, one after the other; returns the number of answers.

    Each answer is learned at once. It says p (1 - p) about the person's own rate (its Fisher information), with p as
    now predicted for the person, so the next offer is always the one nearest to 1/2. Offers that the person has rated
    before are left out. `p_accept` is calibrated for the population. The questions end after `most`, or where `ask`
    returns None for an answer.
    """
    recalibrates = store.of(person).people.fact("recalibration") is not None
    people = People(store, PeopleSettings(recalibrate=recalibrates))
    left = {i: one for i, one in enumerate(scenarios) if not people.was_rated(f"{person}/{one.id}", person)}
    for asked in range(most):
        if not left:
            return asked
        known = people.known(person)
        numbers = list(left)
        own = known.predicted(Signals(0.0, (), 0.0, tuple(p_accept[i] for i in numbers), 0)).accept
        place = min(range(len(numbers)), key=lambda j: abs(own[j] - 0.5))
        scenario = left.pop(numbers[place])
        answer = ask(scenario)
        if answer is None:
            return asked
        with store.of(person).transaction():
            people.rated(f"{person}/{scenario.id}", person, p_accept[numbers[place]], answer)
    return most


Ask = Callable[[Scenario], bool | None]


def ask_at_terminal(scenario: Scenario) -> bool | None:
    """Shows a scenario and reads y or n from standard input; None at its end."""
    for text in scenario.events:
        print(f"  {visible(text)}")
    print(f"Offer: {visible(scenario.offer or 'an offer of help')}")
    while True:
        print("Would you accept it now? [y/n] ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            print()
            return None
        if (answer := _ANSWERS.get(line.strip().lower())) is not None:
            return answer


def rate_offers(store: StateStore, person: str, model: str, scenarios: str, most: int, **options: Any) -> None:
    """Asks a person at the terminal, with a model that says what the population would answer.

    The model is an exported directory, or the workdir of a trained run; `options` are those of
    `prism_jax.agent.loading.load_reader`. ValueError and OSError have a message of one line.
    """
    offers = read_scenarios(scenarios)
    with exported_model(model) as folder:
        p_accept = score(Agent.load(folder, **options), offers)
    answers = rate(store, person, offers, p_accept, most, ask_at_terminal)
    mean, variance = store.of(person).people.person(person).belief
    print(f"{answers} answers; own rate {mean:+.2f} ± {variance**0.5:.2f} in log-odds")
