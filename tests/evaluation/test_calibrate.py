import dataclasses
import json

import numpy as np
import pytest
from synthetic_scores import POINT, changed, evaluate, make_columns, make_scores, without

from prism_jax.decision import calibration as measures
from prism_jax.evaluation import protocol, splits
from prism_jax.evaluation.answers.columns import parse_columns
from prism_jax.evaluation.answers.findings import Question
from prism_jax.evaluation.answers.log_scores import scores_of_log
from prism_jax.evaluation.answers.logs import AcceptanceLog
from prism_jax.evaluation.fits import read_calibration, write_calibration
from prism_jax.evaluation.merged.running import over, planned
from prism_jax.evaluation.recalibration import recalibrate
from prism_jax.gate import Gate
from prism_jax.runs.answers import evaluate_log
from prism_jax.scores import Scores, ScoresError
from prism_jax.scores.labels import acceptance_weight


def test_temperatures_of_signals_that_are_too_sure_by_a_known_factor_are_recovered():
    scores = make_scores(streams=4000, noise=0.0, temperature=0.5)
    fits = protocol.calibrate(scores)
    for fit in (fits.need_fast, fits.accept_fast, fits.need_slow, fits.accept_slow):
        assert fit.temperature == pytest.approx(2.0, abs=0.05)
        assert fit.count == fit.effective_count == 24_000


def test_calibration_sees_the_calibration_split_only_and_evaluation_the_test_split_only():
    scores = make_scores(splits=("train", "calibration", "test"))
    fits, evaluation = protocol.calibrate(scores), evaluate(scores)
    other = scores.split != "calibration"
    assert protocol.calibrate(changed(scores, other, y_need=1.0, p_accept_fast=0.5, y_accept=0.0)) == fits
    other = scores.split != "test"
    truth = {"p_accept_true": 0.5, "p_both_true": scores.p_need_true / 2}
    swapped = changed(scores, other, y_need=1 - scores.y_need, **truth)
    found, expected = protocol.evaluate(swapped, fits, POINT).to_dict(), evaluation.to_dict()
    assert found.pop("dependence") != expected.pop("dependence")  # which calibration steps tell
    assert found == expected
    swapped = changed(scores, other, p_need_fast=0.25)  # signals only choose the thresholds of triggers
    found, expected = protocol.evaluate(swapped, fits, POINT).to_dict(), evaluation.to_dict()
    for name in ("triggers", "dependence"):
        assert found.pop(name) != expected.pop(name)
    assert found == expected


def test_need_counts_each_step_once_and_acceptance_each_offer():
    columns = make_columns(streams=30, slow=False)
    n = len(columns["step"])
    wide = {name: np.repeat(np.asarray(column), 3) for name, column in columns.items()}
    wide["candidate"] = np.tile([0, 1, 2], n)
    rng = np.random.default_rng(3)
    kept = rng.random(3 * n) < 0.6
    kept[::3] = True
    narrow = protocol.calibrate(Scores.from_columns(columns))
    several = protocol.calibrate(Scores.from_columns({name: column[kept] for name, column in wide.items()}))
    assert several.need_fast == narrow.need_fast
    assert several.accept_fast.count > narrow.accept_fast.count


def test_inverse_propensities_weight_offers_like_repeated_rows():
    columns = make_columns(streams=40, slow=False)
    n = len(columns["step"])
    rng = np.random.default_rng(4)
    propensity = rng.choice([1.0, 0.5, 0.25, 0.2, 0.05, 0.01], n)
    logged = Scores.from_columns({**columns, "logged": np.ones(n, bool), "propensity": propensity})
    weight = acceptance_weight(logged)
    expected = {1.0: 1, 0.5: 2, 0.25: 4, 0.2: 5, 0.05: 20, 0.01: 20}
    np.testing.assert_allclose(weight, [expected[e] for e in propensity], rtol=1e-12)
    times = np.rint(weight).astype(int)
    repeated = {name: np.repeat(np.asarray(column), times) for name, column in columns.items()}
    repeated["candidate"] = np.concatenate([np.arange(k) for k in times])
    copies = protocol.calibrate(Scores.from_columns(repeated))
    fits = protocol.calibrate(logged)
    assert fits.accept_fast.temperature == pytest.approx(copies.accept_fast.temperature, rel=1e-9)
    assert fits.accept_fast.base_rate == pytest.approx(copies.accept_fast.base_rate, rel=1e-12)
    assert fits.need_fast == copies.need_fast
    rows = splits.rows_of(logged, "calibration")
    weight = acceptance_weight(rows)
    assert fits.accept_fast.effective_count == pytest.approx(weight.sum() ** 2 / (weight**2).sum(), rel=1e-12)
    assert 1 <= fits.accept_fast.effective_count < fits.accept_fast.count


def test_rows_without_an_answer_do_not_count():
    scores = make_scores(slow=False)
    unknown = np.random.default_rng(6).random(len(scores)) < 0.3
    masked = changed(scores, unknown, y_accept=np.nan)
    fits = protocol.calibrate(masked)
    assert fits.accept_fast == protocol.calibrate(scores.take(~unknown)).accept_fast
    assert fits.need_fast == protocol.calibrate(scores).need_fast


def test_a_temperature_at_a_bound_warns_with_the_signals_name():
    scores = make_scores(slow=False)
    sure = changed(scores, scores.split == "calibration", p_need_fast=np.where(scores.y_need == 1, 0.6, 0.4))
    with pytest.warns(measures.CalibrationWarning, match="p_need_fast: temperature"):
        protocol.calibrate(sure)


