import json
import re
import subprocess
import sys

import numpy as np
import pytest
from synthetic_scores import IDENTITY, POINT, changed, evaluate, make_columns, make_scores, without

from prism_jax.evaluation import protocol, splits
from prism_jax.report import tables
from prism_jax.scores import Scores


def test_signals_are_measured_by_the_decision_librarys_own_measures():
    scores = make_scores(seed=11)
    fits = protocol.calibrate(scores)
    evaluation = protocol.evaluate(scores, fits, POINT)
    assert [(row.signal, row.thinking, row.form) for row in evaluation.signals] == [
        (signal, thinking, form)
        for thinking in ("fast", "slow")
        for signal in ("need", "accept")
        for form in ("raw", "calibrated")
    ]
    rows = splits.rows_of(scores, "test")
    for row in evaluation.signals:
        fit = fits.fit(row.signal, row.thinking)
        p, y = getattr(rows, f"p_{row.signal}_{row.thinking}"), getattr(rows, f"y_{row.signal}")
        true = getattr(rows, f"p_{row.signal}_true")
        assert row.temperature == (1.0 if row.form == "raw" else fit.temperature)
        p = 1 / (1 + np.exp(-np.log(p / (1 - p)) / row.temperature))
        edges = np.linspace(0, 1, 16)
        bins = np.clip(np.searchsorted(edges, p, side="right") - 1, 0, 14)
        gaps = [abs((p - y)[bins == k].sum()) for k in range(15)]
        assert row.ece == pytest.approx(sum(gaps) / len(p), rel=1e-9)
        assert row.brier == pytest.approx(np.mean((p - y) ** 2), rel=1e-9)
        assert row.nll == pytest.approx(-np.mean(np.log(np.where(y == 1, p, 1 - p))), rel=1e-9)
        assert row.distance == pytest.approx(np.abs(p - true).mean(), rel=1e-9)
        assert row.constant_distance == pytest.approx(np.abs(fit.base_rate - true).mean(), rel=1e-9)
        assert row.reliability.count.sum() == row.count == 480
        if row.form == "calibrated":
            assert row.ece < 0.1


def test_measures_take_the_acceptance_weights():
    columns = make_columns(seed=12, logging=True)
    scores = Scores.from_columns(columns)
    row = next(row for row in evaluate(scores).signals if (row.signal, row.form) == ("accept", "raw"))
    rows = splits.rows_of(scores, "test")
    seen = rows.logged == 1
    weight = np.minimum(1 / np.maximum(rows.propensity[seen], 0.05), 20)
    square = (rows.p_accept_fast - rows.y_accept)[seen] ** 2
    assert row.count == seen.sum() < len(rows)
    assert row.brier == pytest.approx((weight * square).sum() / weight.sum(), rel=1e-12)
    everywhere = np.abs(rows.p_accept_fast - rows.p_accept_true).mean()
    assert row.distance == pytest.approx(everywhere, rel=1e-12)


# What is switched off, and the record as a whole


@pytest.mark.parametrize(
    ("missing", "message", "gone"),
    [
        (["p_both_true"], "Bayes oracle, regret, gap .* truth: there is no column p_both_true", "bayes"),
        (["p_accept_true"], "there is no column p_accept_true", "bayes"),
        (["propensity"], r"inverse-propensity weights \(all are 1\): there is no column propensity", None),
        (["p_need_slow", "p_accept_slow"], "slow pass: there is no column p_", "slow_only"),
        (["tokens_slow"], "slow on value: there is no column tokens_slow", "slow_on_value"),
    ],
)
def test_a_missing_column_switches_off_by_name_what_needs_it(missing, message, gone):
    columns = make_columns(logging=True) | {"tokens_slow": np.full(960, 100)}
    evaluation = evaluate(Scores.from_columns(without(columns, *missing)))
    assert len(evaluation.switched_off) == 1
    assert re.search(message, evaluation.switched_off[0])
    assert gone not in [row.policy for row in evaluation.policies]


@pytest.mark.parametrize("names", [("logged",), ("propensity",), ("logged", "propensity")])
def test_a_log_that_is_null_in_every_row_is_as_good_as_none(names):
    columns = make_columns(slow=False, streams=20)
    without = evaluate(Scores.from_columns(columns))
    log = {"logged": np.ones(len(columns["step"])), "propensity": np.full(len(columns["step"]), 0.5)}
    log |= {name: np.full(len(columns["step"]), np.nan) for name in names}
    found = evaluate(Scores.from_columns(columns | log))
    assert f"inverse-propensity weights (all are 1): {names[0]} is null on every test step" in found.switched_off
    assert found.to_dict()["policies"] == without.to_dict()["policies"]
    assert [row.nll for row in found.signals] == [row.nll for row in without.signals]


