"""The data of the control surface: what a page holds decodes to the library's own numbers, and fits the page."""

import base64
import json

import numpy as np
import pytest
from synthetic_scores import POINT, make_columns

from prism_jax.decision.calibration import apply_temperature
from prism_jax.evaluation import protocol
from prism_jax.report import controls, page
from prism_jax.scores import Scores
from prism_jax.streams import Event, Step, Stream

HOSTILE = "</script><!--<script>&\u202e\u2028"


def exploration(streams=24, steps=12, **columns):
    values = make_columns(streams=streams, steps=steps) | columns
    scores = Scores.from_columns(values)
    return protocol.explore(scores, protocol.calibrate(scores), POINT)


@pytest.fixture(scope="module")
def found():
    columns = make_columns(streams=24)
    tokens = np.random.default_rng(0).integers(10, 40, len(columns["step"]))
    unknown = np.where(np.arange(len(tokens)) % 7 == 1, np.nan, columns["y_accept"])
    return exploration(tokens_slow=tokens, y_accept=unknown, domain=[f"{name} {HOSTILE}" for name in columns["domain"]])


def stream(name, text):
    events = tuple(Event(time=60.0 * i, text=text) for i in range(14))
    return Stream(id=name, events=events, steps=tuple(Step(event=i + 2) for i in range(12)))


def floats(text):
    return np.frombuffer(base64.b64decode(text), "<f8")


def test_the_pages_data_decode_to_the_counts_and_signals_bit_for_bit(found):
    data = json.loads(controls.as_script_text(controls.control_data(found, "stream-3", {})))
    assert data["ratios"] == found.ratios.tolist() and data["complete"]
    for table, kept in zip(found.tables, data["tables"], strict=True):
        for name, differences in kept["counts"].items():
            counts = np.cumsum(np.reshape(differences, table.tp.shape), axis=-1)
            assert (counts == getattr(table, name)).all()
        assert kept["settings"] == table.settings.tolist()
    (reach,) = [kept["reach"] for kept in data["tables"] if kept["reach"]]
    (expected,) = [table.reach for table in found.tables if table.trigger == "value"]
    assert [controls.DIGITS.index(digit) for digit in reach] == expected.ravel().tolist()
    for p, kept, z in zip(
        [p for signals in found.passes for p in signals], data["rows"]["p"], data["rows"]["z"], strict=True
    ):
        assert (floats(kept) == p).all()
        tail = np.exp(-np.abs(floats(z) / 2))
        assert (np.where(floats(z) >= 0, 1, tail) / (1 + tail) == apply_temperature(p, 2.0)).all()
    for code, *labels in zip(data["rows"]["labels"], found.y_need, *found.y_accept, strict=True):
        number = controls.DIGITS.index(code)
        assert [(number // 3**k) % 3 for k in range(3)] == [2 if np.isnan(label) else label for label in labels]
    assert sum(data["judged"]) == found.judged.sum() and sum(data["steps"]) == len(found.stream)


def test_streams_name_their_rows_and_show_their_events(found):
    known = {"stream-5": stream("stream-5", "Types.")}
    streams = controls.control_data(found, "stream-5", known)["streams"]
    assert [one["name"] for one in streams[:2]] == ["stream-5", "stream-1"]
    for one in streams:
        start, count = one["rows"]
        assert set(found.stream[start : start + count]) == {one["name"]} and count == 12
    assert streams[0]["events"][:3] == [
        (-1, "0:00", "Types."),
        (-1, "1:00", "Types."),
        (streams[0]["rows"][0], "2:00", "Types."),
    ]
    assert [event[1:] for event in streams[1]["events"][:2]] == [("0:00", ""), ("0:30", "")]


def test_texts_that_would_make_the_page_too_large_are_left_out(found, monkeypatch):
    monkeypatch.setattr(controls, "MOST_TEXT", 100)
    known = {name: stream(name, "Types a line.") for name in ("stream-1", "stream-3", "stream-5")}
    streams = controls.control_data(found, "stream-3", known)["streams"]
    assert [any(text for *_, text in one["events"]) for one in streams[:3]] == [True, False, False]
    known["stream-3"] = stream("stream-3", "\u884c" * 20)
    events = controls.control_data(found, "stream-3", known)["streams"][0]["events"]
    assert [bool(text) for *_, text in events[:3]] == [True, False, False]  # each takes 122 characters of JSON


def test_hostile_texts_cannot_end_the_element(found):
    text = controls.as_script_text(controls.control_data(found, "stream-3", {"stream-3": stream("stream-3", HOSTILE)}))
    assert not set(text) & set("<>&\u202e\u2028")
    shown = "</script><!--<script>&\\u202e\\u2028"
    data = json.loads(text)
    assert data["streams"][0]["events"][0][2] == shown
    assert all(group[0].endswith(shown) for group in data["groups"])


def test_of_many_steps_only_the_first_streams_can_be_browsed(found, monkeypatch):
    monkeypatch.setattr(controls, "MOST_ROWS", 100)
    monkeypatch.setattr(controls, "BROWSED_ROWS", 30)
    data = controls.control_data(found, "stream-7", {})
    assert not data["complete"] and sum(data["steps"]) == 144
    assert [one["name"] for one in data["streams"]] == ["stream-7", "stream-1", "stream-3"]
    assert [one["rows"] for one in data["streams"]] == [[24, 12], [0, 12], [12, 12]]
    assert len(floats(data["rows"]["p"][0])) == len(data["rows"]["labels"]) == 36


@pytest.mark.parametrize(
    ("logging", "reason"),
    [
        (False, "some labels are soft, neither 0 nor 1, and steps with such labels cannot be counted"),
        (True, "steps have inverse-propensity weights, and weighted steps cannot be counted"),
    ],
)
def test_a_page_without_counts_says_why(logging, reason):
    columns = make_columns(streams=12, slow=False, logging=logging)
    if not logging:
        columns["y_need"][12:] = np.where(np.arange(len(columns["y_need"][12:])) % 5 == 0, 0.5, columns["y_need"][12:])
    scores = Scores.from_columns(columns)
    calibration = protocol.calibrate(scores)
    evaluation = protocol.evaluate(scores, calibration, POINT)
    source = page.render(evaluation, protocol.explore(scores, calibration, POINT), calibration)
    assert f"Switched off: {reason}." in source
    assert "control-data" not in source
