"""Recorded answers become candidates of whole streams; what is no answer is left out, what is no layout refused."""

import collections
import itertools
import json
import pathlib
import re
import shutil

import pytest
from real_checkout import CHECKOUT, needs_checkout

from prism_jax.streams import RESPONSE_KEYS
from prism_jax.streams.jsonl import StreamError, read_streams, write_streams
from prism_jax.streams.published.answers import candidates_of
from prism_jax.streams.published.recorded import read_recorded, read_recordings

TRACES = pathlib.Path(__file__).parent / "traces"


def test_the_models_of_one_stream_share_its_steps():
    """Made-up files: an offer in common, each kind of silence, a failed request, an offer that is no text."""
    found = read_recorded(TRACES)
    (stream,) = found.streams
    assert found.dropped == {"steps of beta without an answer: the request failed or its offer is no text": 2}
    assert (stream.id, stream.domain) == ("code_1", "coding")
    assert [event.time for event in stream.events] == [32400, 32700, 32700, 33000]  # the third was stamped too early
    said = [dict(step.recorded) for step in stream.steps]
    assert said == [{"alpha": 0, "beta": 0}, {"alpha": 1, "beta": 1}, {"alpha": 0}, {"alpha": 1}]
    offers = [[candidate.text for candidate in step.candidates] for step in stream.steps]
    assert offers == [[None], ["Explain the message."], [None], ["Find an answer."]]
    assert json.loads(stream.steps[1].candidates[0].response) == dict(
        zip(RESPONSE_KEYS, ("To test.", "It failed.", "Explain the message.", "Shall I explain it?"), strict=True)
    )
    assert not any(step.candidates[0].response for step in stream.steps[::2])


def test_a_single_model_has_its_own_offers_and_an_incomplete_answer_is_no_response():
    (stream,) = read_recorded(TRACES / "beta").streams
    assert [(step.event, step.candidates[0].text) for step in stream.steps] == [(0, None), (1, "Explain the message.")]
    assert stream.steps[1].candidates[0].response is None


@pytest.mark.parametrize("cut", [lambda s: s.pop(), lambda s: s[0]["observation"].update(event="Another one.")])
def test_models_that_saw_different_events_are_refused(cut, tmp_path):
    path = shutil.copytree(TRACES, tmp_path / "traces") / "beta" / "code_1.json"
    steps = json.loads(path.read_text())
    cut(steps)
    path.write_text(json.dumps(steps))
    with pytest.raises(StreamError, match=rf"^{re.escape(str(path))}: \[[03]\]\.observation: found .* as in .*alpha"):
        read_recorded(path.parents[1])


def test_a_folder_without_files_is_refused(tmp_path):
    path = shutil.copytree(TRACES, tmp_path / "traces") / "alpha" / "code_1.json"
    (path.parents[1] / "stray.json").write_text("[]")
    with pytest.raises(FileNotFoundError, match=r"found stray\.json beside .*code_1\.json, expected files STREAM"):
        read_recorded(path.parents[1])
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"empty: found no file, expected files STREAM\.json"):
        read_recorded(tmp_path / "empty")


@needs_checkout
def test_every_real_answer_is_read(tmp_path):
    """Counted directly in the files: offers that are not one of the words for none, silences, and failures."""
    folder = CHECKOUT / "eval" / "traces_new"
    expected, failed = collections.Counter(), collections.Counter()
    for path in folder.glob("*/*.json"):
        for index, step in enumerate(json.loads(path.read_text(encoding="utf-8"))):
            answer = step["agent_response"]
            if isinstance(answer, dict) or (answer and not isinstance(answer[0], str)):
                failed[path.parent.name] += 1
            else:
                spoke = bool(answer) and answer[0] not in ("null", "None")
                expected[path.stem, index, path.parent.name, float(spoke)] += 1
    streams = read_recorded(folder).streams
    found = collections.Counter(
        (stream.id, step.event, model, spoke)
        for stream in streams
        for step in stream.steps
        for model, spoke in step.recorded.items()
    )
    assert found == expected
    assert failed["claude-3-5-sonnet"] > 0
    assert len(streams) == len({path.stem for path in folder.glob("*/*.json")})
    answers = [answer for recording in read_recordings(folder)[0] for answer in recording.answers]
    assert len(answers) == sum(expected.values())
    write_streams(tmp_path / "recorded.jsonl", streams)
    assert read_streams(tmp_path / "recorded.jsonl") == streams


def test_the_order_of_offers_tells_nothing_about_who_made_them():
    answers = [{RESPONSE_KEYS[2]: f"Offer {name}"} for name in "abcd"]
    orders = {candidates_of("s", 3, order) for order in itertools.permutations(answers)}
    assert len(orders) == 1
    assert len({tuple(one.text for one in candidates_of("s", event, answers)) for event in range(20)}) > 5
