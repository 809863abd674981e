"""Need given acceptance in calibration and evaluation, and the gate beside p_accept alone at equal speak rates."""

import numpy as np
import pytest
from synthetic_scores import IDENTITY, POINT, as_log, evaluate, in_folds, make_columns, sigmoid

from prism_jax.decision import gate
from prism_jax.evaluation import protocol, splits
from prism_jax.evaluation.replay import most_accepted
from prism_jax.report.numbers import number
from prism_jax.report.tables import second_signal_table, signal_table
from prism_jax.scores import Scores, ScoresError
from prism_jax.scores.labels import read


def dependent_scores(target, seed=0, streams=1200, steps=4):
    """Scores whose labels depend on each other, with the exact probabilities at temperature one half."""
    columns = make_columns(seed, streams, steps, slow=False)
    rng = np.random.default_rng(seed + 1)
    p_need, p_accept = columns["p_need_true"], columns["p_accept_true"]
    p_both = np.minimum(p_need, p_accept)
    accept = rng.random(len(p_accept)) < p_accept
    given = np.where(accept, p_both / p_accept, (p_need - p_both) / (1 - p_accept))
    need = rng.random(len(p_accept)) < given
    signal = np.minimum(p_both / p_accept if target == "given_accept" else p_need, 1 - 1e-9)
    blunt = {name: sigmoid(2 * (np.log(p) - np.log1p(-p))) for name, p in (("need", signal), ("accept", p_accept))}
    columns |= {f"p_{name}_fast": p for name, p in blunt.items()}
    columns |= {"y_need": need.astype(float), "y_accept": accept.astype(float), "p_both_true": p_both}
    return Scores.from_columns(columns | {"need_target": [target] * len(need)})


def test_need_given_acceptance_is_calibrated_on_accepted_offers():
    scores = dependent_scores("given_accept")
    fit = protocol.calibrate(scores).need_fast
    rows = splits.rows_of(scores, "calibration")
    assert fit.count == int(rows.y_accept.sum()) < len(rows)
    assert fit.base_rate == pytest.approx(rows.y_need[rows.y_accept == 1].mean())
    assert fit.temperature == pytest.approx(2.0, rel=0.1)
    readings = read(rows, "need", "fast")
    np.testing.assert_allclose(readings.true, rows.p_both_true / rows.p_accept_true)


def test_with_it_the_gate_has_no_regret_where_the_unconditional_need_has():
    found = {target: dependent_scores(target) for target in ("given_accept", "marginal")}
    regret = {}
    for target, scores in found.items():
        evaluation = protocol.evaluate(scores, protocol.calibrate(scores), POINT)
        regret[target] = evaluation.policy("dynamic", "calibrated").regret
    assert regret["given_accept"] < 2e-4 < 2e-3 < regret["marginal"]


def test_one_table_has_one_meaning_of_need():
    columns = make_columns(streams=4, steps=2, slow=False)
    with pytest.raises(ScoresError, match=r"row 5, need_target: found 'given_accept', expected 'marginal' as in row 0"):
        Scores.from_columns(columns | {"need_target": ["marginal"] * 5 + ["given_accept"] * 3})
    with pytest.raises(ScoresError, match="need_target: found 'joint', expected one of marginal, given_accept"):
        Scores.from_columns(columns | {"need_target": ["joint"] * 8})


def test_the_table_shows_the_gate_beside_p_accept_alone():
    scores = dependent_scores("given_accept", streams=60)
    evaluation = evaluate(scores, POINT)
    shown = second_signal_table(evaluation)
    headings = [column.label for column in shown.columns]
    for row, cells in zip(evaluation.second_signal, shown.sections[0].rows, strict=True):
        of = dict(zip(headings, cells.cells, strict=True))
        assert (of["gate"], of["p_accept alone"]) == (number(row.gate), number(row.accept_alone))
    assert any(round(row.gate, 4) != round(row.accept_alone, 4) for row in evaluation.second_signal)
    assert [row.name for row in shown.sections[0].rows] == ["0.5", "1", "2", "4"]
    assert signal_table(evaluation).sections[0].title == "p_need, given that the offer is accepted"


