"""The rehearsal of the paper: every stage runs, and one that is killed at five moments ends with the same files."""

import contextlib
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.study

# A kill -9 follows soon after each of these files appears: while a teacher labels, judges judge, the main pathway and a
# second stage train, and the tables are made. The first two wait until requests are under way.
MOMENTS = ("answers.sqlite", "judged_train.jsonl", "rdc_sft/metrics.jsonl", "dft/metrics.jsonl", "tables")
ASKING = MOMENTS[:2]
MOST_AT_ONCE = 3 * 8
"""Requests under way at once: of three judges, eight each."""
RUNS = ("rdc_sft", "sft", "schema_sft", "dft", "weighted_sft", "rdc_sft_paper", "without_writing")
SAME = (
    *(f"streams/{split}.jsonl" for split in ("train", "calibration", "test", "human")),
    *("taught_train.jsonl", "taught_test.jsonl", "judged_train.jsonl", "curated.jsonl", "curated_paper.jsonl"),
    *(f"{name}/metrics.jsonl" for name in RUNS),
    *(f"{name}/{file}" for name in (*RUNS, "base") for file in ("judged.parquet", "written_test.jsonl")),
    *("people.html", "annotator_1.jsonl", "model/model.safetensors"),
    *("tables/systems/main.csv", "tables/student/inference.csv", "tables/judges/judge_robustness.csv"),
)


def rehearse(folder, **options):
    command = [ROOT / "launch" / "paper.sh", "--rehearse", f"--workdir={folder}"]
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHON": sys.executable}, text=True, **options)


def finished(folder):
    process = rehearse(folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    printed, _ = process.communicate()
    assert process.returncode == 0, printed[-3000:]
    return printed


def row(folder, columns, table):
    """What SQL's aggregate functions say of a table of the answers' cache; zeros while it is made."""
    database = sqlite3.connect(folder / "answers.sqlite")
    with contextlib.closing(database), contextlib.suppress(sqlite3.OperationalError):
        return database.execute(f"SELECT {columns} FROM {table}").fetchone()
    return 0, 0.0


def test_five_kills_change_nothing(tmp_path):
    printed = finished(tmp_path / "whole")
    assert (
        printed.count("in earnest") >= 40
        and "not made: the stage" not in printed
        and "The real thing, all stages together:" in printed
    )
    cut = []  # number and worst cost of the requests that each kill found under way
    for moment in MOMENTS:
        assert not (tmp_path / "killed" / moment).exists(), f"{moment}: made before the kill that waits for it"
        with rehearse(tmp_path / "killed", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while not (tmp_path / "killed" / moment).exists():
                assert process.poll() is None
                time.sleep(0.05)
            while moment in ASKING and not row(tmp_path / "killed", "COUNT(*)", "flights")[0]:
                assert process.poll() is None
            time.sleep(0.0 if moment in ASKING else 0.3)
            os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.5)  # its commands end with it
        cut.append(row(tmp_path / "killed", "COUNT(*), TOTAL(worst)", "flights"))
    resumed = finished(tmp_path / "killed")
    assert resumed.count("done before") >= 10
    for name in SAME:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    answers, cost = row(tmp_path / "whole", "COUNT(*), SUM(cost)", "answers")
    assert row(tmp_path / "killed", "COUNT(*), SUM(cost)", "answers") == (answers, pytest.approx(cost))
    assert row(tmp_path / "whole", "spent", "spending") == (pytest.approx(cost),)
    # Beside the answers, only requests that a kill cut are counted, at the most that they can have cost.
    assert row(tmp_path / "killed", "spent", "spending") == (pytest.approx(cost + sum(worst for _, worst in cut)),)
    assert all(number <= MOST_AT_ONCE for number, _ in cut) and any(number for number, _ in cut)
    again = finished(tmp_path / "killed")
    assert again.count("done before") == 56 and "\n$ python -m prism_jax " not in again
