"""The client of the server with state: the server's own answers, outages, refusals, and clocks of several callers."""

import argparse
import concurrent.futures
import contextlib
import importlib
import itertools
import json
import pathlib
import re
import socket
import subprocess
import sys
import threading
import time
import types

import pytest

from prism_jax.agent.adapters import client as module
from prism_jax.agent.adapters.client import MOST_TRIES, Client, ClientError, as_key, as_text, message_of

ROOT = pathlib.Path(__file__).parents[3]


def test_numbers_are_decided_on_as_the_server_decides_and_outcomes_reach_it(client, records):
    answer = client.ask("numbers", "Shall I?", p_need=0.9, p_accept=0.8, person="ada", time=10.0)
    assert answer.speak and answer.offer == "numbers/0" and answer.reason.startswith("offer: 0.8")
    assert (answer.p_need, answer.p_accept) == (pytest.approx(0.9), pytest.approx(0.8, abs=0.02))
    assert client.outcome("numbers", answer.offer, "dismissed", 20.0) is True
    silent = client.ask("numbers", "Shall I?", p_need=0.9, p_accept=0.1, time=30.0)
    assert not silent.speak and silent.offer is None and silent.threshold > 0.1
    assert [one["kind"] for one in records("numbers")] == ["decision", "outcome", "decision"]
    assert records("numbers")[0]["candidate"] == "Shall I?" and records("numbers")[0]["person"]["name"] == "ada"


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 80], ids=["nothing", "byte by byte"])
def test_an_answer_that_takes_too_long_is_an_outage_in_time(said):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def trickle():
            connected, _ = server.accept()
            with connected, contextlib.suppress(OSError):
                for byte in said:
                    connected.sendall(bytes([byte]))
                    time.sleep(0.05)
                while connected.recv(2**16):  # until the client has gone
                    pass

        threading.Thread(target=trickle, daemon=True).start()
        began = time.monotonic()
        answer = Client(f"http://127.0.0.1:{server.getsockname()[1]}", timeout=0.2).ask("s", "Now?", p_accept=0.9)
    assert answer == (False, "silent: no answer of the server: TimeoutError: timed out", *[None] * 5)
    assert time.monotonic() - began < 5


def test_without_numbers_the_server_reads_what_happened_and_what_would_be_said(server, client):
    answer = client.ask("a/b c", "Look together?", text="The parser fails.", time=1.0)
    event = {"time": 1.0, "text": "The parser fails.", "candidates": ["Look together?"]}
    wanted = server.ask("/v1/streams/another/events", event)[1]
    assert (answer.speak, answer.p_accept, answer.reason) == (wanted["speak"], wanted["p_accept"], wanted["reason"])


def test_a_key_has_one_answer_whatever_is_asked_later(client, records):
    first = client.ask("keyed", "One", p_accept=0.1, key="call", time=50.0)
    assert not first.speak
    assert client.ask("keyed", "Two", p_accept=0.99, key="call", time=1.0) == first
    assert len(records("keyed")) == 1
    assert client.ask("keyed", "Two", p_accept=0.99, key="another", time=60.0).speak


@pytest.mark.parametrize(("otherwise", "speak"), [("silent", False), ("speak", True)])
def test_an_outage_never_raises_and_is_what_the_host_said(otherwise, speak, nowhere, answering):
    failing = [(answering(status, body), f"status {status}") for status, body in ((503, {}), (500, b"<h>"), (429, {}))]
    for url, why in [(nowhere, "ConnectionRefusedError"), *failing]:
        client = Client(url, timeout=5, otherwise=otherwise)
        answer = client.ask("s", "Now?", p_accept=0.5)
        assert answer.speak is speak and answer.offer is None
        assert answer.reason.startswith(f"{'offer' if speak else 'silent'}: no answer of the server: {why}")
        assert client.outcome("s", "s/0", "accepted") is False


def test_what_the_server_refuses_raises_and_names_it(client, server, answering):
    client.ask("bad", "Now?", p_accept=0.5, time=10.0)
    without = {"error": {"message": "Authorization: found none"}}
    for asked, more, message in (
        (client, {"p_need": 2.0}, r"status 422: body: p_need: found 2\.0, expected a number from 0 to 1"),
        (client, {"time": 5.0}, r"time: found 5\.0, expected at least 10\.0"),
        (Client(server.url + "/elsewhere"), {}, "/elsewhere/v1/decide: status 404: found no such route"),
        (Client(answering(401, without)), {}, "status 401: Authorization"),
        (Client(answering(200, {"speak": True})), {}, "no decision"),
        (Client(answering(200, b"welcome")), {}, "status 200: found no answer"),
    ):
        with pytest.raises(ClientError, match=message):
            asked.ask("bad", "Now?", p_accept=0.5, **more)
    with pytest.raises(ClientError, match="status 422: offer"):
        client.outcome("bad", "bad/77", "accepted")
    with pytest.raises(ClientError, match="status 422: body: "):
        client.ask("\ud83d", "Now?", p_accept=0.5)
    for url in ("localhost:8000", "ftp://host", "http://"):
        with pytest.raises(ValueError, match="url: found"):
            Client(url)
    with pytest.raises(ValueError, match="otherwise: found 'allow', expected 'silent' or 'speak'"):
        Client("http://localhost", otherwise="allow")