def test_a_signal_that_is_null_in_places_switches_off_what_needs_it_everywhere():
    scores = make_scores(logging=True)
    one = np.arange(len(scores)) == np.flatnonzero(scores.split == "test")[0]
    evaluation = evaluate(changed(scores, one, p_need_slow=np.nan, p_accept_slow=np.nan, p_both_true=np.nan))
    assert sorted(evaluation.switched_off) == [
        "Bayes oracle, regret, gap closed and distance to the truth: p_both_true is null on 1 of 480 test steps",
        "slow pass: p_accept_slow is null on 1 of 480 test steps",
    ]
    assert evaluation.deployed.policy == "dynamic"
    assert evaluation.deployed.gap_closed is None


def test_answers_known_only_where_help_was_needed_are_said_to_leave_needless_offers_out():
    columns = make_columns(slow=False, streams=20)
    assert not any("nobody needs" in line for line in evaluate(Scores.from_columns(columns)).switched_off)
    columns["y_accept"] = np.where(columns["y_need"] == 0, np.nan, columns["y_accept"])
    evaluation = evaluate(Scores.from_columns(columns))
    needless = int((splits.rows_of(Scores.from_columns(columns), "test").steps().y_need == 0).sum())
    said = f"offers that nobody needs: y_accept is unknown at all {needless} test steps whose y_need is 0"
    assert needless and any(line.startswith(said) for line in evaluation.switched_off)


def test_the_share_of_steps_with_all_fields_right_is_that_of_the_test_steps_that_say_so():
    columns = make_columns(logging=True)
    steps = np.unique(np.stack([columns["stream"], columns["step"].astype(str)], 1), axis=0, return_inverse=True)[1]
    share = np.array([1.0, 0.75, np.nan, 1.0])[steps.ravel() % 4]
    scores = Scores.from_columns({**columns, "fields_correct": share})
    test = splits.rows_of(scores, "test").steps().fields_correct
    expected = np.nanmean(np.where(np.isnan(test), np.nan, test == 1))
    evaluation = evaluate(scores)
    assert evaluation.counts.fields_correct == pytest.approx(expected) and 0.5 < expected < 0.8
    assert f"wrote all fields right at {100 * expected:.1f} % of the steps" in tables.what_was_measured(evaluation)
    assert evaluate(Scores.from_columns(columns)).counts.fields_correct is None


def test_the_smallest_table_is_evaluated():
    names = ("stream", "step", "split", "p_need_fast", "p_accept_fast", "y_need", "y_accept")
    columns = make_columns()
    evaluation = evaluate(Scores.from_columns({name: columns[name] for name in names}))
    assert len(evaluation.switched_off) == 3
    assert evaluation.deployed.policy == "dynamic"
    assert evaluation.deployed.regret is None
    with pytest.raises(KeyError, match="expected one of always, never, clairvoyant, fixed"):
        evaluation.policy("bayes")


def test_a_step_decides_on_its_likeliest_candidate_and_masks_the_others():
    columns = {
        "stream": ["a"] * 4,
        "step": [0, 0, 1, 1],
        "candidate": [0, 1, 0, 1],
        "split": ["test"] * 4,
        "p_need_fast": [0.9] * 4,
        "p_accept_fast": [0.2, 0.9, 0.8, 0.3],
        "y_need": [1.0] * 4,
        "y_accept": [0.0, 1.0, None, 1.0],
    }
    evaluation = protocol.evaluate(Scores.from_columns(columns), IDENTITY, POINT)
    counts = evaluation.counts
    assert (counts.rows, counts.steps, counts.judged, counts.accept_unknown, counts.need_unknown) == (4, 2, 1, 1, 0)
    row = evaluation.deployed
    assert (row.tp, row.realised_cost, row.speak_rate) == (1.0, 0.0, 1.0)
    assert evaluation.trace.p_accept.tolist() == [0.9, 0.8]


def test_the_record_is_plain_json_without_nan_and_always_the_same():
    scores = make_scores(logging=True)
    first, second = (json.dumps(evaluate(scores).to_dict(), allow_nan=False) for _ in range(2))
    assert first == second
    tree = json.loads(first)
    never = next(row for row in tree["policies"] if row["policy"] == "never")
    assert never["precision"] is None and never["recall"] == 0.0
    names = {"point", "counts", "policies", "ratios", "signals", "groups", "switched_off", "population", "calibrated"}
    names |= {"second_signal", "dependence", "need_given_accept", "has_need", "unit", "units"}
    assert set(tree) - {"caution"} == names | {"triggers"}
    assert set(evaluate(make_scores(slow=False)).to_dict()) - {"caution"} == names


@pytest.mark.slow
def test_evaluation_loads_no_language_model_library():
    code = "import prism_jax.evaluation.protocol, prism_jax.report.page, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"flax", "transformers", "torch", "tensorflow"} & set(loaded)
    ours = {name.split(".")[1] for name in loaded if name.startswith("prism_jax.")}
    assert ours == {"decision", "evaluation", "report", "runtime", "scores", "streams"}
