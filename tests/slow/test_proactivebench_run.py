"""`prism_jax.train` on ProactiveBench's human judgements."""

import os
import pathlib
import subprocess
import sys

import pytest

from prism_jax.scores import read_scores

pytestmark = pytest.mark.slow


def test_it_trains_and_holds_out_whole_streams(tmp_path, root):
    source = pathlib.Path(os.environ.get("PRISM_PROACTIVEBENCH", root.parent / "shared" / "proactivebench"))
    if not source.is_dir():
        pytest.skip(f"no ProactiveBench data: {source} is missing (PRISM_PROACTIVEBENCH names another folder)")
    tested = []
    for fold in (0, 1):
        workdir = tmp_path / str(fold)
        arguments = (f"--config.data.source={source}", f"--config.data.fold={fold}", "--config.training.steps=6")
        result = subprocess.run(
            [sys.executable, "-m", "prism_jax.train", "--config=configs/proactivebench_tiny.py", *arguments,
             f"--workdir={workdir}"],
            cwd=root, env={**os.environ, "TFDS_DATA_DIR": str(tmp_path / "tfds")}, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        assert "need         strict: some offer was accepted by every annotator" in result.stdout
        for split in ("train", "calibration", "test"):
            assert any(line.startswith(split) and "judgements" in line for line in result.stdout.splitlines())
        scores = read_scores(workdir / "scores.parquet")
        test_streams = set(scores.stream[scores.split == "test"])
        assert not test_streams & set(scores.stream[scores.split == "calibration"])
        tested.append(test_streams)
    assert not tested[0] & tested[1]
