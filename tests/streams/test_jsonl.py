import codecs
import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_edit import edited

from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.jsonl import StreamError, iterate_streams, read_streams, write_streams

unit = st.floats(0, 1)
finite = st.floats(allow_nan=False, allow_infinity=False)
# Characters that other readers take as line ends, quotes, and any other Unicode text.
texts = st.one_of(st.text(min_size=1), st.sampled_from(["a\u2028b\x85c\x0bd", "naïve – 你好 😀", '"\\\n\r\n']))
texts = texts.filter(lambda text: text.strip())
votes = st.lists(st.booleans(), max_size=3).map(tuple)


@st.composite
def candidates(draw):
    logged = draw(st.none() | st.booleans())
    return {
        "text": draw(st.none() | texts),
        "y_accept": None if logged is False else draw(st.none() | unit),
        "votes": draw(votes),
        "logged": logged,
        "propensity": draw(st.none() | st.floats(0, 1, exclude_min=True, exclude_max=logged is False)),
        "response": draw(st.none() | texts),
        **{name: draw(st.none() | unit) for name in ("teacher_accept", "p_accept_true", "p_both_true")},
    }


def steps(place):
    return st.fixed_dictionaries(
        {
            "event": st.just(place),
            "candidates": st.lists(candidates(), min_size=1, max_size=2),
            "votes": votes,
            **dict.fromkeys(("y_need", "teacher_need", "p_need_true"), st.none() | unit),
            "rationale": st.none() | st.dictionaries(st.text(), texts, max_size=2),
            "recorded": st.dictionaries(st.text(), finite, max_size=2),
        }
    )


@st.composite
def streams(draw):
    times = sorted(draw(st.lists(st.floats(-1e11, 1e11), min_size=1, max_size=5)))
    places = sorted(draw(st.sets(st.integers(0, len(times) - 1))))
    return {
        "id": draw(st.text(min_size=1)),
        "events": [{"time": time, "text": draw(texts)} for time in times],
        "steps": [draw(steps(place)) for place in places],
        "domain": draw(st.sampled_from(["unknown", "coding"])),
        "persona": draw(st.sampled_from(["unknown", "expert"])),
    }


def _stream(fields):
    def step_of(step):
        return Step(**{**step, "candidates": tuple(Candidate(**candidate) for candidate in step["candidates"])})

    parts = {"events": tuple(Event(**event) for event in fields["events"]), "steps": (*map(step_of, fields["steps"]),)}
    return Stream(**{**fields, **parts})


@settings(deadline=None)
@given(st.lists(streams(), min_size=1, max_size=3, unique_by=lambda fields: fields["id"]))
def test_what_is_written_reads_back_exactly(tmp_path_factory, many):
    many = [_stream(fields) for fields in many]
    path = tmp_path_factory.mktemp("streams") / "streams.jsonl"
    write_streams(path, many)
    assert read_streams(path) == many
    before = path.read_bytes()
    write_streams(str(path), iter(read_streams(str(path))))
    assert path.read_bytes() == before
    assert [child.name for child in path.parent.iterdir()] == ["streams.jsonl"]


EVENTS = [{"time": 0.5, "text": "opens a file"}, {"time": 2, "text": "types"}]
OFFER = {"text": "run", "y_accept": 1.0, "votes": [True, False], "logged": True, "propensity": 0.5}
STEP = {"event": 1, "candidates": [OFFER], "y_need": 1, "recorded": {"on_call": 1}, "rationale": {"risk": "low"}}
FULL = {"id": "a", "events": EVENTS, "steps": [{"event": 0}, STEP]}


def _write(tmp_path, *lines):
    path = tmp_path / "streams.jsonl"
    path.write_bytes(b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines))
    return path


def test_a_file_written_by_hand(tmp_path):
    (stream,) = read_streams(_write(tmp_path, FULL))
    assert stream.domain == "unknown"
    assert stream.events[1] == Event(time=2.0, text="types")
    assert isinstance(stream.events[1].time, float)
    assert stream.steps[0] == Step(event=0, candidates=(Candidate(),))
    assert stream.steps[1].candidates[0].votes == (True, False)
    assert stream.steps[1].recorded == {"on_call": 1.0}
    explicit = edited(FULL, ("steps", 0, "candidates"), [{"text": None, "y_accept": None, "votes": []}])
    assert read_streams(_write(tmp_path, explicit)) == [stream]
    other = edited(edited(FULL, ("steps", 1, "y_need"), True), ("steps", 1, "candidates", 0, "y_accept"), True)
    path = _write(tmp_path, other)
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    assert read_streams(path) == [stream]


