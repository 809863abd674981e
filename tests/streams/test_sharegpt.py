"""Conversations without ids regroup to the streams they were cut from; other layouts are refused by row."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_jax.streams import RESPONSE_KEYS
from prism_jax.streams.jsonl import StreamError
from prism_jax.streams.published.conversations import AssistantAnswer, Conversation
from prism_jax.streams.published.sharegpt import JoinedStream, read_sharegpt, regroup

TEXTS = st.sampled_from(["opens a file", "types", "saves", "a test fails"])
OFFERS = st.sampled_from([None, "Mend it.", "Explain it."])


@st.composite
def cut_streams(draw):
    """Streams of distinct first events, the conversations they are cut into, and a random order of these.

    Either every conversation begins with its stream, which may repeat events, or long ones lost their oldest turns.
    """
    streams, pieces = [], []
    lost = draw(st.booleans())
    for number in range(draw(st.integers(1, 4))):
        times = draw(st.lists(st.integers(0, 60), min_size=1, max_size=8, unique=lost))
        events = ((f"{100 * number + 99}", "starts"), *((f"{100 * number + time}", draw(TEXTS)) for time in times))
        answers = [draw(OFFERS) for _ in events]
        streams.append((events, answers))
        first = 0
        for stop in range(1, len(events) + 1):
            first = draw(st.integers(first, max(first, stop - 4))) if lost else 0
            pieces.append((events[first:stop], [(stop - 1 - first, answers[stop - 1])]))
    return streams, draw(st.permutations(pieces))


def reply(offer):
    return AssistantAnswer(offer, () if offer is None else ((RESPONSE_KEYS[2], offer),))


@given(cut_streams())
def test_streams_that_are_cut_into_conversations_regroup_exactly(drawn):
    streams, pieces = drawn
    given_ = [
        Conversation(f"row {number}", events, tuple((index, reply(offer)) for index, offer in answers))
        for number, (events, answers) in enumerate(pieces)
    ]
    found = regroup(given_)
    assert found.left_out == ()
    assert {stream.events for stream in found.streams} == {events for events, _ in streams}
    assert len(found.streams) == len(streams)
    for events, answers in streams:
        (joined,) = (stream for stream in found.streams if stream.events == events)
        assert joined == JoinedStream(events, {i: frozenset({reply(offer)}) for i, offer in enumerate(answers)})


@given(st.permutations(range(6)))
def test_one_beginning_never_leads_to_two_streams(order):
    """The longer story stays; a conversation of the other one is left out, whatever the order of the rows."""
    shared = (("1", "opens"), ("2", "types"))
    one = [(*shared, ("3", "a"), ("4", "b"), ("5", "c"))[:stop] for stop in (2, 4, 5)]
    other = [(*shared, ("3", "x"), ("4", "y"))[:stop] for stop in (3, 4)]
    pieces = [Conversation(f"row {i}", events, ()) for i, events in enumerate([*one, *other, (("9", "z"),)])]
    found = regroup(pieces[i] for i in order)
    assert [stream.events for stream in found.streams] == [one[-1], (("9", "z"),)]
    assert found.left_out == ("row 3", "row 4")


EVENTS = [
    {"Time": f"Day 1, 9:0{i} AM", "Event": text} for i, text in enumerate(["Opens.", "Types.", "Fails.", "Reads."])
]
ANSWER = dict(zip(RESPONSE_KEYS, ("To test.", "It failed.", "Explain it.", "Shall I?"), strict=True))
SILENT = {**ANSWER, "Proactive Task": None, "Response": "null"}
TASK = {"Instructions": "Offer help where it is needed."}


def sharegpt(*turns):
    said = [("human", json.dumps(turn)) if i % 2 == 0 else ("gpt", json.dumps(turn)) for i, turn in enumerate(turns)]
    return {"conversations": [{"from": who, "value": what} for who, what in said], "system": "Watch.", "tools": "[]"}


def openai(*turns):
    row = [{"role": "system", "content": "Watch."}]
    for turn in sharegpt(*turns)["conversations"]:
        row.append({"role": {"human": "user", "gpt": "assistant"}[turn["from"]], "content": turn["value"]})
    return row


def as_file(path, rows):
    lines = path.suffix == ".jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n" if lines else json.dumps(rows))
    return path


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl"])
@pytest.mark.parametrize("layout", [sharegpt, openai, lambda *turns: {"messages": openai(*turns)}])
def test_the_known_forms_of_a_turn_give_one_stream(tmp_path, name, layout):
    rows = [
        layout(EVENTS[0], SILENT, TASK | {"Observations": EVENTS[1]}, ANSWER),
        layout({"Observations": EVENTS[:2]}, ANSWER, TASK | {"Observation": EVENTS[2]}, ANSWER | {"Response": None}),
        layout(TASK | {"Observations": [json.dumps(event) for event in EVENTS[:4]]}, SILENT),
    ]
    (stream,) = read_sharegpt(as_file(tmp_path / name, rows)).streams
    assert [event.text for event in stream.events] == ["Opens.", "Types.", "Fails.", "Reads."]
    assert [event.time for event in stream.events] == [32400, 32460, 32520, 32580]
    offers = [[(c.text, c.response) for c in step.candidates] for step in stream.steps]
    whole = ("Explain it.", json.dumps(ANSWER))
    assert offers == [[(None, None)], [whole], [("Explain it.", None)], [(None, None)]]
    assert stream.id.startswith("sharegpt-")
    (again,) = read_sharegpt(as_file(tmp_path / name, rows[::-1])).streams
    assert again == stream


def test_answers_in_code_fences_and_other_offers_of_one_step_are_read(tmp_path):
    row = sharegpt(EVENTS[0], ANSWER)
    row["conversations"][1]["value"] = f"```json\n{json.dumps(ANSWER)}\n```"
    other = sharegpt(EVENTS[0], ANSWER | {"Proactive Task": "Run it."})
    (stream,) = read_sharegpt(as_file(tmp_path / "rows.json", [row, other, sharegpt(EVENTS[0], SILENT)])).streams
    assert {candidate.text for candidate in stream.steps[0].candidates} == {"Explain it.", "Run it."}


def test_dates_and_numbers_are_times_too(tmp_path):
    iso = [{"Time": f"2024-05-0{i} 10:00:00", "Event": "Types."} for i in (1, 2)]
    (stream,) = read_sharegpt(as_file(tmp_path / "rows.json", [sharegpt({"Observations": iso}, SILENT)])).streams
    assert stream.events[1].time - stream.events[0].time == 86_400
    (stream,) = read_sharegpt(as_file(tmp_path / "n.json", [sharegpt({"Time": 17173.5, "Event": "a"}, SILENT)])).streams
    assert stream.events[0].time == 17173.5


def test_conversations_that_are_left_out_are_counted(tmp_path):
    rows = [sharegpt({"Observations": EVENTS}, ANSWER), sharegpt({"Observations": [*EVENTS[:2], EVENTS[3]]}, ANSWER)]
    path = as_file(tmp_path / "rows.json", rows)
    found = read_sharegpt(path)
    assert [step.event for step in found.streams[0].steps] == [3]
    reason = f"of 2 conversations of {path}, which begin as another stream and end differently: row 1"
    assert found.dropped == {reason: 1}


ROW = sharegpt(EVENTS[0], ANSWER)["conversations"]
BROKEN = {
    "no turns": ({"conversations": []}, "row 1: found [], expected a list of turns"),
    "another key": ({"text": "x"}, "row 1: found the keys text, expected conversations"),
    "an unknown speaker": ([{"from": "narrator", "value": "x"}], "row 1, turn 0: found from = 'narrator', expected"),
    "another turn": ([{"speaker": "human"}], "row 1, turn 0: found {'speaker': 'human'}, expected an object with from"),
    "a turn of numbers": ([{"from": "human", "value": 3}], "row 1, turn 0.value: found 3, expected text"),
    "prose": ([{"from": "human", "value": "Hello."}], "row 1, turn 0: found broken JSON at column 1"),
    "no event": ([{"from": "human", "value": '{"a": 1}'}], "row 1, turn 0: found the keys a, expected Time and Event"),
    "no time": ([{"from": "human", "value": '{"Event": "a"}'}], "row 1, turn 0: Time: found nothing, expected"),
    "an early answer": (ROW[::-1], "row 1, turn 0: found an answer before any event, expected events first"),
    "a late system turn": ([*ROW, {"from": "system", "value": "x"}], "row 1, turn 2: found a system turn, expected"),
    "prose as an answer": ([ROW[0], {"from": "gpt", "value": "No."}], "row 1, turn 1: found broken JSON at column 1"),
    "an answer without a task": ([ROW[0], {"from": "gpt", "value": '{"Thoughts": "a"}'}], "row 1, turn 1: found {'Th"),
    "a task of numbers": ([ROW[0], {"from": "gpt", "value": '{"Proactive Task": 1}'}], "row 1, turn 1: Proactive Task"),
    "no clock": (sharegpt({"Time": "noon", "Event": "a"}, SILENT), "row 1, event [0].time: found 'noon', expected epo"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_another_layout_is_refused_by_row(case, tmp_path):
    row, message = BROKEN[case]
    path = as_file(tmp_path / "rows.json", [sharegpt(EVENTS[0], ANSWER), row])
    with pytest.raises(StreamError, match=f"^{re.escape(f'{path}: {message}')}") as error:
        read_sharegpt(path)
    assert "\n" not in str(error.value)


def test_a_file_without_answers_or_rows_is_refused(tmp_path):
    with pytest.raises(StreamError, match="found no answer in 1 rows, expected conversations with answers"):
        read_sharegpt(as_file(tmp_path / "rows.json", [sharegpt(EVENTS[0])]))
    (tmp_path / "rows.json").write_text('{"conversations": []}')
    with pytest.raises(StreamError, match="expected a list of rows"):
        read_sharegpt(tmp_path / "rows.json")
    with pytest.raises(FileNotFoundError, match="expected conversations as JSON or JSON lines"):
        read_sharegpt(tmp_path / "none.json")
