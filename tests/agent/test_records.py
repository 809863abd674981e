"""Decision records: their keys, their redaction, and the file that holds them."""

import dataclasses
import itertools
import json
import os
import re

import pytest
from etils import epath
from fake_reader import FakeReader, exported

from prism_jax.agent.agent import Agent
from prism_jax.agent.input_loop import Statistics
from prism_jax.agent.reader import Response, Thought
from prism_jax.agent.records import encode
from prism_jax.agent.records_file import RecordsError, RecordsFile, parse_record, remove_person
from prism_jax.agent.settings import AgentSettings, Terms
from prism_jax.agent.steps import Observation
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.streams import Candidate, Event

CANARY = "canary@example.com 4111 1111 1111 1111 sk-canary0123456789abcdef /home/canary/x"
PARTS = ("canary", "4111")
ONE = ("s", Event(time=0.0, text=CANARY), (Candidate(text=f"Write to {CANARY}?"),))


class Talkative(FakeReader):
    """Writes what it should not."""

    def think(self, items):
        return [Thought(t.z_need, t.z_accept, {"risk": CANARY, "evidence": CANARY}, 7) for t in super().think(items)]

    def respond(self, items):
        return [Response(json.dumps({"Purpose": CANARY, "Response": "Done."}), 5) for _ in items]


def decisions(count=20, reader=None, margin=1.0, **given):
    settings = AgentSettings(Terms(OperatingPoint(policy="dynamic", margin=margin)), **given)
    agent = Agent(reader or FakeReader(), exported(), settings)
    offers = (Candidate(text=f"Write to {CANARY}?"), Candidate())
    shown = [Event(time=float(i), text=f"{i} {CANARY}") for i in range(count)]
    return agent.observe_many([Observation(f"s{i % 3}", event, offers) for i, event in enumerate(shown)])


def test_the_page_describes_every_key(root):
    page = (root / "docs" / "agent.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"## What a record holds\n\n\| key .*\n\|.*\n((?:\|.*\n)+)", page)
    described = re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in table.splitlines()))
    first = decisions(1)[0]
    terms = dataclasses.replace(first.terms, quiet="busy")
    whole = first._replace(person="ann", keep_texts=True, unanswered="nobody answers", terms=terms, would_speak=False)
    assert sorted(described) == sorted(whole.record())


def test_a_record_is_one_line_of_strict_json_that_repeats_the_decision():
    for decision in decisions():
        line = encode(decision._replace(redact=False, keep_texts=True).record())
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        read = json.loads(line)
        assert (read["p_need"], read["p_accept"]) == (decision.p_need, decision.p_accept)
        used = read["slow"] if read["thought"] else read["fast"]
        assert read["p_accept"] == used["calibrated"]["p_accept"][read["chosen"]]
        assert read["candidate"] == read["candidates"][read["chosen"]] == decision.candidate
        assert (read["offer"] is None) == (read["response"] is None) == (not read["spoke"])
        assert read["text"] == decision.text


def test_a_record_redacts_and_keeps_texts_as_the_settings_say():
    """The texts of candidates, fields, responses and events; a decision itself has whole texts."""
    for redact, keep_texts in itertools.product((True, False), repeat=2):
        found = decisions(reader=Talkative(), redact=redact, keep_texts=keep_texts)
        assert any(d.spoke and d.thought for d in found)
        for decision in found:
            record = decision.record()
            line = re.sub(r"\d+\.\d+", "", encode(record).decode())  # a time may have any digits
            assert [part for part in PARTS if part in line] == ([] if redact else list(PARTS))
            assert ("text" in record) == keep_texts
            assert CANARY in decision.text and decision.candidates[0] == f"Write to {CANARY}?"
            if decision.spoke:
                assert json.loads(record["response"])["Response"] == "Done."
    assert "canary" not in encode(Agent(FakeReader(), exported()).observe(*ONE).record()).decode()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "records.jsonl"


def filled(path, count=6):
    lines = [encode(decision.record()) for decision in decisions(count)]
    file = RecordsFile(path, iter(()))
    for line in lines:
        file.write(line)
    file.close()
    return lines


