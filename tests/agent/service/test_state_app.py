"""The server with state over HTTP: decisions, outcomes, records, deletion, and tenants who do not see each other."""

import asyncio
import concurrent.futures
import contextlib
import http.client
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
import urllib.error
import urllib.parse
import urllib.request

import pytest
from fake_reader import FakeReader, exported

from prism_jax.agent.agent import Agent
from prism_jax.agent.exported import with_gate
from prism_jax.agent.state.durable import Events
from prism_jax.agent.state.places import reading
from prism_jax.agent.stated_reader import stated_event
from prism_jax.agent.steps import Observation
from prism_jax.decision.calibration import Platt, Temperature
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.gate import Gate
from prism_jax.streams import Candidate, Event

pytest.importorskip("uvicorn", reason="the server is that of the extra `serve`")
from served import Served, Stateful

from prism_jax.agent.service.divided import DividedDoor
from prism_jax.agent.service.door import Door
from prism_jax.agent.service.http import Limits
from prism_jax.agent.service.turns import BusyError, Threads, Turns

ROOT = pathlib.Path(__file__).parents[3]


def event(number, **more):
    return {"time": 60.0 * number, "text": f"event {number}", **more}


def records(served, **query):
    found, after = [], None
    while True:
        asked = {"limit": 7, **query, **({} if after is None else {"after": after})}
        status, answer, _ = served.ask("/v1/records?" + "&".join(f"{key}={value}" for key, value in asked.items()))
        assert status == 200, answer
        if not answer["records"]:
            return found
        found, after = [*found, *answer["records"]], answer["next"]


def test_events_are_decided_on_as_an_agent_decides(served):
    agent = Agent(FakeReader(slow=False, responses=False), exported(slow=False, responses=False))
    for number in range(3):
        wanted = agent.observe("a/b c", Event(time=60.0 * number, text=f"event {number}"), ["Look?", "Write?"])
        status, answer, _ = served.ask("/v1/streams/a%2Fb%20c/events", event(number, candidates=["Look?", "Write?"]))
        assert status == 200
        assert answer == {
            "id": f"a/b c/{number}",
            "stream": "a/b c",
            "person": None,
            "time": 60.0 * number,
            "speak": wanted.spoke,
            "p_need": wanted.p_need,
            "p_accept": wanted.p_accept,
            "threshold": wanted.threshold,
            "reason": wanted.reason,
            "candidate": wanted.candidate,
            "response": None,
        }
    status, answers, _ = served.ask("/v1/streams/list/events", [event(0), event(1), event(1)])
    assert status == 200 and [one["id"] for one in answers] == ["list/0", "list/1", "list/2"]


def test_numbers_of_a_caller_are_decided_on_by_the_gate(served):
    gate = Gate.at_costs(c_fa=1.0, c_fn=2.0)
    for number, (need, accept) in enumerate([(0.9, 0.6), (0.9, 0.2), (0.0, 1.0), (1.0, 0.0), (0.5, 0.5)]):
        asked = {
            "stream": "mine",
            "time": number,
            "p_need": need,
            "p_accept": accept,
            "costs": {"c_fa": 1.0, "c_fn": 2.0},
        }
        status, answer, _ = served.ask("/v1/decide", asked)
        assert status == 200 and answer["speak"] == gate(p_need=need, p_accept=accept).speak
        assert answer["p_need"] == pytest.approx(need, abs=1e-12) and answer["p_accept"] == pytest.approx(
            accept, abs=1e-12
        )
    asked = {"stream": "two", "time": 0, "p_need": 1, "p_accept": [0.2, 0.9], "candidates": ["Look?", "Write?"]}
    assert served.ask("/v1/decide", asked)[1]["candidate"] == "Write?"
    status, answer, _ = served.ask("/v1/streams/two/events", event(1))
    assert status == 409 and "decided on by 'decide'" in answer["error"]["message"]


