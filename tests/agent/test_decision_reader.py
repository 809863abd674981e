"""Agents on a decision model: both questions in one request, costs and maps from a gate, silence where it fails."""

import contextlib
import importlib.util
import json
import pathlib
import signal
import sqlite3
import threading
import time

import numpy as np
import pytest
from engines import Fake, probability_of
from scipy.special import logit

from prism_jax.agent.agent import Agent
from prism_jax.agent.decision_reader import Questions
from prism_jax.agent.loading import load_decisions
from prism_jax.agent.reader import Unanswered
from prism_jax.agent.state.durable import Events
from prism_jax.agent.steps import Observation
from prism_jax.decision.calibration import Platt, Temperature, apply_map
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.gate import Gate
from prism_jax.remote.cache import Cache
from prism_jax.remote.failures import EndpointError
from prism_jax.streams import Candidate, Event

MISSING = importlib.util.find_spec("openai") is None  # to load it takes a second
pytestmark = pytest.mark.skipif(MISSING, reason="decision models are asked by the client of the extra `remote`")
GATE = Gate(OperatingPoint(c_fa=1.0, c_fn=2.0), accept=Platt(0.7, -0.4), need=Platt(1.3, 0.2))
OFFERS = (Candidate(text="Look at the failing test?"), Candidate())


@pytest.fixture
def fake():
    fake = Fake("decisions", None)
    yield fake
    fake.close()


@pytest.fixture
def cache(tmp_path):
    with Cache(tmp_path / "answers.sqlite", 2.0) as cache:
        yield cache


def agent_on(fake, cache, gate=GATE, **options):
    reader, exported = load_decisions(fake.url, "m", gate, cache=cache, **{"deadline": 2.0} | options)
    return Agent(reader, exported)


def seen(number, text="x"):
    return Event(time=float(number), text=text)


def asked(body):
    texts = json.dumps([one["content"] for one in body["input"]])
    return [probability_of(texts, one["instructions"]) for one in body["questions"]]


def test_one_request_per_event_asks_both_questions_and_the_gate_decides(fake, cache):
    agent = agent_on(fake, cache, window=3)
    texts = ["opens a file", "reads an error", "searches for it", "finds nothing"]  # the oldest two go
    decisions = [agent.observe("ann", Event(time=300.0 * i, text=text), OFFERS) for i, text in enumerate(texts)]
    paths, bodies = zip(*fake.asked, strict=True)
    assert set(paths) == {"/decisions"} and len(bodies) == 4
    assert [one["content"] for one in bodies[3]["input"]] == [f"{text} (+5m)" for text in texts[2:]]
    names, words = ([one[key] for one in bodies[3]["questions"]] for key in ("name", "instructions"))
    assert names == ["need", "accept_0", "accept_1"]
    assert words[1].endswith("The offer: Look at the failing test?") and words[2].endswith(Questions().offer)
    assert len({body["prompt_cache_key"] for body in bodies}) == 1 and "ann" not in bodies[0]["prompt_cache_key"]
    for decision, body in zip(decisions, bodies, strict=True):
        need, *accept = asked(body)
        assert (decision.fast.raw_need, *decision.fast.raw_accept) == pytest.approx((need, *accept), rel=1e-9)
        verdict = GATE(need, max(accept))
        assert (decision.spoke, decision.reason) == (verdict.speak, verdict.reason)
        np.testing.assert_allclose(decision.fast.accept, apply_map(GATE.accept, np.array(accept)), rtol=1e-9)
    assert agent.reader.sent.startswith("decision model: 4 requests: 0 cached, 0 failed")
    fake.faults = [503]  # after which it is asked once more
    assert agent.observe("ann", Event(time=1200.0, text="asks"), OFFERS).unanswered is None


