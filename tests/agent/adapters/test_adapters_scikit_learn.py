"""The gate and the person layer as scikit-learn's classifiers: its own checks, and the functions that they wrap."""

import numpy as np
import pytest
from scipy.special import logit

from prism_jax.decision.calibration import CalibrationConfig, fit_map
from prism_jax.decision.person import anchored, believe, predict, update
from prism_jax.gate import Gate
from prism_jax.people import layer


def cost_gate(*given, **options):
    from prism_jax.agent.adapters.scikit_learn import CostGate

    return CostGate(*given, **options)


def personal_calibrator(**options):
    from prism_jax.agent.adapters.scikit_learn import PersonalCalibrator

    return PersonalCalibrator(**options)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        pytest.param(cost_gate, {}, id="gate"),
        pytest.param(cost_gate, {"c_fn": 3.0, "calibrator": "platt"}, id="calibrated gate"),
        pytest.param(personal_calibrator, {}, id="people", marks=pytest.mark.slow),  # compiles many shapes
    ],
)
def test_scikit_learns_own_checks_pass(make, options):
    from sklearn.utils.estimator_checks import check_estimator

    found = check_estimator(make(log_odds=True, **options), on_skip=None)
    assert len(found) > 50 and {one["status"] for one in found} <= {"passed", "skipped"}


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.random((500, 2))
    return X, rng.random(500) < X[:, 1]


@pytest.mark.parametrize(("c_fa", "c_fn"), [(1.0, 1.0), (1.0, 5.0), (3.0, 1.0), (1.0, 0.0)])
def test_the_gate_predicts_what_the_gate_decides(rows, c_fa, c_fn):
    X, y = rows
    X[0], X[1] = (1.0, 0.5), (0.0, 1.0)  # a tie at equal costs speaks; without need, never
    fitted, gate = cost_gate(c_fa, c_fn).fit(X, y), Gate.at_costs(c_fa=c_fa, c_fn=c_fn)
    speak = gate(X[:, 0], X[:, 1]).speak
    np.testing.assert_array_equal(fitted.predict(X), speak)
    assert speak[0] == (c_fa <= c_fn) and not speak[1]
    assert np.all((fitted.decision_function(X) >= 0)[2:] == speak[2:])
    np.testing.assert_array_equal(fitted.fit(X[:, 1:], y).predict(X[:, 1:]), gate(None, X[:, 1]).speak)


def test_a_calibrator_is_fitted_on_the_answers_and_classes_keep_their_names(rows):
    from sklearn.model_selection import GridSearchCV

    X, y = rows
    accept = fit_map(CalibrationConfig("platt"), X[:, 1] ** 3, y.astype(float))
    gate = Gate(Gate.at_costs(c_fa=1.0, c_fn=2.0).point, accept)
    table = np.stack([X[:, 0], X[:, 1] ** 3], 1)
    words = np.where(y, "yes", "no")
    fitted = cost_gate(c_fn=2.0, calibrator="platt").fit(table, words)
    np.testing.assert_array_equal(fitted.predict(table), np.where(gate(*table.T).speak, "yes", "no"))
    with_log_odds = cost_gate(c_fn=2.0, calibrator="platt", log_odds=True).fit(logit(table), words)
    np.testing.assert_array_equal(with_log_odds.predict(logit(table)), fitted.predict(table))
    search = GridSearchCV(cost_gate(), {"c_fn": [0.1, 1.0, 10.0]}, scoring="recall").fit(X, y)
    assert search.best_params_ == {"c_fn": 10.0}


def test_what_is_no_probability_and_no_cost_is_refused(rows):
    X, y = rows
    for estimator in (cost_gate(), personal_calibrator()):
        with pytest.raises(ValueError, match=r"found 1.5 .*expected a probability in \[0, 1\]"):
            estimator.fit([[0.5, 0.5], [1.5, 1.5]], [0, 1])
        with pytest.raises(ValueError, match="y: found 1 class, expected 2"):
            estimator.fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="c_fa"):
        cost_gate(c_fa=0.0).fit(X, y)


def test_each_person_is_predicted_from_their_own_answers():
    p, person = np.array([0.6, 0.6, 0.5, 0.6, 0.9]), np.array([7.0, 8.0, 7.0, 7.0, 8.0])
    accepted = np.array([0, 1, 0, 0, 1])
    fitted = personal_calibrator(spread=0.8, drift=0.02).fit(np.stack([p, person], 1), accepted)
    population = anchored(0.8, 0.02)
    beliefs = {7.0: believe(population), 8.0: believe(population)}
    for row in range(5):
        who = person[row]
        beliefs[who] = update(beliefs[who], logit(p[row]), accepted[row], population)
    found = fitted.predict_proba([[0.6, 7.0], [0.6, 8.0], [0.6, 9.0], [1.0, 9.0]])
    wanted = [predict(beliefs[who], logit(0.6), population) for who in (7.0, 8.0)]
    np.testing.assert_allclose(logit(found[:2, 1]), wanted, rtol=1e-12)
    assert found[0, 1] < 0.6 < found[1, 1]
    assert found[2, 1] == pytest.approx(0.6, abs=1e-12)  # not known: the column itself
    assert found[3, 1] == pytest.approx(1.0)
    alone = personal_calibrator().fit(p[:, None], accepted).predict_proba([[0.3], [0.7]])
    np.testing.assert_allclose(alone[:, 1], [0.3, 0.7], rtol=1e-12)
    by_log_odds = personal_calibrator(log_odds=True).fit([[0.0], [1.0]], [0, 1]).predict_proba([[0.0], [1.0]])
    np.testing.assert_allclose(logit(by_log_odds[:, 1]), [0.0, 1.0], atol=1e-12)  # a number of a score is no person


@pytest.mark.slow
def test_the_population_can_be_learned():
    rng = np.random.default_rng(1)
    person = np.repeat(np.arange(40.0), 12)
    rate = rng.normal(0, 1.5, 40)[person.astype(int)]
    y = rng.random(480) < 1 / (1 + np.exp(-rate))
    X = np.stack([np.full(480, 0.5), person], 1)
    fitted = personal_calibrator(learn=True).fit(X, y)
    assert fitted.population_ == layer.fit_population(np.zeros(480), y * 1.0, person.astype(int), calibrated=True)
    assert fitted.population_.spread > 1.0
    mine = fitted.predict_proba(np.stack([np.full(40, 0.5), np.arange(40.0)], 1))[:, 1]
    assert np.corrcoef(mine, rate[::12])[0, 1] > 0.8
