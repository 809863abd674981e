"""Baselines without a model of texts: the training part's rate, everywhere or by domain."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence

from prism_jax.experiments.field.interface import Baseline, Fold, Run, has_need, rows_of_streams
from prism_jax.scores import Scores
from prism_jax.streams import Stream

PRIOR = 6.0
"""Number of labels that the rate of all counts for in the rate of a domain."""
Labels = Iterable[tuple[str, float]]
"""Labels, each with its domain."""


def _score(fold: Fold, by_domain: bool) -> Scores:
    need = _predict(_needs(fold.train), _steps(fold.test), by_domain) if has_need(fold.train) else None
    accept = _predict(_accepts(fold.train), _offers(fold.test), by_domain)
    rows = rows_of_streams(fold.test, need, accept, split="test", fold=fold.number, calibrated=True)
    return Scores.from_rows(rows)


def _predict(labels: Labels, domains: Iterable[str], by_domain: bool) -> list[float]:
    """The rate of each row's domain, shrunk towards that of all; that of all where not `by_domain`."""
    sums: Mapping[str, list[float]] = collections.defaultdict(lambda: [0.0, 0.0])
    for domain, y in labels:
        sums[domain][0] += y
        sums[domain][1] += 1
    ones, count = map(sum, zip(*sums.values(), strict=True))
    rate = ones / count
    rates = {domain: (own + PRIOR * rate) / (of + PRIOR) for domain, (own, of) in sums.items()}
    return [rates.get(domain, rate) if by_domain else rate for domain in domains]


def _needs(streams: Sequence[Stream]) -> Labels:
    return ((stream.domain, step.y_need) for stream in streams for step in stream.steps if step.y_need is not None)


def _accepts(streams: Sequence[Stream]) -> Labels:
    offers = (
        (stream.domain, offer.y_accept) for stream in streams for step in stream.steps for offer in step.candidates
    )
    return ((domain, y) for domain, y in offers if y is not None)


def _steps(streams: Sequence[Stream]) -> list[str]:
    return [stream.domain for stream in streams for _ in stream.steps]


def _offers(streams: Sequence[Stream]) -> list[str]:
    return [stream.domain for stream in streams for step in stream.steps for _ in step.candidates]


def score_constant(fold: Fold, run: Run) -> Scores:
    """The training streams' rates of need and acceptance at every step of the test streams."""
    return _score(fold, by_domain=False)


def score_domain(fold: Fold, run: Run) -> Scores:
    """The rates of the training streams of the same domain, with `PRIOR` labels at the rate of all."""
    return _score(fold, by_domain=True)


CONSTANT = Baseline("constant", "base rate", score_constant)
DOMAIN = Baseline("domain", "base rate by domain", score_domain)