@pytest.mark.parametrize(
    ("fault", "deadline", "reason"),
    [
        ("refusal", 1.5, "silent: the decision model refuses the question of acceptance of candidate 1"),
        ("need alone", 1.5, "silent: the decision model refuses the question of acceptance of candidate 0; one"),
        ("few", 1.5, "silent: the decision model gave no answer (gave up after"),
        ("another order", 1.5, "silent: the decision model gave no answer (gave up after"),
        (500, 0.6, "silent: the decision model gave no answer (gave up after"),
        ("hang", 0.6, "silent: the decision model gave no answer within 0.6 s"),
    ],
)
@pytest.mark.usefixtures("soon")
def test_no_answer_is_silence_with_its_reason_within_the_deadline(fake, cache, fault, deadline, reason):
    agent = agent_on(fake, cache, deadline=deadline)
    fake.always, began = fault, time.monotonic()
    decision = agent.observe("s", seen(0), OFFERS)
    assert not decision.spoke and decision.reason.startswith(reason), decision.reason
    assert time.monotonic() - began < 4
    assert ("HTTP 500" in decision.reason) == (fault == 500)
    tally, refused = agent.reader._client.tally, fault in ("refusal", "need alone")
    assert tally.failed == (not refused) and decision.tokens["read"] == refused * 6
    fake.always = None
    decision = agent.observe("s", seen(1, "y"), OFFERS)
    assert decision.unanswered is None and [one["content"] for one in fake.asked[-1][1]["input"]] == ["x", "y"]


@pytest.mark.parametrize(
    ("status", "hint"),
    [(401, ", it wants an API key and was sent none, expected .* --key"), (404, "; the address to state ends before")],
)
def test_a_server_that_refuses_every_request_ends_what_waits_for_it_alone(fake, cache, status, hint):
    reader, _ = load_decisions(fake.url, "m", GATE, cache=cache, deadline=2.0)

    def observed(time):
        return reader.observe([(f"s{number}", seen(time, f"s{number}"), OFFERS) for number in range(20)])

    fake.always = status
    assert all(isinstance(one, Unanswered) for one in observed(0.0)) and len(fake.asked) == 20
    reader.ends = "first"
    with pytest.raises(EndpointError, match=rf"^--decisions: {fake.url}/decisions: HTTP {status}.*{hint}"):
        observed(1.0)
    assert len(fake.asked) <= 28 and reader._client.tally.failed == len(fake.asked)
    fake.always = None
    assert not any(isinstance(one, Unanswered) for one in observed(2.0))
    fake.always = status  # after an answer, such an event is silence of its own
    assert all(isinstance(one, Unanswered) for one in observed(3.0))
    reader.ends = "always"
    with pytest.raises(EndpointError, match=f"HTTP {status}"):
        observed(4.0)
    reader.close()


def test_the_pages_request_is_what_is_sent_and_its_answer_is_read(fake, cache, monkeypatch, tmp_path):
    page = pathlib.Path("docs/decision_models.md").read_text()
    request, answer = map(json.loads, page.partition("```json\n")[2].partition("\n```")[0].splitlines())
    words = tmp_path / "words.json"
    words.write_text(json.dumps({"need": "Is help needed?", "accept": "Accepted: {offer}"}))
    reader, _ = load_decisions(fake.url, "NAME", GATE, cache=cache, questions=words, prompt_cache=False)
    monkeypatch.setattr(fake, "decisions", lambda body, fault: answer)
    (found,) = reader.observe([("s", seen(0, "3 tests fail."), (Candidate(text="Shall I look?"),))])
    reader.close()
    assert fake.asked == [("/decisions", request)]
    assert (found.z_need, *found.z_accept) == pytest.approx((logit(0.7), logit(0.4))) and found.tokens == 92


def test_answers_are_kept_money_is_bounded_and_personal_data_stays(fake, cache):
    event = seen(0, "writes to ann@example.com")
    for _ in range(2):
        again = agent_on(fake, cache, input_price=1000.0, output_price=1000.0)
        assert again.observe("s", event).unanswered is None and len(fake.asked) == 1
    assert "example" not in json.dumps(fake.asked[0][1]) and cache.spent > 0
    reason = again.observe("s", seen(1, "long " * 300)).reason
    assert "budget: found" in reason and len(fake.asked) == 1
    for stream in ("s", "never read"):
        again.reader.forget(stream)


