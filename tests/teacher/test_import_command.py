"""`python -m prism_jax label` without a teacher: answers that exist already become streams, and texts probabilities."""

import json
import math
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from prism_jax.streams import RESPONSE_KEYS
from prism_jax.streams.jsonl import read_streams
from prism_jax.streams.published.recorded import read_recorded
from prism_jax.teacher.text_calibrator import TextCalibrator, TextMap

ROOT = pathlib.Path(__file__).parents[2]
TRACES = ROOT / "tests" / "streams" / "traces"
ANSWER = dict(zip(RESPONSE_KEYS, ("To test.", "It failed.", "Explain the message.", "Shall I?"), strict=True))
EVENTS = ({"Time": "Day 1, 9:00 AM", "Event": "opens a file"}, {"Time": "Day 1, 9:05 AM", "Event": "a test fails"})


def label(*flags):
    command = [sys.executable, "-m", "prism_jax", "label", *map(str, flags)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def turns(*pairs):
    return {"conversations": [{"from": who, "value": json.dumps(value)} for who, value in pairs]}


@pytest.fixture
def calibrator(tmp_path):
    """A text calibrator by which an offer to explain has log-odds 2 and everything else 0."""
    explain = TextMap(
        terms=("Proactive Task:explain",),
        idf=np.ones(1),
        weights=np.full(1, 2.0),
        intercept=0.0,
        scale=1.0,
        bias=0.0,
        base_rate=0.5,
        regularisation=1.0,
        rows=2,
        streams=2,
    )
    TextCalibrator(explain, explain).save(tmp_path / "text.json")
    return tmp_path / "text.json"


def test_recorded_answers_become_streams_and_texts_fill_their_probabilities(tmp_path, calibrator):
    out = tmp_path / "recorded.jsonl"
    done = label(f"--recorded={TRACES}", f"--text_calibrator={calibrator}", f"--out={out}")
    assert done.returncode == 0, done.stderr
    assert "1 streams, 4 steps, 2 offers, 2 responses" in done.stdout
    assert "p_need at 2 steps, p_accept of 2 offers" in done.stdout
    assert "the request failed or its offer is no text: beta 2" in done.stderr
    (found,), (bare,) = read_streams(out), read_recorded(TRACES)
    assert [dict(step.recorded) for step in found.steps] == [dict(step.recorded) for step in bare.steps]
    p = [(step.teacher_need, step.candidates[0].teacher_accept) for step in found.steps]
    high = 1 / (1 + math.exp(-2))
    assert p == [(None, None), pytest.approx((high, high)), (None, None), pytest.approx((0.5, 0.5))]


def test_conversations_become_streams(tmp_path):
    source, out = tmp_path / "train.json", tmp_path / "streams.jsonl"
    first, second = EVENTS
    silent = dict.fromkeys(RESPONSE_KEYS)
    whole = turns(("human", first), ("gpt", silent), ("human", second), ("gpt", ANSWER))
    source.write_text(json.dumps([turns(("human", first), ("gpt", silent)), whole]))
    done = label(f"--sharegpt={source}", f"--out={out}")
    assert done.returncode == 0, done.stderr
    assert "1 streams, 2 steps, 1 offers, 1 responses" in done.stdout
    (stream,) = read_streams(out)
    assert [offer.text for step in stream.steps for offer in step.candidates] == [None, "Explain the message."]
    assert json.loads(stream.steps[1].candidates[0].response) == ANSWER


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--recorded=x", "--config=configs/teacher.py"), "--config: found it with --recorded, expected --streams"),
        (("--sharegpt=absent.json",), "absent.json: no such file, expected conversations"),
    ],
    ids=["a teacher for an import", "no such file"],
)
def test_flags_that_do_not_belong_together_are_one_line(flags, message, tmp_path):
    done = label(*flags, f"--out={tmp_path}/out.jsonl")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert message in done.stderr
    assert not list(tmp_path.iterdir())
