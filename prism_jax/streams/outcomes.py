"""What the simulated populations share: how labels, log, teacher and responses are drawn from true probabilities.

Acceptance also depends on a variable that is recorded but hidden from the prompt (whether the user is on a call), and
so does the logging policy. Acceptances in the log are therefore biased, and inverse propensities remove the bias
(docs/maths.md, section 4).
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Mapping
from typing import Literal, NamedTuple

from prism_jax.streams import simulator_text as text
from prism_jax.streams.edit import map_candidates, map_steps
from prism_jax.streams.simulator_config import SimulatorConfig
from prism_jax.streams.types import Candidate, Step, Stream

Logging = Literal["policy", "always"]

ON_CALL_SHARE = 0.4
# Pr(the logging policy makes the offer | on a call, stuck).
PROPENSITY = {
    #       free  stuck
    False: (0.85, 0.95),
    True: (0.30, 0.40),
}


class Truth(NamedTuple):
    """True probabilities in a situation, given the hidden variable or averaged over it."""

    p_need: float
    p_accept: float
    p_both: float


def true_probabilities(p_need: float, p_accept: float, config: SimulatorConfig, on_call: bool | None = None) -> Truth:
    """The truth for given Pr(need | what the prompt shows) and Pr(accept | what the prompt shows).

    The latter is averaged over the hidden variable. The result is that at the value `on_call`, or averaged for None.
    """
    if on_call is None:
        calls = [true_probabilities(p_need, p_accept, config, call) for call in (False, True)]
        p_both = (1 - ON_CALL_SHARE) * calls[0].p_both + ON_CALL_SHARE * calls[1].p_both
        return Truth(p_need, p_accept, p_both)
    p_accept = _accept_given_call(p_accept, config, on_call)
    independent = p_need * p_accept
    extreme = min(p_need, p_accept) if config.dependence >= 0 else max(0.0, p_need + p_accept - 1)
    return Truth(p_need, p_accept, independent + abs(config.dependence) * (extreme - independent))


def _accept_given_call(mean: float, config: SimulatorConfig, on_call: bool) -> float:
    """Pr(accept) on or off a call; their average is `mean`, and at `hidden_effect` 1 one of them reaches 0 or 1."""
    reach = config.hidden_effect * min(mean / (1 - ON_CALL_SHARE), (1 - mean) / ON_CALL_SHARE)
    return max(0.0, mean - reach * (1 - ON_CALL_SHARE)) if on_call else min(1.0, mean + reach * ON_CALL_SHARE)


def draw_step(
    rng: random.Random,
    config: SimulatorConfig,
    position: int,
    truth: Truth,
    stuck: bool,
    rationale: Mapping[str, str],
    logging: Logging,
) -> tuple[Step, bool]:
    """Draws one step (hidden variable, labels, log); also says whether an offer was made, needed and accepted.

    `truth` is that given what the prompt shows. The logging policy's propensity depends on whether the user is stuck;
    logging `always` offers at every step.
    """
    on_call = rng.random() < ON_CALL_SHARE
    hidden = true_probabilities(truth.p_need, truth.p_accept, config, on_call)
    u = rng.random()
    need = u < hidden.p_need
    accept = u < hidden.p_both or hidden.p_need <= u < hidden.p_need + hidden.p_accept - hidden.p_both
    propensity = 1.0 if logging == "always" else PROPENSITY[on_call][stuck]
    logged = rng.random() < propensity
    candidate = Candidate(
        y_accept=float(accept) if logged else None,
        logged=logged,
        propensity=propensity,
        p_accept_true=truth.p_accept,
        p_both_true=truth.p_both,
    )
    step = Step(
        event=position,
        candidates=(candidate,),
        y_need=float(need),
        p_need_true=truth.p_need,
        rationale=rationale,
        recorded={"on_call": float(on_call)},
    )
    return step, logged and need and accept


def with_teacher(stream: Stream, config: SimulatorConfig, index: int) -> Stream:
    """The stream with a teacher's probabilities at every step and candidate.

    They are the true ones given what the prompt shows, with noise and bias added in log-odds. The teacher has a random
    generator of its own, so the rest of the stream does not depend on it.
    """
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


def with_response(rng: random.Random, step: Step, domain: str, item: str) -> Step:
    """The step with a visible response about `item`, in ProactiveBench's keys."""
    response = json.dumps(
        {
            "Purpose": text.PURPOSES[domain],
            "Thoughts": f"Stuck on {item}.",
            "Proactive Task": pick(rng, text.OFFERS[domain]).format(item=item),
            "Response": "Shall I?",
        }
    )
    return map_candidates(step, lambda candidate: dataclasses.replace(candidate, response=response))


def pick(rng: random.Random, options: tuple[str, ...]) -> str:
    """One of the options, each equally likely."""
    return options[int(rng.random() * len(options))]


def draw_kind(rng: random.Random, shares: Mapping[str, float]) -> str:
    """One of the keys, with the probabilities that are their values."""
    u = rng.random()
    for kind, share in shares.items():
        u -= share
        if u < 0:
            return kind
    return list(shares)[-1]
