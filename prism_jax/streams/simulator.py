"""The simulator: event streams whose true need, acceptance and Bayes decisions are known functions of what is seen.

A user (one of three personas, in one of three domains) works on a few items. Trouble with an item opens a problem and a
solution closes it. The user is *stuck* while any problem is open, and *quiet* from muting until unmuting. The true
probabilities depend on the newest event and on both states; the tables `NEED` and `ACCEPT` define them completely. To
predict them, a model has to use the order of events (a solution cancels an earlier trouble, but only with the same
item) and their interaction: counting words does not suffice.

Labels and log are drawn as `prism_jax.streams.outcomes` describes. Every number is a table entry or a product of table
entries, and randomness comes from Python's own generator seeded by (seed, index). Stream i is therefore the same on
every machine, regardless of which other streams are drawn.

`simulate` draws from this population or from that of `prism_jax.streams.switches`, as the config names it.

The true probabilities of acceptance are those of an offer that says nothing in particular ("an offer"), or the right
thing: an offer in words is acceptable only if it names what the step is about (`subject`, `names`). This holds for both
populations.
"""

from __future__ import annotations

import random
import re
from typing import NamedTuple

from prism_jax.streams import simulator_text as text
from prism_jax.streams import switches
from prism_jax.streams.outcomes import (
    Logging,
    Truth,
    draw_kind,
    draw_step,
    pick,
    true_probabilities,
    with_response,
    with_teacher,
)
from prism_jax.streams.simulator_config import SimulatorConfig
from prism_jax.streams.types import Event, Stream

KINDS = ("trouble", "solved", "work", "search", "pause", "undo", "mute", "unmute")

# Pr(need | newest event's kind, stuck).
NEED = {
    #          free  stuck
    "trouble": (None, 0.85),
    "solved": (0.03, 0.85),
    "work": (0.04, 0.75),
    "search": (0.70, 0.25),
    "pause": (0.06, 0.97),
    "undo": (0.90, 0.15),
    "mute": (0.03, 0.75),
    "unmute": (0.10, 0.92),
}

# Pr(accept | persona, quiet, stuck), averaged over the hidden variable.
ACCEPT = {
    #             free  stuck
    ("newcomer", False): (0.40, 0.97),
    ("newcomer", True): (0.06, 0.88),
    ("regular", False): (0.30, 0.94),
    ("regular", True): (0.04, 0.35),
    ("expert", False): (0.92, 0.30),
    ("expert", True): (0.35, 0.03),
}

# Pr(kind of the next event), while the user is free and while stuck.
NEXT_FREE = {
    "trouble": 0.24,
    "solved": 0.10,
    "work": 0.22,
    "search": 0.10,
    "pause": 0.10,
    "undo": 0.06,
    "mute": 0.09,
    "unmute": 0.09,
}
NEXT_STUCK = {
    "trouble": 0.12,
    "solved": 0.24,
    "work": 0.12,
    "search": 0.12,
    "pause": 0.14,
    "undo": 0.08,
    "mute": 0.09,
    "unmute": 0.09,
}

# While stuck, the share of events that are about an item with an open problem; the others are about any item.
STAYS = {
    "trouble": 0.6,
    "solved": 0.95,
    "work": 0.8,
    "search": 0.8,
    "pause": 0.8,
    "undo": 0.8,
    "mute": 0.0,
    "unmute": 0.0,
}


_TOLD = {
    phrase.format(item=item): (kind, item)
    for domain, items in text.ITEMS.items()
    for item in items
    for kind, phrases in text.PHRASES[domain].items()
    for phrase in phrases
    if "{item}" in phrase
} | {
    phrase.format(setting=setting): ("switch", setting)
    for domain, settings in switches.SETTINGS.items()
    for setting in settings
    for phrase in switches.PHRASES[domain]["switch"]
}
"""The kind and the item of every event that names an item, or a setting."""
_WORKS = frozenset(text.WORKS.values())
_TOPICS = sorted({item for _, item in _TOLD.values()} | _WORKS, key=len, reverse=True)
_NAMED = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, _TOPICS))})(?!\w)")
"""All that offers can be about; a longer name comes before one that it begins with."""


class Situation(NamedTuple):
    """The features of a history that determine the true probabilities."""

    persona: str
    kind: str
    stuck: bool
    quiet: bool