def test_a_raw_log_has_no_steps(tmp_path):
    """Its streams are those that `label` is given (docs/distillation.md)."""
    (stream,) = read_streams(_write(tmp_path, edited(FULL, ("steps",), ...)))
    assert stream.steps == () and len(stream.events) == 2
    assert read_streams(_write(tmp_path, edited(FULL, ("steps",), []))) == [stream]
    write_streams(tmp_path / "again.jsonl", [stream])
    assert read_streams(tmp_path / "again.jsonl") == [stream]


def test_fields_at_their_default_are_left_out_and_text_stays_readable(tmp_path):
    path = tmp_path / "streams.jsonl"
    write_streams(path, [Stream(id="é", events=(Event(time=0.0, text="你好"),), steps=(Step(event=0),))])
    expected = '{"id": "é", "events": [{"time": 0.0, "text": "你好"}], "steps": [{"event": 0}]}\n'
    assert path.read_bytes().decode() == expected


C = ("steps", 1, "candidates", 0)


def test_a_broken_line_is_named_by_its_number(tmp_path):
    with pytest.raises(StreamError, match=r"streams\.jsonl:2: found broken JSON at column 25 \(Unterminated string"):
        read_streams(_write(tmp_path, FULL, b'{"id": "a", "events": [{"ti'))


def test_every_truncation_is_noticed(tmp_path):
    line = json.dumps(FULL).encode()
    for length in range(1, len(line)):
        with pytest.raises(StreamError, match=r"streams\.jsonl:1: "):
            read_streams(_write(tmp_path, line[:length]))


def test_a_repeated_id_is_refused_in_reading_and_writing(tmp_path):
    path = _write(tmp_path, FULL, {**FULL, "id": "b"}, FULL)
    with pytest.raises(StreamError, match=r"jsonl:3: id: found 'a' again \(first on line 1\), expected a new id"):
        read_streams(path)
    before = path.read_bytes()
    stream = Stream(id="a", events=(Event(time=0.0, text="x"),), steps=())
    with pytest.raises(StreamError, match=r"jsonl:2: id: found 'a' again, expected a new id"):
        write_streams(path, [stream, stream])
    assert path.read_bytes() == before
    assert [child.name for child in tmp_path.iterdir()] == ["streams.jsonl"]


def test_files_without_streams_are_refused(tmp_path):
    nothing = _write(tmp_path)
    for work, message in (
        (lambda: read_streams(nothing), r"streams\.jsonl: found an empty file"),
        (lambda: read_streams(tmp_path / "missing.jsonl"), r"missing\.jsonl: no such file"),
        (lambda: write_streams(tmp_path / "none.jsonl", []), r"none\.jsonl: found no streams to write"),
        (lambda: write_streams(tmp_path / "nowhere" / "out.jsonl", []), r"out\.jsonl: found no folder .*nowhere"),
    ):
        with pytest.raises((StreamError, FileNotFoundError), match=message):
            work()
    assert [child.name for child in tmp_path.iterdir()] == ["streams.jsonl"]


def test_importing_streams_stays_light():
    modules = "prism_jax.streams, prism_jax.streams.jsonl, prism_jax.streams.splits, prism_jax.streams.summary"
    heavy = "['tensorflow_datasets', 'jax', 'flax', 'transformers', 'numpy']"
    code = f"import sys, {modules}; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"


def test_a_long_line_is_refused_by_name(tmp_path):
    path = _write(tmp_path, FULL, FULL | {"id": "b", "padding": "x" * 70_000_000})
    with pytest.raises(StreamError) as caught:
        read_streams(path)
    assert str(caught.value).startswith(f"{path}:2: found a line of more than 67108864 bytes")
    assert len(str(caught.value)) < 300


def test_streams_are_read_one_by_one(tmp_path):
    """An error on a later line does not keep the streams before it."""
    found = iterate_streams(_write(tmp_path, FULL, FULL | {"id": "b"}, FULL))
    assert [next(found).id, next(found).id] == ["a", "b"]
    with pytest.raises(StreamError, match=r":3: id: found 'a' again"):
        next(found)
