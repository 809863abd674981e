"""Files of traces: what is written is read again, and anything else is an error that names its place."""

import pytest

from prism_jax.streams.jsonl import StreamError
from prism_jax.streams.traces import (
    ABSENT,
    TraceEvent,
    fixed_turn,
    official_predictions,
    read_categories,
    read_traces,
    trace_stream,
    write_traces,
)

TRACE = (
    TraceEvent("1717338232.283", "opens a file", [], status=True),
    TraceEvent("1717338200", "types", ["Sort it?", "null", "Sort it?"], (True, False, True), {"Purpose": "sorting"}),
    TraceEvent("1717338300", "waits", {"candidate_task": ["Help?"]}),
    TraceEvent("1717338400", "closes", ABSENT),
    TraceEvent("1717338400", "leaves", None),
)


def test_what_is_written_is_read_again(tmp_path):
    write_traces(tmp_path / "model", {"code_1": TRACE, "life_2": TRACE[:1]})
    assert read_traces(tmp_path / "model") == {"code_1": TRACE, "life_2": TRACE[:1]}
    with pytest.raises(FileExistsError):
        write_traces(tmp_path / "model", {"code_1": TRACE})
    with pytest.raises(ValueError, match="found no file name"):
        write_traces(tmp_path / "other", {"../code_1": TRACE})
    assert not (tmp_path / "other").exists()


def test_an_answer_is_read_in_two_ways():
    assert [official_predictions(event) for event in TRACE] == [
        (None,),
        ("Sort it?", "null", "Sort it?"),
        ("candidate_task",),
        (),
        (None,),
    ]
    turns = [fixed_turn(event) for event in TRACE]
    assert [turn.proposals for turn in turns] == [(), ("Sort it?", "Sort it?"), (), (), ()]
    assert [turn.failed for turn in turns] == [False, False, True, True, False]
    with pytest.raises(StreamError, match="found 3, expected a list or null"):
        official_predictions(TraceEvent("1", "x", 3))


def test_judges_get_a_step_for_each_answer():
    stream = trace_stream("code_1", TRACE)
    assert (stream.id, stream.domain) == ("code_1", "coding")
    assert [step.event for step in stream.steps] == [0, 1, 2, 4]
    assert [(one.text, one.logged) for step in stream.steps for one in step.candidates] == [
        (None, False),
        ("Sort it?", True),
        ("null", False),
        ("Sort it?", True),
        ("candidate_task", False),
        (None, False),
    ]
    times = [event.time for event in stream.events]
    assert times == sorted(times)


def test_malformed_categories_and_folders_are_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"found no file NAME\.json"):
        read_traces(tmp_path)
    path = tmp_path / "splits.json"
    path.write_text('{"all": {"files": ["a.json", "b.json"]}}')
    assert read_categories(path) == {"all": ("a", "b")}
    for content, message in (("[]", "expected an object"), ('{"all": {"files": ["a"]}}', r"all\.files\[0\]: found")):
        path.write_text(content)
        with pytest.raises(StreamError, match=message):
            read_categories(path)