def offer_of(served, stream, person=None, **headers):
    """The id of an offer that was made on callers' numbers."""
    asked = {"stream": stream, "time": 1.0, "p_need": 0.9, "p_accept": 0.9, "costs": {"c_fa": 1.0, "c_fn": 2.0}}
    answer = served.ask("/v1/decide", asked | ({} if person is None else {"person": person}), **headers)[1]
    assert answer["speak"], answer
    return answer["id"]


def test_an_outcome_is_taken_once_and_moves_what_is_known_of_a_person(served):
    offer = offer_of(served, "s", "ada")
    outcome = {"stream": "s", "offer": offer, "outcome": "dismissed", "time": 2.0}
    status, first, _ = served.ask("/v1/outcomes", outcome)
    assert status == 200 and first["offer"] == offer
    assert served.ask("/v1/outcomes", outcome)[:2] == (200, first)
    assert served.ask("/v1/outcomes", outcome | {"outcome": "accepted"})[0] == 409
    assert served.ask("/v1/outcomes", outcome | {"offer": "s/77"})[0] == 422
    asked = {"stream": "later", "time": 3.0, "p_need": 0.9, "p_accept": 0.9, "person": "ada"}
    assert served.ask("/v1/decide", asked)[1]["p_accept"] < 0.9
    assert served.ask("/v1/people/ada")[1]["learnt"]["answers"] == 1, "one refusal"
    assert served.ask("/v1/decide", asked | {"stream": "bob's", "person": "bob"})[1]["p_accept"] == pytest.approx(
        0.9, abs=0.05
    )


@pytest.mark.parametrize("point", [{"c_fa": 2.0, "c_fn": 1.0}, {"c_fn": 2.0, "policy": "product"}], ids=str)
def test_a_person_of_a_gate_is_decided_on_as_by_the_server(point, tmp_path):
    """The same numbers and answers of three people, in Python and over HTTP, through fitted maps."""
    gate = Gate(OperatingPoint(**point), accept=Platt(1.3, 0.2, 3.0), need=Temperature(0.8))
    draw, decided = random.Random(3), []
    with Stateful(tmp_path, stated=with_gate(exported(slow=False, responses=False), gate)) as running:
        running.ready()
        for number in range(30):
            person, accepted = gate.person("abc"[number % 3]), draw.random() < (0.1, 0.6, 0.9)[number % 3]
            need = 0.0 if number % 7 == 3 else draw.uniform(0.5, 1.0)
            accept = draw.choice([0.0, 1.0, *(draw.uniform(0.2, 1.0),) * 5])
            asked = {"stream": person.name, "time": number, "p_need": need, "p_accept": accept, "costs": point}
            status, answer, _ = running.ask("/v1/decide", asked | {"person": person.name})
            assert status == 200, answer
            verdict = person(need, accept)
            assert (verdict.speak, verdict.reason) == (answer["speak"], answer["reason"])
            for name in ("p_need", "p_accept", "threshold"):
                ours = getattr(verdict, name)
                assert (None if ours == math.inf else ours) == pytest.approx(answer[name], abs=1e-12)
            if verdict:
                outcome = {"offer": answer["id"], "outcome": "accepted" if accepted else "dismissed"}
                assert running.ask("/v1/outcomes", outcome | {"stream": person.name, "time": number})[0] == 200
                person.learn(verdict, accepted=accepted)
            decided.append(verdict.speak)
    assert 8 < sum(decided) < 25 and len(gate.people) == 3


def test_a_request_that_is_sent_again_with_its_key_gets_the_same_answer(served):
    first = served.ask("/v1/streams/s/events", event(0), idempotency_key="k")
    assert served.ask("/v1/streams/s/events", event(0), idempotency_key="k")[:2] == first[:2]
    assert served.ask("/v1/streams/s/events", event(1), idempotency_key="k")[0] == 409
    assert served.ask("/v1/streams/s/events", event(1), idempotency_key="k" * 256)[0] == 422
    assert len(records(served)) == 1


