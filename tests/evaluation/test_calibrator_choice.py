"""The choice of the calibrator, and the calibration of out-of-fold scores, from fit to decisions."""

import json

import numpy as np
import pytest
from synthetic_scores import POINT, changed, in_folds, make_columns, make_scores, without

from prism_jax.decision import calibration as measures
from prism_jax.decision import gate
from prism_jax.decision.calibration import CALIBRATORS, CalibrationConfig
from prism_jax.evaluation import protocol, splits
from prism_jax.evaluation.fits import read_calibration, write_calibration
from prism_jax.report import tables
from prism_jax.scores import Scores, ScoresError


def by_hand(calibrator, calibration, test, signal):
    """The signal of the test rows, calibrated by the library's functions on the calibration rows."""
    p, y = getattr(calibration, f"p_{signal}_fast"), getattr(calibration, f"y_{signal}")
    new = getattr(test, f"p_{signal}_fast")
    if calibrator == "grouped":
        return measures.fit_grouped(p, y, calibration.domain)(new, test.domain)
    if calibrator == "temperature":
        return measures.apply_temperature(new, measures.fit_temperature(p, y))
    if calibrator == "isotonic":  # no end is 0 or 1
        pure = measures.fit_isotonic(p, y, np.ones(len(y)))
        return measures.Isotonic(pure.x, np.clip(pure.y, 1 / (len(y) + 2), 1 - 1 / (len(y) + 2)))(new)
    return {"platt": measures.fit_platt, "penalised": measures.fit_penalised}[calibrator](p, y, np.ones(len(y)))(new)


@pytest.mark.parametrize("calibrator", CALIBRATORS)
def test_decisions_and_measures_are_made_on_the_chosen_map(calibrator, tmp_path):
    scores = make_scores(slow=False)
    fits = protocol.calibrate(scores, CalibrationConfig(calibrator))
    evaluation = protocol.evaluate(scores, fits, POINT)
    calibration, test = (splits.rows_of(scores, split) for split in ("calibration", "test"))
    need, accept = (by_hand(calibrator, calibration, test, signal) for signal in ("need", "accept"))
    np.testing.assert_array_equal(evaluation.trace.p_accept, accept)
    np.testing.assert_array_equal(evaluation.trace.decision, gate.decide(need, accept, POINT.c_fa, POINT.c_fn))
    row = next(row for row in evaluation.signals if (row.signal, row.form) == ("need", "calibrated"))
    assert row.brier == pytest.approx(measures.brier_score(need, test.y_need), rel=1e-14)
    assert (row.temperature is None) == (calibrator != "temperature")
    write_calibration(tmp_path / "calibration.json", fits)
    tree = json.loads((tmp_path / "calibration.json").read_text())
    assert {fit["calibrator"] for fit in tree.values() if isinstance(fit, dict)} == {
        "platt" if calibrator == "penalised" else calibrator
    }
    again = protocol.evaluate(scores, read_calibration(tmp_path / "calibration.json"), POINT)
    np.testing.assert_array_equal(again.trace.p_accept, accept)
    assert again.to_dict() == evaluation.to_dict()


def test_the_table_shows_the_map_where_it_is_not_one_temperature():
    scores = make_scores(slow=False)
    for calibrator, word in {"platt": "logit", "isotonic": "knots", "grouped": "3 groups"}.items():
        fits = protocol.calibrate(scores, CalibrationConfig(calibrator))
        table = tables.signal_table(protocol.evaluate(scores, fits, POINT))
        assert "map" in [column.heading for column in table.columns]
        assert any(word in cell for section in table.sections for row in section.rows for cell in row.cells)
    table = tables.signal_table(protocol.evaluate(scores, protocol.calibrate(scores), POINT))
    assert "map" not in [column.heading for column in table.columns]


def test_grouped_temperatures_need_domains():
    scores = Scores.from_columns(without(make_columns(slow=False), "domain"))
    with pytest.raises(ScoresError, match="domain: found no such column, expected it: the calibrator 'grouped'"):
        protocol.calibrate(scores, CalibrationConfig("grouped"))
    with pytest.raises(ScoresError, match="domain: found no such column, expected it: the calibrator 'grouped'"):
        protocol.check_labels(scores, CalibrationConfig("grouped"))
    fits = protocol.calibrate(make_scores(slow=False), CalibrationConfig("grouped"))
    with pytest.raises(ScoresError, match="domain: found no such column, expected it: temperatures are per domain"):
        protocol.evaluate(scores, fits, POINT)


def test_a_map_that_reverses_the_order_warns():
    scores = make_scores(slow=False)
    reversed_ = changed(scores, True, p_need_fast=1 - scores.p_need_fast)
    with pytest.warns(measures.CalibrationWarning, match=r"p_need_fast: platt: found the scale -.*reverses the order"):
        protocol.calibrate(reversed_, CalibrationConfig("platt"))


