"""ContextAgentBench's layout, on made-up rows, and on the publisher's training part where it is there."""

import collections
import json
import pathlib

import pytest

from prism_jax.streams.jsonl import StreamError, read_streams, write_streams
from prism_jax.streams.published.contextagent import read_contextagent as read

REAL = pathlib.Path(__file__).parents[3] / "shared" / "contextagent"
SOLUTION = {"Thoughts": "SECRET", "Tool planning": "SECRET", "Action": "SECRET", "Response": "SECRET", "Tools": []}


def row(context, label, **parts):
    given = {"Category": "Garden", "Context information": context, "Vision": "", "Audio": " ", "Mobile api data": [""]}
    return {**given, "Personas": [], "Proactive score": 3, "Proactive index": label, **SOLUTION, **parts}


ROWS = {
    "example-2": row("The hose leaks.", "true", Vision="Water on the path.", Personas=["Forgetful", "", "Patient"]),
    "example-10": row("The sun shines.", "false", **{"Mobile api data": [{"rain": "0 mm"}]}),
    "example-3": row("A cloud comes.", "medium"),
}


def folder(tmp_path, **files):
    place = tmp_path / "data" / "cab"
    place.mkdir(parents=True)
    for name, rows in files.items():
        (place / f"{name}.json").write_text(rows if isinstance(rows, str) else json.dumps(rows))
    return tmp_path


def test_a_row_is_a_stream_of_one_moment_with_what_a_model_may_see(tmp_path):
    found = read(folder(tmp_path, cab_train=ROWS))
    assert [stream.id for stream in found.streams] == [f"cab_train:example-{number}" for number in (10, 2, 3)]
    sun, hose, cloud = found.streams
    text = "Context information: The hose leaks.\nVision: Water on the path.\nPersonas: Forgetful; Patient"
    assert hose.events[0].text == text and hose.domain == "Garden"
    assert sun.events[0].text.endswith('Mobile api data: {"rain": "0 mm"}')
    assert [stream.steps[0].candidates[0].y_accept for stream in found.streams] == [0.0, 1.0, None]
    assert all(stream.steps[0].y_need is None for stream in found.streams)
    assert cloud.steps[0].candidates[0].logged is None, "no offer was judged there"
    assert set(found.split.values()) == {"train"} and not found.dropped
    write_streams(tmp_path / "out.jsonl", found.streams)
    assert read_streams(tmp_path / "out.jsonl") == found.streams
    assert "SECRET" not in (tmp_path / "out.jsonl").read_text()


@pytest.mark.parametrize(("medium", "label"), [("true", 1.0), ("false", 0.0), ("unlabelled", None)])
def test_medium_is_what_the_caller_says(tmp_path, medium, label):
    found = read(folder(tmp_path, cab_test=ROWS), medium=medium)
    assert found.streams[-1].steps[0].candidates[0].y_accept == label
    assert set(found.split.values()) == {"test"}


def test_rows_of_all_files_are_read_once_and_what_is_dropped_is_counted(tmp_path):
    edited = ROWS["example-10"] | {"Audio": "A bird."}
    whole = ROWS | {"example-10": edited, "example-11": row("", "true"), "example-12": row("Night.", "perhaps")}
    whole |= {"example-13": row("Rain.", True, Category="")}
    train, test = {"example-2": ROWS["example-2"]}, {"example-10": ROWS["example-10"]}
    found = read(folder(tmp_path, cab=whole, cab_train=train, cab_test=test))
    assert {stream.id: found.split.get(stream.id) for stream in found.streams} == {
        "cab:example-13": None,
        "cab:example-3": None,
        "cab_test:example-10": "test",
        "cab_train:example-2": "train",
    }
    assert found.streams[0].domain == "unknown" and found.streams[0].steps[0].candidates[0].y_accept == 1.0
    reasons = ("in cab_train.json", "in cab_test.json, with another content", "no input", "Proactive index 'perhaps'")
    assert found.dropped == {f"cab.json: {reason}": 1 for reason in reasons}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "found none of ContextAgentBench's files, expected data/cab/cab_train.json"),
        ({"cab_train": "[]"}, r"cab_train.json: found \[\], expected an object with a row for each key"),
        ({"cab": {"a": 3}}, "cab.json: a: found 3, expected Proactive index and one of Context information"),
        ({"cab": {"a": row("x", "true", Audio=3)}}, "cab.json: a.Audio: found 3, expected text, or a list"),
        ({"cab": {"a": row("", "true")}}, "found no row with input and label, expected some"),
        ({"cab_train": ROWS, "cab_test": ROWS}, "example-2: found it in cab_train.json too, expected it in one split"),
    ],
)
def test_another_layout_is_refused_in_one_line(tmp_path, files, message):
    with pytest.raises((StreamError, FileNotFoundError), match=message) as refused:
        read(folder(tmp_path, **files))
    assert "\n" not in str(refused.value)


@pytest.mark.skipif(not REAL.is_dir(), reason="ContextAgentBench's training part is not beside the repository")
def test_the_published_training_part_is_read_whole():
    found = read(REAL)
    rows = json.loads((REAL / "data" / "cab" / "cab_train.json").read_text())
    streams = [stream for stream in found.streams if found.split.get(stream.id) == "train"]
    labels = collections.Counter(stream.steps[0].candidates[0].y_accept for stream in streams)
    counts = collections.Counter(row["Proactive index"] for row in rows.values())
    assert labels == {1.0: counts["true"], 0.0: counts["false"], None: counts["medium"]}
    assert all(rows[stream.id.partition(":")[2]]["Thoughts"] not in stream.events[0].text for stream in streams)
