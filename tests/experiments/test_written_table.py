"""The table on p_accept before and after the text: its numbers from other libraries, and what it is skipped for."""

import dataclasses

import numpy as np
import pytest
from paper_study import SETTINGS, cells, columns, given_of, study_of
from sklearn.metrics import brier_score_loss, roc_auc_score

from prism_jax.decision.calibration import fit_temperature
from prism_jax.evaluation import protocol, splits
from prism_jax.experiments.paper import drawing, runner, written
from prism_jax.experiments.paper.study import PAPER, SkippedError
from prism_jax.runs.running import Running
from prism_jax.scores import Scores


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


@pytest.fixture(scope="module")
def values():
    """A first reading that knows little of the label, a second one that knows more, and silence at every fifth step."""
    found, rng = columns(slow=False), np.random.default_rng(5)
    n = len(found["stream"])
    y = (rng.random(n) < 0.4).astype(float)
    known = 2 * y - 1 + rng.normal(size=n)
    second = np.where(np.arange(n) % 5 == 0, np.nan, sigmoid(2 * known))
    return found | {"y_accept": y, "p_accept_fast": sigmoid(rng.normal(size=n) + 0.3 * y), "p_accept_written": second}


def test_both_readings_have_the_numbers_of_other_libraries(values):
    (sheet,) = written.make(study_of(values)).sheets
    table = Scores.from_columns(values)
    table = table.take(~np.isnan(table.p_accept_written))
    calibrated, tested = table.split == "calibration", table.split == "test"
    costs = []
    for name, p in (("before writing", table.p_accept_fast), ("after writing", table.p_accept_written)):
        temperature = fit_temperature(p[calibrated], table.y_accept[calibrated])
        p_test, y = p[tested], table.y_accept[tested]
        row = cells(sheet, name)
        assert row["t"].value == pytest.approx(temperature)
        assert row["auroc"].value == pytest.approx(roc_auc_score(y, p_test))
        assert row["auroc"].low < row["auroc"].value < row["auroc"].high
        fitted = sigmoid(np.log(p_test / (1 - p_test)) / temperature)
        assert row["brier"].value == pytest.approx(brier_score_loss(y, fitted))
        swapped = dataclasses.replace(table, p_accept_fast=p, p_need_slow=None, p_accept_slow=None)
        evaluation = protocol.evaluate(swapped, protocol.calibrate(swapped), PAPER)
        assert row["cost"].value == pytest.approx(evaluation.deployed.realised_cost)
        costs.append(row["cost"].value)
    change = cells(sheet, "after minus before")
    assert change["cost"].value == pytest.approx(costs[1] - costs[0])
    for name in ("auroc", "brier", "ece"):
        first, second = (cells(sheet, line)[name].value for line in ("before writing", "after writing"))
        assert change[name].value == pytest.approx(second - first)
    assert change["auroc"].low > 0  # the second reading does know more
    assert f"{tested.sum()} of {len(splits.evaluated_rows(Scores.from_columns(values)))} test steps" in sheet.note


def test_a_second_reading_that_is_the_first_changes_nothing(values):
    same = np.where(np.isnan(values["p_accept_written"]), np.nan, values["p_accept_fast"])
    (sheet,) = written.make(study_of(values | {"p_accept_written": same})).sheets
    for cell in cells(sheet, "after minus before").values():
        assert cell.value == 0 and (np.isnan(cell.low) or cell.low == cell.high == 0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"p_accept_written": None}, r"there is no column p_accept_written, which `python -m prism_jax score"),
        ({"p_accept_written": np.nan}, "p_accept_written: found null everywhere"),
        ({"y_accept": 0.5}, "y_accept: expected at most 10000 labels of 0 and 1 without weights"),
        ({"y_accept": 1.0}, "where a text was written, .*cannot calibrate p_accept_fast"),
    ],
)
def test_what_it_lacks_is_named(values, changes, words):
    n = len(values["stream"])
    filled = {name: None if value is None else np.full(n, value) for name, value in changes.items()}
    given = {name: column for name, column in (values | filled).items() if column is not None}
    study = dataclasses.replace(study_of(values), scores=Scores.from_columns(given))
    with pytest.raises(SkippedError, match=words):
        written.make(study)


def test_it_is_made_by_name_and_skipped_where_rows_are_read_in_parts(values, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(drawing, "can_draw", lambda: False)
    inputs = given_of(values, tmp_path / "out")
    assert runner.run_experiments(["written"], inputs, tmp_path / "out") == ["written"]
    assert "after minus before" in capsys.readouterr().out
    parts = dataclasses.replace(inputs, running=Running(most=0, workers=1))
    assert runner.run_experiments(["written", "thresholds"], parts, tmp_path / "parts") == ["thresholds"]
    assert "skipped written: it compares pairs of rows, and these are read part by part" in capsys.readouterr().out
    assert SETTINGS.resamples == 20
