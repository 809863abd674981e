"""How much of its input an agent takes at once, and that every record it writes can be read at a restart."""

import json
import os
import re
import time
from pathlib import Path

import pytest
from fake_reader import FakeReader, exported
from offers import make_stream

from prism_jax.agent.agent import Agent
from prism_jax.agent.input_loop import InputLoop
from prism_jax.agent.ledger import RefusedError
from prism_jax.agent.lines import InputLines, parse_line
from prism_jax.agent.live import Live, LiveConfig
from prism_jax.agent.probe_reader import ProbeReader
from prism_jax.agent.records_file import RecordsFile
from prism_jax.agent.settings import AgentSettings, Terms
from prism_jax.agent.state.kept import KeptAgent, store_of_one
from prism_jax.agent.state.partition import StateError
from prism_jax.agent.steps import MOST_CANDIDATES, MOST_EVENT_BYTES, MOST_NAME, Observation
from prism_jax.probe.fitting import StreamInputs, fit_probe
from prism_jax.probe.probe_config import FitConfig, StatesConfig
from prism_jax.probe.words import describe
from prism_jax.runtime.files import MOST_LINE_BYTES
from prism_jax.streams import Candidate, Event
from prism_jax.student.scoring.student import Student

MILLION = 1_000_000


def observation(text="x", texts=(None,), **others):
    offers = tuple(Candidate(text=one) for one in texts)
    return Observation(**{"stream": "s", "event": Event(time=1.0, text=text), "candidates": offers, **others})


