"""Every baseline, a line each."""

from __future__ import annotations

from prism_jax.experiments.field import asked, bench_agent, fine_tuned, probes, rates, slots, texts, tfidf
from prism_jax.experiments.field.interface import Baseline

BASELINES: dict[str, Baseline] = {
    baseline.name: baseline
    for baseline in (
        rates.CONSTANT,
        rates.DOMAIN,
        rates.PERSON,
        rates.OWN,
        texts.OFFERS,
        tfidf.TFIDF,
        probes.WORDS,
        probes.GIVEN_ACCEPT,
        probes.STATES,
        fine_tuned.FINE_TUNED,
        slots.ZERO_SHOT,
        slots.DECISIONS,
        slots.SYSTEM_ONE,
        slots.SERVED,
        asked.STATED,
        asked.VOTED,
        asked.TOLD,
        bench_agent.AGENT,
    )
}
"""By the name that --baselines takes, in the order of the table."""
