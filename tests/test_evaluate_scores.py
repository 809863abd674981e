"""Evaluates a scores file as a user does: the modules that are loaded, the files written, the input refused."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

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


def evaluate(*arguments, before=("-m", "prism_jax.evaluate")):
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, *map(str, before), *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.fixture
def scores():
    rng = np.random.default_rng(0)
    p_need, p_accept = rng.random((2, 240))
    return Scores.from_columns(
        {
            "stream": [f"stream {i // 6}" for i in range(240)],
            "step": np.tile(np.arange(6), 40),
            "split": ["calibration" if i < 120 else "test" for i in range(240)],
            "p_need_fast": p_need,
            "p_accept_fast": p_accept,
            "y_need": (rng.random(240) < p_need).astype(float),
            "y_accept": (rng.random(240) < p_accept).astype(float),
        }
    )


def test_a_scores_file_is_evaluated_without_a_model(tmp_path, scores):
    path, folder, listing = tmp_path / "scores.parquet", tmp_path / "out", tmp_path / "modules.json"
    write_scores(path, scores)
    costs = ("--c_fa=2", "--c_fn=3", "--policy=product")
    done = evaluate(f"--scores={path}", f"--workdir={folder}", *costs, before=("-c", LISTING, listing))
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(listing.read_text()))
    assert "prism_jax.evaluation.protocol" in loaded
    assert not {"flax", "transformers", "tokenizers", "orbax", "optax", "grain", "torch"} & loaded
    left_half = ("prism_jax.student", "prism_jax.training", "prism_jax.prompting", "prism_jax.policy")
    assert not [name for name in loaded if name.startswith(left_half)]
    assert {file.name for file in folder.iterdir()} == {"calibration.json", "evaluation.json", "report.html"}
    table = read_scores(path)
    calibration = protocol.calibrate(table)
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
    "a bad cost": (("--scores={scores}", "--workdir={out}", "--c_fa=0"), "c_fa: found 0.0, expected a finite cost"),
    "no test split": (("--scores={cut}", "--workdir={out}"), "{cut}, split: found no row of the split 'test'"),
}


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
