"""The gate as one object: what it decides, where it comes from, and what it loads."""

import dataclasses
import json
import math
import subprocess
import sys
import warnings

import jaxtyping
import numpy as np
import pandas as pd
import pytest

from prism_jax import Gate, Verdict
from prism_jax.agent.serving import gate_of
from prism_jax.decision import gate as formulas
from prism_jax.decision.arrays import log_odds
from prism_jax.decision.calibration import (
    CALIBRATORS,
    CalibrationConfig,
    CalibrationWarning,
    GroupedTemperature,
    Platt,
    Temperature,
    fit_isotonic,
    map_to_dict,
)
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.policies import DEPLOYABLE, POLICIES
from prism_jax.evaluation.protocol import calibrate
from prism_jax.report import outputs
from prism_jax.scores import Scores, ScoresError, write_scores

RNG = np.random.default_rng(0)
NEED, ACCEPT = RNG.random((2, 400))
MAPS = {
    "none": None,
    "temperature": Temperature(1.7),
    "platt": Platt(0.6, -0.3),
    "bounded": Platt(0.6, -0.3, 2.5),
    "isotonic": fit_isotonic(NEED, (RNG.random(400) < NEED**2).astype(float)),
}


@pytest.mark.parametrize("policy", DEPLOYABLE)
@pytest.mark.parametrize("name", MAPS)
def test_a_verdict_is_the_formula_on_calibrated_signals(policy, name):
    fitted = MAPS[name]
    gate = Gate(
        OperatingPoint(c_fa=1.5, c_fn=2.5, policy=policy, fixed_threshold=0.4), accept=fitted, need=Temperature(0.8)
    )
    need = Temperature(0.8)(NEED)
    accept = ACCEPT if fitted is None else fitted(ACCEPT)
    verdict = gate(NEED, ACCEPT)
    np.testing.assert_array_equal(verdict.speak, formulas.decide(need, accept, 1.5, 2.5, policy, fixed_threshold=0.4))
    np.testing.assert_array_equal(verdict.p_need, need)
    np.testing.assert_array_equal(verdict.p_accept, accept)
    np.testing.assert_array_equal(verdict.threshold, POLICIES[policy].threshold(need, 1.5, 2.5, 0.4))
    if policy not in ("always", "never"):
        away = np.abs(accept - verdict.threshold) > 1e-12
        np.testing.assert_array_equal(verdict.speak[away], (accept >= verdict.threshold)[away])
    for row in range(0, 400, 57):
        alone = gate(float(NEED[row]), float(ACCEPT[row]))
        assert (type(alone.speak), type(alone.threshold)) == (bool, float)
        assert alone.speak == verdict.speak[row]
        assert alone.reason == verdict.reason[row]


def test_a_verdict_is_true_where_it_speaks_and_arrays_are_no_truth():
    gate = Gate.at_costs(c_fa=1.0, c_fn=2.0)
    assert gate(0.9, 0.9) and not gate(0.9, 0.1) and not gate(np.float64(0.9), np.array(0.1))
    for several in ([0.9, 0.1], [0.9], [[0.9]]):
        with pytest.raises(ValueError, match=r"verdict: found decisions of the shape \(.*\), expected one; `verdict"):
            bool(gate(0.9, several))


def test_without_need_acceptance_alone_decides():
    gate = Gate(OperatingPoint(c_fa=1.0, c_fn=3.0), need=Platt(1.0, 5.0))
    for asked in (gate, gate.person("ada")):
        with pytest.raises(ValueError, match=r"p_need: found none, expected .* ask dataclasses.replace\(gate, need=N"):
            asked(p_accept=0.9)
    gate = dataclasses.replace(gate, need=None)
    for p_accept, speaks in ((0.24, False), (0.25, True), (0.9, True), (0.0, False)):
        verdict = gate(p_accept=p_accept)
        assert (verdict.speak, verdict.p_need, verdict.threshold) == (speaks, 1.0, 0.25)
    assert gate(p_accept=0.1).reason == "silent: 0.10 < 0.25"
    assert Gate(OperatingPoint())(0.0, 0.99).reason == "silent: no acceptance suffices at a need of 0"
    assert Gate(OperatingPoint(policy="always"))(0.0, 0.1).reason == "offer: policy always"