def test_an_attempt_that_was_late_counts_at_its_most(fake, cache):
    agent = agent_on(fake, cache, deadline=0.3, input_price=1.0, output_price=1.0)
    fake.always = "hang"
    assert agent.observe("s", seen(0)).unanswered is not None
    assert cache.spent > 0 and cache._database.execute("SELECT COUNT(*) FROM flights").fetchone() == (0,)


@pytest.mark.parametrize("end", ["error", "Ctrl-C"])
def test_what_was_sent_is_awaited_and_kept_whatever_ends_the_batch(fake, cache, monkeypatch, end):
    reader, _ = load_decisions(fake.url, "m", GATE, cache=cache, deadline=2.0)
    fake.always, settle, main = "slow", cache.settle, threading.main_thread().ident

    def fails_first(*arguments):
        monkeypatch.setattr(cache, "settle", settle)
        if end == "error":
            raise OSError("the disk is full")
        signal.pthread_kill(main, signal.SIGINT)
        settle(*arguments)

    monkeypatch.setattr(cache, "settle", fails_first)
    with pytest.raises(OSError if end == "error" else KeyboardInterrupt):
        reader.observe([(f"s{i}", Event(time=0.0, text=f"event {i}"), OFFERS) for i in range(12)])
    reader.close()
    lost = end == "error"
    assert cache._database.execute("SELECT COUNT(*) FROM answers").fetchone()[0] == len(fake.asked) - lost
    assert cache._database.execute("SELECT COUNT(*) FROM flights").fetchone()[0] == lost
    assert not lost or len(fake.asked) == 8, "what had no turn yet is not asked"


def test_system_one_is_asked_by_nouls_and_another_attempt_past_every_cache(fake, cache):
    reader, exported = load_decisions(f"systemone:{fake.url}", "m", GATE, cache=cache, deadline=2.0)
    assert exported.fingerprints["model"] != load_decisions(fake.url, "m", GATE, cache=cache)[1].fingerprints["model"]
    event, readings = seen(0), []
    for stream, attempt in (("a", 0), ("b", 0), ("c", 1), ("d", 1)):
        reader.attempt = attempt
        readings += reader.observe([(stream, event, OFFERS)])
    (path, body), again = fake.asked
    assert path == "/systemone" and again == (path, body) and readings == readings[:1] * 4
    assert [headers.get("Cache-Control") for headers in fake.headers] == [None, "no-cache"]
    assert len({headers["Idempotency-Key"] for headers in fake.headers}) == 2
    assert body["state"] == ["x"] and set(body) == {"model", "state", "questions"}
    assert list(body["questions"]) == ["need", "accept_0", "accept_1"]
    assert {one["type"] for one in body["questions"].values()} == {"noul"}
    p = [probability_of(json.dumps(body["state"]), one["instructions"]) for one in body["questions"].values()]
    assert (readings[0].z_need, *readings[0].z_accept) == pytest.approx(logit(p), rel=1e-9)
    fake.always = "wrong"
    (unanswered,) = reader.observe([("e", seen(0, "y"), OFFERS)])
    assert "gave no answer (gave up after" in unanswered.reason


def test_more_questions_than_one_request_takes_are_several(fake, cache):
    offers = tuple(Candidate(text=f"offer {number}") for number in range(70))
    decision = agent_on(fake, cache).observe("s", seen(0), offers)
    assert [len(body["questions"]) for _, body in fake.asked] == [64, 7]
    wanted = [p for _, body in fake.asked for p in asked(body)]
    assert (decision.fast.raw_need, *decision.fast.raw_accept) == pytest.approx(wanted, rel=1e-9)


def test_the_words_of_the_questions_are_the_users_to_change(fake, cache, tmp_path):
    path = tmp_path / "questions.json"
    path.write_text('{"accept": "Take it? {offer}"}')
    agent = agent_on(fake, cache, questions=path)
    agent.observe("s", seen(0), OFFERS)
    assert fake.asked[0][1]["questions"][1]["instructions"] == "Take it? Look at the failing test?"
    assert agent.fingerprints["config"] != agent_on(fake, cache).fingerprints["config"]


