"""The server with state over HTTP: decisions, outcomes, records, deletion, and tenants who do not see each other."""

import asyncio
import concurrent.futures
import contextlib
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import pytest
from fake_reader import FakeReader, exported

from prism_jax.agent.agent import Agent
from prism_jax.agent.exported import with_gate
from prism_jax.agent.state.durable import Events
from prism_jax.agent.stated_reader import stated_event
from prism_jax.agent.steps import Observation
from prism_jax.decision.calibration import Platt, Temperature
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.gate import Gate
from prism_jax.streams import Candidate, Event

pytest.importorskip("uvicorn", reason="the server is that of the extra `serve`")
from served import Served, Stateful
from visitor import answered, counts, decide, offer_of, records, seen, stated

from prism_jax.agent.service.http import Limits
from prism_jax.agent.service.turns import BusyError, Threads, Turns

ROOT = pathlib.Path(__file__).parents[3]


def test_events_are_decided_on_as_an_agent_decides(served):
    agent = Agent(FakeReader(slow=False, responses=False), exported(slow=False, responses=False))
    for number in range(3):
        wanted = agent.observe("a/b c", Event(time=60.0 * number, text=f"event {number}"), ["Look?", "Write?"])
        status, answer, _ = served.ask("/v1/streams/a%2Fb%20c/events", seen(number, candidates=["Look?", "Write?"]))
        same = ("p_need", "p_accept", "threshold", "reason", "candidate")
        own = {"id": f"a/b c/{number}", "stream": "a/b c", "person": None, "time": 60.0 * number, "response": None}
        expected = own | {"speak": wanted.spoke} | {name: getattr(wanted, name) for name in same}
        assert (status, answer) == (200, expected)
    status, answers, _ = served.ask("/v1/streams/list/events", [seen(0), seen(1), seen(1)])
    assert status == 200 and [one["id"] for one in answers] == ["list/0", "list/1", "list/2"]


def test_numbers_of_a_caller_are_decided_on_by_the_gate(served):
    gate, costs = Gate.at_costs(c_fa=1.0, c_fn=2.0), {"c_fa": 1.0, "c_fn": 2.0}
    for number, (need, accept) in enumerate([(0.9, 0.6), (0.9, 0.2), (0.0, 1.0), (1.0, 0.0), (0.5, 0.5)]):
        status, answer, _ = served.ask("/v1/decide", stated("mine", need, accept, number, costs=costs))
        assert status == 200 and answer["speak"] == gate(p_need=need, p_accept=accept).speak
        assert (answer["p_need"], answer["p_accept"]) == pytest.approx((need, accept), abs=1e-12)
    asked = stated("two", 1, [0.2, 0.9], candidates=["Look?", "Write?"])
    assert served.ask("/v1/decide", asked)[1]["candidate"] == "Write?"
    status, answer, _ = served.ask("/v1/streams/two/events", seen(1))
    assert status == 409 and "decided on by 'decide'" in answer["error"]["message"]


def test_an_outcome_is_taken_once_and_moves_what_is_known_of_a_person(served):
    offer = offer_of(served, "s", "ada")
    status, first = answered(served, offer, "dismissed")
    assert status == 200 and first["offer"] == offer
    assert answered(served, offer, "dismissed") == (200, first)
    assert answered(served, offer, "accepted")[0] == 409
    assert answered(served, "s/77", "dismissed")[0] == 422
    assert decide(served, "ada", 0.9, 0.9, stream="later")["p_accept"] < 0.9
    assert served.ask("/v1/people/ada")[1]["learnt"]["answers"] == 1, "one refusal"
    assert decide(served, "bob", 0.9, 0.9, stream="bob's")["p_accept"] == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize("point", [{"c_fa": 2.0, "c_fn": 1.0}, {"c_fn": 2.0, "policy": "product"}], ids=str)