def test_a_file_gets_what_it_lacks_and_is_appended_to(path):
    lines = filled(path)
    for have in (0, 4, 6):
        path.write_bytes(b"".join(lines[:have]))
        file = RecordsFile(path, iter(lines))
        assert file.torn == 0
        file.write(b"more\n")
        file.close()
        assert path.read_bytes() == b"".join(lines) + b"more\n"
    path.unlink()
    RecordsFile(path, iter(lines)).close()
    assert path.read_bytes() == b"".join(lines)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("cut", [1, 2, 40, 700])
def test_a_line_that_was_cut_is_removed_and_no_other(path, cut):
    lines = filled(path)
    path.write_bytes(b"".join(lines)[:-cut])
    file = RecordsFile(path, iter(lines))
    assert file.torn == len(lines[-1]) - cut
    file.close()
    assert path.read_bytes() == b"".join(lines)


@pytest.mark.parametrize("cut", [None, -5])
def test_a_file_that_is_ahead_of_its_state_is_told_from_anothers(path, cut):
    lines = filled(path)
    path.write_bytes(b"".join(lines)[:cut])
    with pytest.raises(RecordsError, match=r"records.jsonl:6: found a record behind the 5 that the state has, .*power"):
        RecordsFile(path, iter(lines[:5]))
    assert path.read_bytes() == b"".join(lines)[:cut]


def test_the_beginning_of_a_record_leaves_the_file_with_a_person(path):
    ann, bob = (encode(one._replace(person=name).record()) for one, name in zip(decisions(2), "ab", strict=True))
    for before in (b"", bob):
        path.write_bytes(before + ann[:-5])
        assert remove_person(path, "a") == 0
        assert path.read_bytes() == before
    path.write_bytes(b"notes of mine")
    assert remove_person(path, "a") == 0 and path.read_bytes() == b"notes of mine"


def test_other_records_are_named_and_left_alone(path):
    """A last line without an end is cut only where it begins the next record."""
    lines = filled(path)
    for content, line in (
        *(([lines[0][:50] + b"\n", *lines[1:]], 1), ([lines[0], lines[0]], 2), ([lines[1][:-5]], 1)),
        ([lines[0], lines[1].replace(b'"format": 1', b'"format": 2')], 2),
        *(([*lines[:count], b"notes of mine"], count + 1) for count in (0, 3)),
    ):
        path.write_bytes(b"".join(content))
        with pytest.raises(RecordsError, match=rf"records.jsonl:{line}: found another record than the state has there"):
            RecordsFile(path, iter(lines))
        assert path.read_bytes() == b"".join(content)


def test_a_line_that_is_no_record_is_named():
    with pytest.raises(RecordsError, match="f:1: found no record"):
        parse_record(b'{"stream": "s"}\n', "f:1")


def test_one_agent_at_a_time_has_the_file(path):
    lines = filled(path)
    file = RecordsFile(path, iter(lines))
    with pytest.raises(RecordsError, match="another agent writing to it"):
        RecordsFile(path, iter(lines))
    file.close()
    RecordsFile(path, iter(lines)).close()
    assert [other.name for other in path.parent.iterdir()] == [path.name]


def test_statistics_count_phases_where_they_ran():
    found = decisions(50, margin=0.2)
    statistics = Statistics()
    for decision in found:
        statistics.add(decision)
    assert (statistics.events, statistics.offers) == (50, sum(d.spoke for d in found))
    rows = {line[:18].strip(): line[18:].split() for line in statistics.lines() if "," in line[:18]}
    assert int(rows["tokens, think"][0]) == statistics.thoughts == sum(d.thought for d in found)
    assert int(rows["tokens, respond"][0]) == statistics.offers
    assert float(rows["tokens, respond"][1]) == 11
    assert list(Statistics().lines()) == ["no events"]


def test_records_are_on_the_disk_when_the_file_is_closed_and_when_a_person_is_removed(tmp_path, monkeypatch):
    synced, sync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (synced.append(os.fstat(descriptor).st_size), sync(descriptor)))
    lines = [encode(one._replace(person=name).record()) for one, name in zip(decisions(3), "aba", strict=True)]
    file = RecordsFile(epath.Path(tmp_path / "records.jsonl"), iter(()))
    for line in lines:
        file.write(line)
    file.close()
    assert synced == [sum(map(len, lines))]
    assert remove_person(epath.Path(tmp_path / "records.jsonl"), "a") == 2
    assert synced[1] == len(lines[1]) and len(synced) == 3  # the shorter file, and the folder after the rename