def test_who_prefers_leniency_gets_the_first_answer_to_a_key_whatever_the_body_says_now(served):
    asked = {"stream": "s", "time": 5.0, "p_need": 0.9, "p_accept": 0.1}
    first = served.ask("/v1/decide", asked, idempotency_key="k")
    other = asked | {"time": 1.0, "p_accept": 0.99}
    assert served.ask("/v1/decide", other, idempotency_key="k")[0] == 409
    assert served.ask("/v1/decide", other, idempotency_key="k", prefer="handling=lenient")[:2] == first[:2]
    assert served.ask("/v1/decide", other, prefer="handling=lenient")[0] == 422  # without a key, nothing is lenient
    assert len(records(served)) == 1


def test_records_are_read_behind_a_cursor_each_once_in_the_order_of_its_stream(served, tmp_path):
    for number in range(9):
        for stream in ("a", "b", "c"):
            assert served.ask(f"/v1/streams/{stream}/events", event(number, person=f"p-{stream}"))[0] == 200
    found = records(served)
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
            answers.append(running.ready().ask("/v1/streams/s/events", event(number, person="ada"))[1])
    with Stateful(tmp_path / "state") as running:  # without an event, no file is open
        assert [one["event"] for one in records(running.ready())] == [0, 1, 2, 3]
    running = start(tmp_path / "whole")
    assert answers == [running.ask("/v1/streams/s/events", event(n, person="ada"))[1] for n in range(4)]


def test_many_callers_at_once_lose_nothing_and_double_nothing(served):
    def call(stream):
        return [served.ask(f"/v1/streams/s{stream}/events", event(n, person=f"p{stream % 3}"))[0] for n in range(6)]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert {status for own in pool.map(call, range(8)) for status in own} == {200}
    found = records(served, limit=1000)
    assert sorted((one["stream"], one["event"]) for one in found) == [(f"s{s}", n) for s in range(8) for n in range(6)]


def test_another_tenants_streams_people_and_records_do_not_exist(tmp_path):
    tokens = [("north", "first-token"), ("south", "second-token")]
    with Stateful(tmp_path / "state", tokens=tokens) as running:
        north, south = {"authorization": "Bearer first-token"}, {"authorization": "Bearer second-token"}
        running.ready()
        first = None
        for number in range(2):
            decided = running.ask("/v1/streams/s/events", event(0, person="ada"), **north)[1]
            assert decided["id"] == f"s/{number}"
            first = first or decided
        theirs = running.ask("/v1/streams/s/events", event(0, person="eve"), **south)[1]
        assert theirs == first | {"person": "eve"}
        assert running.ask("/v1/records", **south)[1]["records"][0]["person"]["name"] == "eve"
        assert running.ask("/v1/people/ada", method="DELETE", **south)[1] == {"streams": 0}
        assert len(running.ask("/v1/records", **north)[1]["records"]) == 2
        assert running.ask("/v1/people/ada", method="DELETE", **north)[1] == {"streams": 1}
        assert running.ask("/v1/records", **north)[1]["records"] == []
        for header in (north, south):
            assert running.ask("/v1/streams/free/events", event(0), **header)[0] == 200
        assert running.ask("/v1/streams/free", method="DELETE", **north)[1] == {"streams": 1}
        assert len(running.ask("/v1/records?stream=free", **south)[1]["records"]) == 1
        for path, method in (("records", None), ("streams/free", "DELETE")):
            assert running.ask(f"/v1/{path}", method=method)[0] == 401
    kept = [path for path in pathlib.Path(tmp_path).rglob("*") if path.is_file()]
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


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
    ],
)
def test_a_page_of_another_site_writes_nothing_where_nobody_needs_a_token(headers, served):
    asked = {"stream": "s", "time": 1.0, "p_need": 0.5, "p_accept": 0.1}
    status, answer, _ = served.ask("/v1/decide", asked, **headers)
    assert status == 403 and "another site" in answer["error"]["message"]
    assert served.ask("/v1/people/ada", method="DELETE", **headers)[0] == 403
    assert records(served) == []
    for own in ({"origin": f"http://127.0.0.1:{served.port}"}, {"sec-fetch-site": "same-origin"}):
        assert served.ask("/v1/decide", asked, **own)[0] == 200


