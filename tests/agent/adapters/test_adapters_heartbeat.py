"""Schedulers: wake-ups, outcomes and silence after a stated time; and the made-up days of one."""

import http.client
import json
import re
import socket
import subprocess
import sys
import time
import types

import pytest

from prism_jax.agent.adapters import client as adapters_client
from prism_jax.agent.adapters import heartbeat, wake_ups
from prism_jax.agent.adapters.client import Client
from prism_jax.agent.adapters.heartbeat import Heartbeat


@pytest.fixture
def beats(client):
    return Heartbeat(client, ignored_after=100.0)


def outcomes(records, stream):
    return [(one["offer"], one["outcome"], one["time"]) for one in records(stream) if one["kind"] == "outcome"]


def test_a_reply_accepts_a_dismissal_dismisses_and_silence_is_ignored_after_the_stated_time(beats, records):
    assert not beats.reply("beat", time=0.0)
    for number, at in enumerate([0.0, 50.0, 60.0, 120.0]):
        assert beats.wake("beat", f"{number}", time=at, p_accept=0.9).offer == f"beat/{number}"
    assert outcomes(records, "beat") == [("beat/0", "ignored", 120.0)]
    assert beats.reply("beat", "dismissed", 130.0)  # the newest
    assert beats.reply("beat", "accepted", 140.0)  # and the one before it
    assert outcomes(records, "beat")[1:] == [("beat/3", "dismissed", 130.0), ("beat/2", "accepted", 140.0)]
    assert not beats.reply("beat", time=150.0)  # the last one's time has passed
    assert outcomes(records, "beat")[3:] == [("beat/1", "ignored", 150.0)]
    assert not beats.wake("beat", "no", time=160.0, p_accept=0.1).speak
    assert not beats.reply("beat", time=170.0)


def test_an_outcome_that_did_not_reach_the_server_is_said_again(beats, client, nowhere, answering, records):
    beats.wake("again", "Now?", time=0.0, p_accept=0.9)
    for away in (nowhere, answering(401, {"error": {"message": "found no valid bearer token"}})):
        beats._client = Client(away)
        beats.settle(200.0)
    beats._client = client
    beats.settle(300.0)
    beats.settle(400.0)
    assert outcomes(records, "again") == [("again/0", "ignored", 300.0)]


def test_a_server_without_an_answer_is_waited_for_once(beats, monkeypatch, records):
    for at in (0.0, 1.0):
        beats.wake("hung", "Now?", time=at, p_accept=0.9)
    asked = []
    with monkeypatch.context() as patched:
        patched.setattr(Client, "outcome", lambda _, stream, offer, *more: asked.append(offer))
        beats.settle(200.0)
    assert asked == ["hung/0"]
    beats.settle(300.0)
    assert [found[:2] for found in outcomes(records, "hung")] == [("hung/0", "ignored"), ("hung/1", "ignored")]


def test_a_reply_counts_although_the_clock_has_jumped_back_since_the_offer(client, monkeypatch, records):
    now = 1000.0
    for module in (heartbeat, adapters_client):
        monkeypatch.setattr(module, "clock", types.SimpleNamespace(time=lambda: now))
    beats = Heartbeat(client, ignored_after=100.0)
    assert beats.wake("jump", "Now?", p_accept=0.9).speak
    now = 900.0
    assert beats.reply("jump")
    assert outcomes(records, "jump") == [("jump/0", "accepted", 1000.0)]


def test_a_wake_up_that_comes_again_late_silences_nobody(beats, records):
    for now in (0.0, 1.0):
        assert beats.wake("late", "mail", time=now, key="one", p_accept=0.9).speak
        assert beats.reply("late", "accepted", now) == (now == 0.0), "it was answered"
    assert beats.wake("late", "mail", time=500.0, key="two", p_accept=0.9).speak
    beats._open["late/0"] = ("late", 0.0)  # as after a restart that knows of it, and not of its outcome
    assert beats.wake("late", "mail", time=1000.0, key="three", p_accept=0.9).speak
    assert [found[1] for found in outcomes(records, "late")] == ["accepted", "ignored"]


