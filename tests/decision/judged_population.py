"""A simulated population whose judges err, and how often intervals from samples of it cover its numbers."""

import numpy as np

from prism_jax.decision import gate, judge_noise, metrics
from prism_jax.streams.simulator import SimulatorConfig, simulate

DRAWN, WITH_HUMANS = 300, 80
NAMES = ("recall", "f1", "cost")


def simulated_population(streams):
    """Decisions of the gate, whether an offer is right, where streams start and end, and the numbers to be covered."""
    rows = [
        (index, step.p_need_true, step.candidates[0].p_accept_true, step.y_need * step.candidates[0].y_accept)
        for index in range(streams)
        for step in simulate(SimulatorConfig(), index, "always").steps
    ]
    stream, p_need, p_accept, gold = map(np.array, zip(*rows, strict=True))
    decision = np.asarray(gate.decide(p_need, p_accept, 1.0, 2.0))
    rates = metrics.rates(metrics.confusion(decision, gold))
    cost = metrics.realised_cost(decision, np.ones(len(gold)), gold, 1.0, 2.0)
    ends = np.searchsorted(stream, np.arange(streams + 1))
    return decision, gold, ends, {name: cost if name == "cost" else getattr(rates, name) for name in NAMES}


def majority(rng, gold, decision, *, lenient):
    """The majority of three judges who err independently; lenient ones accept more where an offer was made."""
    sensitivity = np.array([[0.85], [0.8], [0.75]]) + lenient * np.where(decision, 0.1, -0.1)
    specificity = np.array([[0.8], [0.85], [0.9]]) + lenient * np.where(decision, -0.2, 0.05)
    accept = rng.random((3, len(gold))) < np.where(gold == 1, sensitivity, 1 - specificity)
    return accept.sum(0) >= 2


def coverage(population, method, *, replicates, lenient=False):
    """Share of replicates whose intervals cover the population's numbers; humans label 80 of the 300 drawn streams."""
    decision, gold, ends, truth = population
    rng, hits = np.random.default_rng(0), np.zeros(len(NAMES))
    for replicate in range(replicates):
        drawn = rng.integers(0, len(ends) - 1, DRAWN)
        rows = np.concatenate([np.arange(ends[index], ends[index + 1]) for index in drawn])
        stream = np.repeat(np.arange(DRAWN), ends[drawn + 1] - ends[drawn])
        judge = majority(rng, gold[rows], decision[rows], lenient=lenient)
        human = np.where(stream < WITH_HUMANS, gold[rows], np.nan)
        found = judge_noise.corrected_rates(
            decision[rows], judge, human, streams=stream, method=method, names=NAMES, resamples=400, seed=replicate
        )
        hits += [found[name].low <= truth[name] <= found[name].high for name in NAMES]
    return hits / replicates
