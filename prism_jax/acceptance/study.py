"""Predicts every answer of a log from other people, and from the person's own earlier answers.

Folds hold whole people: ten of them, or one per person where there are fewer. Every setting is fitted or chosen on the
people outside the fold. Inside it a prediction knows the person's answers that had come before the offer.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy
from jaxtyping import Bool, Float64, Int

from prism_jax.acceptance.columns import LogError
from prism_jax.acceptance.context import fit_head, folds_of_people
from prism_jax.acceptance.logs import AcceptanceLog, ContextColumn
from prism_jax.acceptance.score_maps import PLATT, SCORE, fit_score_maps
from prism_jax.decision.losses import propensity_weight
from prism_jax.people.lanes import Lanes, lanes
from prism_jax.people.layer import Population, fit_population, prequential

FOLDS = 10
MEANINGS = {
    "constant": "The acceptance rate of the other people.",
    "score": "The log's own score, as it is; the constant where it is missing.",
    "score, temperature": "The score with one temperature, fitted on the other people.",
    "score, Platt": "The score with scale and bias on its log-odds, fitted on the other people.",
    "score+person": "The person layer on the score.",
    "context": "A logistic regression on the context columns, and the score if there is one.",
    "person": "The person layer alone.",
    "context+person": "The person layer on the context head.",
    "truth": "The true probability, which knows every person's own rate.",
}
"""What each prediction is; `truth` is known of simulated logs only."""


@dataclasses.dataclass(frozen=True)
class Study:
    """Predictions by row of the results. Arrays are those of answered offers, by person and time."""

    predictions: dict[str, Float64[np.ndarray, " rows"]]  # probabilities; a score that is none stays as it is
    accepted: Float64[np.ndarray, " rows"]
    person: Int[np.ndarray, " rows"]
    row: Int[np.ndarray, " rows"]  # row of the log
    weight: Float64[np.ndarray, " rows"]  # in fits and measures; 1 on all rows unless the study is weighted
    seen: Int[np.ndarray, " rows"]  # number of the person's answers that had come before the offer
    folds: int
    populations: tuple[Population, ...]  # of each fold's person layer: on the context head, else on the score, or alone


def study(log: AcceptanceLog, seed: int = 0, *, weighted: bool = False) -> Study:
    """Runs the protocol on a log of at least two people with answers of both kinds.

    A weighted study weighs answers by their clipped inverse propensities (docs/maths.md, sections 4 and 13). The seed
    is that of the folds.

    Raises:
      LogError: if weights are asked for and the log has no propensities.
      ValueError: if the people outside some fold have answers of one kind only.
    """
    rows = log.order[log.logged[log.order]]
    y, person = log.accepted[rows], log.person[rows]
    context = tuple(dataclasses.replace(column, values=column.values[rows]) for column in log.context)
    score = None if log.score is None else log.score[rows]
    fold = folds_of_people(person, FOLDS, seed)
    weight = np.ones(len(rows))
    if weighted:
        if log.propensity is None:
            raise no_propensity()
        weight = np.asarray(propensity_weight(weight, log.propensity[rows]), np.float64)
    places = lanes(person, log.time[rows], None if log.answered is None else log.answered[rows])
    predictions: dict[str, Float64[np.ndarray, " rows"]] = {}
    populations = []
    for number in range(int(fold.max()) + 1):
        held = fold == number
        if len(np.unique(y[~held])) < 2:
            raise ValueError("log: found people whose removal leaves answers of one kind, expected both among the rest")
        if score is not None and np.isnan(score[~held]).all():
            raise no_score()
        fit = _Fold(y, person, ~held, places, weight).predictions(context, score, log.score_is_probability)
        populations.append(fit.population)
        for name, p in fit.predictions.items():
            predictions.setdefault(name, np.empty(len(y)))[held] = p[held]
    predictions = {name: predictions[name] for name in MEANINGS if name in predictions}
    return Study(predictions, y, person, rows, weight, places.known, int(fold.max()) + 1, tuple(populations))


def no_propensity() -> LogError:
    """The error of a weighted study of a log without propensities."""
    return LogError("columns: found no propensity, expected propensity=COLUMN: weights are its inverse")


def no_score() -> LogError:
    """The error of a log whose scores are those of few people or of nobody."""
    return LogError("score: found values on no offer, or of too few people, expected some outside each fold")


@dataclasses.dataclass
class _FoldPredictions:
    predictions: dict[str, Float64[np.ndarray, " rows"]]
    population: Population


class _Fold:
    """The people outside a fold, and predictions of every row from them."""

    def __init__(
        self,
        y: Float64[np.ndarray, " rows"],
        person: Int[np.ndarray, " rows"],
        train: Bool[np.ndarray, " rows"],
        places: Lanes,
        weight: Float64[np.ndarray, " rows"],
    ) -> None:
        self.y, self.person, self.train, self.places = y, person, train, places
        self.weight = weight / weight[train].mean()  # so that the ridge of the head means the same
        self.base = float(np.average(y[train], weights=weight[train]))

    def predictions(
        self, context: tuple[ContextColumn, ...], score: Float64[np.ndarray, " rows"] | None, probability: bool
    ) -> _FoldPredictions:
        """Every row of the results that the log allows."""
        predictions = {"constant": np.full(len(self.y), self.base)}
        predictions["person"], population = self._with_person(scipy.special.logit(predictions["constant"]))
        if score is not None:
            scored, log_odds = self._scored(score, probability)
            predictions |= scored
            predictions["score+person"], population = self._with_person(log_odds)
            known = ContextColumn("log-odds of the score", "number", np.where(np.isnan(score), np.nan, log_odds))
            context = (*context, known) if context else ()
        if context:
            head = fit_head(context, self.y, self.person, self.train, self.weight).log_odds
            predictions["context"] = scipy.special.expit(head)
            predictions["context+person"], population = self._with_person(head)
        return _FoldPredictions(predictions, population)

    def _with_person(self, log_odds: Float64[np.ndarray, " rows"]) -> tuple[Float64[np.ndarray, " rows"], Population]:
        """The person layer's probabilities on a calibrated score, and its parameters."""
        population = fit_population(
            log_odds, self.y, self.person, self.train, places=self.places, calibrated=True, weight=self.weight
        )
        run = prequential(log_odds, self.y, self.person, population, places=self.places)
        return scipy.special.expit(run.log_odds), population

    def _scored(
        self, score: Float64[np.ndarray, " rows"], probability: bool
    ) -> tuple[dict[str, Float64[np.ndarray, " rows"]], Float64[np.ndarray, " rows"]]:
        """Rows of the score, and its recalibrated log-odds."""
        known = ~np.isnan(score)
        fitting = known & self.train
        maps = fit_score_maps(score[fitting], self.y[fitting], self.weight[fitting], probability)
        missing = self.base if probability else score[fitting].mean()  # in the row of the score as it is
        scored = {SCORE: np.where(known, score, missing)}
        for name in maps.keys() - {SCORE}:
            scored[name] = np.where(known, maps[name](scored[SCORE]), self.base)
        z = scipy.special.logit(scored[PLATT])
        # Of a score far from all others the probability is 0 or 1 to the last digit, and its log-odds are still finite.
        return scored, np.where(np.isinf(z), maps[PLATT].log_odds(scored[SCORE]), z)
