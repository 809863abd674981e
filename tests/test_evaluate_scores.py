"""Evaluates a scores file as a user does: the modules that are loaded, the files written, the input refused."""

import json
import os
import pathlib
import subprocess
import sys

import forked
import numpy as np
import pytest
from synthetic_scores import make_columns, make_scores, without

from prism_jax.decision.calibration import CalibrationConfig
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import protocol
from prism_jax.report import tables
from prism_jax.scores import Scores, read_scores, write_scores

ROOT = pathlib.Path(__file__).parents[1]
LISTING = """
import atexit, json, pathlib, runpy, sys
listing = pathlib.Path(sys.argv.pop(1))
atexit.register(lambda: listing.write_text(json.dumps(sorted(sys.modules))))
runpy.run_module("prism_jax.evaluate", run_name="__main__", alter_sys=True)
"""


def evaluate(*arguments):
    return forked.run("prism_jax.evaluate", *arguments)


def evaluate_alone(listing, *arguments):
    """Evaluates in a process of its own, which writes the names of the modules that it has loaded to `listing`."""
    command = [sys.executable, "-c", LISTING, str(listing), *map(str, arguments)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.fixture
def scores():
    return make_scores(streams=40, steps=6, slow=False)


def test_a_scores_file_is_evaluated_without_a_model(tmp_path, scores):
    path, folder, listing = tmp_path / "scores.parquet", tmp_path / "out", tmp_path / "modules.json"
    write_scores(path, scores)
    costs = ("--c_fa=2", "--c_fn=3", "--policy=product")
    done = evaluate_alone(listing, f"--scores={path}", f"--workdir={folder}", *costs)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(listing.read_text()))
    assert "prism_jax.evaluation.merged.running" in loaded
    assert not {"flax", "transformers", "tokenizers", "orbax", "optax", "grain", "torch"} & loaded
    left_half = ("prism_jax.student", "prism_jax.training", "prism_jax.probe", "prism_jax.agent")
    assert not [name for name in loaded if name.startswith(left_half)]
    names = {"calibration.json", "evaluation.json", "gate.json", "report.html"}
    assert {file.name for file in folder.iterdir()} == names
    table = read_scores(path)
    calibration = protocol.calibrate(table, CalibrationConfig("penalised"))
    expected = protocol.evaluate(table, calibration, OperatingPoint(c_fa=2.0, c_fn=3.0, policy="product"))
    assert json.loads((folder / "calibration.json").read_text()) == calibration.to_dict()
    assert json.loads((folder / "evaluation.json").read_text()) == expected.to_dict()
    page = (folder / "report.html").read_text(encoding="utf-8")
    for shown in tables.all_tables(expected):
        assert shown.title in done.stdout and shown.title in page
    assert str(path) in page
    assert "<h2>Training</h2>" not in page


BAD = {
    "no folder": (("--scores={scores}",), "--workdir"),
    "a run and scores": (("--scores={scores}", "--workdir={run}"), "found both a scores file and a run ({run}/config"),
    "costs without scores": (("--workdir={run}", "--c_fn=3"), "--fixed_threshold with --scores only"),
    "scores and a base": (("--scores={scores}", "--workdir={out}", "--base"), "expected at most one of --scores"),
    "a bad cost": (("--scores={scores}", "--workdir={out}", "--c_fa=0"), "c_fa: found 0.0, expected a cost from"),
    "a bad price": (("--scores={scores}", "--workdir={out}", "--price=-1"), "price: found -1.0, expected a price of"),
    "no test split": (("--scores={cut}", "--workdir={out}"), "{cut}, split: found no row of the split 'test'"),
}