REFUSED = {
    "sixty candidates of a million characters": (
        observation(texts=[f"{i:06d}" + "y" * (MILLION - 6) for i in range(60)]),
        f"text, candidates: found 60000001 bytes together, expected at most {MOST_EVENT_BYTES}",
    ),
    "a byte too many": (
        observation("x", ["é" * (MILLION - i) for i in range(2)] + ["y" * (MOST_EVENT_BYTES - 4 * MILLION + 2)]),
        f"found {MOST_EVENT_BYTES + 1} bytes together",
    ),
    "many candidates": (observation(texts=map(str, range(MOST_CANDIDATES + 1))), "candidates: found 101, expected at"),
    "a long stream": (observation(stream="s" * (MOST_NAME + 1)), "stream: found 1001 characters, expected at"),
    "a long domain": (observation(domain="d" * (MOST_NAME + 1)), "domain: found 1001 characters"),
    "a long person": (observation(person="p" * (MOST_NAME + 1)), "person: found 1001 characters"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_event_that_is_too_large_is_refused_before_it_is_read(case):
    item, message = REFUSED[case]
    reader = FakeReader()
    with pytest.raises(RefusedError) as caught:
        Agent(reader, exported()).observe_many([item])
    assert message in str(caught.value) and len(str(caught.value)) < 300
    assert reader.calls == []


def test_an_event_of_the_largest_size_is_decided_on():
    text = "\N{PARTY POPPER}" * MILLION
    item = observation(text, ["y" * (MOST_EVENT_BYTES - 4 * MILLION)])
    (decision,) = Agent(FakeReader(), exported()).observe_many([item])
    assert decision.text == text


def words(count):
    """Different words, divided among offers that take as much as an event may hold."""
    size = MOST_EVENT_BYTES // count
    return [(f"{i:03d} " + " ".join(f"w{n}" for n in range(i, i + size // 3)))[: size - 1] for i in range(count)]


def resident(field):
    """This process's resident memory in bytes, now (VmRSS) or at its highest (VmHWM); Linux only."""
    return 1024 * int(re.search(rf"{field}:\s*(\d+) kB", Path("/proc/self/status").read_text())[1])


@pytest.mark.study
@pytest.mark.parametrize("kind", ["probe", "student"])
def test_an_event_of_the_largest_size_takes_bounded_time_and_memory(kind, request, capsys):
    """Fifteen seconds of processor time. What does not fit into the student's context is refused, after tokenising."""
    if kind == "probe":
        seen = [StreamInputs(describe(make_stream(number))) for number in range(4)]
        reader = ProbeReader(fit_probe(seen, FitConfig(inner=2), StatesConfig()))
    else:
        model, template = (request.getfixturevalue(name) for name in ("model", "template"))
        params = request.getfixturevalue("draw_params")(model)
        config = LiveConfig(memory=1 << 22, batches=(1,))
        reader = Live(Student(model, params, template), has_slow_pass=False, writes_responses=False, config=config)
    agent = Agent(reader, exported(slow=False))
    largest = "\N{PARTY POPPER}" * MILLION
    for name, texts in {
        "a text of a million characters of four bytes": [largest],
        "5 offers": ["x", *words(5)],
        "100 offers": ["x", *words(100)],
    }.items():
        offers = texts[1:] or ["Tea?"]
        Path("/proc/self/clear_refs").write_text("5")
        before, began, said = resident("VmRSS"), time.process_time(), "decided on"
        try:
            agent.observe("s", Event(time=0.0, text=texts[0]), offers)
        except RefusedError as error:
            said = str(error)
        seconds, taken = time.process_time() - began, resident("VmHWM") - before
        with capsys.disabled():
            print(f"\n{kind}, {name}: {seconds:.2f} s, {taken / 2**20:.0f} MiB, {said:.90}")
        assert said == "decided on" if kind == "probe" else "tokens, expected at most" in said
        assert seconds < 30 and taken < 2**30


def test_the_largest_record_is_accepted_by_a_restart(tmp_path):
    """Control characters take six bytes each, and the chosen candidate stands in a record twice."""
    texts = [chr(1 + i) * MILLION for i in range(4)]
    text = "\x07" * (MOST_EVENT_BYTES - 4 * MILLION)
    line = json.dumps({"stream": "s", "time": 1, "text": text, "candidates": texts})
    assert len(line) < MOST_LINE_BYTES
    (tmp_path / "in.jsonl").write_text(line + "\n")
    settings = AgentSettings(Terms(exported().point), redact=False, keep_texts=True)
    for _ in range(2):
        with store_of_one(tmp_path / "state") as store:
            agent = KeptAgent(FakeReader(), exported(), store, settings)
            file = RecordsFile(tmp_path / "out.jsonl", store.partition(0).lines())
            descriptor = os.open(tmp_path / "in.jsonl", os.O_RDONLY)
            path = str(tmp_path / "in.jsonl")
            lines = InputLines(descriptor, path, path, store.partition(0).input(path))
            InputLoop(agent, file.write, "in.jsonl").answer(lines)
            os.close(descriptor)
            file.close()
        size = (tmp_path / "out.jsonl").stat().st_size
        assert 6 * MOST_EVENT_BYTES < size < MOST_LINE_BYTES


def test_a_record_that_a_restart_would_refuse_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("prism_jax.agent.state.partition.MOST_LINE_BYTES", 100)
    with store_of_one(tmp_path) as store:
        agent = KeptAgent(FakeReader(), exported(), store)
        with pytest.raises(StateError, match=r"found a record of \d+ bytes, expected at most 100"):
            agent.observe("s", Event(time=1.0, text="x"))
        assert list(store.partition(0).lines()) == [] and not agent._ledger.has("s")


@pytest.mark.parametrize("key", ["c_fa", "c_fn", "margin", "fixed_threshold", "price", "most_offers", "offers_window"])
@pytest.mark.parametrize("sign", [1, -1])
def test_costs_beyond_all_numbers_are_refused_by_name(key, sign):
    agent, costs = Agent(FakeReader(), exported()), {"most_offers": 1, key: sign * 10**400}
    with pytest.raises(RefusedError, match=rf"stream 's': costs\.{key}: found -?1000"):
        agent.observe("s", Event(time=1.0, text="x"), costs=costs)
    line = json.dumps({"stream": "s", "time": 1, "text": "x", "costs": costs}).encode()
    with pytest.raises(RefusedError, match=rf"stream 's': costs\.{key}: found -?inf"):
        agent.observe_many([parse_line(line, "in:1")])
