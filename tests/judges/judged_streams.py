"""Streams with labels that judges can be asked about, and verdicts without an endpoint."""

import dataclasses

from prism_jax.judges.prompts import questions
from prism_jax.judges.simulated import SimulatedJudge
from prism_jax.judges.votes import Vote
from prism_jax.streams import Candidate
from prism_jax.streams.edit import map_candidates, map_steps
from prism_jax.streams.simulator import SimulatorConfig, simulate

MOST_EVENTS = 40


def labelled(number, seed=0):
    """Simulated streams with all labels."""
    return [simulate(SimulatorConfig(seed=seed), index, "always") for index in range(number)]


def bare(streams):
    """The streams without labels, log and truth, as judges' users have them."""

    def without(step):
        step = map_candidates(step, lambda candidate: Candidate(text=candidate.text))
        return dataclasses.replace(step, y_need=None, p_need_true=None, votes=(), recorded={})

    return [map_steps(stream, without) for stream in streams]


def body(text):
    return {"model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": text}]}


def votes_of(streams, rates, seed=0):
    """Verdicts of simulated judges: `rates` maps a judge's name to its sensitivity and specificity."""
    for place, (name, (sensitivity, specificity)) in enumerate(rates.items()):
        judge = SimulatedJudge(streams, sensitivity=sensitivity, specificity=specificity, seed=seed + place)
        for stream in bare(streams):
            for question in questions(stream, MOST_EVENTS):
                yield Vote(
                    stream=question.stream,
                    step=question.step,
                    candidate=question.candidate,
                    judge=name,
                    question=question.digest,
                    verdict="true" in judge(body(question.text)),
                )
