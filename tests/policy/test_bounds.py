"""How much of its input an agent takes at once, and that every record it writes can be read at a restart."""

import json
import os

import pytest
from fake_reader import FakeReader, exported

from prism_jax.policy.agent import Agent
from prism_jax.policy.ledger import RefusedError
from prism_jax.policy.lines import Lines, parse_line
from prism_jax.policy.records import encode
from prism_jax.policy.records_file import RecordsError, RecordsFile
from prism_jax.policy.service import Service
from prism_jax.policy.settings import Settings, Terms
from prism_jax.policy.steps import MOST_CANDIDATES, MOST_EVENT_BYTES, MOST_NAME, Observation
from prism_jax.runtime.files import MOST_LINE_BYTES
from prism_jax.streams import Candidate, Event

MILLION = 1_000_000


def observation(text="x", texts=(None,), **others):
    return Observation(
        **{
            "stream": "s",
            "event": Event(time=1.0, text=text),
            "candidates": tuple(Candidate(text=one) for one in texts),
            **others,
        }
    )


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
    "a long stream": (
        observation(stream="s" * (MOST_NAME + 1)),
        "stream: found 1001 characters, expected at most 1000",
    ),
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


def test_the_largest_record_is_accepted_by_a_restart(tmp_path):
    """Control characters take six bytes each, and the chosen candidate stands in a record twice."""
    texts = [chr(1 + i) * MILLION for i in range(4)]
    line = json.dumps(
        {"stream": "s", "time": 1, "text": "\x07" * (MOST_EVENT_BYTES - 4 * MILLION), "candidates": texts}
    )
    assert len(line) < MOST_LINE_BYTES
    (tmp_path / "in.jsonl").write_text(line + "\n")
    settings = Settings(Terms(exported().point), redact=False, keep_texts=True)
    file = RecordsFile(tmp_path / "out.jsonl")
    descriptor = os.open(tmp_path / "in.jsonl", os.O_RDONLY)
    Service(Agent(FakeReader(), exported(), settings), file, "in.jsonl", file).run(Lines(descriptor))
    os.close(descriptor)
    file.close()
    size = (tmp_path / "out.jsonl").stat().st_size
    assert 6 * MOST_EVENT_BYTES < size < MOST_LINE_BYTES
    again = RecordsFile(tmp_path / "out.jsonl")
    assert len(again.decided["s"]) == 1 and again.torn == 0
    again.close()


def test_a_record_that_a_restart_would_refuse_is_not_written(tmp_path):
    file = RecordsFile(tmp_path / "out.jsonl")
    with pytest.raises(RecordsError, match=r"out.jsonl: found a record of \d+ bytes, expected at most 67108864"):
        file.write(encode({"text": "x" * MOST_LINE_BYTES}))
    file.close()
    assert (tmp_path / "out.jsonl").read_bytes() == b""


def test_lines_that_wait_are_taken_in_batches_of_bounded_size(tmp_path):
    large = json.dumps({"stream": "s", "time": 1, "text": "y" * 30 * MILLION}).encode()
    (tmp_path / "in.jsonl").write_bytes((large + b"\n") * 9)
    descriptor = os.open(tmp_path / "in.jsonl", os.O_RDONLY)
    lines, counts = Lines(descriptor), []
    while batch := lines.batch(256):
        counts.append(len(batch))
    os.close(descriptor)
    assert counts == [3, 3, 3]


@pytest.mark.parametrize("key", ["c_fa", "c_fn", "margin", "fixed_threshold", "price", "most_offers", "offers_window"])
@pytest.mark.parametrize("sign", [1, -1])
def test_costs_beyond_all_numbers_are_refused_by_name(key, sign):
    agent, costs = Agent(FakeReader(), exported()), {"most_offers": 1, key: sign * 10**400}
    with pytest.raises(RefusedError, match=rf"stream 's': costs\.{key}: found -?1000"):
        agent.observe("s", Event(time=1.0, text="x"), costs=costs)
    line = json.dumps({"stream": "s", "time": 1, "text": "x", "costs": costs}).encode()
    with pytest.raises(RefusedError, match=rf"stream 's': costs\.{key}: found -?inf"):
        agent.observe_many([parse_line(line, "in:1")])
