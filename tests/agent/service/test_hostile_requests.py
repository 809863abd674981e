"""Whatever a request holds, in whichever place, its answer is a decision or an error of its sender, and soon there."""

import asyncio
import contextlib
import http.client
import itertools
import json
import re
import socket
import threading
import time
import urllib.parse

import pytest
from fake_reader import FakeReader

from prism_jax.agent.steps import MOST_NAME

pytest.importorskip("uvicorn", reason="the server is that of the extra `serve`")
import fastapi
from served import Running, Stateful
from visitor import Visitor, decide, key_of

from prism_jax.agent.service import connection
from prism_jax.agent.service.http import Limits
from prism_jax.runtime.written import tidy

DEEP = json.loads("[" * 400 + "]" * 400)
NUMBERS = (None, True, False, 0, -1, 2**63, 10**400, 0.5, -0.0, 5e-324, 1.7e308, 2.0)
TEXTS = ("", " ", "null", "x", "x" * 2000, "\x00", "\x7f\u202e\u2066", "../../etc/passwd", "'; DROP TABLE log; --")
TREES = ([], [None], [[]], ["x", "x"], [0.5, 0.5], {}, {"": {}}, {"c_fa": "1"}, {"quiet": "x"}, {"most_offers": 10**30})
VALUES = (*NUMBERS, *TEXTS, "𝟘", "NaN", *TREES, DEEP)
BODIES = {
    "/v1/streams/s/events": {"time": 1.0, "text": "x", "candidates": ["a"], "costs": {"c_fa": 1.0}, "domain": "d"},
    "/v1/decide": {"stream": "d", "time": 1.0, "p_need": 0.5, "p_accept": 0.5, "person": "p", "spoke": None},
    "/v1/outcomes": {"stream": "d", "offer": "d/0", "outcome": "ignored", "time": 2.0, "needed": None},
}
CURSORS = ("%00", "e30", "eyIwIjotMX0=", "A" * 6000)
RANGES = ("limit=0", "limit=1e3", "limit=" + "9" * 40, "since=nan", "since=inf&until=-inf", "since=x")
WHOSE = ("person=%00", "stream=%ff%fe", "person=" + "p" * 5000, "x=y")
QUERIES = (*(f"after={cursor}" for cursor in CURSORS), *RANGES, *WHOSE)
KEYS = ("", "\xff", "k" * 300)
ENCODINGS = ({"transfer-encoding": "gzip"}, {"content-encoding": "gzip"}, {"content-type": "text/xml; charset=\xff"})
MORE = ({"host": "evil.example"}, {"expect": "100-continue"}, {"last-event-id": "\xff"}, {"prefer": "\xff"})
HEADERS = (*({"idempotency-key": key} for key in KEYS), *ENCODINGS, *MORE, {"authorization": "Bearer " + "t" * 6000})
STREAMS = ("/events", "%00/events", "%ff/events", "..%2f..%2fx/events", "", "%00")
OTHERS = ("people/", "people/%00", "people/../x", "/records", "records/", "shadow?since=x")
PATHS = (*(f"/v1/streams/{rest}" for rest in STREAMS), *(f"/v1/{rest}" for rest in OTHERS), "/%2e%2e/")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with Stateful(tmp_path_factory.mktemp("hostile") / "state") as running:
        yield running


def requests():
    for path, body in BODIES.items():
        for key, value in itertools.product((*body, "person", "new"), VALUES):
            yield "POST", path, json.dumps({**body, key: value}), {}
        for text in ("", "{", "null", "[" * 10_000, "\ufeff{}", '{"a":1}{"a":1}', json.dumps([body] * 3)):
            yield "POST", path, text, {}
        for header in HEADERS:
            yield "POST", path, json.dumps({**body, "time": 3.0}), header
    for query in QUERIES:
        yield "GET", f"/v1/records?{query}", None, {}
        yield "GET", f"/v1/shadow?{query}", None, {}
    for path, method in itertools.product(PATHS, ("GET", "POST", "DELETE", "PUT", "OPTIONS", "TRACE")):
        yield method, path, None if method == "GET" else "{}", {}


