"""`python -m prism_jax import`: what others published becomes streams, and the texts of answers probabilities."""

import json
import math
import pathlib

import forked
import numpy as np
import pytest

from prism_jax.labelling.teacher.text_calibrator import TextCalibrator, TextMap
from prism_jax.streams import RESPONSE_KEYS
from prism_jax.streams.jsonl import read_streams
from prism_jax.streams.published.recorded import read_recorded
from prism_jax.streams.published.table import SOURCES
from prism_jax.streams.simulator import SimulatorConfig
from prism_jax.streams.sources import DataConfig, load_splits

ROOT = pathlib.Path(__file__).parents[2]
TRACES = ROOT / "tests" / "streams" / "traces"
ANSWER = dict(zip(RESPONSE_KEYS, ("To test.", "It failed.", "Explain the message.", "Shall I?"), strict=True))
EVENTS = ({"Time": "Day 1, 9:00 AM", "Event": "opens a file"}, {"Time": "Day 1, 9:05 AM", "Event": "a test fails"})


def run(*words):
    return forked.run("prism_jax", *map(str, words), cwd=ROOT)


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
    out, filled = tmp_path / "recorded.jsonl", tmp_path / "filled.jsonl"
    done = run("import", "--from=recorded", f"--source={TRACES}", f"--out={out}")
    assert done.returncode == 0, done.stderr
    assert "1 streams, 4 events, 4 steps, 4 candidates; " in done.stdout
    assert "; 2 offers with a text, 2 responses; domains: coding" in done.stdout
    assert "left out 2: steps of beta without an answer: the request failed or its offer is no text" in done.stdout
    again = run("import", "--from=recorded", f"--source={TRACES}", f"--out={out}")
    assert again.returncode == 1 and "found something there, expected a path that does not exist yet" in again.stderr
    done = run("label", f"--streams={out}", f"--text_calibrator={calibrator}", f"--out={filled}")
    assert done.returncode == 0, done.stderr
    assert "1 streams, 4 steps: p_need at 2 steps, p_accept of 2 offers" in done.stdout
    (found,), (bare,) = read_streams(filled), read_recorded(TRACES).streams
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
    done = run("import", "--from=sharegpt", f"--source={source}", f"--out={out}")
    assert done.returncode == 0, done.stderr
    assert "1 streams, 2 events, 2 steps, 2 candidates; " in done.stdout
    assert done.stdout.splitlines()[1:] == ["left out: nothing"]
    (stream,) = read_streams(out)
    assert [offer.text for step in stream.steps for offer in step.candidates] == [None, "Explain the message."]
    assert json.loads(stream.steps[1].candidates[0].response) == ANSWER


@pytest.fixture
def moments(tmp_path):
    """A folder in ContextAgentBench's layout, with made-up rows."""
    folder = tmp_path / "moments" / "data" / "cab"
    folder.mkdir(parents=True)
    rows = {
        f"example-{i}": {"Category": "Garden", "Vision": f"Plant {i}.", "Proactive index": ("true", "medium")[i % 2]}
        for i in range(12)
    }
    for name, part in (("cab_train", range(8)), ("cab_test", range(8, 11)), ("cab", range(12))):
        (folder / f"{name}.json").write_text(json.dumps({f"example-{i}": rows[f"example-{i}"] for i in part}))
    return tmp_path / "moments"


def test_the_parts_of_a_publishers_split_are_files_to_train_on(tmp_path, moments):
    out, share = tmp_path / "parts", "--calibration_share=0.25"
    done = run("import", "--from=contextagent", f"--source={moments}", f"--workdir={out}", share, "--medium=true")
    assert done.returncode == 0, done.stderr
    sizes = {path.stem: len(read_streams(path)) for path in out.iterdir()}
    assert sizes == {"train": 6, "calibration": 2, "test": 3, "other": 1}
    assert (
        f"{out}/test.jsonl: 3 streams, 3 events, 3 steps, 3 candidates; 3 judgements: 3 of offers (3 accepted)"
        in done.stdout
    )
    assert "left out 8: cab.json: in cab_train.json" in done.stdout
    names = {f"{name}_source": str(out / f"{name}.jsonl") for name in ("train", "calibration", "test")}
    assert len(load_splits(DataConfig(name="jsonl", **names), SimulatorConfig()).calibration) == 2


def test_the_sources_are_listed_with_layout_licence_and_address():
    listed = run("import", "--list")
    lines = listed.stdout.splitlines()
    assert listed.returncode == 0 and [line.partition(":")[0] for line in lines] == [*SOURCES, "records"]
    assert all("Reads " in line and "Licence: " in line for line in lines)
