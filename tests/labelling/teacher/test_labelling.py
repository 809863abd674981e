"""What a teacher's answers become: labels where they are valid, and nothing where they are not."""

import asyncio
import dataclasses
import json

import pytest
from etils import epath

from prism_jax.commands.labelling import label_file
from prism_jax.labelling.teacher.labelling import Fast, LabellingConfig, TeacherConfig, label_stream
from prism_jax.labelling.teacher.prompts import PromptSettings
from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.remote.fake import FakeEndpoint, Faults
from prism_jax.remote.structured import FEEDBACK, Reply
from prism_jax.runtime.files import temporary_beside
from prism_jax.streams import RESPONSE_KEYS, Candidate, Event, Step, Stream
from prism_jax.streams.jsonl import read_streams, write_streams
from prism_jax.streams.types import SLOW_FIELDS

FIELDS = dict.fromkeys(SLOW_FIELDS, "Nothing much.")
ANSWER = json.dumps({**FIELDS, "p_need": 0.25, "p_accept": [0.75], "response": None})
GIVEN = PromptSettings(offers="given")


def stream_of(*steps):
    events = tuple(Event(time=float(i), text=f"opens file {i}") for i in range(max(1, len(steps))))
    return Stream(id="s", events=events, steps=steps)


def response_to(offer):
    return dict(zip(RESPONSE_KEYS, ("To work.", "It is late.", offer, "Shall I?"), strict=True))


@pytest.fixture
def paths(tmp_path):
    """The files of a job: its streams, which are written first, the labelled ones and the rows."""
    return [epath.Path(tmp_path / name) for name in ("in.jsonl", "out.jsonl", "out.rows.jsonl")]


def config_of(fake, cache, settings=GIVEN, **labelling):
    endpoint = EndpointConfig("teacher", fake.url, input_price=0.0, output_price=0.0)
    return TeacherConfig(endpoint, RemoteConfig(str(cache)), settings, LabellingConfig(**labelling))


def label(stream, answer, offers="given", passes="slow"):
    """Labels a stream by a teacher whose answer to each pass is given; None is no valid answer."""

    async def ask(messages, kind):
        value = answer(kind)
        if value is None:
            return Reply(None, "no answer", ())
        return Reply(kind.model_validate_json(json.dumps(value)), None, ())

    return asyncio.run(label_stream(stream, ask, PromptSettings(offers=offers), LabellingConfig(passes=passes)))


def test_wrong_answers_go_back_with_what_is_wrong_and_then_are_missing(tmp_path, paths):
    """The first step's teacher adds its reasoning once; the second one's never stops talking."""
    events = tuple(Event(time=float(i), text="opens file") for i in range(2))
    bare = Stream(id="s", events=events, steps=())
    write_streams(paths[0], [bare])
    told = []

    def brain(body):
        question = json.dumps(body["messages"][1])
        if question.count("opens file") == 2:
            return "I think that the user is busy."
        answer = {**FIELDS, "p_need": 0.25, "p_accept": [0.75], "response": None}
        if len(body["messages"]) == 2:
            return json.dumps({"reasoning": "Step by step.", **answer})
        told.append(body["messages"][-1]["content"])
        return json.dumps(answer)

    with FakeEndpoint(brain) as fake:
        done = label_file(config_of(fake, tmp_path / "c.sqlite", retries=1), *paths)
        assert fake.received.total() == 4
    assert len(told) == 1 and told[0].startswith(FEEDBACK) and "reasoning" in told[0]
    (stream,) = read_streams(paths[1])
    found = [(step.teacher_need, step.candidates[0].teacher_accept) for step in stream.steps]
    assert found == [(0.25, 0.75), (None, None)]
    assert stream.steps[0].rationale == FIELDS and stream.steps[1].rationale is None
    rows = [json.loads(line) for line in paths[2].read_text().splitlines()]
    assert [(row["p_need"], row["asked"], row["model"]) for row in rows] == [(0.25, 2, "teacher"), (None, 2, "teacher")]
    assert rows[0]["problem"] is None and "found 0 JSON objects" in rows[1]["problem"]
    assert done.missing == {rows[1]["problem"]: 1}
    assert "Step by step" not in paths[1].read_text() + paths[2].read_text()