def test_more_requests_than_may_wait_are_told_to_come_again(start):
    class Slow(FakeReader):
        def observe(self, items):
            time.sleep(0.02)
            return super().observe(items)

    limits = Limits(waiting=2)
    running = start(limits=limits, reader=Slow(slow=False, responses=False))
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        found = list(pool.map(lambda i: running.ask(f"/v1/streams/s{i}/events", event(0)), range(40)))
    statuses = [status for status, _, _ in found]
    assert set(statuses) == {200, 429} and all(h["retry-after"] for s, _, h in found if s == 429)
    assert len(records(running)) == statuses.count(200)
    assert running.ask("/v1/streams/late/events", event(0))[0] == 200


def test_questions_have_the_same_answers_beside_a_state_as_without_one(start):
    """Between an agent's events, of streams of the same name, of two tenants; nothing is kept of them."""
    asked = {"model": "tiny", "input": [{"role": "user", "content": f"event {n}"} for n in range(3)]}
    asked["questions"] = [{"type": "predicate", "name": name} for name in ("need", "accept", "accept:Tea?")]
    state = {"model": "tiny", "state": ["event 0", "event 1", "event 2"]}
    state["questions"] = {one["name"]: {"type": "noul"} for one in asked["questions"]}
    with Served() as plain:
        _, expected, _ = plain.ready().ask(body=asked)
    running = start(tokens=["one", ("north", "two")])
    for token in ("one", "two", "one"):
        header = {"Authorization": f"Bearer {token}"}
        decided = running.ask("/v1/streams/0/events", {"time": len(token), "text": "event 0"}, **header)
        assert decided[0] == 200
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
    serve = [sys.executable, "-m", *command.split(), "--port=0"]
    with subprocess.Popen(
        serve, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    ) as server:
        try:
            address = next(
                re.findall(r"http://(127\.0\.0\.1:\d+)", line)[0] for line in server.stderr if "serving" in line
            )
            answers = [
                json.loads(
                    subprocess.run(["bash", "-c", line.replace("localhost:8000", address)], capture_output=True).stdout
                )
                for line in lines
            ]
        finally:
            server.terminate()
    decided, outcome, kept = answers
    assert decided["speak"] and decided["id"] == outcome["offer"] == "chat/0"
    assert [one["kind"] for one in kept["records"]] == ["decision", "outcome"]
    assert server.returncode == -signal.SIGTERM  # after its end, as uvicorn does


class Listening:
    """A client of the server-sent events of offers; `events` has (id, data)."""

    def __init__(self, served, **query):
        self.connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
        headers = {"Last-Event-ID": query.pop("last")} if "last" in query else {}
        self.connection.request("GET", f"/v1/offers?{urllib.parse.urlencode(query)}", headers=headers)
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200 and self.answer.headers["content-type"].startswith("text/event-stream")

    def next(self):
        """The next offer and its id, which comes soon."""
        found, ends = {}, time.monotonic() + 10
        while "data" not in found or found.get("line"):
            assert time.monotonic() < ends, "no offer comes"
            line = self.answer.readline().decode().rstrip("\n")
            name, _, value = line.partition(": ")
            found |= {name: value, "line": line}
        return json.loads(found["data"]), found["id"]

    def close(self):
        self.connection.close()


def test_offers_are_sent_as_they_are_made_and_again_behind_the_last_that_was_seen(served):
    offer_of(served, "before")
    listening = Listening(served)
    assert offer_of(served, "a") == listening.next()[0]["id"]
    assert (
        served.ask("/v1/decide", {"stream": "silent", "time": 0.0, "p_need": 0.1, "p_accept": 0.1})[1]["speak"] is False
    )
    offer_of(served, "b", "ada")
    second, place = listening.next()
    assert (second["id"], second["person"]) == ("b/0", "ada")
    listening.close()
    offer_of(served, "c")
    again = Listening(served, last=place)
    assert again.next()[0]["id"] == "c/0"
    whole, mine = Listening(served, after="e30="), Listening(served, after="e30=", person="ada")
    assert {whole.next()[0]["id"] for _ in range(4)} == {"before/0", "a/0", "b/0", "c/0"}
    assert mine.next()[0]["id"] == "b/0"
    for one in (again, whole, mine):
        one.close()
    assert served.ask("/v1/offers?after=nonsense")[0] == 422