@pytest.mark.parametrize("split", ["calibration", "test"])
def test_an_empty_split_is_refused_by_name(split):
    scores = make_scores()
    with pytest.raises(ScoresError, match=rf"split: found no row of the split '{split}' \(there are 960 of 'other'\)"):
        splits.rows_of(changed(scores, True, split="other"), split)
    bare = Scores.from_columns(without(scores.columns(), "split"))
    with pytest.raises(ScoresError, match=rf"split: found no such column, expected it to name the split '{split}'"):
        splits.rows_of(bare, split)


def test_labels_that_no_temperature_can_be_fitted_on_are_refused():
    scores = make_scores()
    with pytest.raises(ScoresError, match=r"y_need: cannot calibrate p_need_fast: .*only the label 1"):
        protocol.calibrate(changed(scores, True, y_need=1.0))
    with pytest.raises(ScoresError, match="y_accept: found no label on the calibration split"):
        protocol.calibrate(changed(scores, True, y_accept=np.nan))
    with pytest.raises(ScoresError, match="y_need: found no such column beside p_need_fast"):
        protocol.calibrate(Scores.from_columns(without(scores.columns(), "y_need")))


def test_a_test_split_without_a_judged_step_is_refused():
    scores = make_scores()
    fits = protocol.calibrate(scores)
    with pytest.raises(ScoresError, match=r"split 'test': found no step with both y_need and y_accept among 480"):
        protocol.evaluate(changed(scores, True, y_accept=np.nan), fits, POINT)


# calibration.json


@pytest.mark.parametrize(("fitted", "scored"), [("marginal", "given_accept"), ("given_accept", "marginal")])
def test_maps_of_one_meaning_of_need_are_refused_for_scores_of_the_other(tmp_path, fitted, scored):
    """p_need alone has a meaning: maps of acceptance apply to either."""
    columns = make_columns(streams=60)
    path, n = tmp_path / "calibration.json", len(columns["step"])
    tables = {name: Scores.from_columns({**columns, "need_target": [name] * n}) for name in (fitted, scored)}
    write_calibration(path, protocol.calibrate(tables[fitted]))
    assert json.loads(path.read_text())["need_target"] == fitted
    fits = read_calibration(path)
    assert fits == protocol.calibrate(tables[fitted])
    protocol.evaluate(tables[fitted], fits, POINT)
    with pytest.raises(ScoresError, match=f"found {scored}, expected {fitted}, which the calibration was fitted on"):
        protocol.evaluate(tables[scored], fits, POINT)
    fits.calibrated("accept", "fast", tables[scored])


@pytest.mark.parametrize("config", [None, measures.CalibrationConfig("platt"), measures.CalibrationConfig("isotonic")])
def test_scores_that_are_calibrated_already_are_taken_as_they_are(config):
    raw = make_scores(streams=20)
    marked = dataclasses.replace(raw, calibrated=np.ones(len(raw)))
    calibration = protocol.calibrate(marked, config)
    _, in_parts, _ = planned(over([marked]), POINT, config)
    assert calibration.identity and in_parts.identity and not protocol.calibrate(raw, config).identity
    assert calibration.origin == "with probabilities as they are"
    np.testing.assert_array_equal(calibration.calibrated("accept", "fast", marked), marked.p_accept_fast)
    gate = Gate.fit(marked, c_fa=1.0, c_fn=2.0, calibrator="platt")
    assert (gate.accept, gate.need, gate(0.9, 0.4).p_accept) == (None, None, 0.4)
    with pytest.raises(ScoresError, match="calibrated: found true, expected no such column: maps take raw"):
        protocol.calibrate(raw, config).calibrated("accept", "fast", marked)
    with pytest.raises(ScoresError, match="calibrated: found true, expected no such column: maps are fitted on raw"):
        recalibrate(marked, POINT, measures.CalibrationConfig())


def test_a_log_is_exported_calibrated_unless_it_is_plain():
    rng = np.random.default_rng(0)
    score, person = rng.random(400), np.repeat(np.arange(10, dtype=np.int32), 40)
    taken, made = (rng.random(400) < score) * 1.0, np.ones(400, bool)
    names = tuple(f"p{i}" for i in range(10))
    log = AcceptanceLog(names, person, taken, np.arange(400.0), False, made, score)
    exported = scores_of_log(log, "score, Platt")
    assert protocol.calibrate(exported).identity and scores_of_log(log, None).calibrated is None
    rates = {Gate.fit(table, c_fa=1.0, c_fn=2.0)(1.0, 0.4).p_accept for table in (exported, exported.take(made))}
    assert rates == {0.4}


def test_an_exported_log_does_not_replace_the_log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("who,took,p\na,1,0.4\n")
    columns = parse_columns(["person=who", "accepted=took", "score=p"])
    with pytest.raises(ValueError, match=r"--scores_out: found .*log.csv, the file of --scores, expected another"):
        evaluate_log(path, columns, tmp_path / "out", Question(1.0, 2.0), scores_out=str(path))
    assert path.read_text().startswith("who") and not (tmp_path / "out").exists()


def test_a_calibration_that_does_not_say_what_need_means_is_of_the_marginal_need(tmp_path):
    path = tmp_path / "calibration.json"
    write_calibration(path, protocol.calibrate(make_scores()))
    tree = json.loads(path.read_text())
    del tree["need_target"]
    path.write_text(json.dumps(tree))
    assert read_calibration(path).need_target == "marginal"