UNUSABLE = {
    "one class": (
        lambda columns: columns.update(y_accept=np.where(columns["split"] == "test", columns["y_accept"], 0.0)),
        "y_accept: cannot calibrate p_accept_fast: y: found only the label 0",
    ),
    "one row": (
        lambda columns: columns.update({name: column[:1] for name, column in columns.items()}),
        "y_need: cannot calibrate p_need_fast: y: found only the label ",
    ),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_tables_that_cannot_be_evaluated_give_one_line(tmp_path, scores, case):
    change, message = UNUSABLE[case]
    columns = scores.columns()
    change(columns)
    write_scores(tmp_path / "scores.parquet", Scores.from_columns(columns))
    done = evaluate(f"--scores={tmp_path / 'scores.parquet'}", f"--workdir={tmp_path / 'out'}")
    (line,) = [line for line in done.stderr.splitlines() if line.strip()]
    assert done.returncode == 1 and line.startswith("error: ") and message in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gives_one_line_and_writes_nothing(tmp_path, scores, case):
    names = {name: str(tmp_path / name) for name in ("out", "run", "scores.parquet", "cut.parquet")}
    names |= {"scores": names.pop("scores.parquet"), "cut": names.pop("cut.parquet")}
    write_scores(names["scores"], scores)
    write_scores(names["cut"], scores.take(scores.split == "calibration"))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    arguments, message = BAD[case]
    done = evaluate(*(argument.format(**names) for argument in arguments))
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.strip()]
    assert line.startswith("error: ")
    assert message.format(**names) in line
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert found == {"run", "run/config.json", "scores.parquet", "cut.parquet"}


def test_a_calibration_and_unknown_columns_of_another_agent(tmp_path, scores):
    """Temperatures of earlier scores apply to a later log without splits; its own columns are named once."""
    earlier, later = tmp_path / "earlier.parquet", tmp_path / "later.jsonl"
    write_scores(earlier, scores)
    assert evaluate(f"--scores={earlier}", f"--workdir={tmp_path / 'first'}", "--calibrator=platt").returncode == 0
    rows = scores.take(scores.split == "test")
    own = {"latency_ms": np.arange(len(rows)).astype(object)}
    write_scores(later, Scores.from_columns(without(rows.columns(), "split") | own))
    calibration = tmp_path / "first" / "calibration.json"
    done = evaluate(f"--scores={later}", f"--workdir={tmp_path / 'out'}", f"--calibration={calibration}")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "latency_ms" in line]
    assert line.endswith(f"{later}: columns without a meaning here, kept: latency_ms")
    assert f"calibrated by {calibration}" in done.stdout
    first, again = (json.loads((tmp_path / name / "evaluation.json").read_text()) for name in ("first", "out"))
    assert again.pop("calibrated") == f"calibrated by {calibration}" and first.pop("calibrated") == ""
    assert again.pop("dependence") is None and first.pop("dependence")["steps"] > 0  # calibration steps tell it
    assert again == first
    assert json.loads((tmp_path / "out" / "calibration.json").read_text()) == json.loads(calibration.read_text())
    read = read_scores(later)
    assert read.extra["latency_ms"].tolist() == list(range(len(rows)))
    write_scores(tmp_path / "again.parquet", read.take(np.arange(3)))
    assert read_scores(tmp_path / "again.parquet").extra["latency_ms"].tolist() == [0, 1, 2]


def test_the_trigger_and_the_price_reach_every_output(tmp_path):
    path, folder = tmp_path / "scores.parquet", tmp_path / "out"
    columns = make_columns(streams=40)
    write_scores(path, Scores.from_columns(columns | {"tokens_slow": np.full(len(columns["step"]), 120)}))
    done = evaluate(f"--scores={path}", f"--workdir={folder}", "--trigger=value", "--price=3e-4")
    assert done.returncode == 0, done.stderr
    assert "▸ on value" in done.stdout and "When to think" in done.stdout
    tree = json.loads((folder / "evaluation.json").read_text())
    assert (tree["point"]["trigger"], tree["point"]["price"]) == ("value", 3e-4)
    assert [row["policy"] for row in tree["policies"] if row["deployed"]] == ["slow_on_value"]
    assert json.loads((folder / "calibration.json").read_text())["thinking"]["tokens"] == 120
    assert "trigger value, price 0.0003 per slow token" in (folder / "report.html").read_text(encoding="utf-8")
