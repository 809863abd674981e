"""Offers as they are made, sent to who listens: each once, from a place on, of the own tenant alone."""

import contextlib
import http.client
import json
import threading
import time
import urllib.parse

import pytest
from fake_reader import FakeReader

pytest.importorskip("uvicorn", reason="the server is that of the extra `serve`")
from served import until
from visitor import counts, offer_of, seen, stated

from prism_jax.agent.service.divided import DividedDoor
from prism_jax.agent.service.door import Door
from prism_jax.agent.state.places import reading


class Listening:
    """A client of the server-sent events of offers; `events` has (id, data)."""

    def __init__(self, served, *, last=None, token=None, **query):
        self.connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
        headers = {"Last-Event-ID": last, "Authorization": token and f"Bearer {token}"}
        headers = {name: value for name, value in headers.items() if value}
        self.connection.request("GET", f"/v1/offers?{urllib.parse.urlencode(query)}", headers=headers)
        self.answer = self.connection.getresponse()
        self.status, kind = self.answer.status, self.answer.headers["content-type"]
        assert self.status != 200 or kind.startswith("text/event-stream")

    def next(self):
        """The next offer and its id, which comes soon."""
        found, ends = {}, time.monotonic() + 10
        while "data" not in found or found.get("line"):
            assert time.monotonic() < ends, "no offer comes"
            line = self.answer.readline().decode().rstrip("\n")
            name, _, value = line.partition(": ")
            found |= {name: value, "line": line}
        return json.loads(found["data"]), found["id"]


@pytest.fixture
def listen():
    """Begins to listen to a server, until the end of the test."""
    with contextlib.ExitStack() as stack:

        def begin(*given, **options):
            listening = Listening(*given, **options)
            stack.callback(listening.connection.close)
            return listening

        yield begin


def test_offers_are_sent_as_they_are_made_and_again_behind_the_last_that_was_seen(served, listen):
    offer_of(served, "before")
    listening = listen(served)
    assert offer_of(served, "a") == listening.next()[0]["id"]
    assert served.ask("/v1/decide", stated("silent", 0.1, 0.1))[1]["speak"] is False
    offer_of(served, "b", "ada")
    second, place = listening.next()
    assert (second["id"], second["person"]) == ("b/0", "ada")
    listening.connection.close()
    offer_of(served, "c")
    assert listen(served, last=place).next()[0]["id"] == "c/0"
    whole = listen(served, after="e30=")
    assert {whole.next()[0]["id"] for _ in range(4)} == {"before/0", "a/0", "b/0", "c/0"}
    assert listen(served, after="e30=", person="ada").next()[0]["id"] == "b/0"
    assert served.ask("/v1/offers?after=nonsense")[0] == 422


def test_who_saw_no_offer_yet_misses_none_on_another_connection(served, listen):
    listening = listen(served)
    place = listening.answer.readline().decode().strip().removeprefix("id: ")
    listening.connection.close()
    offer = offer_of(served, "meanwhile")
    assert listen(served, last=place).next()[0]["id"] == offer


def test_an_offer_whose_caller_has_gone_is_sent_when_it_is_kept(start, listen):
    go, begun = threading.Event(), threading.Event()

    class Slow(FakeReader):
        def observe(self, items):
            begun.set()
            assert go.wait(20)
            return super().observe(items)

    served = start(reader=Slow(slow=False, responses=False))
    listening, caller = listen(served), http.client.HTTPConnection("127.0.0.1", served.port)
    caller.request("POST", "/v1/streams/s/events", json.dumps(seen(0, costs={"c_fa": 1e-9})))
    try:
        assert begun.wait(20)
        caller.close()
        until(lambda: 'status="499"' in counts(served))
    finally:
        go.set()
    assert listening.next()[0]["id"] == "s/0"
    assert 'prism_decisions_total{agent="events",speak="true"} 1.0' in counts(served)


@pytest.mark.parametrize("alone", [True, False])
def test_who_listens_looks_everywhere_where_other_servers_make_offers(start, listen, monkeypatch, alone):
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
    served = start()
    listening, offer = listen(served), offer_of(served, "unseen")
    if alone:
        for _ in range(4):  # it says that it is there
            assert listening.answer.readline().startswith(b"id: ") and listening.answer.readline() == b"\n"
        assert read == [None]
    else:
        assert listening.next()[0]["id"] == offer


def test_listeners_of_a_tenant_take_no_place_of_another_and_read_what_is_new_alone(start, listen, monkeypatch):
    monkeypatch.setattr("prism_jax.agent.service.state_app.MOST_LISTENERS", 3)
    served, read = start(tokens=[("north", "n"), ("south", "s")]), []
    for number in range(8):
        offer_of(served, f"s{number}", f"p{number}", authorization="Bearer n")
    *north, own = (listen(served, token="n", **query) for query in ({}, {}, {"person": "p3"}))
    assert [listen(served, token=token).status for token in "ns"] == [429, 200]
    time.sleep(0.2)  # they have read what was there
    monkeypatch.setattr("prism_jax.agent.state.places.reading", lambda path: read.append(path) or reading(path))
    for person in ("p5", "p3"):
        offer_of(served, f"new {person}", person, authorization="Bearer n")
    assert [[one.next()[0]["person"] for _ in range(2)] for one in north] == [["p5", "p3"]] * 2
    assert own.next()[0]["person"] == "p3"
    assert len(read) <= 2 * 2 + 1, "a file for each listener and offer"
