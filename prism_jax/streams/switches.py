"""A simulated population in which the meaning of an event depends on a state that has to be worked out serially.

Two or three settings have to agree, as they do at first. Each has two values, and now and then one is switched. The
user is *stuck* while they do not all agree. Whether a switch breaks or mends something therefore depends on every
switch before it, and no event says which.

The newest event is of one of three kinds. After a switch, help is welcome in any case; while the user rests, it never
is; when the user tries something, an offer is accepted if the user is stuck and rejected otherwise. A model that does
not know the state thus knows at which steps it matters. The tables `NEED` and `ACCEPT` define the true probabilities
completely. At a try, need depends less on the state than acceptance does. Still their joint probability is above the
product, by up to 0.065, for who does not know the state: at C_FN = 2 the gate, which takes them as independent, is
silent and the joint probability would offer where a newcomer is stuck with a probability of 0.32 to 0.36.

The fields of the slow pass write the state down: `if_silent` has the result of each switch, in order, and the other
fields follow from its last word and the newest event. All are functions of the visible events. With two settings the
results are `breaks` and `mends` in turn. With three, each is written after the setting that was switched, as in
`client client, server worker`. It is `mends` or the setting that differs from the other two, which depends on the
result before and on which setting is switched:

    before, switched:    client    server    worker
    none or mends        client    server    worker
    client               mends     worker    server
    server               worker    mends     client
    worker               server    client    mends
"""

from __future__ import annotations

import random
from typing import NamedTuple

from prism_jax.streams import simulator_text as text
from prism_jax.streams.outcomes import Logging, Truth, draw_kind, draw_step, pick, true_probabilities, with_response
from prism_jax.streams.simulator_config import SimulatorConfig
from prism_jax.streams.types import Event, Stream

SETTINGS = {
    "coding": ("client", "server", "worker"),
    "writing": ("glossary", "layout", "index"),
    "life": ("thermostat", "calendar", "alarm"),
}

PHRASES = {
    "coding": {
        "switch": ("The {setting} is switched.", "The {setting} is toggled."),
        "try": ("Runs the tests.", "Opens the app."),
        "rest": ("Goes to lunch.", "Locks the screen."),
    },
    "writing": {
        "switch": ("The {setting} is swapped.", "The {setting} is exchanged."),
        "try": ("Exports the draft.", "Prints a page."),
        "rest": ("Makes tea.", "Waters the plants."),
    },
    "life": {
        "switch": ("The {setting} is flipped.", "The {setting} is turned over."),
        "try": ("Checks the plan.", "Sets out for town."),
        "rest": ("Takes a nap.", "Reads a novel."),
    },
}


# Pr(kind of the next event).
NEXT = {"switch": 0.47, "try": 0.45, "rest": 0.08}

# Pr(need | newest event's kind, stuck).
NEED = {
    #        free  stuck
    "switch": (0.80, 0.80),
    "try": (0.60, 0.90),
    "rest": (0.05, 0.05),
}

# Pr(accept | persona, newest event's kind, stuck), averaged over the hidden variable.
ACCEPT = {
    #                      free  stuck
    ("newcomer", "switch"): (0.92, 0.92),
    ("newcomer", "try"): (0.10, 0.96),
    ("newcomer", "rest"): (0.08, 0.08),
    ("regular", "switch"): (0.88, 0.88),
    ("regular", "try"): (0.06, 0.93),
    ("regular", "rest"): (0.05, 0.05),
    ("expert", "switch"): (0.82, 0.82),
    ("expert", "try"): (0.04, 0.88),
    ("expert", "rest"): (0.03, 0.03),
}


class Situation(NamedTuple):
    """The features of a history that determine the true probabilities."""

    persona: str
    kind: str
    stuck: bool


def truth(situation: Situation, config: SimulatorConfig, on_call: bool | None = None) -> Truth:
    """True probabilities in `situation`; with `on_call` None, given only what the prompt shows."""
    persona, kind, stuck = situation
    return true_probabilities(NEED[kind][stuck], ACCEPT[persona, kind][stuck], config, on_call)


def draw_stream(config: SimulatorConfig, index: int, logging: Logging) -> Stream:
    """Draws stream number `index`, without a teacher; the arguments are those of `simulator.simulate`."""
    rng = random.Random(f"prism_jax switches {config.seed} {index}")
    domain, persona = pick(rng, tuple(PHRASES)), pick(rng, tuple(text.ARRIVALS))
    length = config.min_events + int(rng.random() * (config.max_events - config.min_events + 1))
    settings = SETTINGS[domain][: config.switches]
    events, steps = [Event(time=0.0, text=pick(rng, text.ARRIVALS[persona]))], []
    values, results = dict.fromkeys(settings, False), list[str]()
    responses, setting = 0, settings[0]
    for position in range(1, length):
        kind = draw_kind(rng, NEXT)
        if kind == "switch":
            setting = pick(rng, settings)
            values[setting] = not values[setting]
            results.append(_result(values, setting))
        gap = 5 + int(rng.random() * 55)
        phrase = pick(rng, PHRASES[domain][kind]).format(setting=setting)
        events.append(Event(time=events[-1].time + gap, text=phrase))
        situation = Situation(persona, kind, stuck=len(set(values.values())) > 1)
        truth_shown, fields = truth(situation, config), _rationale(situation, results)
        step, helpful = draw_step(rng, config, position, truth_shown, situation.stuck, fields, logging)
        if helpful and responses < config.responses:
            responses += 1
            step = with_response(rng, step, domain, setting)
        steps.append(step)
    return Stream(
        id=f"switches-{config.seed}-{index}", domain=domain, persona=persona, events=tuple(events), steps=tuple(steps)
    )


def _result(values: dict[str, bool], switched: str) -> str:
    """The result of a switch in words, from the state of every setting after it and which one was switched."""
    agree = len(set(values.values())) == 1
    if len(values) == 2:
        return "mends" if agree else "breaks"
    outcome = "mends" if agree else min(values, key=lambda setting: list(values.values()).count(values[setting]))
    return f"{switched} {outcome}"


def _rationale(situation: Situation, results: list[str]) -> dict[str, str]:
    """The fields of the slow pass; `results` lists the result of each switch so far."""
    persona, kind, stuck = situation
    return {
        "if_silent": ", ".join(results) or "nothing breaks",
        "if_offered": "is welcome" if kind == "switch" or (kind == "try" and stuck) else "disturbs",
        "evidence": f"{kind}, settings {'disagree' if stuck else 'agree'}",
        "risk": persona,
    }
