"""Every baseline, a line each."""

from __future__ import annotations

from prism_jax.experiments.field import probes, rates, tfidf
from prism_jax.experiments.field.interface import Baseline

BASELINES: dict[str, Baseline] = {
    baseline.name: baseline
    for baseline in (
        rates.CONSTANT,
        rates.DOMAIN,
        rates.PERSON,
        rates.OWN,
        tfidf.TFIDF,
        probes.WORDS,
        probes.GIVEN_ACCEPT,
        probes.STATES,
    )
}
"""By the name that --baselines takes, in the order of the table."""
