"""Simulated users behind a fake endpoint, labelled and judged by the commands."""

import json
import pathlib
import subprocess
import sys

import forked
import pytest

from prism_jax.streams.jsonl import read_streams
from prism_jax.streams.types import SLOW_FIELDS

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    """A folder of unlabelled streams, and the address at which their teacher and judges answer."""
    folder = tmp_path_factory.mktemp("users")
    command = [sys.executable, "-m", "prism_jax.experiments.simulated_users", f"--workdir={folder}"]
    sizes = ["--train=6", "--calibration=2", "--held_out=2", "--field_errors=0", "--blur=0.2", "--accuracy=1"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([*command, *sizes], cwd=ROOT, text=True, **pipes) as process:
        yield folder, json.loads(process.stdout.readline())["url"]
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def label(users, out, *flags):
    folder, url = users
    endpoint = {"base_url": url, "model": "teacher", "key": "", "input_price": 0, "output_price": 0}
    settings = [f"--config.endpoint.{name}={value}" for name, value in endpoint.items()]
    files = [f"--config.remote.cache={folder}/cache.sqlite", f"--streams={folder}/train.jsonl", f"--out={out}"]
    return forked.run("prism_jax", "label", "--config=configs/teacher.py", *settings, *files, *flags)


def test_a_teacher_labels_every_step_over_http(users, tmp_path):
    bare = read_streams(users[0] / "train.jsonl")
    assert not any(step.rationale or step.y_need is not None for stream in bare for step in stream.steps)
    first = label(users, tmp_path / "labelled.jsonl")
    assert first.returncode == 0, first.stderr
    questions = sum(len(stream.steps) for stream in bare)
    assert f"labelled 6 streams, {questions} questions" in first.stdout
    labelled = read_streams(tmp_path / "labelled.jsonl")
    for stream in labelled:
        for step in stream.steps:
            assert step.teacher_need is not None and step.candidates[0].teacher_accept is not None
            assert tuple(step.rationale) == tuple(SLOW_FIELDS)
            assert (step.candidates[0].response is not None) == (step.candidates[0].teacher_accept >= 0.5)
    rows = [json.loads(line) for line in (tmp_path / "labelled.rows.jsonl").read_text().splitlines()]
    assert [(row["stream"], row["event"]) for row in rows] == [
        (stream.id, step.event) for stream in labelled for step in stream.steps
    ]
    assert {row["model"] for row in rows} == {"teacher"} and all(len(row["prompt"]) == 64 for row in rows)
    again = label(users, tmp_path / "again.jsonl")
    assert f"{questions} requests: {questions} cached, 0 failed" in again.stdout
    assert read_streams(tmp_path / "again.jsonl") == labelled


def test_a_dry_run_writes_and_sends_nothing(users, tmp_path):
    done = label(users, tmp_path / "x.jsonl", "--dry_run", f"--config.remote.cache={tmp_path}/other.sqlite")
    assert done.returncode == 0, done.stderr
    assert "dry run" in done.stdout and "nothing was sent" in done.stdout
    assert not (tmp_path / "x.jsonl").exists() and not (tmp_path / "x.rows.jsonl").exists()


@pytest.mark.slow
def test_judges_who_do_not_err_say_what_the_users_would_have_answered(users, tmp_path):
    folder, url = users
    settings = [f"--config.remote.cache={folder}/votes.sqlite"]
    for number, name in enumerate(("deepseek_r1", "gpt_4o", "claude_3_5_sonnet")):
        endpoint = {"base_url": url, "model": f"judge-{number}", "key": "", "input_price": 0, "output_price": 0}
        settings += [f"--config.endpoints.{name}.{key}={value}" for key, value in endpoint.items()]
    files = [f"--streams={folder}/held_out.jsonl", f"--votes={tmp_path}/votes.jsonl", f"--out={tmp_path}/out.jsonl"]
    done = forked.run("prism_jax", "judge", "--config=configs/judges.py", *settings, *files)
    assert done.returncode == 0, done.stderr
    judged, answers = (read_streams(path) for path in (tmp_path / "out.jsonl", folder / "answers.jsonl"))
    steps = [
        (one, other) for a, b in zip(judged, answers, strict=True) for one, other in zip(a.steps, b.steps, strict=True)
    ]
    for found, true in steps:
        assert (found.y_need, found.candidates[0].y_accept) == (true.y_need, true.candidates[0].y_accept)
        assert len(found.votes) == len(found.candidates[0].votes) == 3
    votes = [json.loads(line) for line in (tmp_path / "votes.jsonl").read_text().splitlines()]
    assert len(votes) == 3 * 2 * len(steps), "three judges, about silence and about the offer"