def offers_by_hand(p_accept, weight, mass):
    """Offers from the highest p_accept down until their weights add up to `mass`; steps that tie share what is left."""
    offers, left = [0.0] * len(p_accept), mass
    for level in sorted(set(p_accept), reverse=True):
        tied = [i for i, p in enumerate(p_accept) if p == level]
        whole = sum(weight[i] for i in tied)
        for i in tied:
            offers[i] = min(1.0, left / whole)
        left = max(0.0, left - whole)
    return offers


def test_the_gate_and_p_accept_alone_are_compared_at_the_same_speak_rate_by_weight():
    """Offers of low p_accept were rarely shown: the gate's and those of p_accept alone weigh differently."""
    columns = make_columns(3, streams=120, slow=False)
    rng = np.random.default_rng(4)
    for name in ("p_accept_fast", "p_need_fast"):
        columns[name] = np.round(np.asarray(columns[name]) * 20) / 20 * 0.98 + 0.01  # ties
    scores = Scores.from_columns(as_log(columns, np.where(columns["p_accept_true"] > 0.5, 0.9, 0.1), rng))
    evaluation, fits = evaluate(scores, POINT), protocol.calibrate(scores)
    steps = splits.evaluated_rows(scores).take(np.flatnonzero(~np.isnan(splits.evaluated_rows(scores).y_accept)))
    need, accept = (fits.calibrated(signal, "fast", steps) for signal in ("need", "accept"))
    weight = 1 / steps.propensity
    for row in evaluation.second_signal:
        ours = np.asarray(gate.decide(need, accept, POINT.c_fa, row.ratio * POINT.c_fa), float)
        alone = offers_by_hand(accept.tolist(), weight.tolist(), float(weight @ ours))
        costs = [0.0, 0.0]
        for k, offers in enumerate((ours.tolist(), alone)):
            for i, offer in enumerate(offers):
                silence = row.ratio * steps.y_need[i] * steps.y_accept[i]
                costs[k] += weight[i] * (offer * (1 - steps.y_accept[i]) + (1 - offer) * silence) / weight.sum()
        assert (row.gate, row.accept_alone) == pytest.approx(tuple(costs), rel=1e-9)
        assert row.difference == pytest.approx(costs[0] - costs[1], rel=1e-9, abs=1e-12)
        assert row.low <= row.difference <= row.high
        assert row.speak_rate == pytest.approx(weight @ ours / weight.sum(), rel=1e-12)
        assert weight @ np.array(alone) == pytest.approx(weight @ ours, rel=1e-12)


def test_ties_share_what_is_left():
    np.testing.assert_allclose(most_accepted(np.array([0.2, 0.7, 0.7, 0.9]), 2.0), [0, 0.5, 0.5, 1])
    np.testing.assert_array_equal(most_accepted(np.array([0.2, 0.7]), 0.0), [0, 0])
    np.testing.assert_array_equal(most_accepted(np.array([0.2, 0.7]), 2.0), [1, 1])


def covariance_left(p, y, weight):
    """The mean product of what weighted least squares on powers of both signals leave of both errors."""
    root = np.sqrt(weight)
    told = np.stack([root, *(root * one**power for one in p for power in (1, 2, 3))], axis=1)
    errors = [root * (label - one) for label, one in zip(y, p, strict=True)]
    need, accept = (error - told @ np.linalg.lstsq(told, error)[0] for error in errors)
    return need @ accept / weight.sum()