def test_without_any_answer_nothing_is_written(tmp_path, paths):
    write_streams(paths[0], [stream_of(), Stream(id="t", events=(Event(time=0.0, text="waits"),), steps=())])
    with FakeEndpoint(lambda body: ANSWER, Faults(status=400)) as fake:
        config = config_of(fake, tmp_path / "c.sqlite")
        with pytest.raises(RuntimeError, match=r"^found no answer to any of 2 requests, .* HTTP 400"):
            label_file(config, *paths)
        other = dataclasses.replace(config, endpoint=dataclasses.replace(config.endpoint, max_tokens=99))
        fake.brain, fake.faults = (lambda body: "no"), Faults()
        with pytest.raises(RuntimeError, match=r"^found no valid answer to any question, .* at 2 of 2: found 0 JSON"):
            label_file(other, *paths)
        assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["in.jsonl"]
        fake.brain, fake.faults = (lambda body: ANSWER if "waits" in str(body) else "no"), Faults()
        assert len(label_file(config, *paths).missing) == 1, "one answer of two is worth a file"
    assert len(read_streams(paths[1])) == 2


def test_an_older_answer_is_not_replaced_by_none(tmp_path, paths):
    """The same file is labelled with a new cache, while the teacher fails at one of two streams."""
    write_streams(paths[0], [stream_of(), Stream(id="t", events=(Event(time=0.0, text="waits"),), steps=())])

    def run(brain, cache):
        with FakeEndpoint(brain) as fake:
            return label_file(config_of(fake, tmp_path / cache), *paths)

    assert not run(lambda body: ANSWER, "a").missing
    before = [path.read_bytes() for path in paths]
    message = r"rows.jsonl: found answers to 1 questions that have none now \(found 0.*another config.remote.cache"
    with pytest.raises(RuntimeError, match=message):
        run(lambda body: ANSWER if "waits" in str(body) else "no", "b")
    assert [path.read_bytes() for path in paths] == before
    assert not run(lambda body: ANSWER, "c").missing


def test_what_a_killed_run_left_is_removed(tmp_path, paths):
    write_streams(paths[0], [stream_of()])
    left = [temporary_beside(path) for path in paths[1:]]
    for path in left:
        path.write_text("half")
    with FakeEndpoint(lambda body: ANSWER) as fake:
        label_file(config_of(fake, tmp_path / "c.sqlite"), *paths)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("speak", [True, False])
def test_what_a_teacher_would_propose_is_written_whether_it_would_speak_or_not(speak):
    """It stands beside the constant offer; the response is the text that is judged, or null for silence."""

    def answer(_):
        return {**FIELDS, "p_need": 0.5, "response": response_to("Mend it."), "p_accept": 0.75, "speak": speak}

    listed = Step(event=0, candidates=(Candidate(text="Run it."), Candidate(text="Stop it."), Candidate()), y_need=1.0)
    done = label(stream_of(listed), answer, offers="own")
    response = json.dumps(response_to("Mend it.")) if speak else None
    offer = Candidate(proposal="Mend it.", teacher_accept=0.75, response=response)
    assert done.stream.steps == (Step(event=0, candidates=(offer,), y_need=1.0, teacher_need=0.5, rationale=FIELDS),)
    assert done.listed == 2
    (row,) = done.rows
    assert (row.p_accept, row.proposal, row.spoke) == ((0.75,), "Mend it.", speak)


def test_a_fast_teacher_proposes_without_a_response_and_an_unanswered_step_holds_nothing():
    def answer(kind):
        return {"p_need": 0.5, "offer": "Mend it.", "p_accept": 0.75} if issubclass(kind, Fast) else None

    done = label(stream_of(Step(event=0)), answer, offers="own", passes="both")
    assert done.stream.steps[0].candidates == (Candidate(proposal="Mend it.", teacher_accept=0.75),)
    assert [(row.proposal, row.spoke) for row in done.rows] == [("Mend it.", None), (None, None)]
    old = Candidate(proposal="Run it.", teacher_accept=0.5, response="{}")
    nothing = label(stream_of(Step(event=0, candidates=(old,), teacher_need=0.5)), lambda _: None, offers="own")
    assert nothing.stream.steps == (Step(event=0),)