def counts(served):
    """What is counted, for Prometheus."""
    with urllib.request.urlopen(served.url + "/metrics") as answer:
        return answer.read().decode()


def test_what_is_counted_names_nobody(served):
    offer = offer_of(served, "canary-stream", "canary-person")
    served.ask("/v1/outcomes", {"stream": "canary-stream", "offer": offer, "outcome": "ignored", "time": 2.0})
    served.ask("/v1/streams/canary-other/events", event(0, person="canary-person"))
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


def test_who_saw_no_offer_yet_misses_none_on_another_connection(served):
    listening = Listening(served)
    place = listening.answer.readline().decode().strip().removeprefix("id: ")
    listening.close()
    offer = offer_of(served, "meanwhile")
    again = Listening(served, last=place)
    assert again.next()[0]["id"] == offer
    again.close()


def test_an_offer_whose_caller_has_gone_is_sent_when_it_is_kept(tmp_path):
    go, begun = threading.Event(), threading.Event()

    class Slow(FakeReader):
        def observe(self, items):
            begun.set()
            assert go.wait(20)
            return super().observe(items)

    with Stateful(tmp_path / "state", reader=Slow(slow=False, responses=False)) as served:
        listening = Listening(served.ready())
        body = json.dumps(event(0, costs={"c_fa": 1e-9}))
        caller = http.client.HTTPConnection("127.0.0.1", served.port)
        caller.request("POST", "/v1/streams/s/events", body)
        try:
            assert begun.wait(20)
            caller.close()
            while 'status="499"' not in counts(served):
                time.sleep(0.01)
        finally:
            go.set()
        assert listening.next()[0]["id"] == "s/0"
        assert 'prism_decisions_total{agent="events",speak="true"} 1.0' in counts(served)
        listening.close()


@pytest.mark.parametrize("alone", [True, False])
def test_who_listens_looks_everywhere_again_and_again_where_other_servers_make_offers(tmp_path, monkeypatch, alone):
    """Of an offer that another process has made, nobody is told; one server alone tells of each."""
    monkeypatch.setattr("prism_jax.agent.service.door.STEP", 0.02)
    monkeypatch.setattr("prism_jax.agent.service.door.KEPT_ALIVE", 0.1)
    monkeypatch.setattr("prism_jax.agent.service.door.News.come", lambda *_: None)
    assert Door.is_alone and not DividedDoor.is_alone
    monkeypatch.setattr(Door, "is_alone", alone)
    read, read_log = [], Door.read_log

    def counted(*arguments, **conditions):
        read.append(conditions["partitions"])
        return read_log(*arguments, **conditions)

    monkeypatch.setattr(Door, "read_log", counted)
    with Stateful(tmp_path / "state") as served, contextlib.closing(Listening(served.ready())) as listening:
        offer = offer_of(served, "unseen")
        if alone:
            for _ in range(4):  # it says that it is there
                assert listening.answer.readline().startswith(b"id: ") and listening.answer.readline() == b"\n"
            assert read == [None]
        else:
            assert listening.next()[0]["id"] == offer


def test_a_tenants_flood_gives_way_to_whoever_has_less():
    """Where all places are taken, the newest of the longest queue is refused; then callers take turns."""
    go, batches = threading.Event(), []

    def answer(items):
        assert go.wait(20)
        batches.append(list(items))
        return items

    async def work():
        turns = Turns(answer, most=4, waiting=8)
        turns.start()
        north = [asyncio.create_task(turns.ask(f"n{i}", "north")) for i in range(20)]
        await asyncio.sleep(0.05)
        south = [asyncio.create_task(turns.ask(f"s{i}", "south")) for i in range(3)]
        east = asyncio.create_task(turns.ask("e0", "east"))
        await asyncio.sleep(0.05)
        go.set()
        assert await asyncio.gather(*south, east) == ["s0", "s1", "s2", "e0"]
        found = await asyncio.gather(*north, return_exceptions=True)
        await turns.stop()
        return [one for one in found if not isinstance(one, BusyError)]

    served = asyncio.run(work())
    assert served == [f"n{i}" for i in range(len(served))], "in their order"
    assert len(served) == 4 + 4 and {"s0", "e0"} <= set(batches[1]), "a batch was taken, and half of eight places stay"