def test_the_command_needs_no_student(fake, tmp_path):
    from test_mains import run

    rows = [{"stream": f"s{i % 2}", "time": 60.0 * i, "text": f"event {i}"} for i in range(6)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = (f"--input={tmp_path / 'in.jsonl'}", f"--answers={tmp_path / 'answers.sqlite'}")
    options = (f"--decisions={fake.url}", "--decision_model=m", *files)
    GATE.save(tmp_path / "gate.json")
    done = run("agent", *options, f"--gate={tmp_path / 'gate.json'}", f"--state={tmp_path / 'state'}")
    assert done.returncode == 0, done.stderr
    assert "decision model: 6 requests: 0 cached" in done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    bodies = {int(body["input"][-1]["content"].split()[1]): body for _, body in fake.asked}
    for record in records:
        verdict = GATE(*asked(bodies[record["time"] / 60]))
        assert (record["spoke"], record["reason"]) == (verdict.speak, verdict.reason)


def test_a_servers_answers_lie_in_each_tenants_store_and_go_with_a_deletion(fake, tmp_path, monkeypatch):
    pytest.importorskip("fastapi", reason="the server is that of the extra `serve`")
    from prism_jax.agent.service.agents import ANSWERS, DECIDE, EVENTS, Agents, Asked, Models, forget

    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as stack:
        caches = []

        def asking(path):
            caches.append(stack.enter_context(Cache(path, 4.0)))
            return load_decisions(fake.url, "m", GATE, cache=caches[-1], input_price=1000.0, output_price=1000.0)[0]

        exported = load_decisions(fake.url, "m", GATE, cache=stack.enter_context(Cache("other/any.sqlite", 1.0)))[1]
        agents = Agents(Models(None, exported, exported), tmp_path / "state", partitions=2, asking=asking)
        stack.callback(agents.close)
        agents.open(["north", "south"])

        def decide(tenant, stream, person, text="x"):
            item = Observation(stream, seen(0, text), OFFERS, person=person)
            return agents.answer([Asked(tenant, EVENTS, Events((item,)))])[0][0]["p_need"]

        def kept():
            counts = []
            for tenant in ("north", "south"):
                with contextlib.closing(sqlite3.connect(tmp_path / "state" / "tenants" / tenant / ANSWERS)) as file:
                    counts.append(file.execute("SELECT count(*) FROM answers").fetchone()[0])
            return counts

        assert None not in [decide(tenant, "s", "ada") for tenant in ("north", "south")]
        assert len(fake.asked) == 2 and kept() == [1, 1], "one tenant's answers are not another's"
        assert decide("south", "t", "bob", "long " * 3000) is None, "its own budget is spent"
        assert agents.answer([Asked("north", DECIDE, forget("ada"))]) == [1] and kept() == [0, 1]
        assert caches[0].spent > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "state"]


def test_a_server_without_a_state_asks_the_model_too_and_calibrates_its_answers(fake, tmp_path):
    pytest.importorskip("fastapi", reason="the server is that of the extra `serve`")
    from prism_jax.agent.service.form import Asked
    from prism_jax.agent.service.loading import answering_of

    GATE.save(tmp_path / "gate.json")
    none = ["key", "deadline", "questions", "window", "prompt_cache", "input_price", "output_price", "streams"]
    options = dict.fromkeys([*none, "budget"]) | {"decisions": fake.url, "decision_model": "m", "redact": True}
    options["answers"] = str(tmp_path / "answers.sqlite")
    texts = [Event(time=60.0 * number, text=f"event {number}") for number in range(3)]
    for gate in (GATE, Gate.at_costs(c_fa=1.0, c_fn=1.0)):
        with contextlib.ExitStack() as stack:
            given = str(tmp_path / "gate.json") if gate is GATE else None
            (answer,) = answering_of({**options, "gate": given}, stack)().answer([Asked(tuple(texts), OFFERS)])
        p_need, *p_accept = asked(fake.asked[0][1])
        assert [answer.p_need] == pytest.approx(apply_map(gate.need or Temperature(1.0), np.array([p_need])))
        found = [answer.p_accept[offer] for offer in OFFERS]
        assert found == pytest.approx(apply_map(gate.accept or Temperature(1.0), np.array(p_accept)))
    assert len(fake.asked) == 1, "one request asks everything, and its answer is kept"
