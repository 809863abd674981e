"""From the agent's records to traces to scores, by a judge's verdicts and by people's labels."""

import dataclasses
import json
import shutil

import pytest
from fake_reader import FakeReader, exported
from judged_streams import vote_on
from official_reference import judged_as_published, scored_as_published
from real_checkout import CHECKOUT, needs_checkout

from prism_jax.agent.agent import Agent
from prism_jax.agent.records import OfferOutcome, encode
from prism_jax.agent.records_file import RecordsError
from prism_jax.agent.settings import AgentSettings, Terms
from prism_jax.agent.steps import Observation
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.experiments.paper.references import MAIN
from prism_jax.labelling.judges.prompts import questions
from prism_jax.labelling.judges.votes import write_votes
from prism_jax.proactivebench.official import exact_rates
from prism_jax.proactivebench.published import PAPER_SYSTEMS, implied_counts, read_published
from prism_jax.proactivebench.scoring import score_official
from prism_jax.proactivebench.traces import export_taught, export_traces
from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.jsonl import read_streams, write_streams
from prism_jax.streams.traces import ABSENT, read_traces, trace_stream

NAMES = ("code_1", "writing_1")
EVENTS = 12
GIVEN = {
    **dict.fromkeys(("votes", "prompt", "judged_by", "labels", "splits", "published", "workdir", "data_dir")),
    "judges": [],
    "most_events": 40,
    "need": "strict",
}


def offers(number):
    return (Candidate(text=f"Offer {number}?"), Candidate(text=f"Other offer {number}?"))


@pytest.fixture(scope="module")
def streams():
    return [
        Stream(
            id=name,
            events=tuple(Event(time=60.0 * i, text=f"{name} event {i}") for i in range(EVENTS)),
            steps=tuple(Step(event=i, candidates=offers(i)) for i in range(EVENTS)),
        )
        for name in NAMES
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, streams):
    """A folder with records, streams and exported traces."""
    place = tmp_path_factory.mktemp("official")
    agent = Agent(FakeReader(), exported(), AgentSettings(Terms(OperatingPoint(policy="dynamic"))))
    decisions = agent.observe_many(
        [
            Observation(stream.id, stream.events[i], offers(i) if stream.id == "code_1" else (Candidate(),))
            for i in range(EVENTS)
            for stream in streams
        ]
    )
    assert 0 < sum(decision.spoke for decision in decisions) < len(decisions)
    lines = [encode(decision.record()) for decision in decisions]
    first = next(decision for decision in decisions if decision.spoke)
    lines.append(encode(OfferOutcome(first.stream, first.offer, "accepted", first.time).record()))
    (place / "records.jsonl").write_bytes(b"".join(lines))
    write_streams(place / "streams.jsonl", streams)
    (place / "traces").mkdir()
    export_traces(place / "records.jsonl", place / "traces/ours", place / "streams.jsonl")
    return place