def test_who_reads_waits_for_no_other_tenant():
    go = threading.Event()

    async def work():
        threads = Threads(1)
        north = [asyncio.create_task(threads.run("north", go.wait, 20)) for _ in range(50)]
        assert await asyncio.wait_for(threads.run("south", len, "xy"), 5) == 2
        go.set()
        assert all(await asyncio.gather(*north))

    asyncio.run(work())


def lines_of(served, tenant, **query):
    """An open stream of a tenant's offers, of which the first line was read."""
    query = urllib.parse.urlencode(query)
    request = urllib.request.Request(f"{served.url}/v1/offers?{query}", headers={"Authorization": f"Bearer {tenant}"})
    answer = urllib.request.urlopen(request, timeout=20)
    answer.readline()
    return answer


def test_listeners_of_a_tenant_take_no_place_of_another_and_read_what_is_new_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("prism_jax.agent.service.state_app.MOST_LISTENERS", 3)
    read = []
    with (
        Stateful(tmp_path / "state", tokens=[("north", "n"), ("south", "s")], partitions=8) as served,
        contextlib.ExitStack() as open_ones,
    ):
        served.ready()
        for number in range(8):
            offer_of(served, f"s{number}", f"p{number}", authorization="Bearer n")
        north = [open_ones.enter_context(lines_of(served, "n")) for _ in range(2)]
        own = open_ones.enter_context(lines_of(served, "n", person="p3"))
        with pytest.raises(urllib.error.HTTPError, match="429"):
            lines_of(served, "n")
        open_ones.enter_context(lines_of(served, "s"))
        time.sleep(0.2)  # they have read what was there

        def counted(path):
            read.append(path)
            return reading(path)

        monkeypatch.setattr("prism_jax.agent.state.places.reading", counted)
        for person in ("p5", "p3"):
            offer_of(served, f"new {person}", person, authorization="Bearer n")
        for lines in (*north, own):
            while not (line := lines.readline()).startswith(b"data"):
                pass
            while lines is not own and b'"p3"' not in line:
                line = lines.readline()
        assert len(read) <= 2 * 2 + 1, "a file for each listener and offer"


@pytest.mark.parametrize("damage", ['{"kind": "dec', "[]", "null", '"x"', "[" * 5000, b"\xff\xfe"])
def test_a_damaged_record_is_a_503_that_names_the_file(damage, tmp_path, capfd, start):
    with Stateful(tmp_path / "state", partitions=1, clock=lambda: 1e9) as served:
        served.ready()
        offer = offer_of(served, "mine", "ada")
        assert served.ask("/v1/streams/read/events", event(0))[0] == 200
    (file,) = tmp_path.rglob("*.sqlite")
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE log SET record = ?", (damage,))
    served = start(partitions=1, clock=lambda: 1e9)
    outcome = {"stream": "mine", "offer": offer, "outcome": "accepted", "time": 2.0}
    for path, body in (
        *(("/v1/records", None), ("/v1/people/ada", None), ("/v1/shadow", None)),
        *(("/v1/streams/read/events", event(1)), ("/v1/outcomes", outcome)),
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
    for tenant in tenants:
        events = [Events((observation(f"{person}'s", person),)) for person in ("a", "b", "c", "d")]
        answers = agents.answer([Asked(tenant, DECIDE, one) for one in events])
        assert all(isinstance(answer, list) for answer in answers), answers
    assert 6 < opened() <= 50
    agents.close()
    monkeypatch.setattr("prism_jax.agent.service.agents.allow_files", lambda: 32)
    with pytest.raises(ValueError, match="found 6 tenants and 32 files that may be open, expected 84 or more"):
        Agents(models, tmp_path, partitions=4).open(tenants)


def observation(stream, person):
    return Observation(stream, stated_event(0.0, 0.9, [0.9]), (Candidate(),), None, "unknown", person)
