"""What the classifiers of `scikit_learn.py` have in common: two classes, and columns that are scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data


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
