"""The context head: the regression against scikit-learn, and what training people alone may decide."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info

from prism_jax.decision.logistic import fit_path
from prism_jax.evaluation.answers import context
from prism_jax.evaluation.answers.context import design, fit_head, folds_of_people, path
from prism_jax.evaluation.answers.logs import ContextColumn


def draw(rows=400, people=12):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 3))
    person = rng.integers(0, people, rows)
    z = x @ [1.0, -0.5, 0.0] + rng.normal(0, 1, people)[person] + 0.4
    return x, (rng.random(rows) < 1 / (1 + np.exp(-z))).astype(float), person


def columns(x):
    kinds = np.where(np.arange(len(x)) % 9 == 0, -1, np.arange(len(x)) % 3).astype(np.int32)
    with_gaps = np.where(np.arange(len(x)) % 7 == 0, np.nan, x[:, 0])
    return (
        ContextColumn("a", "number", with_gaps),
        ContextColumn("b", "flag", (x[:, 1] > 0).astype(float)),
        ContextColumn("c", "category", kinds, ("p", "q", "r")),
    )


@pytest.mark.parametrize("ridge", [0.5, 50.0])
def test_the_regression_is_that_of_scikit_learn(ridge):
    x, y, _ = draw()
    of_rows = np.random.default_rng(1).uniform(0.2, 3.0, len(y))
    [(weights, intercept)] = path(x, y, of_rows, [ridge])
    reference = LogisticRegression(C=1 / ridge, tol=1e-10, max_iter=1000).fit(x, y, of_rows)
    np.testing.assert_allclose(weights, reference.coef_[0], atol=1e-4)
    assert intercept == pytest.approx(reference.intercept_[0], abs=1e-4)


def test_people_outside_the_fold_alone_decide():
    """Other values and answers of the held-out people change no prediction for anybody else, nor the choice."""
    x, y, person = draw()
    train = person < 8
    before = fit_head(columns(x), y, person, train)
    changed = x.copy()
    changed[~train] = 10 * np.random.default_rng(1).normal(size=changed[~train].shape)
    after = fit_head(columns(changed), np.where(train, y, 1 - y), person, train)
    np.testing.assert_array_equal(after.log_odds[train], before.log_odds[train])
    assert (after.ridge, after.pieces) == (before.ridge, before.pieces)
    again = fit_head(columns(x), np.where(train, y, 1 - y), person, train)
    np.testing.assert_array_equal(again.log_odds, before.log_odds)


def test_a_training_row_is_predicted_without_its_person():
    x, y, person = draw()
    train = np.ones(len(y), bool)
    before = fit_head(columns(x), y, person, train)
    flipped = np.where(person == 3, 1 - y, y)
    after = fit_head(columns(x), flipped, person, train)
    if (after.ridge, after.pieces) == (before.ridge, before.pieces):
        np.testing.assert_array_equal(after.log_odds[person == 3], before.log_odds[person == 3])
    assert not np.array_equal(after.log_odds, before.log_odds)


def test_columns_without_use_give_no_feature():
    rows = 60
    train = np.arange(rows) < 40
    rare = np.where(np.arange(rows) < 4, 0, 1).astype(np.int32)
    useless = (
        ContextColumn("same", "number", np.full(rows, 3.0)),
        ContextColumn("missing", "number", np.full(rows, np.nan)),
        ContextColumn("rare", "category", rare, ("a", "b")),
        ContextColumn("only later", "number", np.where(train, 1.0, np.arange(rows))),
    )
    assert design(useless, train, 6).shape == (rows, 0)
    assert np.isfinite(design(columns(draw(60)[0]), train, 6)).all()


def test_folds_hold_whole_people_of_nearly_equal_number():
    person = np.repeat(np.arange(23), np.arange(23) + 1)
    fold = folds_of_people(person, 10, 0)
    assert all(len(set(fold[person == i])) == 1 for i in range(23))
    assert {len(np.unique(person[fold == number])) for number in range(10)} == {2, 3}
    assert set(folds_of_people(person, 10, 0, person < 4)) == {-1, 0, 1, 2, 3}


def test_a_path_of_fits_needs_one_thread_for_its_small_products(monkeypatch):
    during = []

    def recorded(*arguments, **keywords):
        during.extend(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        return fit_path(*arguments, **keywords)

    monkeypatch.setattr(context, "fit_path", recorded)
    x, y, _ = draw(60)
    path(x, y, np.ones(len(y)), [1.0])
    assert set(during) == {1}