@pytest.mark.parametrize(("offers", "said"), [("own", "3 dropped"), ("given", "3 kept")])
def test_listed_offers_are_counted_and_a_line_says_what_becomes_of_them(tmp_path, paths, offers, said):
    step = Step(event=0, candidates=tuple(Candidate(text=text) for text in ("Mend it.", "Run it.", "Stop it.")))
    write_streams(paths[0], [stream_of(step)])
    own = {"response": response_to("Go."), "p_accept": 0.5, "speak": True}
    rest = own if offers == "own" else {"p_accept": [0.5, 0.5, 0.5], "response": None}
    with FakeEndpoint(lambda body: json.dumps({**FIELDS, "p_need": 0.25, **rest})) as fake:
        done = label_file(config_of(fake, tmp_path / "c.sqlite", PromptSettings(offers=offers)), *paths)
    assert done.listed == 3 and not done.missing
    (line,) = (line for line in done.lines if line.startswith("listed offers:"))
    assert said in line
    (stream,) = read_streams(paths[1])
    texts = [offer.text for offer in stream.steps[0].candidates]
    assert texts == ([None] if offers == "own" else ["Mend it.", "Run it.", "Stop it."])


@pytest.mark.parametrize(("said", "p_accept"), [("Explain it.", [0.9, 0.6, 0.7]), ("Do it.", [0.1, 0.8, 0.3])])
def test_a_response_belongs_to_the_offer_that_it_repeats_or_else_to_the_likeliest(said, p_accept):
    offers = tuple(Candidate(text=text) for text in ("Mend it.", "Explain it.", "Run it."))
    answer = {**FIELDS, "p_need": 0.5, "p_accept": p_accept, "response": response_to(said)}
    found = label(stream_of(Step(event=0, candidates=offers)), lambda _: answer)
    assert [offer.response is None for offer in found.stream.steps[0].candidates] == [True, False, True]
    assert [(row.proposal, row.spoke) for row in found.rows] == [(said, True)]


def test_the_fast_probabilities_stay_where_the_slow_answer_failed():
    def answer(kind):
        return {"p_need": 0.25, "p_accept": [0.5]} if kind.__name__ == "Fast" else None

    earlier = Step(event=0, teacher_need=0.9, rationale=FIELDS, candidates=(Candidate(teacher_accept=0.9),))
    found = label(stream_of(earlier), answer, passes="both")
    (step,) = found.stream.steps
    assert (step.teacher_need, step.candidates[0].teacher_accept, step.rationale) == (0.25, 0.5, None)
    assert [(row.thinking, row.problem) for row in found.rows] == [("fast", None), ("slow", "no answer")]


def test_own_proposals_do_not_replace_offers_with_outcomes():
    offered = Step(event=0, candidates=(Candidate(text="Mend it.", logged=True, y_accept=1.0),))
    with pytest.raises(ValueError, match=r"stream 's', steps\[0\]: found candidates with outcomes, expected none"):
        label(stream_of(offered), lambda _: None, offers="own")


def test_a_missing_folder_is_found_before_anything_is_asked(tmp_path):
    write_streams(tmp_path / "in.jsonl", [stream_of()])
    config = TeacherConfig(EndpointConfig("m", "http://127.0.0.1:9/v1", input_price=0.0, output_price=0.0))
    out = epath.Path(tmp_path) / "none" / "out.jsonl"
    with pytest.raises(FileNotFoundError, match=r"none/out.jsonl: found no folder .*none, expected an existing one"):
        label_file(config, epath.Path(tmp_path) / "in.jsonl", out, epath.Path(tmp_path) / "rows.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