def test_a_person_of_a_gate_is_decided_on_as_by_the_server(point, tmp_path):
    """The same numbers and answers of three people, in Python and over HTTP, through fitted maps."""
    gate = Gate(OperatingPoint(**point), accept=Platt(1.3, 0.2, 3.0), need=Temperature(0.8))
    draw, decided = random.Random(3), []
    with Stateful(tmp_path, stated=with_gate(exported(slow=False, responses=False), gate)) as running:
        for number in range(30):
            person, accepted = gate.person("abc"[number % 3]), draw.random() < (0.1, 0.6, 0.9)[number % 3]
            need = 0.0 if number % 7 == 3 else draw.uniform(0.5, 1.0)
            accept = draw.choice([0.0, 1.0, *(draw.uniform(0.2, 1.0),) * 5])
            answer = decide(running, person.name, need, accept, stream=person.name, time=number, costs=point)
            verdict = person(need, accept)
            assert (verdict.speak, verdict.reason) == (answer["speak"], answer["reason"])
            for name in ("p_need", "p_accept", "threshold"):
                ours = getattr(verdict, name)
                assert (None if ours == math.inf else ours) == pytest.approx(answer[name], abs=1e-12)
            if verdict:
                assert answered(running, answer["id"], "accepted" if accepted else "dismissed", number)[0] == 200
                person.learn(verdict, accepted=accepted)
            decided.append(verdict.speak)
    assert 8 < sum(decided) < 25 and len(gate.people) == 3


def test_a_request_that_is_sent_again_with_its_key_gets_the_same_answer(served):
    """Who prefers leniency gets the first answer whatever the body says now."""
    first = served.ask("/v1/streams/s/events", seen(0), idempotency_key="k")
    assert served.ask("/v1/streams/s/events", seen(0), idempotency_key="k")[:2] == first[:2]
    assert served.ask("/v1/streams/s/events", seen(1), idempotency_key="k")[0] == 409
    assert served.ask("/v1/streams/s/events", seen(1), idempotency_key="k" * 256)[0] == 422
    assert len(records(served)) == 1
    first = served.ask("/v1/decide", stated("t", accept=0.1, time=5.0), idempotency_key="k")
    other = stated("t", accept=0.99, time=1.0)
    assert served.ask("/v1/decide", other, idempotency_key="k")[0] == 409
    assert served.ask("/v1/decide", other, idempotency_key="k", prefer="handling=lenient")[:2] == first[:2]
    assert served.ask("/v1/decide", other, prefer="handling=lenient")[0] == 422  # without a key, nothing is lenient
    assert len(records(served)) == 2


def test_records_are_read_behind_a_cursor_each_once_in_the_order_of_its_stream(served):
    for number in range(9):
        for stream in ("a", "b", "c"):
            assert served.ask(f"/v1/streams/{stream}/events", seen(number, person=f"p-{stream}"))[0] == 200
    page = served.ask("/v1/records?limit=7")[1]
    found = page["records"]
    while page["records"]:
        page = served.ask(f"/v1/records?limit=7&after={page['next']}")[1]
        found = [*found, *page["records"]]
    assert len(found) == 27
    for stream in ("a", "b", "c"):
        assert [one["event"] for one in found if one["stream"] == stream] == list(range(9))
        assert records(served, stream=stream) == [one for one in found if one["stream"] == stream]
    assert {one["stream"] for one in records(served, person="p-b")} == {"b"}
    assert records(served, since=4e9) == [] and len(records(served, since=1.0)) == 27
    assert not any("text" in one for one in found)  # texts are not kept unless that is asked for
    for query in ("after=nonsense", "limit=0", "limit=1001", "since=soon"):
        status, answer, _ = served.ask(f"/v1/records?{query}", content_type="none")
        assert status == 422 and answer["error"]["message"].startswith(f"{query.partition('=')[0]}: ")


def test_a_server_that_starts_again_goes_on_where_it_was(tmp_path, start):
    answers = []
    for number in range(4):
        with Stateful(tmp_path / "state") as running:
            answers.append(running.ask("/v1/streams/s/events", seen(number, person="ada"))[1])
    with Stateful(tmp_path / "state") as running:  # without an event, no file is open
        assert [one["event"] for one in records(running)] == [0, 1, 2, 3]
    running = start(tmp_path / "whole")
    assert answers == [running.ask("/v1/streams/s/events", seen(n, person="ada"))[1] for n in range(4)]


