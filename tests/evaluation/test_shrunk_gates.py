"""Gates from labelled scores: what they repair, out of fold, and how little they move on few labels."""

import dataclasses

import numpy as np
import pytest
import scipy

from prism_jax.commands.calibrating import lines
from prism_jax.decision.calibration import (
    CALIBRATORS,
    LEAST_BOUND,
    CalibrationConfig,
    Isotonic,
    Platt,
    Temperature,
    apply_map,
    fit_map,
    fit_platt,
    fit_shrunk,
)
from prism_jax.decision.gate import decide
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.uncertainty import Estimate
from prism_jax.evaluation import recalibration
from prism_jax.evaluation.recalibration import FOLDS, recalibrate
from prism_jax.gate import Gate
from prism_jax.scores import Scores
from prism_jax.scores.units import folds_of

POINT = OperatingPoint(c_fa=1.0, c_fn=2.0)
PLATT = CalibrationConfig("platt")


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def scores(streams, seed=0, scale=3.0, bias=-4.5, **changes):
    """Six steps a stream whose probabilities say sigmoid(scale z + bias) where sigmoid(z) is true."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(2, 6 * streams)) * 1.5
    said, true = sigmoid(scale * z + bias), sigmoid(z)
    labels = (rng.random(true.shape) < true).astype(float)
    rows = [
        {"stream": f"s{n // 6}", "step": n % 6, "p_need_fast": said[0, n], "p_accept_fast": said[1, n]}
        | {"y_need": labels[0, n], "y_accept": labels[1, n]}
        for n in range(6 * streams)
    ]
    return Scores.from_rows([row | changes for row in rows])


def mean_cost(offers, table):
    return np.where(offers, 1 - table.y_accept, 2 * table.y_need * table.y_accept).mean()


def test_a_known_error_is_found_and_its_cost_saved():
    table = scores(300)
    found = recalibrate(table, POINT, PLATT)
    for fitted in (found.gate.need, found.gate.accept):
        assert fitted.scale == pytest.approx(1 / 3, abs=0.04) and fitted.bias == pytest.approx(1.5, abs=0.2)
    assert all(gain.ece_after < gain.ece_before / 3 and gain.labels == 1800 for gain in found.signals.values())
    assert found.change.high < 0 and found.flips > 100
    cost = mean_cost(decide(table.p_need_fast, table.p_accept_fast, 1.0, 2.0), table)
    assert found.before.value == pytest.approx(cost, abs=1e-12)
    assert found.change.value == pytest.approx(found.after.value - found.before.value, abs=1e-12)
    assert (found.steps, found.units) == (1800, 300) and 0 < found.enough[0] < found.enough[1] < 1800


@pytest.mark.parametrize(
    ("value", "error", "low", "numbers"),
    [
        (-0.02, 0.015, -0.05, (141, 883)),  # 200 * (2.8016 * 0.015 / saving) ** 2
        (-0.02, 0.021, -0.06, None),  # within its standard error
        (0.02, 0.015, -0.01, None),
        (-0.02, np.nan, np.nan, None),  # too few units
    ],
)
def test_labels_are_said_to_show_a_gain_only_where_there_is_a_sign_of_one(value, error, low, numbers):
    change = Estimate(np.array(value), np.array(low), np.array(2 * value - low), np.array(error))
    found = recalibrate(scores(6), POINT, PLATT)._replace(steps=200, change=change)
    assert found.enough is None if numbers is None else found.enough == pytest.approx(numbers, rel=0.01)
    (line,) = [line for line in lines(found._replace(flips=1)) if "show" in line or "too few" in line]
    told = "no saving above its" if numbers is None else f"about {numbers[0]} judged steps"
    assert ("too few people" if np.isnan(low) else told) in line


@pytest.mark.parametrize("calibrator", ["temperature", "platt", "isotonic"])
def test_no_label_of_its_own_fold_moves_a_step(calibrator):
    """Other labels of one fold change neither that fold's decisions nor the probabilities that they stand on."""
    table, seen = scores(40), []
    fold = folds_of(table.stream, None, FOLDS)
    flipped = np.where(fold == 2, 1 - table.y_accept, table.y_accept)
    other = dataclasses.replace(table, y_accept=flipped)
    with pytest.MonkeyPatch.context() as patch:
        kept = recalibration._held_out
        patch.setattr(recalibration, "_held_out", lambda *parts: seen.append(kept(*parts)) or seen[-1])
        for one in (table, other):
            recalibrate(one, POINT, CalibrationConfig(calibrator))
    before, after = np.array(seen[: len(seen) // 2]), np.array(seen[len(seen) // 2 :])
    np.testing.assert_array_equal(before[:, fold == 2], after[:, fold == 2])
    assert (before != after).any()


def test_few_labels_move_little_and_none_nothing():
    table = scores(9)
    bound = [abs(recalibrate(table, POINT, PLATT, identity_rows=n).gate.accept.scale - 1) for n in (1e-3, 20, 1e6)]
    assert bound[0] > bound[1] > bound[2] and bound[2] < 1e-3
    unknown = np.full(len(table), np.nan)
    none = recalibrate(dataclasses.replace(table, y_accept=unknown, y_need=unknown), POINT, PLATT)
    assert none.gate.accept is none.gate.need is None and none.change is None and not none.signals


def test_few_labels_stay_near_the_maps_so_far():
    table, current = scores(9), Gate(POINT, accept=Platt(0.5, 0.3), need=Temperature(2.0))
    unknown = np.full(len(table), np.nan)
    bare = dataclasses.replace(table, y_accept=unknown, y_need=unknown)
    none = recalibrate(bare, POINT, PLATT, current=current)
    assert (none.gate.accept, none.gate.need) == (current.accept, current.need)
    most = recalibrate(table, POINT, PLATT, identity_rows=1e7, current=current)
    fitted = most.gate.accept
    assert (fitted.scale, fitted.bias) == pytest.approx((0.5, 0.3), abs=1e-3)
    offers = decide(current.need(table.p_need_fast), current.accept(table.p_accept_fast), 1.0, 2.0)
    assert most.before.value == pytest.approx(mean_cost(offers, table), abs=1e-12) and most.flips == 0


def test_labels_of_one_class_are_enough_and_acceptance_alone_has_a_cost():
    table = scores(6)
    ones = dataclasses.replace(table, y_accept=np.ones(len(table)))
    assert recalibrate(ones, POINT, PLATT).gate.accept.bias > 0
    alone = dataclasses.replace(table, y_need=None, p_need_fast=None)
    found = recalibrate(alone, POINT, PLATT)
    assert found.gate.need is None and found.steps == len(table)
    offers = table.p_accept_fast >= 1 / 3
    cost = np.where(offers, 1 - table.y_accept, 2 * table.y_accept)
    assert found.before.value == pytest.approx(cost.mean(), abs=1e-12)


@pytest.mark.parametrize("calibrator", CALIBRATORS)
def test_shrinkage_ends_at_the_labels_and_at_the_identity(calibrator):
    rng = np.random.default_rng(1)
    p = rng.uniform(0.05, 0.95, 400)
    y = (rng.random(400) < sigmoid(0.5 * np.log(p / (1 - p)) - 0.4)).astype(float)
    config, group = CalibrationConfig(calibrator), np.array(["a", "b"] * 200)
    grid = np.linspace(0.1, 0.9, 9)

    def mapped(fitted):
        return apply_map(fitted, grid, np.array(["a"] * 9))

    labels = fit_platt(p, y) if calibrator == "penalised" else fit_map(config, p, y, None, group)
    tolerance = 0.02 if calibrator in ("platt", "penalised", "isotonic") else 1e-3  # Platt's own targets are smoothed
    np.testing.assert_allclose(
        mapped(fit_shrunk(config, p, y, None, group, identity_rows=1e-6)), mapped(labels), atol=tolerance
    )
    np.testing.assert_allclose(mapped(fit_shrunk(config, p, y, None, group, identity_rows=1e9)), grid, atol=0.01)
    with pytest.raises(ValueError, match="identity_rows: found 0"):
        fit_shrunk(config, p, y, None, group, identity_rows=0.0)


@pytest.mark.parametrize("calibrator", ["platt", "penalised"])
@pytest.mark.parametrize(
    ("current", "line"),
    [
        *((None, (1.0, 0.0)), (Temperature(2.0), (0.5, 0.0)), (Platt(0.5, 0.3), (0.5, 0.3))),
        *((flat, None) for flat in (Isotonic(np.array([0.2, 0.8]), np.array([0.3, 0.3])), Platt(1e-6, np.log(3 / 7)))),
    ],
)
def test_scale_and_bias_minimise_the_likelihood_with_its_penalty(calibrator, current, line):
    rng = np.random.default_rng(2)
    p, weight = rng.uniform(0.05, 0.95, 300), rng.uniform(0.5, 3.0, 300)
    y = (rng.random(300) < 0.3 + 0.3 * p).astype(float)
    z, effective = np.log(p / (1 - p)), weight.sum() ** 2 / (weight**2).sum()
    mean = np.average(z, weights=weight)
    if line is None:  # of a flat map, whose level is kept
        line = (1.0, np.log(3 / 7) - z.mean())

    def loss(theta):
        logit = theta[0] * z + theta[1]
        moved = (theta - line) @ (mean, 1.0)
        penalty = 40 / 2 * ((theta[0] / line[0] - 1) ** 2 + moved**2 / 20) * weight.sum() / effective
        return np.sum(weight * (np.logaddexp(0.0, logit) - y * logit)) + penalty

    fitted = fit_shrunk(CalibrationConfig(calibrator), p, y, weight, current=current, identity_rows=40)
    best = scipy.optimize.minimize(loss, line, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}).x
    assert (fitted.scale, fitted.bias) == pytest.approx(best, abs=1e-6)
    assert fitted.bound == LEAST_BOUND > np.abs(z).max()


@pytest.mark.parametrize("calibrator", ["platt", "penalised", "isotonic"])
def test_no_map_depends_on_the_unit_of_the_weights(calibrator):
    """The ends of an isotonic map follow from how many labels there are."""
    p, y = np.repeat([0.0, 1.0, 0.5], 20), np.concatenate([np.zeros(20), np.ones(20), np.tile([0.0, 1.0], 10)])
    one, other = (fit_map(CalibrationConfig(calibrator), p, y, np.full(60, unit)) for unit in (1.0, 1 / 60))
    if calibrator != "isotonic":
        assert one.bound == other.bound == LEAST_BOUND
    else:
        np.testing.assert_allclose(one.y, other.y)


@pytest.mark.parametrize("calibrator", CALIBRATORS)
def test_stated_certainties_that_the_labels_follow_stop_no_gate(calibrator):
    """Labels that scores of 0, 1/2 and 1 separate; the probability 1 is nowhere taken for the log-odds of a float."""
    table = scores(20)
    said = np.round(2 * table.p_accept_fast) / 2
    table = dataclasses.replace(table, p_accept_fast=said, y_accept=(said > 0.6).astype(float), domain=table.stream)
    found = recalibrate(table, POINT, CalibrationConfig(calibrator))
    assert found.signals["accept"].kinds.certain == np.isin(said, (0.0, 1.0)).sum() > 60
    if isinstance(found.gate.accept, Platt):
        assert found.gate.accept.bound == pytest.approx(np.log(21))  # all others are 1/2
