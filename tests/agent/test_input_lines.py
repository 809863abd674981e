"""The agent's input: what is taken, what is refused by name, and lines that arrive in pieces."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_jax.agent.lines import InputLines, LineError, parse_line
from prism_jax.agent.records import OfferOutcome
from prism_jax.agent.steps import Observation
from prism_jax.streams import Candidate, Event

EVENT = {"stream": "s", "time": 1, "text": "x"}
OUTCOME = {"stream": "s", "offer": "s/0", "outcome": "accepted", "time": 2}


def parsed(value):
    return parse_line(value if isinstance(value, bytes) else json.dumps(value).encode(), "in:7")


def test_an_event_and_an_outcome():
    assert parsed(EVENT) == Observation("s", Event(time=1.0, text="x"))
    whole = {**EVENT, "candidates": ["Tea?", None], "costs": {"c_fa": 2}, "domain": "life"}
    offers = (Candidate(text="Tea?"), Candidate())
    assert parsed(whole) == Observation("s", Event(time=1.0, text="x"), offers, {"c_fa": 2}, "life")
    assert parsed({**EVENT, "candidates": None, "costs": None}) == Observation("s", Event(time=1.0, text="x"))
    assert parsed(OUTCOME) == OfferOutcome("s", "s/0", "accepted", 2.0, None)
    assert parsed({**OUTCOME, "needed": False}).needed is False


REFUSED = {
    "far away": ({**EVENT, "time": 1790000000000}, "time: found 1.79e+12, expected a number of seconds of at most"),
    "10 MB": ({**EVENT, "text": "y" * 10_000_000}, "text: found 10000000 characters, expected at most 1000000"),
    "blank": ({**EVENT, "text": " \n"}, "text: found"),
    "the text null": ({**EVENT, "text": " NULL "}, 'text: found the text "null"'),
    "the stream null": ({**EVENT, "stream": "null"}, 'stream: found the text "null"'),
    "the offer null": ({**OUTCOME, "offer": "null"}, 'offer: found the text "null"'),
    "the candidate null": ({**EVENT, "candidates": ["null"]}, 'candidates[0]: found the text "null"'),
    "half a pair": (b'{"stream": "s", "time": 1, "text": "a\\ud83d"}', r"text: found the lone surrogate '\ud83d'"),
    "half in a name": (b'{"stream": "\\udc00", "time": 1, "text": "a"}', "stream: found the lone surrogate"),
    "half in a key": (b'{"\\udc00": 1, "stream": "s", "time": 1, "text": "a"}', r"'\udc00': found an unknown key"),
    "half in an offer": (b'{"stream": "s", "time": 1, "text": "a", "candidates": ["\\udc00"]}', "candidates[0]: found"),
    "no candidates": ({**EVENT, "candidates": []}, "candidates: found 0, expected 1 to 100 texts"),
    "one offer twice": ({**EVENT, "candidates": ["a", "b", "a"]}, "candidates[2]: found the text of candidates[0]"),
    "many candidates": ({**EVENT, "candidates": [f"{i}" for i in range(101)]}, "candidates: found 101, expected 1"),
    "an empty stream": ({**EVENT, "stream": ""}, "stream: found text of 0 characters, expected 1 to 1000"),
    "a long stream": ({**EVENT, "stream": "s" * 1001}, "stream: found text of 1001 characters"),
    "both": ({**EVENT, **OUTCOME}, "text: found an unknown key, expected one of stream, offer, outcome, time, needed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_anything_else_is_refused_by_name(case):
    value, message = REFUSED[case]
    with pytest.raises(LineError) as caught:
        parsed(value)
    said = str(caught.value)
    assert said.startswith("in:7: ") and message in said
    assert len(said) < 300


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=2)))
def test_any_value_of_any_key_is_taken_or_refused(value):
    for line, key in ((EVENT, key) for key in (*EVENT, "candidates", "costs", "domain")):
        try:
            parsed({**line, key: value})
        except LineError as error:
            assert str(error).startswith("in:7: ")


@given(st.lists(st.binary(max_size=5).map(lambda line: line.replace(b"\n", b" ")), max_size=9), st.integers(1, 4))
def test_lines_come_in_order_whatever_the_batch(content, most):
    read, write = os.pipe()
    os.write(write, b"\n".join(content))
    os.close(write)
    lines, found = InputLines(read), []
    while batch := lines.batch(most):
        assert len(batch) <= most
        found += batch
    os.close(read)
    expected = b"\n".join(content).split(b"\n")
    expected = expected[:-1] if expected[-1] == b"" else expected  # an end, not a line
    assert found == list(enumerate(expected, 1))


def test_lines_that_have_arrived_are_taken_and_no_others_are_waited_for():
    read, write = os.pipe()
    lines = InputLines(read)
    os.write(write, b"one\ntwo\nthr")
    assert lines.batch(100) == [(1, b"one"), (2, b"two")]
    os.write(write, b"ee\n")
    assert lines.batch(100) == [(3, b"three")]
    os.write(write, b"four")
    os.close(write)
    assert lines.batch(100) == [(4, b"four")]
    assert lines.batch(100) == []
    os.close(read)


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("prism_jax.agent.lines.MOST_LINE_BYTES", 1000)
    monkeypatch.setattr("prism_jax.agent.lines._BLOCK", 300)
    path = tmp_path / "in"
    path.write_bytes(b"short\n" + b"x" * 5000)
    with path.open("rb") as file:
        lines = InputLines(file.fileno())
        assert lines.batch(100) == [(1, b"short")]
        with pytest.raises(LineError, match="input:2: found more than 1000 bytes"):
            lines.batch(100)


def test_lines_that_wait_are_taken_in_batches_of_bounded_size(tmp_path, monkeypatch):
    monkeypatch.setattr("prism_jax.agent.lines.MOST_LINE_BYTES", 1000)
    monkeypatch.setattr("prism_jax.agent.lines._BLOCK", 50)
    path = tmp_path / "in"
    path.write_bytes((b"y" * 400 + b"\n") * 9)
    with path.open("rb") as file:
        lines = InputLines(file.fileno())
        assert [len(lines.batch(256)) for _ in range(4)] == [3, 3, 3, 0]