def test_no_request_makes_the_server_fail_or_hang(served):
    statuses = {}
    for method, path, body, headers in requests():
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
        start = time.monotonic()
        own = {"host": "localhost", **headers}
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in own.items():
            connection.putheader(name, value.encode("latin-1"))
        data = b"" if body is None else body.encode()
        if "transfer-encoding" not in own:
            connection.putheader("content-length", str(len(data)))
        connection.endheaders()
        connection.send(data)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        shown = (method, path[:60], (body or "")[:200], headers, text[:200])
        assert answer.status == 200 or 400 <= answer.status < 500, (answer.status, *shown)
        assert time.monotonic() - start < 5, shown
        if path.startswith("/v1/") and answer.status >= 400 and text.startswith(b"{"):
            assert json.loads(text)["error"]["message"], shown
        statuses[answer.status] = statuses.get(answer.status, 0) + 1
    assert statuses[200] >= 30 and statuses[422] > 300, statuses
    status, answer, _ = served.ask("/v1/decide", {"stream": "after", "time": 0, "p_need": 1, "p_accept": 1})
    assert (status, answer["speak"]) == (200, True)
    read, after = [], ""
    while len(found := served.ask(f"/v1/records?limit=1000&after={after}")[1]["records"]) > 0:
        read += found
        after = served.ask(f"/v1/records?limit=1000&after={after}")[1]["next"]
    events = [one["event"] for one in read if one["stream"] == "s"]
    assert events == list(range(len(events)))


PARTS = ("x/link", "x/events", "link", "events", "/", "//", "x/", "..", "../x", "x/../y", "v1/people/x", "a;b", "a?b#c")
CONTROLS = ("ada\n", "\nada", "a\r\nb", "a\x00b", "\x7f\x1b[2J", "a\u2028b", "a\\b", " ada ")
MARKS = (*CONTROLS, "100%", "%2F", "%252f", "%zz")
LETTERS = ("+ &=", "caf\u00e9", "cafe\u0301", "\ufffd", "\U0001d7d8", "\u202eada", "a'b\"c", "n" * MOST_NAME)
FAST = ("x/link", "x/events", "/", "..", "ada\n", "a\x00b", "100%", "cafe\u0301", "a'b\"c")
NAMES = [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in (*PARTS, *MARKS, *LETTERS)]
NO_NAMES = ("%ff", "%ed%a0%80", "%c0%af", "a%ffb", "%e9", "%", "%2", "%zz", "a%u0041")


UNREAD = "a text that the model refuses"


