"""A table without need: acceptance alone is evaluated, what is about need is absent, and people are resampled."""

import dataclasses
import json
import re

import numpy as np
import pytest
from etils import epath
from synthetic_scores import POINT, evaluate, make_columns, without
from test_slow_candidates import check_row, count_by_hand

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.uncertainty import Bounds, Cells, interval
from prism_jax.evaluation import protocol, splits
from prism_jax.evaluation.fits import read_calibration, write_calibration
from prism_jax.experiments.paper import runner
from prism_jax.experiments.paper.study import IntervalSettings
from prism_jax.report import page, tables
from prism_jax.scores import Scores, ScoresError, write_scores

NEED = ("p_need_fast", "p_need_slow", "y_need", "p_need_true", "p_both_true")


def alone(**knobs):
    """A table without need whose people have four streams each."""
    columns = without(make_columns(streams=40, steps=6, **knobs), *NEED)
    person = [int(stream.removeprefix("stream-")) // 4 for stream in columns["stream"]]
    split = [("calibration", "test")[number % 2] for number in person]
    return {**columns, "person": [f"person {number}" for number in person], "split": split}


@pytest.fixture(scope="module")
def scores():
    return Scores.from_columns(alone(slow=False))


@pytest.fixture(scope="module")
def evaluation(scores):
    return evaluate(scores)


def test_rows_are_those_of_a_need_that_is_certain(scores, evaluation):
    fits, steps = protocol.calibrate(scores), splits.rows_of(scores, "test")
    ones = np.ones(len(steps))
    need = {"p_need_fast": ones, "y_need": ones, "p_both_true": steps.p_accept_true}
    raw = dataclasses.replace(steps, **need)
    read = {None: raw, "raw": raw}
    read["calibrated"] = dataclasses.replace(raw, p_accept_fast=fits.calibrated("accept", "fast", steps))
    for row in evaluation.policies:
        check_row(row, count_by_hand(read[row.form], row.policy, POINT)[0])
        assert row.realised_cost == row.gold_cost


def test_everything_about_need_is_absent_by_name(scores, evaluation, tmp_path):
    assert {row.policy for row in evaluation.policies} == {
        *("always", "never", "bayes", "clairvoyant", "fixed", "dynamic")
    }
    assert {row.signal for row in evaluation.signals} == {"accept"}
    for table in tables.all_tables(evaluation):
        assert table.title.endswith(", p_accept alone")
        labels = {column.label for column in table.columns}
        assert not {"ECE need", "gold cost"} & labels
    assert "p_accept alone" in tables.what_was_measured(evaluation)
    assert any(line.startswith("need: there is no column p_need_fast") for line in evaluation.switched_off)
    assert json.loads(json.dumps(evaluation.to_dict()))["has_need"] is False
    fits = protocol.calibrate(scores)
    write_calibration(tmp_path / "calibration.json", fits)
    assert json.loads((tmp_path / "calibration.json").read_text())["need_fast"] is None
    assert read_calibration(tmp_path / "calibration.json") == fits
    html = page.render(evaluation, protocol.explore(scores, fits, evaluation.point), fits)
    assert '"hasNeed":false' in html and "Temperature of p_accept" in html
    for words in ("Temperature of p_need", "p_need</th>", "p_need</li>", "needed and accepted<", 'class="line need"'):
        assert words not in html


def test_intervals_are_over_people_and_say_so(scores, evaluation):
    steps = splits.rows_of(scores, "test")
    assert (evaluation.unit, evaluation.counts.people, evaluation.counts.streams) == ("people", 5, 20)
    person = np.unique(steps.person.astype(str), return_inverse=True)[1]
    sums = [np.bincount(person, one) for one in (1 - steps.y_accept, np.ones(len(steps)))]
    cells, between = Cells(np.stack(sums, axis=1), np.ones(5, np.int64)), Bounds(0.0, max(POINT.c_fa, POINT.c_fn))
    found = interval(cells, lambda t: t[..., 0] / t[..., 1], bounds=between)
    always = evaluation.policy("always")
    assert (always.realised_low, always.realised_high) == pytest.approx((float(found.low), float(found.high)))
    notes = " ".join(table.note for table in tables.all_tables(evaluation))
    assert "95 % intervals over 5 people" in notes and "intervals over 20" not in notes


def test_people_of_one_stream_each_change_nothing(scores):
    columns = scores.columns()
    named = Scores.from_columns({**columns, "person": columns["stream"]})
    bare = Scores.from_columns(without(columns, "person"))
    assert repr(evaluate(named).policies) == repr(evaluate(bare).policies)
    assert evaluate(named).unit == "streams"


def test_the_slow_pass_and_log_need_no_need():
    columns = alone(logging=True) | {"tokens_slow": np.full(240, 20)}
    found = evaluate(Scores.from_columns(columns), OperatingPoint(trigger="value", price=1e-4))
    assert found.deployed.policy == "slow_on_value"
    assert found.triggers is not None and found.counts.effective < found.counts.judged
    assert {(row.signal, row.thinking) for row in found.signals} == {("accept", "fast"), ("accept", "slow")}


def test_one_only_of_the_two_columns_is_an_error():
    columns = make_columns(streams=4, slow=False)
    words = "p_need_fast: found no such column beside y_need, expected both p_need_fast"
    with pytest.raises(ScoresError, match=words):
        Scores.from_columns(without(columns, "p_need_fast"))
    half = Scores.from_columns(without(columns, "y_need"))
    for use in (protocol.calibrate, protocol.check_labels):
        with pytest.raises(ScoresError, match="y_need: found no such column beside p_need_fast, expected both, or nei"):
            use(half)


@pytest.mark.parametrize("name", ["split", "fold"])
def test_no_split_and_no_fold_divides_a_person(name):
    one = {"stream": ["a", "b", "c"], "step": [0, 0, 0], "p_accept_fast": [0.5, 0.5, 0.5], "person": ["x", "y", "x"]}
    values = {"split": ["test", "test", "calibration"], "fold": [0, 0, 1]}[name]
    with pytest.raises(ScoresError, match=rf"row 2, {name}: found .*, expected .* for the same person"):
        Scores.from_columns({**one, name: values})
    Scores.from_columns({**one, name: [values[0]] * 3})


def test_the_papers_tables_work_or_are_skipped_by_name(tmp_path, scores, capsys):
    write_scores(tmp_path / "scores.parquet", scores)
    given = runner.Inputs(str(tmp_path / "scores.parquet"), settings=IntervalSettings(resamples=20))
    names = ("main", "mechanism", "calibration_quality", "case_study")
    made = runner.run_experiments(names, given, epath.Path(tmp_path / "out"))
    printed = capsys.readouterr().out
    assert made == ["main", "calibration_quality", "case_study"]
    assert "skipped mechanism: need: there is no column p_need_fast" in printed
    assert "Main comparison, p_accept alone" in printed and re.search(r"intervals over \d+ people", printed)
    for name in ("calibration_quality", "case_study"):
        assert "need" not in (tmp_path / "out" / f"{name}.csv").read_text().splitlines()[0]