@pytest.mark.parametrize(("scale", "bias"), [(1.5, 1.5), (1.0, -2.0), (3.0, 2.0), (0.4, 0.0)])
@pytest.mark.parametrize("dependent", [False, True])
def test_what_miscalibration_leaves_is_no_dependence(scale, bias, dependent):
    """The product of errors alone has a mean of .007 to .089 where labels are independent."""
    rng = np.random.default_rng(0)
    z = rng.multivariate_normal([0.0, -0.5], [[2.0, 1.2], [1.2, 2.0]], 6000)
    need, accept = (1 / (1 + np.exp(-z))).T
    said = 1 / (1 + np.exp(-(scale * z + bias)))
    both = need * accept + dependent * 0.2 * np.minimum(need, accept) * (1 - np.maximum(need, accept))
    draw = rng.random(6000)
    y_need, y_accept = draw < need, (draw < both) | ((draw >= need) & (draw < need + accept - both))
    columns = {"stream": [f"s{n // 10}" for n in range(6000)], "step": np.tile(np.arange(10), 600)}
    columns |= {"p_need_fast": said[:, 0], "p_accept_fast": said[:, 1]}
    labels = {"y_need": y_need * 1.0, "y_accept": y_accept * 1.0, "fold": np.repeat(np.arange(600) % 4, 10)}
    found = protocol.evaluate(Scores.from_columns(columns | labels), IDENTITY, POINT).dependence
    truth = float((both - need * accept).mean())
    assert found.low - 0.001 <= truth <= found.high + 0.001
    assert ("they are not" in str(found)) == dependent


@pytest.mark.parametrize("weighted", [False, True])
def test_dependence_is_the_covariance_of_what_the_signals_leave_on_calibration_steps(weighted):
    scores = dependent_scores("marginal")
    propensity = np.random.default_rng(0).choice([0.1, 0.9], len(scores)) if weighted else np.ones(len(scores))
    scores = Scores.from_columns(scores.columns() | {"logged": [True] * len(scores), "propensity": propensity})
    evaluation = evaluate(scores, POINT)
    found, fits = evaluation.dependence, protocol.calibrate(scores)
    rows = splits.rows_of(scores, "calibration")
    need, accept = (fits.calibrated(signal, "fast", rows) for signal in ("need", "accept"))
    expected = covariance_left((need, accept), (rows.y_need, rows.y_accept), 1 / rows.propensity)
    assert found.covariance == pytest.approx(expected) and found.steps == len(rows)
    assert 0 < found.low < found.covariance < found.high
    note = second_signal_table(evaluation).note
    assert f"{found.covariance:+.4f} [{found.low:+.4f}, {found.high:+.4f}]: they are not. A p_need given" in note


def test_labels_that_are_drawn_independently_show_no_dependence():
    contained = 0
    for seed in range(20):
        found = evaluate(Scores.from_columns(make_columns(seed, 60, 4, slow=False)), POINT).dependence
        contained += found.low < 0 < found.high
        assert ("no sign" in str(found)) == (found.low < 0 < found.high)
    assert contained >= 17  # 19 expected, fewer than 17 in one of 60 series


def test_dependence_needs_calibration_steps_and_an_unconditional_need():
    assert evaluate(dependent_scores("given_accept", streams=40), POINT).dependence is None
    scores = dependent_scores("marginal", streams=40)
    tested = splits.rows_of(scores, "test")
    assert protocol.evaluate(tested, protocol.calibrate(scores), POINT).dependence is None
    few = scores.take(np.isin(scores.stream, np.unique(scores.stream)[:8]))
    assert "too few units" in str(evaluate(few, POINT).dependence)


def test_a_calibration_by_fold_need_not_know_the_folds_of_calibration_steps():
    columns = make_columns(streams=40, slow=False)
    whole = Scores.from_columns(in_folds(columns, 2))
    calibration = protocol.calibrate(whole)
    assert calibration.folds
    assert protocol.evaluate(whole, calibration, POINT).dependence.steps == len(whole)
    later = Scores.from_columns(columns | {"fold": np.where(np.array(columns["split"]) == "test", whole.fold, 9)})
    assert protocol.evaluate(later, calibration, POINT).dependence is None
