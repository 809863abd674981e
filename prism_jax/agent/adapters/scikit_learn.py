"""scikit-learn: the gate and the person layer as classifiers, for pipelines, cross-validation and parameter searches.

    from prism_jax.agent.adapters.scikit_learn import CostGate, PersonalCalibrator

    CostGate(c_fn=2.0).fit([[0.9, 0.6], [0.2, 0.3]], [1, 0]).predict([[0.9, 0.2]])  # columns p_need, p_accept
    PersonalCalibrator().fit([[0.6, 7], [0.6, 8]], [0, 1]).predict_proba([[0.6, 7], [0.6, 9]])  # p_accept, person

They need no server, but scikit-learn, and the person layer needs JAX, which loads when it fits. Both pass
`check_estimator` with `log_odds=True`; without, they refuse its data, which are no probabilities.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from prism_jax.decision import person
from prism_jax.decision.arrays import check_probability
from prism_jax.decision.calibration import CalibrationConfig, fit_map
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.gate import Gate

MOST_LOG_ODDS = 30.0
"""Farther from 0 the log-odds of a person's answer are not taken, so that a certain answer teaches a finite amount."""


class OfScores(ClassifierMixin, BaseEstimator):
    """A classifier of two classes on columns that are probabilities, or with `log_odds` their log-odds."""

    log_odds: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class, tags.classifier_tags.poor_score = False, True  # it learns from scores alone
        return tags

    def labelled(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """The columns and the labels as 0 and 1; ValueError for other than two classes."""
        X, y = validate_data(self, X, y)
        if (kind := type_of_target(y, input_name="y", raise_unknown=True)) != "binary":
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("y: found 1 class, expected 2")
        return X, labels.astype(np.float64)

    def columns(self, X: Any) -> np.ndarray:
        """The columns, as many as were fitted on."""
        check_is_fitted(self)
        return validate_data(self, X, reset=False)

    def probability(self, column: np.ndarray) -> np.ndarray:
        """A column as probabilities."""
        return scipy.special.expit(column.astype(np.float64)) if self.log_odds else column.astype(np.float64)


class CostGate(OfScores):
    """Predicts the second class where the gate speaks: (1 - p_accept) c_fa <= p_accept p_need c_fn.

    The first column is p_need and the last p_accept; a single column is p_accept, of a need that is certain. Others
    are ignored. With a `calibrator` (temperature, platt, isotonic) `fit` calibrates p_accept on y, which says whether
    an offer was accepted; None takes it as it is.
    """

    def __init__(self, c_fa: Any = 1.0, c_fn: Any = 1.0, calibrator: Any = None, log_odds: Any = False) -> None:
        self.c_fa, self.c_fn, self.calibrator, self.log_odds = c_fa, c_fn, calibrator, log_odds

    def fit(self, X: Any, y: Any) -> CostGate:
        """Checks the costs, and fits the map of p_accept where there is a calibrator."""
        X, y = self.labelled(X, y)
        point = OperatingPoint(c_fa=self.c_fa, c_fn=self.c_fn)
        config = None if self.calibrator is None else CalibrationConfig(self.calibrator)
        self.gate_ = Gate(point, None if config is None else fit_map(config, self.probability(X[:, -1]), y))
        self._verdict(X)  # refuses what is no probability
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """How far p_accept lies above the least at which the gate speaks."""
        verdict = self._verdict(self.columns(X))
        return np.maximum(verdict.p_accept - verdict.threshold, -1.0)

    def predict(self, X: Any) -> np.ndarray:
        """The second class where the gate speaks, which includes a tie."""
        speak = self._verdict(self.columns(X)).speak
        return self.classes_[speak.astype(int)]

    def _verdict(self, X: np.ndarray) -> Any:
        need = None if X.shape[1] == 1 else self.probability(X[:, 0])
        return self.gate_(need, self.probability(X[:, -1]))


class PersonalCalibrator(OfScores):
    """Probabilities of acceptance of the person whose they are, by the person layer (docs/acceptance_logs.md).

    The first column is p_accept for people as a whole, calibrated, and the last the person, as a number; a single
    column is of people who are not known. y says whether an offer was accepted, in the order of time, and what is
    predicted is the next answer. `spread` and `drift` are those of the population, which `learn` fits on y instead.
    """

    def __init__(self, spread: Any = 0.6, drift: Any = 0.01, learn: Any = False, log_odds: Any = False) -> None:
        self.spread, self.drift, self.learn, self.log_odds = spread, drift, learn, log_odds

    def fit(self, X: Any, y: Any) -> PersonalCalibrator:
        """Follows the answers of each person."""
        from prism_jax.people import layer

        X, y = self.labelled(X, y)
        z = self._log_odds(X)
        self.people_, of_row = np.unique(X[:, -1] if X.shape[1] > 1 else np.arange(len(X)), return_inverse=True)
        population = person.anchored(self.spread, self.drift)
        self.population_ = layer.fit_population(z, y, of_row, calibrated=True) if self.learn else population
        before = layer.prequential(z, y, of_row, self.population_).belief
        last = len(X) - 1 - np.unique(of_row[::-1], return_index=True)[1]
        belief = person.Belief(before.mean[last], before.variance[last])
        self.beliefs_ = person.update(belief, z[last], y[last], self.population_)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class; a person who is not known has that of the column."""
        X, new = self.columns(X), person.believe(self.population_)
        place = np.minimum(np.searchsorted(self.people_, X[:, -1]), len(self.people_) - 1)
        known = (self.people_[place] == X[:, -1]) & (X.shape[1] > 1)
        mean, variance = (np.where(known, own[place], base) for own, base in zip(self.beliefs_, new, strict=True))
        p = scipy.special.expit(person.predict(person.Belief(mean, variance), self._log_odds(X), self.population_))
        return np.stack([1 - p, p], axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The likelier class."""
        p = self.predict_proba(X)
        return self.classes_[np.argmax(p, axis=1)]

    def _log_odds(self, X: np.ndarray) -> np.ndarray:
        p = self.probability(X[:, 0])
        check_probability("p_accept", p)
        return np.clip(scipy.special.logit(p), -MOST_LOG_ODDS, MOST_LOG_ODDS)