def test_another_tenants_streams_people_and_records_do_not_exist(tmp_path, start):
    served = start(tokens=[("north", "first-token"), ("south", "second-token")])

    def ask(tenant, path, body=None, method=None):
        token = {"north": "first-token", "south": "second-token"}[tenant]
        return served.ask(f"/v1/{path}", body, method, authorization=f"Bearer {token}")[1]

    first, second = (ask("north", "streams/s/events", seen(0, person="ada")) for _ in range(2))
    assert (first["id"], second["id"]) == ("s/0", "s/1")
    assert ask("south", "streams/s/events", seen(0, person="eve")) == first | {"person": "eve"}
    assert ask("south", "records")["records"][0]["person"]["name"] == "eve"
    assert ask("south", "people/ada", method="DELETE") == {"streams": 0}
    assert len(ask("north", "records")["records"]) == 2
    assert ask("north", "people/ada", method="DELETE") == {"streams": 1}
    assert ask("north", "records")["records"] == []
    for tenant in ("north", "south"):
        assert ask(tenant, "streams/free/events", seen(0))["id"] == "free/0"
    assert ask("north", "streams/free", method="DELETE") == {"streams": 1}
    assert len(ask("south", "records?stream=free")["records"]) == 1
    for path, method in (("records", None), ("streams/free", "DELETE")):
        assert served.ask(f"/v1/{path}", method=method)[0] == 401
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept and not any(word in path.read_bytes() for path in kept for word in (b'"ada"', b"-token"))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/streams/s/events", b"{"),
        ("/v1/streams/s/events", b"[]"),
        ("/v1/streams/s/events", b'{"time": NaN, "text": "x"}'),
        ("/v1/streams/s/events", b'{"time": 1, "text": "x", "stream": "t"}'),
        ("/v1/streams/s/events", b'{"time": 1, "text": "x", "costs": {"c_fa": -1}}'),
        ("/v1/streams/s/events", b'{"time": 1, "text": "x", "outcome": "accepted"}'),
        ("/v1/streams/" + "n" * 2000 + "/events", b'{"time": 1, "text": "x"}'),
        ("/v1/decide", b'{"stream": "s", "time": 1, "p_need": 1.5, "p_accept": 0.1}'),
        ("/v1/outcomes", b'{"stream": "s", "offer": "s/0", "outcome": "eaten", "time": 1}'),
        ("/v1/outcomes", b'{"stream": "s", "outcome": "accepted", "time": 1}'),
    ],
)
def test_what_cannot_be_taken_is_refused_and_changes_nothing(untouched, path, body):
    status, answer, _ = untouched.ask(path, body)
    assert status == 422 and "expected" in answer["error"]["message"], answer
    assert records(untouched) == []


def test_a_page_of_another_site_writes_nothing_where_nobody_needs_a_token(served):
    foreign = [("sec-fetch-site", "cross-site"), ("sec-fetch-site", "same-site"), ("origin", "https://evil.example")]
    for name, value in (*foreign, ("origin", "null")):
        status, answer, _ = served.ask("/v1/decide", stated("s"), **{name: value})
        assert status == 403 and "another site" in answer["error"]["message"]
        assert served.ask("/v1/people/ada", method="DELETE", **{name: value})[0] == 403
    assert records(served) == []
    for own in ({"origin": f"http://127.0.0.1:{served.port}"}, {"sec-fetch-site": "same-origin"}):
        assert served.ask("/v1/decide", stated("s"), **own)[0] == 200