def test_a_server_that_cannot_decide_is_found_before_it_is_asked(client, records, server, nowhere, answering):
    """What a host checks where its gate is made; a server that is not there yet may come."""
    for stated in (True, False):
        for fine in (client, Client(nowhere), Client(answering(503, {}))):
            fine.check(stated=stated)
        with pytest.raises(ClientError, match=r"status 404: .*expected one of `python -m prism_jax serve --state=DIR`"):
            Client(server.url + "/elsewhere").check(stated=stated)
        with pytest.raises(ClientError, match=r"status 403: this token may not$"):
            Client(answering(403, {"error": {"message": "this token may not"}})).check(stated=stated)
    unread = {"error": {"message": "found no model that reads events"}}
    with pytest.raises(ClientError, match=r"reads events; expected .* and --model, or numbers of your own"):
        Client(answering(404, unread)).check(stated=False)
    assert records("check") == []
    answer = client.answer_or_withhold("refused", "Now?", p_need=2.0, p_accept=0.5)
    assert not answer.speak and answer.reason.startswith("silent: the gate cannot decide: /v1/decide: status 422: ")


def test_callers_of_one_stream_at_once_are_all_answered(client, records):
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda i: client.ask("busy", f"{i}", p_accept=0.9), range(48)))
    assert sorted(one.offer for one in answers) == sorted(f"busy/{i}" for i in range(48))
    times = [one["time"] for one in records("busy")]
    assert len(times) == 48 and times == sorted(times)


def test_a_time_that_came_too_late_is_taken_anew_and_a_clock_that_stays_behind_is_an_outage(client, monkeypatch):
    client.ask("clock", "Now?", p_accept=0.9, time=100.0)
    ticks, pauses = itertools.chain([98.0, 99.0], itertools.repeat(101.0)), []
    monkeypatch.setattr(module, "clock", types.SimpleNamespace(time=lambda: next(ticks), sleep=pauses.append))
    assert client.ask("clock", "Now?", p_accept=0.9).offer == "clock/1" and len(pauses) == 2
    ticks = itertools.repeat(50.0)
    answer = client.ask("clock", "Now?", p_accept=0.9)
    assert answer[:2] == (False, "silent: the last event of the stream is later than this machine's clock")
    assert len(pauses) == 2 + MOST_TRIES


def test_texts_and_keys_are_sent_in_a_form_that_the_server_takes(client, records):
    for i, text in enumerate(["null", " ", "\ud83d", "🍵" * 2_000_000, "Tea? ☕"]):
        assert client.ask("texts", text, p_accept=0.9, key=text, time=float(i)).offer == f"texts/{i}"
    assert [one["candidate"][:9] for one in records("texts")] == ['"null"', '" "', "?", "🍵" * 9, "Tea? ☕"]
    assert as_text("NULL") == '"NULL"' and as_text("nullify") == "nullify"
    assert as_key("call_1") == "call_1" and len(as_key("é")) == len(as_key("k" * 256)) == len(as_key("a\nb")) == 64
    assert message_of({"text": "Hi"}) == "Hi" and message_of({}) == ""
    assert message_of({"text": "é", "to": 1}) == '{"text": "é", "to": 1}' and message_of({"n": 1}) == '{"n": 1}'


def test_a_token_is_sent(tmp_path):
    served = pytest.importorskip("served", reason="the server is that of the extra `serve`")
    with served.Stateful(tmp_path, tokens=["secret"], partitions=1) as running:
        assert Client(running.url, "secret").ask("s", p_accept=0.9).speak
        with pytest.raises(ClientError, match="status 401"):
            Client(running.url, "other").ask("s", p_accept=0.9)


def test_a_token_comes_from_the_environment(monkeypatch):
    parser = argparse.ArgumentParser()
    module.define_server_flags(parser)
    url = "--url=http://localhost:9"
    monkeypatch.setenv("GATE_TOKEN", "secret")
    assert module.token_of(parser.parse_args([url, "--key=GATE_TOKEN"])) == "secret"
    assert module.token_of(parser.parse_args([url, "--token=other"])) == "other"
    assert module.token_of(parser.parse_args([url])) is None
    with pytest.raises(ValueError, match="--token: found it with --key"):
        module.token_of(parser.parse_args([url, "--key=GATE_TOKEN", "--token=other"]))
    with pytest.raises(ValueError, match="--key: found no environment variable 'NO_SUCH'"):
        module.token_of(parser.parse_args([url, "--key=NO_SUCH"]))


def test_a_sdk_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "agents", None)
    monkeypatch.delitem(sys.modules, "prism_jax.agent.adapters.openai_agents", raising=False)
    with pytest.raises(ImportError, match="expected it: pip install openai-agents"):
        importlib.import_module("prism_jax.agent.adapters.openai_agents")


def test_the_client_loads_the_standard_library_alone():
    code = "import sys, prism_jax.agent.adapters.heartbeat, prism_jax.agent.adapters.claude_code; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded - sys.stdlib_module_names <= {"prism_jax", "__main__"}
    assert module.__name__ in done.stdout.split()


def test_the_pages_script_of_one_decision_decides(server, tmp_path):
    """As printed, but for the port."""
    page = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```python\n(# once\.py.*?)```", page, re.S)
    assert len(script.splitlines()) <= 30
    (tmp_path / "once.py").write_text(script.replace("8000", str(server.port)))
    for p_accept, code in [("0.9", 0), ("0.1", 1)]:
        command = [sys.executable, "-I", "-S", str(tmp_path / "once.py"), "once", "0.9", p_accept]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        assert json.loads(done.stdout)["speak"] is (code == 0)