def records(folder):
    lines = (folder / "records.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == "decision"]


def test_traces_say_what_the_records_say(folder, streams):
    texts = {stream.id: [event.text for event in stream.events] for stream in streams}
    expected = {name: [] for name in NAMES}
    for record in records(folder):
        response = json.loads(record["response"] or "{}")
        proposal = record["candidate"] or response.get("Proactive Task") or "an offer"
        expected[record["stream"]].append([proposal] if record["spoke"] else [])
    for name in NAMES:
        written = json.loads((folder / f"traces/ours/{name}.json").read_text())
        assert [item["agent_response"] for item in written] == expected[name]
        assert [item["observation"]["event"] for item in written] == texts[name]
        assert {"observation", "agent_response", "task_status"} <= set(written[0])
    trace = read_traces(folder / "traces/ours")
    assert sum(event.status for events in trace.values() for event in events) == 1
    assert [event.time for event in trace_stream("code_1", trace["code_1"]).events] == [60.0 * i for i in range(EVENTS)]


def accepts(question):
    return int(question.digest, 16) % 3 > 0


def test_scores_by_a_judge_are_those_of_the_published_script(folder):
    traces = read_traces(folder / "traces/ours")
    asked = [one for name in NAMES for one in questions(trace_stream(name, traces[name]), 40)]
    votes = [
        vote_on(one, judge, accepts(one) != (judge == "contrary")) for one in asked for judge in ("strict", "contrary")
    ]
    write_votes(folder / "votes.jsonl", votes)
    splits = {"all": {"files": [f"{name}.json" for name in NAMES]}, "half": {"files": ["code_1.json", "code_2.json"]}}
    (folder / "splits.json").write_text(json.dumps(splits))
    given = {
        **GIVEN,
        "traces": str(folder / "traces"),
        "votes": str(folder / "votes.jsonl"),
        "judges": ["strict"],
        "splits": str(folder / "splits.json"),
        "workdir": str(folder / "out"),
    }
    shown = "".join(table.to_markdown() for table in score_official(given))
    assert "judge: strict" in shown and "contrary" not in shown

    verdicts = {(one.stream, one.step, one.candidate): accepts(one) for one in asked}
    judged = []
    for name in NAMES:
        items = json.loads((folder / f"traces/ours/{name}.json").read_text())
        judged += judged_as_published(items, lambda i, one, name=name: verdicts[name, i, None if one is None else 0])
    rates, counts = scored_as_published(judged)
    (row,) = read_published(folder / "out/official/ours.csv")  # the category with a missing stream is left out
    assert (row.category, row.rates, row.events) == ("all", rates, sum(counts))
    assert len(read_published(folder / "out/fixed/ours.csv")) == 2

    # Verdicts on another prompt neither count nor mix, and it has to be said which ones are meant.
    scored = (folder / "out/official/ours.csv").read_bytes()
    other = [dataclasses.replace(vote, prompt="official 0123", verdict=not vote.verdict) for vote in votes]
    write_votes(folder / "votes.jsonl", [*votes, *other])
    with pytest.raises(ValueError, match="found verdicts on ours, official 0123, expected --prompt to name one of"):
        score_official(given)
    with pytest.raises(ValueError, match="with --prompt=mine, expected --prompt to name one of them"):
        score_official({**given, "prompt": "mine"})
    score_official({**given, "prompt": "ours"})
    assert (folder / "out/official/ours.csv").read_bytes() == scored
    write_votes(folder / "votes.jsonl", votes)


def test_a_run_has_one_judge(folder):
    given = {**GIVEN, "traces": str(folder / "traces")}
    for wrong, message in (
        ({}, "found nothing to do"),
        ({"judged_by": "a", "labels": "b"}, "tables never mix judges"),
        ({"votes": "a"}, "expected both"),
        ({"published": "a"}, "without --splits"),
        ({"judged_by": "a", "prompt": "ours"}, "--prompt: found it without --votes"),
    ):
        with pytest.raises(ValueError, match=message):
            score_official({**given, **wrong})


def test_records_without_texts_need_streams(folder, tmp_path):
    with pytest.raises(RecordsError, match=r"records\.jsonl:1: text: found none for event 0"):
        export_traces(folder / "records.jsonl", tmp_path / "out", None)
    lines = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "records.jsonl").write_text("".join(lines[2:]))
    with pytest.raises(RecordsError, match="event: found 1, expected 0"):
        export_traces(tmp_path / "records.jsonl", tmp_path / "out", folder / "streams.jsonl")
    assert not (tmp_path / "out").exists()


def response(task):
    return json.dumps(
        {"Purpose": "To work.", "Thoughts": "It is late.", "Proactive Task": task, "Response": "Shall I?"}
    )


