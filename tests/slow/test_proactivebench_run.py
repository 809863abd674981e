"""`train` on ProactiveBench's human judgements."""

import dataclasses

import forked
import pytest
from real_checkout import CHECKOUT, needs_checkout

from prism_jax.scores import read_scores
from prism_jax.streams.sources import load_splits
from prism_jax.training.workdir import Workdir

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compile_quickly")]


@needs_checkout
def test_it_trains_and_holds_out_whole_streams(tmp_path):
    workdir = tmp_path / "run"
    small = ("--config.training.steps=2", "--config.student.hidden_dim=32", "--config.student.num_layers=1")
    arguments = (f"--config.data.source={CHECKOUT}", *small, f"--workdir={workdir}")
    late = {"TFDS_DATA_DIR": str(tmp_path / "tfds")}
    result = forked.run("prism_jax", "train", "--config=configs/proactivebench_tiny.py", *arguments, late=late)
    assert result.returncode == 0, result.stderr
    assert "need         strict: some offer was accepted by every annotator" in result.stdout
    for split in ("train", "calibration", "test"):
        assert any(line.startswith(split) and "judgements" in line for line in result.stdout.splitlines())
    scores = read_scores(workdir / "scores.parquet")
    tested = set(scores.stream[scores.split == "test"])
    assert not tested & set(scores.stream[scores.split == "calibration"])
    config = Workdir(workdir).load_config()
    next_fold = load_splits(dataclasses.replace(config.data, fold=1), config.simulator)
    assert tested and not tested & {stream.id for stream in next_fold.test}