def test_each_person_of_a_stream_has_their_own_and_answers_for_themselves(beats, records):
    for at, person in enumerate(["ada", "bob"]):
        assert beats.wake("shared", "mail", time=float(at), p_accept=0.9, person=person).speak
    assert beats.reply("shared", "dismissed", 3.0, person="ada") and not beats.reply("shared", time=4.0)
    assert [len(outcomes(records, f"{person}/shared")) for person in ("ada", "bob")] == [1, 0]


def test_a_server_that_cannot_decide_is_found_at_the_start_and_later_refusals_withhold(client, answering, nowhere):
    with pytest.raises(SystemExit, match=r"error: /v1/decide: status 404: .*; expected one of `python -m prism_jax"):
        heartbeat.main([f"--url={answering(404, {'error': {'message': 'found no such route'}})}"])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for found in (port, 70_000):
            with pytest.raises(SystemExit, match=f"error: --port: found {found}, .* expected a free one"):
                heartbeat.main([f"--url={nowhere}", f"--port={found}"])
    Heartbeat(Client(nowhere), ignored_after=1.0)  # which may come yet
    refused = Heartbeat(client, ignored_after=1.0).wake("refused", "mail", p_accept=2.0)
    assert not refused.speak and "found 2" in refused.reason


def test_the_command_answers_a_scheduler_over_http(server, root, records):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "prism_jax.agent.adapters.heartbeat", f"--url={server.url}", f"--port={port}"]

    def post(path, body, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    with subprocess.Popen(command, cwd=root, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(500):
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    time.sleep(0.02)
            asked = {"stream": "http", "message": "3 new mails", "p_accept": 0.9, "key": "job-7"}
            with socket.create_connection(("127.0.0.1", port)):  # who says nothing keeps nobody waiting for long
                status, answer = post("/wake", asked)
            assert (status, answer["speak"], answer["offer"]) == (200, True, "http/0")
            assert post("/dismiss", {"stream": "http"}) == (200, {"taken": True})
            assert post("/reply", {"stream": "http"}) == (200, {"taken": False})
            assert [found[1] for found in outcomes(records, "http")] == ["dismissed"]
            post("/wake", asked | {"key": "job-8"})
            assert post("/reply", {"stream": "http"}) == (200, {"taken": True})
            assert [found[1] for found in outcomes(records, "http")] == ["dismissed", "accepted"]
            for path, body in [("/wake", b"{"), ("/wake", {"stream": "x"}), ("/other", {"stream": "x"})]:
                assert post(path, body)[0] == 422
            assert post("/wake", asked, origin="http://page")[0] == 422
            refused = post("/wake", asked | {"key": "k", "p_accept": 2.0})[1]
            assert not refused["speak"] and "found 2" in refused["reason"]
        finally:
            process.terminate()


def test_from_the_first_dismissals_on_the_gate_speaks_at_few_of_27_wake_ups(server, capsys, root):
    """The table of the page, with the server's costs at c_fa = 1 and c_fn = 1."""
    wake_ups.main([f"--url={server.url}", "--days=5"])
    found = [tuple(map(int, pair)) for pair in re.findall(r"day \d: +(\d+), (\d)", capsys.readouterr().out)]
    assert len(found) == 10
    page = (root / "docs" / "service.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| (\d) \| (\d+), (\d) \| (\d+), (\d) \|$", page, re.M)
    printed = [tuple(map(int, row[1:3])) for row in table] + [tuple(map(int, row[3:])) for row in table]
    assert printed == found


@pytest.mark.parametrize("host", wake_ups.HOSTS)
def test_without_outcomes_nothing_is_learned(host, client, monkeypatch):
    monkeypatch.setattr(Client, "outcome", lambda *_: True)
    wrong, right = wake_ups.HOSTS[host]
    assert list(wake_ups.days_of(client, wrong, right, f"unheard {host}", 2)) == [(26, 1), (26, 1)]