def test_temperatures_of_domains_ask_for_the_domain():
    grouped = GroupedTemperature({"code": 2.0, "mail": 0.5}, 1.0)
    gate = Gate(OperatingPoint(), accept=grouped)
    verdict = gate(1.0, [0.7, 0.7, 0.7], domain=["code", "mail", "other"])
    np.testing.assert_allclose(verdict.p_accept, [Temperature(t)(0.7) for t in (2.0, 0.5, 1.0)], rtol=1e-15)
    assert gate(1.0, 0.7, domain="mail").p_accept == verdict.p_accept[1]
    with pytest.raises(ValueError, match=r"^domain: found none, expected the domain of each decision"):
        gate(1.0, 0.7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.5, 1.2), r"^p_accept: found 1.2, expected a probability"),
        ((float("nan"), 0.5), r"^p_need: found nan, expected a probability"),
        ((0.5,), r"^p_accept: found none, expected"),
        ((np.ones(3), np.ones(2)), r"^p_need \(3,\), p_accept \(2,\): found shapes that do not broadcast"),
    ],
)
def test_bad_signals_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Gate(OperatingPoint(), accept=Temperature(2.0))(*arguments)


@pytest.mark.parametrize("name", MAPS)
def test_what_is_saved_is_loaded(name, tmp_path):
    gate = Gate(OperatingPoint(c_fa=0.3, c_fn=7.0, policy="product"), MAPS[name], Temperature(3.0), "given_accept")
    gate.save(tmp_path / "gate.json")
    for path in (tmp_path, tmp_path / "gate.json"):
        loaded = Gate.load(path)
        assert loaded.point == gate.point and loaded.need_target == "given_accept"
        np.testing.assert_array_equal(loaded(NEED, ACCEPT).p_accept, gate(NEED, ACCEPT).p_accept)
    assert Gate.load(tmp_path, c_fn=1.0).point.cost_ratio == 1 / 0.3


def test_saving_says_that_people_are_left_out(tmp_path):
    gate = Gate.at_costs(c_fa=1.0, c_fn=2.0)
    ada = gate.person("ada")
    ada.learn(ada(p_need=0.9, p_accept=0.8), accepted=False)
    with pytest.warns(UserWarning, match=r"gate\.json does not hold what answers taught of 1; they are in"):
        gate.save(tmp_path / "gate.json")
    assert not Gate.load(tmp_path / "gate.json").people


def test_the_workdir_of_an_evaluation_is_a_gate(tmp_path):
    """Older ones hold calibration.json alone, and then the costs of the run's config or of the caller."""
    rest = {"base_rate": 0.5, "count": 10, "effective_count": 10.0, "offer_rate": None}
    fits = {f"{signal}_fast": map_to_dict(Platt(2.0, at)) | rest for signal, at in (("need", 0.1), ("accept", 0.2))}
    (tmp_path / "calibration.json").write_text(json.dumps(fits | {"need_slow": None, "accept_slow": None}))
    with pytest.raises(ValueError, match=r"calibration.json: c_fa: found no cost, expected one in the file or as an"):
        Gate.load(tmp_path)
    gate = Gate.load(tmp_path, c_fa=1.0, c_fn=2.0)
    assert (gate.accept, gate.need) == (Platt(2.0, 0.2), Platt(2.0, 0.1))
    (tmp_path / "config.json").write_text(json.dumps({"decision": {"c_fa": 2.0, "c_fn": 3.0, "policy": "static"}}))
    assert Gate.load(tmp_path).point == OperatingPoint(c_fa=2.0, c_fn=3.0, policy="static")


