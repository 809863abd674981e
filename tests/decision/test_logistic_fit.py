"""The logistic fit: its minimum by the gradient, few columns and many, along a path, and where columns repeat."""

import numpy as np
import pytest
from scipy import special

from prism_jax.decision.logistic import fit_logistic, fit_path


def problem(columns, rows=300):
    rng = np.random.default_rng(columns)
    x = np.column_stack([rng.normal(size=(rows, columns - 1)), np.ones(rows)])
    y = np.where(x[:, 0] > 0.5, 1.0, rng.integers(0, 4, rows) / 3)
    return x, y, rng.uniform(0.0, 2.0, rows)


def slope(theta, x, y, weight, ridge, around=0.0):
    return x.T @ (weight * (special.expit(x @ theta) - y)) + ridge @ (theta - around)


@pytest.mark.parametrize("columns", [2, 40])
def test_the_loss_is_flat_at_the_fit(columns):
    x, y, weight = problem(columns)
    root = np.random.default_rng(0).normal(size=(columns, columns))
    ridge, around = root @ root.T, np.linspace(-1, 1, columns)
    found = fit_logistic(x, y, weight, ridge, around)
    np.testing.assert_allclose(slope(found, x, y, weight, ridge, around), 0, atol=1e-6)


@pytest.mark.parametrize("columns", [2, 40])
def test_a_path_is_every_fit_by_itself(columns):
    x, y, weight = problem(columns)
    ridges = [strength * np.eye(columns) for strength in (100.0, 1.0, 10.0)]
    for found, ridge in zip(fit_path(x, y, weight, ridges, np.ones(columns)), ridges, strict=True):
        np.testing.assert_allclose(found, fit_logistic(x, y, weight, ridge), atol=1e-7)


@pytest.mark.parametrize("columns", [2, 40])
def test_equal_columns_without_a_penalty_share_one_weight(columns):
    x, y, weight = problem(columns)
    y, none = np.clip(y, 0.2, 0.8), np.zeros((columns + 1, columns + 1))
    twice = fit_logistic(np.column_stack([x[:, 0], x]), y, weight, none)
    once = fit_logistic(x, y, weight, none[1:, 1:])
    np.testing.assert_allclose(twice, [once[0] / 2, once[0] / 2, *once[1:]], atol=1e-7)


def test_a_far_start_and_separable_labels_with_a_weak_ridge_still_end_at_the_minimum():
    x = np.column_stack([np.linspace(-1, 1, 40), np.ones(40)])
    y, weight, ridge = (x[:, 0] > 0).astype(float), np.ones(40), 1e-4 * np.eye(2)
    (found,) = fit_path(x, y, weight, [ridge], np.array([-60.0, 30.0]))
    np.testing.assert_allclose(slope(found, x, y, weight, ridge), 0, atol=1e-8)