def test_what_a_teacher_did_becomes_traces(tmp_path):
    asked = {"teacher_need": 0.5, "rationale": {"evidence": "Little."}}
    steps = (
        Step(event=0, candidates=(Candidate(proposal="Mend it.", response=response("Mend it.")),), **asked),
        Step(event=1, candidates=(Candidate(proposal="Run it.", teacher_accept=0.1),), **asked),
        Step(event=2),  # no valid answer came
        Step(event=4, candidates=(Candidate(text="a"), Candidate(text="b", response=response("c"))), **asked),
    )
    events = tuple(Event(time=float(i), text=f"event {i}", time_text=f"Day {i}" if i else None) for i in range(5))
    write_streams(tmp_path / "taught.jsonl", [Stream(id="code_1", events=events, steps=steps)])
    export_taught(tmp_path / "taught.jsonl", tmp_path / "out")
    (trace,) = read_traces(tmp_path / "out").values()
    assert [event.answer for event in trace] == [["Mend it."], [], ABSENT, ABSENT, ["b"]]
    assert [event.time for event in trace] == ["0.000", "Day 1", "Day 2", "Day 3", "Day 4"]
    assert trace[0].response_fields == {"Purpose": "To work.", "Thoughts": "It is late.", "Response": "Shall I?"}
    write_streams(tmp_path / "bare.jsonl", [Stream(id="s", events=events)])
    with pytest.raises(RecordsError, match=r"bare\.jsonl: found no step with a rationale"):
        export_taught(tmp_path / "bare.jsonl", tmp_path / "more")


def test_what_a_killed_writer_left_is_no_model(folder, tmp_path):
    shutil.copytree(folder / "traces", tmp_path / "traces")
    shutil.copytree(folder / "traces/ours", tmp_path / "traces/.ours.0.partial")
    score_official({**GIVEN, "traces": str(tmp_path / "traces"), "workdir": str(tmp_path)})
    assert [path.name for path in (tmp_path / "streams").iterdir()] == ["ours.jsonl"]


@needs_checkout
@pytest.mark.parametrize("model", PAPER_SYSTEMS.values())
def test_the_papers_published_rows_can_be_judged_anew(tmp_path, model):
    """Of the streams that are there, which are all that the rows count; by a made-up judge."""
    traces = CHECKOUT / "eval/traces_new" / model
    splits = CHECKOUT / "dataset/test_data/splits.json"
    given = {**GIVEN, "traces": str(traces), "splits": str(splits)}
    score_official({**given, "workdir": str(tmp_path)})
    asked = [q for stream in read_streams(tmp_path / f"streams/{model}.jsonl") for q in questions(stream, 40)]
    write_votes(tmp_path / "votes.jsonl", [vote_on(one, "j", accepts(one)) for one in asked])
    score_official({**given, "votes": str(tmp_path / "votes.jsonl"), "judges": ["j"], "workdir": str(tmp_path / "out")})
    verdicts = {(q.stream, q.step, q.candidate): accepts(q) for q in asked}
    judged = []
    for file in json.loads(splits.read_text())["real_average"]["files"]:
        items, name = json.loads((traces / file).read_text()), file.removesuffix(".json")
        judged += judged_as_published(items, lambda i, one, name=name: verdicts[name, i, None if one is None else 0])
    for event in judged:  # one model proposes an object once, which no judge is asked about
        event["judgement"] *= all(isinstance(one, str | None) for one in event["agent_response"])
    rates, _ = scored_as_published(judged)
    average = read_published(tmp_path / f"out/official/{model}.csv")[0]
    assert (average.category, average.rates, average.events) == ("real_average", rates, len(judged))


@needs_checkout
def test_the_papers_qwen2_row_is_the_published_one_to_the_digit():
    assert PAPER_SYSTEMS.keys() < MAIN.keys()
    row = read_published(CHECKOUT / "eval/results/activeqwen.csv")[0]
    assert PAPER_SYSTEMS["Qwen2-7B-Proactive"] == "activeqwen" and row.events == 227
    (counts,) = implied_counts(row)
    rates = exact_rates(counts)
    names = {"recall": "Recall", "precision": "Precision", "accuracy": "Accuracy", "false_alarm": "False-Alarm"}
    for name, column in (names | {"f1": "F1-Score"}).items():
        assert f"{100 * rates[column]:.2f}" == f"{100 * MAIN['Qwen2-7B-Proactive'][name]:.2f}"