@pytest.mark.parametrize("cost", [True, np.bool_(True), "2", [1.0], float("nan"), 10**400])
def test_a_cost_of_the_caller_that_is_no_number_is_refused_by_name(cost, tmp_path, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # else --thorough refuses the type before us
    Gate(OperatingPoint(), Temperature(2.0)).save(tmp_path / "gate.json")
    with pytest.raises(ValueError, match=r"gate\.json: c_fn: found .*, expected a finite number"):
        Gate.load(tmp_path, c_fn=cost)


def test_a_folder_without_a_gate_says_what_was_looked_for(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"found none of gate\.json, prism\.json and calibration\.json"):
        Gate.load(tmp_path)


def table(rng, rows, **more):
    """Scores of one candidate per step, half of them for calibration, with labels that follow the signals."""
    need, accept = rng.random((2, rows))
    columns = {
        "stream": [f"s{i // 5}" for i in range(rows)],
        "step": [i % 5 for i in range(rows)],
        "split": ["calibration" if i // 5 % 2 else "test" for i in range(rows)],
        "domain": [("code", "mail")[i // 5 % 4 // 2] for i in range(rows)],
        "p_need_fast": need,
        "p_accept_fast": accept,
        "y_need": (rng.random(rows) < need**2).astype(int),
        "y_accept": (rng.random(rows) < accept**0.5).astype(int),
        **more,
    }
    names = [name for name, column in columns.items() if column is not None]
    cells = zip(*(np.asarray(columns[name]).tolist() for name in names), strict=True)
    return Scores.from_rows([dict(zip(names, row, strict=True)) for row in cells])


@pytest.mark.parametrize("calibrator", CALIBRATORS)
@pytest.mark.parametrize("kind", ["plain", "weighted", "given accept", "without need"])
def test_it_fits_the_maps_that_evaluation_fits(calibrator, kind, tmp_path):
    rng = np.random.default_rng(5)
    made = rng.random(300) < 0.7
    answers = [int(yes) if seen else None for yes, seen in zip(rng.random(300) < 0.5, made, strict=True)]
    more = {
        "plain": {},
        "weighted": {"logged": made, "propensity": rng.uniform(0.2, 0.9, 300), "y_accept": answers},
        "given accept": {"need_target": ["given_accept"] * 300},
        "without need": {"p_need_fast": None, "y_need": None},
    }[kind]
    scores = table(rng, 300, **more)
    gate = Gate.fit(scores, c_fa=1.0, c_fn=2.0, calibrator=calibrator)
    fits = calibrate(scores, CalibrationConfig(calibrator))
    assert map_to_dict(gate.accept) == map_to_dict(fits.accept_fast.map)
    assert (gate.need is None) == (fits.need_fast is None) == (kind == "without need")
    if gate.need is not None:
        assert map_to_dict(gate.need) == map_to_dict(fits.need_fast.map)
    assert gate.need_target == fits.need_target
    write_scores(tmp_path / "scores.parquet", scores)
    assert Gate.fit(tmp_path / "scores.parquet", c_fa=1.0, c_fn=2.0, calibrator=calibrator).to_dict() == gate.to_dict()


@pytest.mark.filterwarnings("ignore:p_accept:prism_jax.decision.calibration.CalibrationWarning")
@pytest.mark.parametrize("stated", [False, True])
@pytest.mark.parametrize("calibrator", ["penalised", "temperature", "platt", "isotonic"])
def test_columns_fit_what_a_table_of_them_fits(calibrator, stated):
    rng = np.random.default_rng(5)
    votes = {"p_accept_fast": rng.integers(0, 6, 300) / 5} if stated else {}  # of five, so that 0 and 1 are among them
    scores = table(rng, 300, split=None, **votes)
    columns = {"p_need": scores.p_need_fast, "p_accept": scores.p_accept_fast}
    labels = {"y_need": scores.y_need, "y_accept": scores.y_accept}
    whole = Gate.fit(scores, c_fa=1.0, c_fn=2.0, calibrator=calibrator)
    fitted = Gate.fit(**columns, **labels, c_fa=1.0, c_fn=2.0, calibrator=calibrator)
    assert fitted.to_dict() == whole.to_dict()


class Series:
    """What a column of a data frame has in common: it becomes an array when NumPy asks."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)

    to_numpy = __array__


@pytest.mark.parametrize("unknown", [None, float("nan"), pd.NA], ids=["none", "nan", "NA"])
def test_columns_are_lists_arrays_or_series_and_labels_may_be_unknown(unknown):
    p_need, p_accept = NEED[:50], ACCEPT[:50]
    y_accept = [bool(p > 0.4) if i % 3 else unknown for i, p in enumerate(p_accept)]
    known = [i for i, y in enumerate(y_accept) if y is not unknown]
    costs = {"c_fa": 1.0, "c_fn": 2.0}
    alone = Gate.fit(p_accept=p_accept[known], y_accept=np.array([y_accept[i] for i in known]), **costs)
    for kind in (list, tuple, Series, pd.Series, lambda values: np.array(list(values), object)):
        gate = Gate.fit(p_need=kind(p_need), p_accept=kind(p_accept), y_accept=kind(y_accept), **costs)
        assert gate == alone and gate.need is None
    nullable = pd.DataFrame({"p": pd.array(p_accept, "Float64"), "y": pd.array(y_accept, "boolean")})
    assert Gate.fit(p_accept=nullable.p, y_accept=nullable.y, **costs) == alone
    spoken = alone(p_need, p_accept).speak
    for kind in (list, Series, pd.Series):
        np.testing.assert_array_equal(alone(kind(p_need), kind(p_accept)).speak, spoken)


def test_without_labels_columns_are_taken_as_they_are():
    plain, costs = Gate.at_costs(c_fa=1.0, c_fn=2.0), {"c_fa": 1.0, "c_fn": 2.0}
    assert Gate.fit(p_need=[], p_accept=[], y_need=[], y_accept=[], **costs) == plain
    assert Gate.fit(p_accept=pd.Series([], dtype=object), y_accept=[], **costs) == plain
    assert Gate.fit(p_need=[0.3], p_accept=[0.4], **costs) == plain
    with pytest.warns(CalibrationWarning, match="y_need: found no label in 2 rows, expected some; p_need is taken as"):
        assert Gate.fit(p_need=[0.3, 0.9], p_accept=[0.4, 0.5], y_need=[None, None], **costs) == plain


@pytest.mark.parametrize("accepted", [0, 1])
def test_the_first_labels_move_all_numbers_alike(accepted):
    """A map ends at the log-odds it was fitted on, and a few middling ones would cut off all that is clear."""
    p = np.array([0.05, 0.2, 0.5, 0.8, 0.95])
    for rows in (1, 2, 3):
        found = Gate.fit(p_accept=[0.6] * rows, y_accept=[accepted] * rows, c_fa=1.0, c_fn=2.0)(None, p).p_accept
        moved = log_odds(found) - log_odds(p)
        assert np.ptp(moved) < 0.25 and np.all((moved > 0) == accepted)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, r"scores: found none, expected a scores table, its file, or columns such as p_accept, y_accept"),
        ({"y_accept": [1]}, r"p_accept: found none beside y_accept, expected a probability for each row"),
        ({"p_accept": [0.5], "y_need": [1]}, r"p_need: found none beside p_accept, y_need, expected a probability"),
        ({"p_accept": [0.5, 0.4], "y_accept": [1]}, r"y_accept: found 1 rows, expected 2 as in p_accept"),
        ({"p_accept": [0.5, 0.4], "p_need": [0.5]}, r"p_need: found 1 rows, expected 2 as in p_accept"),
        ({"p_accept": [0.5], "y_accept": []}, r"y_accept: found 0 rows, expected 1 as in p_accept"),
        ({"p_accept": [0.5, math.nan]}, r"p_accept: found nan at index 1, expected a probability in \[0, 1\]: divide"),
        ({"p_accept": [59, 7]}, r"p_accept: found 59\.0 at index 0 \(2 of 2 .*: divide percentages by 100"),
        ({"p_accept": [0.5], "y_accept": [2]}, r"y_accept: found 2\.0 at index 0, expected a label in \[0, 1\], or"),
        ({"p_accept": [0.5] * 2, "y_accept": [1, "no"]}, r"y_accept\[1\]: found 'no', expected a number, or None"),
        ({"p_accept": [[0.5], [0.4]]}, r"p_accept: found shape \(2, 1\), expected a vector"),
        ({"p_accept": [[0.5], [0.4, 0.3]]}, r"p_accept: found rows of several lengths, expected one number for each"),
        ({"p_accept": 0.5}, r"p_accept: found shape \(\), expected a vector"),
        ({"p_accept": np.ma.array([0.5], mask=[True])}, r"p_accept: found a masked array \(1 of 1"),
        ({"p_accept": [0.5], "y_accept": [1], "calibrator": "grouped"}, r"calibrator: found 'grouped', expected one"),
        ({"p_accept": [0.5] * 2, "y_accept": [1, 1], "calibrator": "platt"}, r"y_accept: found only the label 1"),
        (
            {"p_accept": pd.Series([0.5, 0.4]), "y_accept": pd.Series([1, 0], index=[1, 0])},
            r"y_accept: found another index than p_accept, expected the same rows in the same order",
        ),
        ({"scores": "scores.jsonl", "p_accept": [0.5]}, r"scores: found a table beside p_accept, expected one or the"),
    ],
)
def test_bad_columns_are_named(columns, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        Gate.fit(**columns, c_fa=1.0, c_fn=2.0)


def test_the_files_of_a_folder_are_fitted_on_together(tmp_path):
    scores = table(np.random.default_rng(5), 300)
    number = scores.numbered("stream")[1]
    for i in range(2):
        write_scores(tmp_path / f"{i}.parquet", scores.take(number % 2 == i))
    ours, whole = (Gate.fit(of, c_fa=1.0, c_fn=2.0) for of in (tmp_path, scores))
    assert (ours.accept.scale, ours.accept.bias) == pytest.approx((whole.accept.scale, whole.accept.bias), rel=1e-9)


def test_the_gate_that_an_evaluation_writes_is_the_one_that_it_deploys(tmp_path):
    scores, point = table(np.random.default_rng(6), 300), OperatingPoint(c_fn=3.0, policy="product")
    outputs.evaluate_into(
        tmp_path, scores, point, facts={}, keep_scores=False, calibrator=CalibrationConfig("penalised")
    )
    fitted = Gate.fit(scores, c_fa=1.0, c_fn=3.0, policy="product")
    assert dataclasses.replace(Gate.load(tmp_path), caution="").to_dict() == fitted.to_dict()


def test_what_is_no_table_is_refused_with_what_makes_one():
    with pytest.raises(ValueError, match="scores: found a list, expected a scores table or its file; give columns by"):
        Gate.fit([{"p_accept_fast": 0.5}], c_fa=1.0, c_fn=2.0)


def test_where_all_probabilities_are_certain_no_other_is_said_to_bound_them():
    scores = table(np.random.default_rng(8), 300, p_accept_fast=[float(i % 3 > 0) for i in range(300)])
    with pytest.warns(CalibrationWarning, match=r"log-odds of 3.04, that of 1 label in 22, as all beyond"):
        Gate.fit(scores, c_fa=1.0, c_fn=2.0)


def test_rows_of_other_splits_are_never_fitted_on():
    scores = table(np.random.default_rng(8), 300, split=["test"] * 300)
    with pytest.raises(ScoresError, match="split: found no row of the split 'calibration', expected some"):
        Gate.fit(scores, c_fa=1.0, c_fn=2.0)
    folds = table(np.random.default_rng(8), 300, split=["test"] * 300, fold=[i // 5 % 3 for i in range(300)])
    expected = calibrate(folds, CalibrationConfig("penalised")).accept_fast.map
    assert map_to_dict(Gate.fit(folds, c_fa=1.0, c_fn=2.0).accept) == map_to_dict(expected)


@pytest.mark.parametrize("calibrator", ["penalised", "temperature"])
def test_a_bias_of_shown_offers_without_propensities_is_warned_about(calibrator):
    shown = np.arange(300) % 3 > 0
    columns = {"logged": shown, "y_accept": [int(i % 2) if yes else None for i, yes in enumerate(shown)]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        Gate.fit(table(np.random.default_rng(9), 300, **columns), c_fa=1.0, c_fn=2.0, calibrator=calibrator)
        given = len([one for one in caught if "p_accept_fast: all 100 labels" in str(one.message)])
        Gate.fit(table(np.random.default_rng(9), 300, **columns, propensity=[0.5] * 300), c_fa=1.0, c_fn=2.0)
    assert given == (calibrator == "penalised")
    assert not [one for one in caught[given:] if "without a propensity" in str(one.message)]


def test_a_caution_is_kept_by_the_file_and_said_where_it_decides(tmp_path, capsys):
    gate = Gate(OperatingPoint(), Platt(0.6, -0.3, 2.5), caution="never offering costs less")
    gate.save(tmp_path / "gate.json")
    assert Gate.load(tmp_path) == gate == gate_of({"gate": str(tmp_path / "gate.json")})
    assert capsys.readouterr().err == f"{tmp_path}/gate.json: never offering costs less\n"


def test_labels_of_one_class_are_named():
    scores = table(np.random.default_rng(7), 50, y_accept=[1] * 50)
    with pytest.raises(ScoresError, match="y_accept: cannot calibrate p_accept_fast: y: found only"):
        Gate.fit(scores, c_fa=1.0, c_fn=2.0)


def test_deciding_and_fitting_load_no_jax(tmp_path):
    Gate(OperatingPoint(), Temperature(2.0), Platt(1.0, 0.0)).save(tmp_path / "gate.json")
    program = f"""
import sys
from prism_jax import Gate
verdict = Gate.load({str(tmp_path)!r})(0.8, 0.7)
print(verdict.speak, verdict.reason)
print(sorted({{"jax", "jaxlib", "flax", "pyarrow", "scipy.stats"}} & set(sys.modules)))
ada = Gate.fit(p_need=[0.9, 0.2], p_accept=[0.8, 0.7], y_accept=[1, 0], c_fa=1.0, c_fn=2.0).person("ada")
ada.learn(ada(0.9, 0.9), accepted=True)
print(sorted({{"jax", "jaxlib", "flax"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["True offer: 0.60 >= 0.38", "[]", "[]"]


def test_at_costs_takes_probabilities_as_they_are():
    gate = Gate.at_costs(c_fa=1.0, c_fn=2.0)
    assert gate(p_need=0.7, p_accept=0.45) == Verdict(True, 0.7, 0.45, 1 / 2.4)
    with pytest.raises(ValueError, match="c_fa"):
        Gate.at_costs(c_fa=-1.0, c_fn=2.0)
