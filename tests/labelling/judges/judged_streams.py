"""Streams with labels that judges can be asked about, and verdicts without an endpoint."""

import dataclasses

from prism_jax.labelling.judges.judging import JudgesConfig
from prism_jax.labelling.judges.prompts import questions
from prism_jax.labelling.judges.simulated import SimulatedJudge
from prism_jax.labelling.judges.votes import Vote
from prism_jax.remote.endpoints import EndpointConfig
from prism_jax.streams.edit import map_candidates, map_steps, without_answers
from prism_jax.streams.simulator import SimulatorConfig, simulate

MOST_EVENTS = 40


def labelled(number, seed=0):
    """Simulated streams with all labels."""
    return [simulate(SimulatorConfig(seed=seed), index, "always") for index in range(number)]


def bare(streams):
    """The streams without labels, log and truth, as judges' users have them."""
    return [without_answers(stream) for stream in streams]


def body(text):
    return {"model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": text}]}


def vote_on(question, judge, verdict, **more):
    """A judge's verdict on a question."""
    about = {"stream": question.stream, "step": question.step, "candidate": question.candidate}
    return Vote(judge=judge, question=question.digest, verdict=verdict, **about, **more)


def panel_of(*names, **settings):
    """The config of a panel of judges whom nobody can ask."""
    endpoints = {name: EndpointConfig(name, "http://127.0.0.1:9/v1") for name in names}
    return JudgesConfig(name="panel", endpoints=endpoints, **settings)


def offering(stream, offers):
    """The stream of a system that makes its offers at the steps that `offers` accepts."""

    def deciding(step):
        made = offers(step)
        return map_candidates(step, lambda one: dataclasses.replace(one, logged=made, y_accept=None, propensity=None))

    return map_steps(stream, deciding)


def voted(stream):
    """The stream with one person's votes, which are the labels."""

    def voting(step):
        step = map_candidates(step, lambda one: dataclasses.replace(one, votes=(one.y_accept == 1,)))
        return dataclasses.replace(step, votes=(step.y_need == 0,))

    return map_steps(stream, voting)


def votes_of(streams, rates, seed=0):
    """Verdicts of simulated judges: `rates` maps a judge's name to its sensitivity and specificity."""
    for place, (name, (sensitivity, specificity)) in enumerate(rates.items()):
        judge = SimulatedJudge(streams, sensitivity=sensitivity, specificity=specificity, seed=seed + place)
        for stream in bare(streams):
            for question in questions(stream, MOST_EVENTS):
                yield vote_on(question, name, "true" in judge(body(question.text)))
