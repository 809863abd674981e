"""The simulator: event streams whose true need, acceptance and Bayes decisions are known functions of what is seen.

A user (one of three personas, in one of three domains) works on a few items. Trouble with an item opens a problem and a
solution closes it. The user is *stuck* while any problem is open, and *quiet* from muting until unmuting. The true
probabilities depend on the newest event and on both states; the tables `NEED` and `ACCEPT` define them completely. To
predict them, a model has to use the order of events (a solution cancels an earlier trouble, but only with the same
item) and their interaction: counting words does not suffice.

Acceptance also depends on a variable that is recorded but hidden from the prompt (whether the user is on a call), and
so does the logging policy. Acceptances in the log are therefore biased, and inverse propensities remove the bias
(docs/maths.md, section 4).

Every number is a table entry or a product of table entries, and randomness comes from Python's own generator seeded by
(seed, index). Stream i is therefore the same on every machine, regardless of which other streams are drawn.

Optionally a simulated teacher judges every step: its probabilities are the true ones given what the prompt shows, with
noise and bias added in log-odds. It has a random generator of its own, so the rest of the stream does not depend on it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
from typing import Literal, NamedTuple

from prism_jax.streams import simulator_text as text
from prism_jax.streams.edit import map_candidates, map_steps
from prism_jax.streams.types import Candidate, Event, Step, Stream

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

ON_CALL_SHARE = 0.4
# Pr(the logging policy makes the offer | on a call, stuck).
PROPENSITY = {
    #       free  stuck
    False: (0.85, 0.95),
    True: (0.30, 0.40),
}


@dataclasses.dataclass(frozen=True)
class SimulatorConfig:
    """Settings of the simulator.

    Attributes:
      seed: Seed of the population of streams.
      min_events: Minimum number of events per stream, including the arrival.
      max_events: Maximum number of events per stream.
      responses: Maximum number of steps per stream with a response; the first offers that were needed and accepted
        get one.
      dependence: Dependence of need and acceptance, in [-1, 1]. At 0 they are independent given what is seen, and the
        paper's Eq. 1 is exactly optimal; at 1 the less likely one implies the other; at -1 they coincide as rarely as
        their probabilities allow.
      hidden_effect: Strength of the hidden variable's effect on acceptance, in [0, 1]; 0 switches it off.
      teacher: Whether every step has a teacher's probabilities of need and acceptance.
      teacher_blur: Standard deviation of the teacher's error in log-odds, drawn independently for each probability.
      teacher_bias: Bias of the teacher, added to all of its log-odds; above 0 it overestimates need and acceptance.
    """

    seed: int = 0
    min_events: int = 6
    max_events: int = 8
    responses: int = 1
    dependence: float = 0.0
    hidden_effect: float = 0.9
    teacher: bool = False
    teacher_blur: float = 0.5
    teacher_bias: float = 0.0

    def __post_init__(self) -> None:
        if self.min_events < 2:
            raise ValueError(f"min_events: found {self.min_events}, expected at least 2 (the arrival and one more)")
        if self.max_events < self.min_events:
            raise ValueError(f"max_events: found {self.max_events}, expected at least min_events = {self.min_events}")
        if self.responses < 0:
            raise ValueError(f"responses: found {self.responses}, expected at least 0")
        if not -1 <= self.dependence <= 1:
            raise ValueError(f"dependence: found {self.dependence}, expected a number in [-1, 1]")
        if not 0 <= self.hidden_effect <= 1:
            raise ValueError(f"hidden_effect: found {self.hidden_effect}, expected a number in [0, 1]")
        if not 0 <= self.teacher_blur < math.inf:
            raise ValueError(f"teacher_blur: found {self.teacher_blur}, expected at least 0, in log-odds")
        if not math.isfinite(self.teacher_bias):
            raise ValueError(f"teacher_bias: found {self.teacher_bias}, expected a finite number of log-odds")


class Situation(NamedTuple):
    """The features of a history that determine the true probabilities."""

    persona: str
    kind: str
    stuck: bool
    quiet: bool


class Truth(NamedTuple):
    """True probabilities in a situation, given the hidden variable or averaged over it."""

    p_need: float
    p_accept: float
    p_both: float


def truth(situation: Situation, config: SimulatorConfig, on_call: bool | None = None) -> Truth:
    """True probabilities in `situation`; with `on_call` None, given only what the prompt shows."""
    p_need = NEED[situation.kind][situation.stuck]
    assert p_need is not None, "trouble always leaves the user stuck"
    if on_call is None:
        calls = [truth(situation, config, False), truth(situation, config, True)]
        p_both = (1 - ON_CALL_SHARE) * calls[0].p_both + ON_CALL_SHARE * calls[1].p_both
        return Truth(p_need, ACCEPT[situation.persona, situation.quiet][situation.stuck], p_both)
    p_accept = _accept_given_call(ACCEPT[situation.persona, situation.quiet][situation.stuck], config, on_call)
    independent = p_need * p_accept
    extreme = min(p_need, p_accept) if config.dependence >= 0 else max(0.0, p_need + p_accept - 1)
    return Truth(p_need, p_accept, independent + abs(config.dependence) * (extreme - independent))


def _accept_given_call(mean: float, config: SimulatorConfig, on_call: bool) -> float:
    """Pr(accept) on or off a call; their average is `mean`, and at `hidden_effect` 1 one of them reaches 0 or 1."""
    reach = config.hidden_effect * min(mean / (1 - ON_CALL_SHARE), (1 - mean) / ON_CALL_SHARE)
    return max(0.0, mean - reach * (1 - ON_CALL_SHARE)) if on_call else min(1.0, mean + reach * ON_CALL_SHARE)


def simulate(config: SimulatorConfig, index: int, logging: Literal["policy", "always"] = "policy") -> Stream:
    """Simulates stream number `index` of the population that `config` describes.

    Args:
      config: Settings of the simulator.
      index: Number of the stream; streams are independent of each other and of how many are drawn.
      logging: `policy` makes offers with the logging policy's propensities, and acceptance is observed only where an
        offer was made; `always` makes an offer at every step (propensity 1), for evaluation.

    Returns:
      A stream with a step at every event after the arrival, each with labels, log, rationale and true probabilities,
      some with a response.
    """
    rng = random.Random(f"prism_jax {config.seed} {index}")
    domain, persona = _pick(rng, tuple(text.PHRASES)), _pick(rng, tuple(text.ARRIVALS))
    length = config.min_events + int(rng.random() * (config.max_events - config.min_events + 1))
    items = tuple(sorted(text.ITEMS[domain], key=lambda _: rng.random())[:3])
    events, steps = [Event(time=0.0, text=_pick(rng, text.ARRIVALS[persona]))], []
    open_items: list[str] = []
    quiet, responses = False, 0
    for position in range(1, length):
        kind = _draw(rng, NEXT_STUCK if open_items else NEXT_FREE)
        item = _choose_item(rng, kind, items, open_items)
        if kind == "trouble" and item not in open_items:
            open_items.append(item)
        elif kind == "solved" and item in open_items:
            open_items.remove(item)
        quiet = kind == "mute" or (quiet and kind != "unmute")
        gap = 5 + int(rng.random() * 55)
        phrase = _pick(rng, text.PHRASES[domain][kind]).format(item=item)
        events.append(Event(time=events[-1].time + gap, text=phrase))
        situation = Situation(persona, kind, bool(open_items), quiet)
        about = open_items[-1] if open_items else item
        step, helpful = _step(rng, config, position, situation, about, logging)
        if helpful and responses < config.responses:
            responses += 1
            step = _with_response(step, _response(rng, domain, about))
        steps.append(step)
    stream = Stream(
        id=f"sim-{config.seed}-{index}", domain=domain, persona=persona, events=tuple(events), steps=tuple(steps)
    )
    return _with_teacher(stream, config, index) if config.teacher else stream


def _choose_item(rng: random.Random, kind: str, items: tuple[str, ...], open_items: list[str]) -> str:
    """Usually an item with an open problem if there is one; trouble may open another problem before it is solved."""
    if open_items and rng.random() < STAYS[kind]:
        return _pick(rng, tuple(open_items))
    return _pick(rng, items)


def _step(
    rng: random.Random,
    config: SimulatorConfig,
    position: int,
    situation: Situation,
    item: str,
    logging: str,
) -> tuple[Step, bool]:
    """Draws one step (hidden variable, labels, log); also says whether an offer was made, needed and accepted."""
    seen = truth(situation, config)
    on_call = rng.random() < ON_CALL_SHARE
    hidden = truth(situation, config, on_call)
    u = rng.random()
    need = u < hidden.p_need
    accept = u < hidden.p_both or hidden.p_need <= u < hidden.p_need + hidden.p_accept - hidden.p_both
    propensity = 1.0 if logging == "always" else PROPENSITY[on_call][situation.stuck]
    logged = rng.random() < propensity
    candidate = Candidate(
        y_accept=float(accept) if logged else None,
        logged=logged,
        propensity=propensity,
        p_accept_true=seen.p_accept,
        p_both_true=seen.p_both,
    )
    step = Step(
        event=position,
        candidates=(candidate,),
        y_need=float(need),
        p_need_true=seen.p_need,
        rationale=_rationale(situation, item),
        recorded={"on_call": float(on_call)},
    )
    return step, logged and need and accept


def _with_teacher(stream: Stream, config: SimulatorConfig, index: int) -> Stream:
    """The stream with a teacher's probabilities at every step and candidate."""
    rng = random.Random(f"prism_jax teacher {config.seed} {index}")

    def blurred(p: float | None) -> float:
        assert p is not None and 0 < p < 1, "simulated probabilities are known and neither 0 nor 1"
        log_odds = math.log(p / (1 - p)) + config.teacher_bias + config.teacher_blur * rng.gauss(0.0, 1.0)
        # Rounded because the last digits of logarithms differ between machines.
        return round(0.5 * (1 + math.tanh(0.5 * log_odds)), 6)

    def judge_step(step: Step) -> Step:
        judged = dataclasses.replace(step, teacher_need=blurred(step.p_need_true))
        return map_candidates(judged, judge_candidate)

    def judge_candidate(candidate: Candidate) -> Candidate:
        return dataclasses.replace(candidate, teacher_accept=blurred(candidate.p_accept_true))

    return map_steps(stream, judge_step)


def _with_response(step: Step, response: str) -> Step:
    return map_candidates(step, lambda candidate: dataclasses.replace(candidate, response=response))


def _response(rng: random.Random, domain: str, item: str) -> str:
    """The visible response, in ProactiveBench's keys."""
    task = _pick(rng, text.OFFERS[domain]).format(item=item)
    return json.dumps(
        {
            "Purpose": text.PURPOSES[domain],
            "Thoughts": f"Stuck on {item}.",
            "Proactive Task": task,
            "Response": "Shall I?",
        }
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


def _pick(rng: random.Random, options: tuple[str, ...]) -> str:
    return options[int(rng.random() * len(options))]


def _draw(rng: random.Random, shares: dict[str, float]) -> str:
    u = rng.random()
    for kind, share in shares.items():
        u -= share
        if u < 0:
            return kind
    return next(reversed(shares))