def test_more_requests_than_may_wait_are_told_to_come_again(start):
    class Slow(FakeReader):
        def observe(self, items):
            time.sleep(0.02)
            return super().observe(items)

    running = start(limits=Limits(waiting=2), reader=Slow(slow=False, responses=False))
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        found = list(pool.map(lambda i: running.ask(f"/v1/streams/s{i}/events", seen(0)), range(40)))
    statuses = [status for status, _, _ in found]
    assert set(statuses) == {200, 429} and all(h["retry-after"] for s, _, h in found if s == 429)
    assert len(records(running)) == statuses.count(200)
    assert running.ask("/v1/streams/late/events", seen(0))[0] == 200


def test_questions_have_the_same_answers_beside_a_state_as_without_one(start):
    """Between an agent's events, of streams of the same name, of two tenants; nothing is kept of them."""
    asked = {"model": "tiny", "input": [{"role": "user", "content": f"event {n}"} for n in range(3)]}
    asked["questions"] = [{"type": "predicate", "name": name} for name in ("need", "accept", "accept:Tea?")]
    state = {"model": "tiny", "state": ["event 0", "event 1", "event 2"]}
    state["questions"] = {one["name"]: {"type": "noul"} for one in asked["questions"]}
    with Served() as plain:
        _, expected, _ = plain.ask(body=asked)
    running = start(tokens=["one", ("north", "two")])
    for token in ("one", "two", "one"):
        header = {"Authorization": f"Bearer {token}"}
        assert running.ask("/v1/streams/0/events", seen(0), **header)[0] == 200
        assert running.ask(body=asked, **header)[1]["answers"] == expected["answers"]
        answers = running.ask("/v1/systemone", state, **header)[1]["answers"].values()
        assert [one["noul"] for one in answers] == [one["probability"] for one in expected["answers"]]
    header = {"Authorization": "Bearer one"}
    assert {one["stream"] for one in running.ask("/v1/records", **header)[1]["records"]} == {"0"}
    assert running.ask("/v1/models", **header)[1]["data"][0]["id"] == "tiny"
    assert running.ask(body={**asked, "model": "other"}, **header)[0] == 404


def test_the_pages_three_lines_decide_learn_and_read(tmp_path):
    """As printed, with the page's own command, but for the port."""
    if shutil.which("curl") is None:
        pytest.skip("curl: found none, expected it, as the page calls it")
    page = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^    python -m (prism_jax serve --state=.*) &$", page, re.M)
    lines = re.findall(r"^curl .*$", page, re.M)
    serve, environment = [sys.executable, "-m", *command.split(), "--port=0"], os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(serve, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment) as server:
        try:
            said = next(line for line in server.stderr if "serving" in line)
            (address,) = re.findall(r"http://(127\.0\.0\.1:\d+)", said)
            calls = [["bash", "-c", line.replace("localhost:8000", address)] for line in lines]
            answers = [subprocess.run(call, capture_output=True).stdout for call in calls]
        finally:
            server.terminate()
    decided, outcome, kept = map(json.loads, answers)
    assert decided["speak"] and decided["id"] == outcome["offer"] == "chat/0"
    assert [one["kind"] for one in kept["records"]] == ["decision", "outcome"]
    assert server.returncode == -signal.SIGTERM  # after its end, as uvicorn does


def test_what_is_counted_names_nobody(served):
    answered(served, offer_of(served, "canary-stream", "canary-person"), "ignored")
    served.ask("/v1/streams/canary-other/events", seen(0, person="canary-person"))
    served.ask("/v1/streams/canary-other/events", b"{")
    text = counts(served)
    assert "canary" not in text
    for line in (
        'prism_decisions_total{agent="decide",speak="true"} 1.0',
        'prism_outcomes_total{outcome="ignored"} 1.0',
        'prism_requests_total{route="/v1/streams/{stream:name}/events",status="422"} 1.0',
        'prism_requests_total{route="/v1/decide",status="200"} 1.0',
        "prism_alarms_total 0.0",
    ):
        assert line in text, text


