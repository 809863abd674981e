"""Judging in the benchmark's own form: the messages, attempts and verdicts are those of its published script."""

import asyncio
import collections
import contextlib
import dataclasses
import hashlib
import json
import sys
import types

import pytest
from judged_streams import bare, labelled
from real_checkout import CHECKOUT, needs_checkout, run_script
from test_published import checkout

from prism_jax.commands.judging import judge
from prism_jax.labelling.judges.ballots import Item, PanelConfig
from prism_jax.labelling.judges.judging import ATTEMPTS, JudgesConfig, judge_streams
from prism_jax.labelling.judges.labelling import gather, judge_ballots, label_streams
from prism_jax.labelling.judges.prompts import questions, unasked
from prism_jax.labelling.judges.votes import read_votes
from prism_jax.proactivebench.scoring import score_official
from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.remote.fake import FakeEndpoint
from prism_jax.streams import RESPONSE_KEYS, Candidate, Event, Step, Stream
from prism_jax.streams.edit import map_candidates, map_steps
from prism_jax.streams.jsonl import write_streams
from prism_jax.streams.published.prompts import JUDGE_SCRIPT
from prism_jax.streams.traces import read_traces, trace_stream

UNREAD = ("I accept it.", "", "accepted", '["accepted"]', '{"thought": "so"}', '{"judgement": "accepted"} Done.')
READ = (
    ('{"thought": "I need it.", "judgement": "accepted"}', True),
    ("{'thought': 'no', 'judgement': 'rejected',}", False),
    ('{thought: "well", /* why not */ judgement: "accepted", }', True),
    ('{"judgement": "Accepted"}', False),
    ('{"judgement": true}', False),
)
OPTIONS = {**dict.fromkeys(("human", "out", "scores", "scores_out")), **{"against": [], "system": [], "resamples": 10}}
TEMPERATURES = [0.0, 0.0] + [0.5] * 8


