"""Large samples of the simulator, as arrays, and the comparison of outcomes with their probabilities."""

import dataclasses
import functools
import re

import jaxtyping
import numpy as np
from scipy import stats

from prism_jax.streams.simulator import SimulatorConfig, simulate

CONFIG = SimulatorConfig()


@functools.cache
def draw(count, logging="policy", config=CONFIG, first=0):
    """Simulates streams; large samples without run-time type checks, which take most of the time."""
    jaxtyping.config.update("jaxtyping_disable", count > 300)
    try:
        return [simulate(config, index, logging) for index in range(first, first + count)]
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


@functools.cache
def patterns(module, domain):
    """A regular expression for each phrase of a domain, with the kind of event that it describes."""
    return [
        (re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(phrase))), kind)
        for kind, phrases in module.PHRASES[domain].items()
        for phrase in phrases
    ]


@dataclasses.dataclass
class Table:
    """Every step of some streams, as arrays."""

    need: np.ndarray
    accept: np.ndarray
    logged: np.ndarray
    propensity: np.ndarray
    on_call: np.ndarray
    p_need: np.ndarray
    p_accept: np.ndarray
    p_both: np.ndarray


def table(streams):
    def row(step, offer):
        labels = step.y_need, np.nan if offer.y_accept is None else offer.y_accept, offer.logged, offer.propensity
        return *labels, step.recorded["on_call"], step.p_need_true, offer.p_accept_true, offer.p_both_true

    rows = [row(step, offer) for stream in streams for step in stream.steps for offer in step.candidates]
    return Table(*(np.array(column, float) for column in zip(*rows, strict=True)))


def chance(outcomes, probability, bins=20):
    """P-value of the hypothesis that each outcome had its probability: a chi-square test on bins of similar ones."""
    variance = probability * (1 - probability)
    certain = variance == 0
    assert (outcomes[certain] == probability[certain]).all()
    order = np.argsort(probability, kind="stable")
    which = np.minimum(np.cumsum(variance[order]) / variance.sum() * bins, bins - 1).astype(int)
    excess, spread = (np.bincount(which, weights=x[order]) for x in (outcomes - probability, variance))
    assert spread.min() > 20, "too few for the normal approximation"
    return stats.chi2.sf((excess**2 / spread).sum(), bins)
