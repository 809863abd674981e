"""The quickstart as a user runs it: checks the results that its docstring states, on test streams."""

import json
import os
import runpy
import subprocess
import sys

import pytest

from prism_jax.scores import read_scores

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory, root):
    workdir = tmp_path_factory.mktemp("runs") / "quickstart"
    command = [sys.executable, "-m", "prism_jax", "train", "--config=configs/quickstart.py", f"--workdir={workdir}"]
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}  # optimised, as a user's
    result = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=True)
    return workdir, result, json.loads((workdir / "evaluation.json").read_text())


def policy(evaluation, name, form):
    return next(row for row in evaluation["policies"] if (row["policy"], row["form"]) == (name, form))


def test_the_calibrated_dynamic_gate_closes_most_of_the_gap(quickstart):
    _, _, evaluation = quickstart
    row = policy(evaluation, "dynamic", "calibrated")
    assert evaluation["point"]["c_fn"] == 2 * evaluation["point"]["c_fa"]
    assert row["gap_closed"] >= 0.80  # under the true probabilities
    assert row["gap_closed_realised"] >= 0.80  # on the labels that were drawn


@pytest.mark.parametrize("signal", ["need", "accept"])
def test_calibrated_signals_are_close_to_the_truth(quickstart, signal):
    _, _, evaluation = quickstart
    row = next(
        row
        for row in evaluation["signals"]
        if (row["signal"], row["thinking"], row["form"]) == (signal, "fast", "calibrated")
    )
    assert row["distance"] < 0.06
    assert row["constant_distance"] > 0.2  # that of the best constant, printed beside it


def test_splits_share_no_stream(quickstart):
    workdir, _, _ = quickstart
    scores = read_scores(workdir / "scores.parquet")
    held_out = {split: set(scores.stream[scores.split == split]) for split in ("calibration", "test")}
    assert not held_out["calibration"] & held_out["test"]
    data = json.loads((workdir / "config.json").read_text())["data"]
    trained = {f"sim-0-{index}" for index in range(data["train_streams"])}
    assert not trained & (held_out["calibration"] | held_out["test"])


def test_the_readmes_figure_is_that_of_the_quickstart(quickstart, root):
    """At every cost ratio the gate stays near the true probabilities' decisions, and below p_accept alone."""
    workdir, _, _ = quickstart
    script = runpy.run_path(str(root / "docs" / "figures" / "costs_by_ratio.py"))
    costs = {  # with C_FA + C_FN = 1
        policy: [cost / (1 + ratio) for cost, ratio in zip(values, script["RATIOS"], strict=True)]
        for policy, values in script["costs_by_ratio"](workdir).items()
    }
    for policy in ("always", "never", "static"):
        assert all(gate <= other + 0.02 for gate, other in zip(costs["dynamic"], costs[policy], strict=True)), policy
    assert max(gate - best for gate, best in zip(costs["dynamic"], costs["bayes"], strict=True)) < 0.05
