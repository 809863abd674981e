"""The distillation demo, shrunk: from unlabelled streams to its report, and once more without repeating anything."""

import json
import pathlib
import subprocess
import sys

import pytest

from prism_jax.streams.jsonl import read_streams

pytestmark = [pytest.mark.study, pytest.mark.usefixtures("compile_quickly")]
ROOT = pathlib.Path(__file__).parents[2]
SIZES = ("--train=12", "--calibration=6", "--held_out=6", "--steps=4")


def demo(workdir, *sizes):
    command = [sys.executable, "-m", "prism_jax", "experiments", "distill_demo", f"--workdir={workdir}", *sizes]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def state(workdir):
    """When each file was last written."""
    return {path: path.stat().st_mtime_ns for path in workdir.rglob("*") if path.is_file()}


def test_the_demo_ends_in_a_report_and_repeats_nothing(tmp_path):
    first = demo(tmp_path, *SIZES)
    assert first.returncode == 0, first.stderr
    for main in ("label", "judge", "curate", "train", "export", "agent"):
        assert f"$ python -m prism_jax {main} " in first.stdout
    report = (tmp_path / "report.csv").read_text()
    for row in ("student, fast only", "student, slow on margin", "teacher", "never", "always", "Bayes"):
        assert row in report
    assert_no_truth(tmp_path)
    events = (tmp_path / "events.jsonl").read_text().splitlines()
    assert len((tmp_path / "records.jsonl").read_text().splitlines()) == len(events)

    before = state(tmp_path)
    again = demo(tmp_path, *SIZES)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("done before") == 11 and "$ python" not in again.stdout
    changed = {path.name for path, written in state(tmp_path).items() if before.get(path) != written}
    assert changed == {"report.csv", "report.md"}, "no request was sent and nothing was trained"
    assert (tmp_path / "report.csv").read_text() == report

    # Without the judged files, the judges are asked again at the same address, and the cache answers.
    for path in tmp_path.glob("judged_*.jsonl"):
        path.unlink()
    resumed = demo(tmp_path, *SIZES)
    assert resumed.returncode == 0, resumed.stderr
    counts = [line.split() for line in resumed.stdout.splitlines() if " requests: " in line]
    assert len(counts) == 3 and all(words[0] == words[2] for words in counts), "all from the cache"
    refused = demo(tmp_path, *SIZES[:3], "--steps=5")
    assert refused.returncode == 1 and "--workdir: found" in refused.stderr.splitlines()[-1]


def assert_no_truth(folder):
    """Of all files that the commands read, none says what only the endpoint knows."""
    for path in (*folder.glob("*train.jsonl"), *folder.glob("*calibration.jsonl"), *folder.glob("*held_out.jsonl")):
        for line in path.read_text().splitlines():
            assert "_true" not in line and "on_call" not in line
    for stream in (*read_streams(folder / "curated.jsonl"), *read_streams(folder / "judged_calibration.jsonl")):
        assert stream.persona == "unknown"
        for step in stream.steps:
            assert step.p_need_true is None and not step.recorded
            assert step.y_need == (sum(step.votes) < 2), "the label is the judges' majority"
            for offer in step.candidates:
                assert offer.p_accept_true is offer.p_both_true is None
                assert offer.y_accept == (sum(offer.votes) >= 2)
    for line in (folder / "events.jsonl").read_text().splitlines():
        assert set(json.loads(line)) <= {"stream", "time", "text", "domain", "candidates"}