@pytest.mark.anyio
async def test_a_tenants_flood_gives_way_to_whoever_has_less():
    """Where all places are taken, the newest of the longest queue is refused; then callers take turns."""
    go, batches = threading.Event(), []

    def answer(items):
        assert go.wait(20)
        batches.append(list(items))
        return items

    turns = Turns(answer, most=4, waiting=8)
    turns.start()
    north = [asyncio.create_task(turns.ask(f"n{i}", "north")) for i in range(20)]
    await asyncio.sleep(0.05)
    south = [asyncio.create_task(turns.ask(f"s{i}", "south")) for i in range(3)]
    east = asyncio.create_task(turns.ask("e0", "east"))
    await asyncio.sleep(0.05)
    go.set()
    assert await asyncio.gather(*south, east) == ["s0", "s1", "s2", "e0"]
    served = [one for one in await asyncio.gather(*north, return_exceptions=True) if not isinstance(one, BusyError)]
    await turns.stop()
    assert served == [f"n{i}" for i in range(len(served))], "in their order"
    assert len(served) == 4 + 4 and {"s0", "e0"} <= set(batches[1]), "a batch was taken, and half of eight places stay"


@pytest.mark.anyio
async def test_who_reads_waits_for_no_other_tenant():
    go, threads = threading.Event(), Threads(1)
    north = [asyncio.create_task(threads.run("north", go.wait, 20)) for _ in range(50)]
    assert await asyncio.wait_for(threads.run("south", len, "xy"), 5) == 2
    go.set()
    assert all(await asyncio.gather(*north))


@pytest.mark.parametrize("damage", ['{"kind": "dec', "[]", "null", '"x"', "[" * 5000, b"\xff\xfe"])
def test_a_damaged_record_is_a_503_that_names_the_file(damage, tmp_path, capfd, start):
    with Stateful(tmp_path / "state", partitions=1, clock=lambda: 1e9) as served:
        offer_of(served, "mine", "ada")
        assert served.ask("/v1/streams/read/events", seen(0))[0] == 200
    (file,) = tmp_path.rglob("*.sqlite")
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE log SET record = ?", (damage,))
    served = start(partitions=1, clock=lambda: 1e9)
    outcome = {"stream": "mine", "offer": "mine/0", "outcome": "accepted", "time": 2.0}
    for path, body in (
        *(("/v1/records", None), ("/v1/people/ada", None), ("/v1/shadow", None)),
        *(("/v1/streams/read/events", seen(1)), ("/v1/outcomes", outcome)),
    ):
        status, answer, headers = served.ask(path, body)
        assert (status, headers["retry-after"]) == (503, "1"), (path, answer)
        assert file.name in answer["error"]["message"] and "/" not in answer["error"]["message"], (path, answer)
    assert str(file) in capfd.readouterr().err
    assert served.ask("/v1/people/ada", method="DELETE")[:2] == (200, {"streams": 1}), "and can be deleted"


def test_many_tenants_have_room_in_the_files_that_a_process_may_open(tmp_path, monkeypatch):
    from prism_jax.agent.service.agents import DECIDE, Agents, Asked, Models

    def opened():
        found = 0
        for link in pathlib.Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # that of the folder itself is closed
                found += link.readlink().is_relative_to(tmp_path)
        return found

    plain = exported(slow=False, responses=False)
    models, tenants = Models(None, plain, plain), [f"t{i}" for i in range(6)]
    monkeypatch.setattr("prism_jax.agent.service.agents.allow_files", lambda: 100)
    agents = Agents(models, tmp_path, partitions=4)
    agents.open(tenants)
    said = stated_event(0.0, 0.9, [0.9])
    items = [Observation(f"{name}'s", said, (Candidate(),), None, "unknown", name) for name in "abcd"]
    for tenant in tenants:
        answers = agents.answer([Asked(tenant, DECIDE, Events((item,))) for item in items])
        assert all(isinstance(answer, list) for answer in answers), answers
    assert 6 < opened() <= 50
    agents.close()
    monkeypatch.setattr("prism_jax.agent.service.agents.allow_files", lambda: 32)
    with pytest.raises(ValueError, match="found 6 tenants and 32 files that may be open, expected 84 or more"):
        Agents(models, tmp_path, partitions=4).open(tenants)