def quoted(name):
    return urllib.parse.quote(name, safe="")


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A server that knows two people whose names others end in, each by a stream and a link."""

    class Reader(FakeReader):
        def observe(self, items):
            for stream, seen, _ in items:
                if seen.text == UNREAD:
                    raise ValueError(f"stream {stream!r}: found no room")
            return super().observe(items)

    reader = Reader(slow=False, responses=False)
    with Stateful(tmp_path_factory.mktemp("named") / "state", partitions=1, reader=reader) as running:
        for name in ("x", "ada"):
            decide(running, name, 0.9, 0.9, stream=f"{name}'s")
            key_of(running, name)
        yield running


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:20]))
def test_a_name_of_any_letters_is_made_read_linked_and_deleted_alone(name, named):
    event = {"time": 1.0, "text": "x"}
    status, answer, _ = named.ask(f"/v1/streams/{quoted(name)}/events", event)
    assert (status, answer["stream"], answer["id"]) == (200, name, f"{name}/0")
    refused = named.ask(f"/v1/streams/{quoted(name)}/events", {"time": 2.0, "text": UNREAD})[1]["error"]["message"]
    assert refused.startswith(f"stream {name!r}: "), "and not with the tenant's"
    assert len(named.ask(f"/v1/records?stream={quoted(name)}")[1]["records"]) == 1
    assert named.ask(f"/v1/streams/{quoted(name)}", method="DELETE")[:2] == (200, {"streams": 1})
    assert named.ask(f"/v1/streams/{quoted(name)}", method="DELETE")[:2] == (200, {"streams": 0})
    stream = f"s {name}"[:MOST_NAME]
    if tidy(name) != name:  # two spellings of a name are not two people
        for path, body in (
            ("/v1/decide", {"stream": stream, "p_need": 1, "p_accept": 1}),
            (f"/v1/streams/{quoted(stream)}/events", {"text": "x"}),
        ):
            status, answer, _ = named.ask(path, {"person": name, "time": 1.0, **body})
            assert status == 422 and answer["error"]["message"].startswith("body: person: found blanks at its ends")
        assert named.ask(f"/v1/people/{quoted(name)}")[0] == 404
        return
    assert decide(named, name, 0.9, 0.9, stream=stream)["person"] == name
    person = f"/v1/people/{quoted(name)}"
    status, found, _ = named.ask(person)
    assert (status, found["person"], found["counts"]["streams"]) == (200, name, 1)
    records = named.ask(f"/v1/records?person={quoted(name)}")[1]["records"]
    assert [one["stream"] for one in records] == [stream]
    Visitor(named).sign_in(name)
    assert named.ask(f"{person}/link", method="DELETE")[:2] == (200, {"ended": 1})
    assert named.ask(person, method="DELETE")[:2] == (200, {"streams": 1})
    assert named.ask(person)[0] == 404


@pytest.mark.parametrize("text", NO_NAMES)
def test_what_is_no_name_is_refused_wherever_it_stands(text, named):
    for path in (f"people/{text}", f"people/{text}/link", f"streams/{text}", f"streams/{text}/events"):
        for method in ("GET", "POST", "DELETE"):
            status, answer, _ = named.ask(f"/v1/{path}", b"{}" if method == "POST" else None, method=method)
            assert status == 400 and "UTF-8" in answer["error"]["message"], (method, path, status)
    for query in (f"records?person={text}", f"records?stream={text}", f"offers?person={text}"):
        assert named.ask(f"/v1/{query}")[0] == 400, query


def test_nothing_is_made_for_a_name_that_nobody_has_used(tmp_path, start):
    running = start()
    for path, method in (("TYPO", "GET"), ("TYPO/link", "POST"), ("TYPO/link", "DELETE"), ("TYPO", "DELETE")):
        status, answer, _ = running.ask(f"/v1/people/{path}", b"" if method == "POST" else None, method=method)
        assert (status, *answer.values()) in ((404, answer.get("error")), (200, 0)), (path, method)
    assert not list((tmp_path / "state").rglob("*.sqlite"))


def test_the_names_beside_are_left_alone(named):
    """After all of the names above came and went."""
    for name in ("x", "ada"):
        assert [one["stream"] for one in named.ask(f"/v1/records?person={name}")[1]["records"]] == [f"{name}'s"]
        assert named.ask(f"/v1/people/{name}/link", method="DELETE")[1] == {"ended": 1}


GET, CHUNKED = b"GET /healthz HTTP/1.1\r\n", b"Transfer-Encoding: chunked\r\n\r\n"
POST = b"POST /v1/decide HTTP/1.1\r\nHost: localhost\r\n"
UNFINISHED = {
    "target": b"GET /",
    "header": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ",
    "headers": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: y\r\n",
    "chunk": POST + b"Transfer-Encoding: chunked\r\n\r\n1;",
    "trailer": POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: ",
}


def swallowed(port, begin, more=b"a" * 2**16, most=2**25):
    """How many bytes a server takes behind a beginning until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client, contextlib.suppress(ConnectionError):
        taken = 0
        client.sendall(begin)
        while taken < most:
            taken += client.send(more)
    return taken


@pytest.mark.parametrize("place", UNFINISHED)
def test_what_stands_around_a_body_has_bounds(place, served, monkeypatch, capfd):
    monkeypatch.setattr(connection, "STOP_SECONDS", 0.1)
    more = b"X: y\r\n" * 10_000 if place == "headers" else b"a" * 2**16
    assert swallowed(served.port, UNFINISHED[place], more) < 2**24
    assert served.ask("/healthz")[0] == 200 and capfd.readouterr().err == ""


