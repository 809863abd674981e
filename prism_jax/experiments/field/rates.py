"""Baselines without a model of texts: rates of the training part, a person's own rate, and a log's own score."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import scipy
from jaxtyping import Float

from prism_jax.evaluation.answers.log_scores import scale_of_log
from prism_jax.experiments.field.interface import Baseline, Fold, LogFold, Run, has_need, rows_of_streams
from prism_jax.experiments.field.logs import scores_of
from prism_jax.people.lanes import lanes
from prism_jax.people.layer import fit_population, prequential
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


def score_constant(fold: Fold | LogFold, run: Run) -> Scores:
    """The training part's rates of need and acceptance at every step of the test part."""
    if isinstance(fold, Fold):
        return _score(fold, by_domain=False)
    rate = fold.log.answers.accepted[fold.train].mean()
    return _of_log(fold, np.full(len(fold.test), rate))


def _of_log(fold: LogFold, p: Float[np.ndarray, " test"], *, calibrated: bool = True) -> Scores:
    return scores_of(fold.log, fold.test, p, split="test", fold=fold.number, calibrated=calibrated)


def score_domain(fold: Fold, run: Run) -> Scores:
    """The rates of the training streams of the same domain, with `PRIOR` labels at the rate of all."""
    return _score(fold, by_domain=True)


def score_person(fold: LogFold, run: Run) -> Scores:
    """Each answer by its person's earlier ones, with the person layer that the training part's people fit."""
    answers, train = fold.log.answers, np.zeros(len(fold.log.answers), bool)
    train[fold.train] = True
    order = answers.order
    person, y, counted = answers.person[order].astype(np.int64), answers.accepted[order], train[order]
    log_odds = np.full(len(order), scipy.special.logit(y[counted].mean()))
    places = lanes(person)
    population = fit_population(log_odds, y, person, counted=counted, places=places, calibrated=True)
    p = np.empty(len(order))
    p[order] = scipy.special.expit(prequential(log_odds, y, person, population, places=places).log_odds)
    return _of_log(fold, p[fold.test])


def score_own(fold: LogFold, run: Run) -> Scores:
    """The log's own score, between 0 and 1 as it is ordered; an offer without one takes the mean."""
    score = fold.log.answers.score
    assert score is not None, "a log without a score is refused"
    known = score[~np.isnan(score)]
    scale = scale_of_log(fold.log.answers)
    p = scale.unit(np.where(np.isnan(score), known.mean(), score))
    return _of_log(fold, np.asarray(p, np.float64)[fold.test], calibrated=False)


CONSTANT = Baseline("constant", "base rate", score_constant, takes=("streams", "log"))
DOMAIN = Baseline("domain", "base rate by domain", score_domain)
PERSON = Baseline("person", "a person's own rate", score_person, takes=("log",), causal=True)
OWN = Baseline(
    "own",
    "the log's own score",
    score_own,
    takes=("log",),
    fitted=False,
    misfit=lambda source: "no score" if source.log.answers.score is None else "",
)
