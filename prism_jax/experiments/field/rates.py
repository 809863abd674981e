"""Baselines without a model of texts: rates of the training part, a person's own rate, and a log's own score."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping

import numpy as np
import scipy
from jaxtyping import Float

from prism_jax.evaluation.answers.log_scores import scale_of_log
from prism_jax.experiments.field.interface import Baseline, Fold, LogFold, Run, has_need, rows_of_streams
from prism_jax.experiments.field.logs import scores_of
from prism_jax.people.lanes import lanes
from prism_jax.people.layer import fit_population, prequential
from prism_jax.scores import Scores

PRIOR = 6.0
"""Number of labels that the rate of all counts for in the rate of a domain."""
Labels = Iterable[tuple[str, float | None]]
"""Labels, each with its domain; None where unknown."""


def _score(fold: Fold, by_domain: bool) -> Scores:
    train, test = (
        [(stream.domain, step) for stream in streams for step in stream.steps] for streams in (fold.train, fold.test)
    )
    need = None
    if has_need(fold.train):
        needs = ((domain, step.y_need) for domain, step in train)
        need = _predict(needs, [domain for domain, _ in test], by_domain)
    accepts = ((domain, offer.y_accept) for domain, step in train for offer in step.candidates)
    accept = _predict(accepts, [domain for domain, step in test for _ in step.candidates], by_domain)
    rows = rows_of_streams(fold.test, need, accept, split="test", fold=fold.number, calibrated=True)
    return Scores.from_rows(rows)


def _predict(labels: Labels, domains: Iterable[str], by_domain: bool) -> list[float]:
    """The rate of each row's domain, shrunk towards that of all; that of all where not `by_domain`."""
    sums: Mapping[str, list[float]] = collections.defaultdict(lambda: [0.0, 0.0])
    for domain, y in labels:
        if y is not None:
            sums[domain][0] += y
            sums[domain][1] += 1
    ones, count = map(sum, zip(*sums.values(), strict=True))
    rate = ones / count
    rates = {domain: (own + PRIOR * rate) / (of + PRIOR) for domain, (own, of) in sums.items()}
    return [rates.get(domain, rate) if by_domain else rate for domain in domains]


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