@pytest.mark.parametrize("rows", [-1.0, np.nan])
def test_a_bad_strength_of_the_shrinkage_is_refused(rows):
    with pytest.raises(ValueError, match=r"^prior_rows: found"):
        CalibrationConfig(prior_rows=rows)


# Out-of-fold scores


def out_of_fold(streams=80, folds=4, split="test"):
    """Scores of `folds` models, each sharper than the one before."""
    columns = in_folds(make_columns(streams=streams, slow=False), folds)
    for name in ("p_need_fast", "p_accept_fast"):
        columns[name] = measures.apply_temperature(columns[name], 1 / (1 + columns["fold"]))
    return Scores.from_columns(columns | ({} if split is None else {"split": [split] * len(columns["fold"])}))


@pytest.mark.parametrize("split", ["test", None])
def test_each_fold_is_calibrated_on_the_others(split, tmp_path):
    """Whatever the labels of a fold are, its own rows are calibrated in the same way."""
    scores = out_of_fold(split=split)
    fits = protocol.calibrate(scores)
    evaluation = protocol.evaluate(scores, fits, POINT)
    for fold in range(4):
        inside = scores.fold == fold
        for signal in ("need", "accept"):
            p = by_hand("temperature", scores.take(~inside), scores.take(inside), signal)
            found = getattr(evaluation.trace, f"p_{signal}")[inside]
            np.testing.assert_allclose(found, p, rtol=0 if signal == "accept" else 1e-13)
        assert fits.folds[fold].accept_fast.base_rate == pytest.approx(scores.y_accept[~inside].mean(), rel=1e-12)
    assert sorted(fits.folds) == [0, 1, 2, 3]
    assert evaluation.counts.rows == len(scores)
    write_calibration(tmp_path / "calibration.json", fits)
    assert read_calibration(tmp_path / "calibration.json") == fits
    row = next(row for row in evaluation.signals if (row.signal, row.form) == ("need", "calibrated"))
    assert row.temperature is None and row.map.endswith("4 folds")


def test_a_calibration_split_goes_before_folds_and_one_fold_is_not_enough():
    columns = make_columns(slow=False)
    with_folds = Scores.from_columns(columns | in_folds(columns, 3))
    assert protocol.calibrate(with_folds) == protocol.calibrate(Scores.from_columns(columns))
    one = Scores.from_columns({**out_of_fold().columns(), "fold": np.zeros(960, int)})
    with pytest.raises(ScoresError, match="found no row of the split 'calibration'"):
        protocol.calibrate(one)


def test_a_fold_whose_others_have_one_class_is_named():
    scores = out_of_fold()
    with pytest.raises(ScoresError, match=r"y_need: all folds but 0: cannot calibrate p_need_fast: .*only the label 1"):
        protocol.calibrate(changed(scores, scores.fold != 0, y_need=1.0))


def test_folds_that_were_not_calibrated_are_refused():
    scores = out_of_fold()
    fits = protocol.calibrate(scores)
    other = Scores.from_columns({**scores.columns(), "fold": scores.fold + 1})
    with pytest.raises(ScoresError, match="fold: found the fold 4, expected one that was calibrated: 0, 1, 2, 3"):
        protocol.evaluate(other, fits, POINT)
    with pytest.raises(ScoresError, match="fold: found no such column, expected it: the calibration is per fold"):
        protocol.evaluate(Scores.from_columns(without(scores.columns(), "fold")), fits, POINT)
    assert protocol.evaluate(other, fits.pooled(), POINT).counts.rows == len(other)


def test_what_is_cheaper_by_chance_is_not_told_apart():
    """One temperature mends these signals exactly: what the raw ones save on few streams is noise."""
    told = 0
    for seed in range(20):
        scores = Scores.from_columns(make_columns(seed, streams=26, noise=0.0, slow=False))
        evaluation = protocol.evaluate(scores, protocol.calibrate(scores), POINT)
        raw = evaluation.policy(evaluation.deployed.policy, "raw")
        assert ("on the raw signals" in evaluation.caution) == (raw.difference <= -5e-5)
        told += evaluation.caution.count("less by") - evaluation.caution.count("not told apart")
    assert told <= 2


def test_a_gate_is_cautioned_of_by_its_own_costs_where_another_policy_is_deployed():
    """The file holds the gate of the fast pass; beside a slow pass, what is deployed is another policy."""
    said = set()
    for seed in range(6):
        scores = Scores.from_columns(make_columns(seed, streams=26))
        evaluation = protocol.evaluate(scores, protocol.calibrate(scores), POINT)
        gate, raw = (evaluation.policy(POINT.policy, form) for form in ("calibrated", "raw"))
        caution = evaluation.caution_of(gate)
        assert not gate.deployed and ("on the raw signals" in caution) == (
            raw.realised_cost <= gate.realised_cost - 5e-5
        )
        assert not caution or f"the gate of the fast pass costs {gate.realised_cost:.4f}" in caution
        said.add(bool(caution))
    assert said == {True, False}