def truth(situation: Situation, config: SimulatorConfig, on_call: bool | None = None) -> Truth:
    """True probabilities in `situation`; with `on_call` None, given only what the prompt shows."""
    p_need = NEED[situation.kind][situation.stuck]
    assert p_need is not None, "trouble always leaves the user stuck"
    p_accept = ACCEPT[situation.persona, situation.quiet][situation.stuck]
    return true_probabilities(p_need, p_accept, config, on_call)


def simulate(config: SimulatorConfig, index: int, logging: Logging = "policy") -> Stream:
    """Simulates stream number `index` of the population that `config` describes.

    It has a step at every event after the arrival, each with labels, log, rationale and true probabilities, some with a
    response. With the logging `policy`, offers are made with the policy's propensities, and acceptance is observed only
    where one was made; `always` makes an offer at every step (propensity 1), for evaluation.
    """
    draw = switches.draw_stream if config.population == "switches" else _draw_stream
    stream = draw(config, index, logging)
    return with_teacher(stream, config, index) if config.teacher else stream


def _draw_stream(config: SimulatorConfig, index: int, logging: Logging) -> Stream:
    """A stream of the population `items`, without a teacher."""
    rng = random.Random(f"prism_jax {config.seed} {index}")
    domain, persona = pick(rng, tuple(text.PHRASES)), pick(rng, tuple(text.ARRIVALS))
    length = config.min_events + int(rng.random() * (config.max_events - config.min_events + 1))
    items = tuple(sorted(text.ITEMS[domain], key=lambda _: rng.random())[:3])
    events, steps = [Event(time=0.0, text=pick(rng, text.ARRIVALS[persona]))], []
    open_items: list[str] = []
    quiet, responses = False, 0
    for position in range(1, length):
        kind = draw_kind(rng, NEXT_STUCK if open_items else NEXT_FREE)
        # Usually one with an open problem if there is any; trouble may open another before it is solved.
        item = pick(rng, tuple(open_items) if open_items and rng.random() < STAYS[kind] else items)
        if kind == "trouble" and item not in open_items:
            open_items.append(item)
        elif kind == "solved" and item in open_items:
            open_items.remove(item)
        quiet = kind == "mute" or (quiet and kind != "unmute")
        gap = 5 + int(rng.random() * 55)
        phrase = pick(rng, text.PHRASES[domain][kind]).format(item=item)
        events.append(Event(time=events[-1].time + gap, text=phrase))
        situation = Situation(persona, kind, bool(open_items), quiet)
        topic = open_items[-1] if open_items else item
        truth_shown, fields = truth(situation, config), _rationale(situation, topic)
        step, helpful = draw_step(rng, config, position, truth_shown, situation.stuck, fields, logging)
        if helpful and responses < config.responses:
            responses += 1
            step = with_response(rng, step, domain, topic)
        steps.append(step)
    return Stream(
        id=f"sim-{config.seed}-{index}", domain=domain, persona=persona, events=tuple(events), steps=tuple(steps)
    )


def _rationale(situation: Situation, item: str) -> dict[str, str]:
    """The fields of the slow pass: the state of the history, which a small model may not infer in one pass."""
    stuck, quiet = situation.stuck, situation.quiet
    return {
        "if_silent": f"stays stuck on {item}" if stuck else "goes on alone",
        "if_offered": "may feel disturbed" if quiet else "can listen",
        "evidence": f"{item} is unsolved" if stuck else "nothing is unsolved",
        "risk": f"{situation.persona}, notifications {'off' if quiet else 'on'}",
    }


def subject(stream: Stream, event: int) -> str:
    """What an offer after an event has to be about: the newest item with an open problem, else the item named last.

    It follows from what the events say, so a student can know it. A setting that is switched is named; where nothing is
    yet, an offer has to be about what the user works on at all. For simulated streams only.
    """
    open_items, named = list[str](), text.WORKS[stream.domain]
    for shown in stream.events[: event + 1]:
        kind, named = _TOLD.get(shown.text, ("", named))
        if kind == "trouble" and named not in open_items:
            open_items.append(named)
        elif kind == "solved" and named in open_items:
            open_items.remove(named)
    return open_items[-1] if open_items else named


def names(offer: str, topic: str) -> bool:
    """Whether an offer in words names a `subject`, in any case of letters, and no other item or setting.

    A user accepts an offer that does with the probability of acceptance of the step, and always rejects the others.
    """
    named = set(_NAMED.findall(offer.lower()))
    return topic in named and named <= {topic, *_WORKS}