def planned(messages):
    """What a judge answers to a question, attempt by attempt, and its verdict, which the messages alone decide."""
    draw = int(hashlib.sha256(json.dumps(messages).encode()).hexdigest(), 16)
    text, verdict = READ[draw % len(READ)]
    failed = draw // 100 % 5
    return [UNREAD[(draw // 1000 + i) % len(UNREAD)] for i in range(failed)] + [text], verdict


class Recorder:
    """Answers as planned, and keeps the temperatures of each question's attempts."""

    def __init__(self, plan=planned):
        self.plan, self.asked, self.bodies = plan, collections.defaultdict(list), []

    def __call__(self, body):
        attempts = self.asked[json.dumps(body["messages"])]
        attempts.append(body["temperature"])
        self.bodies.append(body)
        answers, _ = self.plan(body["messages"])
        return answers[len(attempts) - 1]


def judged_by_script(data, record):
    """The publisher's script, which asks the recorder and writes its verdicts into the events of a trace."""

    async def create(**body):
        message = types.SimpleNamespace(content=record(body))
        return types.SimpleNamespace(choices=[types.SimpleNamespace(message=message)])

    client = types.SimpleNamespace(chat=types.SimpleNamespace(completions=types.SimpleNamespace(create=create)))
    form = run_script(JUDGE_SCRIPT)["format_reward_instruction"]
    modules = {
        "openai": {"AsyncOpenAI": lambda **_: client},
        "fire": {"Fire": None},
        "reward_model_template": {"format_reward_instruction": form},
    }
    asyncio.run(run_script("eval/judge_agent_prediction.py", **modules)["run_check"](data))


def judged_by_hand(data, record):
    """What is known of the script, in other words, with the prompt of the made-up checkout."""
    for number, event in enumerate(data):
        event["judgement"] = []
        for task in event["agent_response"] or [None]:
            form = {"Seen": [one["observation"] for one in data[: number + 1]], "Task": task, "Do": "Decide."}
            user = json.dumps(form, ensure_ascii=False, indent=4)
            messages = [{"role": "system", "content": "Judge."}, {"role": "user", "content": user}]
            answers, verdict = record.plan(messages)
            record.asked[json.dumps(messages)] += TEMPERATURES[: len(answers)]
            event["judgement"].append(verdict)


def made_up(folder):
    """A checkout with traces of one model, in which times are words and a proposal is the text null."""
    source = checkout(folder)
    (source / "traces").mkdir()
    for name in ("code_1", "writing_1"):
        several = ["Fix it?", "Or that?"]
        answers = [[], ["Büro aufräumen?"], ["null"], None, [f"Fix {name}?"], several, [None], ["Go on?"]]
        trace = [
            {"observation": {"time": f"Day 1, {i + 1}:00 PM", "event": f"{name}: “{i}”\n"}, "agent_response": answer}
            for i, answer in enumerate(answers)
        ]
        (source / f"traces/{name}.json").write_text(json.dumps(trace))
    return source


def judges(endpoint, folder, **changes):
    free = {"input_price": 0.0, "output_price": 0.0, "max_tokens": 64, "patience": 1.0, "backoff": 0.01}
    config = JudgesConfig(
        name="panel",
        endpoints={"only": EndpointConfig("m", endpoint.url, **free)},
        remote=RemoteConfig(str(folder / "c.sqlite"), redact=False),
    )
    return dataclasses.replace(config, **changes)


@pytest.fixture(params=["made up", pytest.param("real", marks=needs_checkout)])
def benchmark(request, tmp_path):
    """A checkout, a folder of traces, and what judges them as its script does."""
    if request.param == "made up":
        source = made_up(tmp_path / "source")
        return source, source / "traces", judged_by_hand
    traces = tmp_path / "traces"
    traces.mkdir()
    for name in ("code_12", "code_13", "writing_13"):
        trace = json.loads((CHECKOUT / f"eval/traces_new/gpt-4o/{name}.json").read_text())[:9]
        (traces / f"{name}.json").write_text(json.dumps(trace))
    return CHECKOUT, traces, judged_by_script


def test_messages_attempts_and_verdicts_are_the_scripts(benchmark, tmp_path, monkeypatch):
    source, traces, judge_as_published = benchmark
    monkeypatch.setattr(sys, "path", list(sys.path))  # the script adds to it
    theirs, judged = Recorder(), tmp_path / "judged" / "model"
    judged.mkdir(parents=True)
    for path in traces.iterdir():
        data = json.loads(path.read_text())
        judge_as_published(data, theirs)
        (judged / path.name).write_text(json.dumps(data))

    streams, ours, votes = [trace_stream(*one) for one in read_traces(traces).items()], Recorder(), tmp_path / "v.jsonl"
    with FakeEndpoint(ours) as endpoint:
        config = judges(endpoint, tmp_path, prompt="official", source=str(source))
        done = judge_streams(streams, config, votes, label="")
        assert judge_streams(streams, config, votes, label="").tally.cached == done.tally.requests
    assert theirs.asked == {messages: ours.asked[messages] for messages in theirs.asked}
    assert max(map(len, theirs.asked.values())) > 3
    silences = [json.loads(messages)[1]["content"] for messages in ours.asked.keys() - theirs.asked.keys()]
    assert silences and all(None in json.loads(text).values() for text in silences)  # asked about beside the proposals
    assert all("response_format" not in body and body["max_tokens"] == 1024 for body in ours.bodies)

    # Their verdicts stand in their files, and ours in the votes: the scores are the same.
    given = {
        **dict.fromkeys(("votes", "prompt", "judged_by", "labels", "splits", "published", "data_dir")),
        **{"judges": [], "most_events": 40, "need": "strict"},
    }
    score_official({**given, "traces": str(judged), "judged_by": "only", "workdir": str(tmp_path / "theirs")})
    own = {"traces": str(judged), "votes": str(votes), "judges": ["only"]}
    tables = score_official({**given, **own, "workdir": str(tmp_path / "ours")})
    assert "judge: only; prompt: official " in tables[0].to_markdown()
    csv = {who: (tmp_path / f"{who}/official/model.csv").read_bytes() for who in ("theirs", "ours")}
    assert csv["ours"] == csv["theirs"] != (tmp_path / "ours/fixed/model.csv").read_bytes()


@needs_checkout
def test_where_no_attempt_can_be_read_the_script_stops_and_there_is_no_verdict(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    data = [{"observation": {"time": "1", "event": "x"}, "agent_response": []}]
    theirs = Recorder(lambda _: (["Yes."] * ATTEMPTS, None))
    with pytest.raises(Exception, match="RetryError"):
        judged_by_script(data, theirs)
    assert list(theirs.asked.values()) == [TEMPERATURES]


UNREADABLE = "found no JSON with a judgement in any of 10 answers, expected one"


@pytest.mark.parametrize(
    ("last", "problem"),
    [
        *((text, UNREADABLE) for text in ("Yes.", "x" * 40_000)),
        ('```json\n{"judgement": "accepted"}\n```', None),
    ],
)
def test_after_ten_attempts_only_a_fence_is_forgiven(tmp_path, last, problem):
    record = Recorder(lambda _: (["Yes."] * (ATTEMPTS - 1) + [last], None))
    stream = Stream(id="s", events=(Event(time=2.5, text="x"),), steps=(Step(event=0),))
    with FakeEndpoint(record) as endpoint:
        config = judges(endpoint, tmp_path, prompt="official", source=str(checkout(tmp_path)))
        with pytest.raises(RuntimeError, match=problem) if problem else contextlib.nullcontext():
            judge_streams([stream], config, tmp_path / "v.jsonl", label="")
            assert [vote.verdict for vote in read_votes(tmp_path / "v.jsonl")] == [True]
    assert list(record.asked.values()) == [TEMPERATURES]
    assert '"time": "2.5"' in next(iter(record.asked)).replace("\\", "")


def offering(streams, proposal):
    """The streams with the constant offer at each step, whose proposal is as stated."""
    constant = Candidate(proposal=proposal)
    return [map_steps(stream, lambda step: map_candidates(step, lambda _: constant)) for stream in bare(streams)]


def test_a_proposal_is_judged_and_an_offer_without_a_text_is_not_asked_about(tmp_path, capsys):
    streams, record = offering(labelled(1), "Fix it?"), Recorder(lambda _: ([READ[0][0]], True))
    steps = len(streams[0].steps)
    with FakeEndpoint(record) as endpoint:
        config = judges(endpoint, tmp_path, prompt="official", source=str(checkout(tmp_path)))
        done = judge_streams(streams, config, tmp_path / "v.jsonl", label="")
        assert (done.verdicts, done.unasked) == (2 * steps, 0)
        assert sum("Fix it?" in messages for messages in record.asked) == steps
        wordless = offering(labelled(1), None)
        write_streams(tmp_path / "wordless.jsonl", wordless)
        files = {"streams": str(tmp_path / "wordless.jsonl"), "votes": str(tmp_path / "w.jsonl")}
        judge(config, {**OPTIONS, **files, "ask": True, "dry_run": False})
    shown = capsys.readouterr().out
    assert f"which this prompt has no question about: {steps}" in shown and "most_events does not apply" in shown
    assert sum(1 for _ in read_votes(tmp_path / "w.jsonl")) == steps


def test_an_offer_that_says_null_is_no_offer_to_be_judged():
    silent = Candidate(response=json.dumps(dict.fromkeys(RESPONSE_KEYS, "null")))
    spoken = Candidate(response=json.dumps(dict.fromkeys(RESPONSE_KEYS, "Fix it?")))
    for candidate, asked in ((silent, 0), (spoken, 1), (Candidate(), 1), (Candidate(response="what?"), 1)):
        steps = tuple(dataclasses.replace(step, candidates=(candidate,)) for step in bare(labelled(1))[0].steps)
        stream = dataclasses.replace(bare(labelled(1))[0], steps=steps)
        offers = [question for question in questions(stream, 40) if question.candidate is not None]
        assert len(offers) == asked * len(steps) == len(steps) - unasked([stream])


def test_one_file_holds_both_prompts_and_tells_how_far_they_agree(tmp_path, capsys):
    streams, path = offering(labelled(3), "Fix it?"), tmp_path / "v.jsonl"
    write_streams(tmp_path / "s.jsonl", streams)

    def answer(body):  # in our form this judge accepts everything; in the other, what `planned` says
        if body["messages"][0]["content"] != "Judge.":
            return '{"accepted": true}'
        return next(text for text, verdict in READ if verdict == planned(body["messages"])[1])

    with FakeEndpoint(answer) as endpoint:
        ours = judges(endpoint, tmp_path)
        official = dataclasses.replace(ours, prompt="official", source=str(checkout(tmp_path)))
        for config in (ours, official):
            judge_streams(streams, config, path, label="")
    name = official.prompt_name()
    votes = list(read_votes(path))
    asked = {name: [q.digest for s in streams for q in questions(s, 3, prompt=name)]}  # known by the prompt's name
    assert [vote.question for vote in votes if vote.prompt == name] == asked[name]
    assert {vote.prompt for vote in votes} == {"ours", name} and len(votes) == 2 * len(asked[name])
    gathered = {prompt: gather(votes, ["only"], prompt) for prompt in ("ours", name)}
    ballots = {prompt: judge_ballots(streams, own, ["only"], 40, prompt) for prompt, own in gathered.items()}
    assert set(ballots["ours"].items) == set(ballots[name].items)
    assert ballots["ours"].verdicts.all() and 0 < ballots[name].verdicts.mean() < 1
    labels = dict(zip(ballots[name].items, ballots[name].verdicts[:, 0], strict=True))
    for stream in label_streams(streams, gathered[name], 40, PanelConfig(), name):
        for step in stream.steps:
            assert step.y_need == 1 - labels[Item(stream.id, step.event, silence=True)]
            assert step.candidates[0].y_accept == labels[Item(stream.id, step.event, silence=False, text="Fix it?")]

    options = {**OPTIONS, "workdir": str(tmp_path / "out.jsonl"), "ask": False}
    files = {"streams": str(tmp_path / "s.jsonl"), "votes": str(path)}
    judge(official, {**options, **files})
    shown = capsys.readouterr().out
    agreement = 100 * ballots[name].verdicts[[item.silence for item in ballots[name].items]].mean()
    assert "panel, official / panel, ours" in shown and f"{agreement:.1f}" in shown


def test_a_checkout_is_needed_and_room_for_the_thought_is_billed(tmp_path):
    with pytest.raises(ValueError, match="source: found none with prompt = 'official', expected the folder of a check"):
        JudgesConfig(endpoints={"a": EndpointConfig("m", "http://127.0.0.1:9/v1")}, prompt="official")
    streams = offering(labelled(1), "Fix it?")
    nowhere = types.SimpleNamespace(url="http://127.0.0.1:9/v1")
    ours = judges(nowhere, tmp_path)
    official = dataclasses.replace(ours, prompt="official", source=str(checkout(tmp_path)))
    for config, tokens in ((ours, 64), (official, 1024), (dataclasses.replace(official, official_tokens=2000), 2000)):
        done = judge_streams(streams, config, tmp_path / "v.jsonl", dry_run=True, label="")
        assert done.tally.completion_tokens == tokens * done.verdicts > 0
