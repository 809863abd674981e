"""Callers of a server with state, who ask until they are answered, and what their records must be in the end."""

import http.client
import itertools
import json
import random
import time
import urllib.parse

from batches import in_mind

from prism_jax.agent.agent import Agent
from prism_jax.agent.exported import Exported, with_gate
from prism_jax.agent.state.reading import Cursor, read_log
from prism_jax.agent.stated_reader import StatedReader, stated_event
from prism_jax.gate import Gate
from prism_jax.streams import Event

PEOPLE = 6
WINDOW = 40
"""Events of a stream that a model reads; more than 50 are not sent to it together."""


def asked(person, number):
    """Numbers of a caller, near the gate."""
    draw = random.Random(f"{person} {number}")
    return {"time": float(number), "p_need": draw.random(), "p_accept": round(draw.uniform(0.2, 0.6), 3)}


def answered(person, number):
    return random.Random(f"answer {person} {number}").choice(["accepted", "dismissed", None])


def insist(port, path, body, key=None):
    """The answer to a request, which is sent until there is one."""
    headers = {"content-type": "application/json"} | ({} if key is None else {"idempotency-key": key})
    ends = time.monotonic() + 180.0
    while time.monotonic() < ends:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            content = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            time.sleep(0.02)
            continue
        if answer.status == 200:
            return content
        assert answer.status in (429, 503, 504), content
        time.sleep(0.02)
    raise AssertionError("found no answer for three minutes")


def watch(port, person, done, stop, pause=0.0):
    """Asks for one person until it is told to stop, and waits in between; the answers in their order."""
    number, found = 0, []
    while not stop.wait(pause):
        numbers = asked(person, number)
        decided = insist(port, "/v1/decide", {"stream": f"of {person}", "person": person, **numbers}, f"k{number}")
        found.append(decided)
        outcome = answered(person, number)
        if decided["speak"] and outcome:
            body = {"stream": f"of {person}", "offer": decided["id"], "outcome": outcome, "time": numbers["time"]}
            found.append(insist(port, "/v1/outcomes", body))
        number += 1
        done.release()
    return found


def read_event(number):
    return {"time": 60.0 * number, "text": f"The parser fails for the {number}th time."}


def read(port, caller, done, stop, pause=0.0):
    """Sends events that a model reads until it is told to stop, and waits in between; the answers of each stream."""
    found = {}
    for count in itertools.count():
        if stop.wait(pause):
            return found
        stream, number = f"read {caller} {count // WINDOW}", count % WINDOW
        path = f"/v1/streams/{urllib.parse.quote(stream, safe='')}/events"
        decided = insist(port, path, read_event(number), f"k{number}")
        found.setdefault(stream, []).append(decided)
        if decided["speak"]:
            body = {"stream": stream, "offer": decided["id"], "outcome": "accepted", "time": 60.0 * number}
            found[stream].append(insist(port, "/v1/outcomes", body))
        done.release()


def undisturbed(person, count):
    """What an agent with everything in memory decides on the same."""
    bare = Exported({}, {}, Gate.at_costs(c_fa=1.0, c_fn=2.0).point, None, None, False, {"model": "", "config": ""})
    found = []
    agent = Agent(StatedReader(), with_gate(bare, Gate.at_costs(c_fa=1.0, c_fn=2.0)), people=in_mind())
    for number in range(count):
        numbers = asked(person, number)
        event = stated_event(numbers["time"], numbers["p_need"], [numbers["p_accept"]])
        decided = agent.observe(f"of {person}", event, person=person)
        found.append((decided.spoke, decided.p_accept))
        outcome = answered(person, number)
        if decided.spoke and outcome:
            agent.outcome(f"of {person}", decided.offer, outcome, numbers["time"])
    return found


def check(folder, found):
    """Asserts that each person's records are what they were answered, and what an undisturbed agent decides."""
    for i, answers in enumerate(found):
        person = f"p{i}"
        decisions = recorded(folder, answers, person=person)
        told = [(one["spoke"], one["p_accept"]) for one in decisions]
        assert told == undisturbed(person, len(decisions))


def check_read(folder, found, agent):
    """Asserts that each stream's records are what was answered, and what an agent reads; how many had no answer."""
    gate, silent = Gate.at_costs(c_fa=1.0, c_fn=2.0), 0
    for stream, answers in found.items():
        for number, one in enumerate(recorded(folder, answers, stream=stream)):
            alone = agent.observe(stream, Event(**read_event(number)))
            if one["p_need"] is None:
                silent += 1
                assert not one["spoke"] and "the decision model gave no answer" in one["reason"]
                continue
            assert abs(one["p_need"] - alone.p_need) < 1e-6 and abs(one["p_accept"] - alone.p_accept) < 1e-6
            assert one["spoke"] == gate(p_need=one["p_need"], p_accept=one["p_accept"]).speak
    return silent


def recorded(folder, answers, **whose):
    """The records of decisions, after asserting that these and the outcomes are what was answered, each once."""
    found, _ = read_log(folder, Cursor(), 10**6, **whose)
    records = [one.record for one in found]
    decisions = [one for one in records if one["kind"] == "decision"]
    assert [one["event"] for one in decisions] == list(range(len(decisions)))
    assert [one for one in records if one["kind"] == "outcome"] == [one for one in answers if "kind" in one]
    told = [(one["speak"], one["p_need"], one["p_accept"]) for one in answers if "speak" in one]
    assert [(one["spoke"], one["p_need"], one["p_accept"]) for one in decisions] == told
    return decisions