def send(client, data):
    with contextlib.suppress(OSError):  # it may be closed before the end
        client.sendall(data)


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * 300 + b"\r\n", [400]),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500, [200] * 500),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" * 2 + b"\r\n", [400]),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\n" + b"a:\r\n" * 30_000, [200, 400]),
        (POST + CHUNKED + b"1\r\na\r\n" * 5_000, [400]),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1;a=b\r\na\r\n" * 500 + b"0\r\n\r\n", [422]),
        # Heads that could mean two things, and others.
        (GET + b"\r\n", [400]),
        (GET + b"Host: localhost\r\nHost: localhost\r\n\r\n", [400]),
        (GET.replace(b"1.1", b"1.0") + b"Host: localhost\r\n\r\n", [200]),
        (GET + b"Host: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", [200]),
        *((POST + b"Content-Length: 2\r\n" + other, [400]) for other in (b"Content-Length: 3\r\n\r\n", CHUNKED)),
    ],
)
def test_neither_many_small_parts_nor_a_strange_head_is_more_than_a_refusal(sent, statuses, served, capfd):
    with socket.create_connection(("127.0.0.1", served.port), timeout=6) as client:
        sender = threading.Thread(target=send, args=(client, sent))
        sender.start()
        found = b""
        while len(re.findall(rb"HTTP/1.1 (\d+)", found)) < len(statuses) and (new := client.recv(2**16)):
            found += new
    sender.join()
    assert [int(one) for one in re.findall(rb"HTTP/1.1 (\d+)", found)] == statuses
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_a_long_body_comes_through_where_it_may_be_long(framing, start):
    size, chunk = 9 * 2**20, b"%x\r\n" % 2**10 + b" " * 2**10 + b"\r\n"
    head = b"Content-Length: %d\r\n\r\n" % size if framing == "length" else b"Transfer-Encoding: chunked\r\n\r\n"
    body = b" " * size if framing == "length" else chunk * (size // 2**10) + b"0\r\n\r\n"
    served = start(limits=Limits(body=2**24))
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as client:
        sender = threading.Thread(target=send, args=(client, POST + head + body))
        sender.start()
        assert client.recv(2**16).startswith(b"HTTP/1.1 422 "), "all of it is read, and then found to be no JSON"
        sender.join()


@pytest.mark.parametrize(
    "begin", [b"", b"GET /healthz HTTP/1.1\r\n", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"]
)
def test_a_head_that_does_not_end_is_not_waited_for(begin, served, monkeypatch):
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", served.port), timeout=4) as client:
        client.sendall(begin)
        if begin.endswith(b"\r\n\r\n"):
            assert client.recv(1000)
            client.sendall(b"GET ")
        with contextlib.suppress(ConnectionError):
            assert not client.recv(1000), "it is closed"


def test_who_waits_longest_makes_room_where_there_are_too_many(served, monkeypatch):
    monkeypatch.setattr(connection, "MOST_CONNECTIONS", 8)
    with contextlib.ExitStack() as stack:
        for number in range(30):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=4))
            client.sendall((POST + b"Content-Length: 9\r\n\r\n")[: 20 * (number + 1)])
            assert served.ask("/healthz")[0] == 200


@pytest.mark.parametrize("stops", [False, True])
def test_a_client_that_takes_nothing_is_cut_off(stops, monkeypatch, capfd):
    monkeypatch.setattr(connection, "STOP_SECONDS" if stops else "STALL_SECONDS", 0.1)
    app = fastapi.FastAPI()

    @app.get("/")
    async def much() -> fastapi.Response:
        return fastapi.Response(bytes(2**25))

    with Running(app) as running, socket.create_connection(("127.0.0.1", running.port), timeout=4) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        ends, state = time.monotonic() + 5, running.server.server_state
        while not state.total_requests and not state.tasks and time.monotonic() < ends:
            time.sleep(0.01)
        running.server.should_exit = stops
        while state.connections and time.monotonic() < ends:
            time.sleep(0.01)
        assert time.monotonic() < ends
    assert capfd.readouterr().err == ""


def test_who_is_still_answered_when_the_server_waits_no_longer_is_told_so(tmp_path, capfd):
    with Stateful(tmp_path / "state", partitions=1) as running:
        running.server.config.timeout_graceful_shutdown = 0.05
        asked, answers = threading.Event(), []

        def run(*_, **__):
            asked.set()
            return asyncio.sleep(20)

        running.app.state.prism._threads.run = run
        asking = threading.Thread(target=lambda: answers.append(running.ask("/v1/records")))
        asking.start()
        assert asked.wait(20)
        running.server.should_exit = True
        asking.join(20)
    assert answers[0][0] == 503 and "Traceback" not in capfd.readouterr().err
