"""What the file agent has written goes on in a store, and a store's records come out as one file."""

import json

import pyarrow.parquet as pq
import pytest
from fake_reader import FakeReader, exported

from prism_jax.agent.agent import Agent
from prism_jax.agent.people import ACCEPTED
from prism_jax.agent.records import OfferOutcome, encode
from prism_jax.agent.settings import AgentSettings, Budget, Terms
from prism_jax.agent.state.durable import DurableAgent, Events
from prism_jax.agent.state.reading import all_records
from prism_jax.agent.state.store import StateStore
from prism_jax.agent.steps import Observation
from prism_jax.commands.state import run_job
from prism_jax.people.store import PeopleStore
from prism_jax.runtime.files import parse_json
from prism_jax.streams import Candidate, Event

SETTINGS = AgentSettings(Terms(exported().point, offers=Budget(5, 900.0)))
PEOPLE = {"s0": "ada", "s1": "ada", "s2": "bob", "s3": None}
NONE = dict.fromkeys(
    ("show", "export", "stream", "person", "since", "until", "import_records", "input", "people", "partitions")
)


def job(folder, **options):
    run_job({"state": str(folder), "tenant": "default", **NONE, **options})


def line_of(item):
    if isinstance(item, OfferOutcome):
        return {name: value for name, value in item._asdict().items() if value is not None}
    line = {"stream": item.stream, "time": item.event.time, "text": item.event.text}
    line |= {"person": item.person} if item.person else {}
    return line | {"candidates": [one.text for one in item.candidates]} | ({"costs": item.costs} if item.costs else {})


def items(begin, end):
    """Events of four streams; a person is named on the first of each only."""
    for number in range(begin, end):
        stream = f"s{number % 4}"
        offers = tuple(Candidate(text=f"offer {i}") for i in range(1 + number % 2))
        costs = {"c_fn": 3.0} if number % 5 == 0 else None
        person = PEOPLE[stream] if number < 4 else None
        yield Observation(stream, Event(time=30.0 * number, text=f"event {number}"), offers, costs, person=person)


def run(agent, sequence):
    """The lines and records of a file agent; every third offer is answered."""
    lines, records = [], []
    for item in sequence:
        lines.append(line_of(item))
        (decision,) = agent.observe_many([item])
        records.append(decision.record())
        if decision.spoke and decision.event % 3 == 0:
            outcome = ACCEPTED if decision.event % 2 else "dismissed"
            answer = OfferOutcome(decision.stream, decision.offer, outcome, item.event.time)
            lines.append(line_of(answer))
            records.append(agent.outcome(**answer._asdict()).record())
    return lines, records


def plain(records):
    dropped = ("seconds", "fingerprints")  # the run, and the alarm of each partition
    return [
        {key: value for key, value in parse_json(encode(record), "").items() if key not in dropped}
        for record in records
    ]


def by_stream(records):
    return {stream: [one for one in plain(records) if one["stream"] == stream] for stream in PEOPLE}


@pytest.fixture
def files(tmp_path):
    """What a file agent has left after a hundred events, with ten more that it had not read."""
    with PeopleStore(tmp_path / "people.sqlite") as people:
        agent = Agent(FakeReader(slow=True), exported(), SETTINGS, people)
        lines, records = run(agent, items(0, 100))
    more = [line_of(item) for item in items(100, 110)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*lines, *more]))
    (tmp_path / "out.jsonl").write_bytes(b"".join(map(encode, records)))
    return tmp_path


def test_a_server_goes_on_where_the_file_agent_was(files, capsys):
    """Beside a file agent that goes on itself."""
    wanted = {"import_records": str(files / "out.jsonl"), "input": str(files / "in.jsonl")}
    job(files / "state", **wanted, people=str(files / "people.sqlite"), partitions=5)
    assert "4 streams and 2 people" in capsys.readouterr().out
    with PeopleStore() as people:
        whole = Agent(FakeReader(slow=True), exported(), SETTINGS, people)
        _, expected = run(whole, items(0, 200))
    place = files / "state" / "tenants" / "default"
    with StateStore(place) as store:
        assert store.partitions == 5
        agent = DurableAgent(FakeReader(slow=True), exported(), store, SETTINGS)
        for item in items(100, 200):
            ((answer,),) = agent.answer([Events((item,))])
            number = int(answer["id"].split("/")[1])
            if answer["speak"] and number % 3 == 0:
                outcome = ACCEPTED if number % 2 else "dismissed"
                agent.answer([OfferOutcome(item.stream, answer["id"], outcome, item.event.time)])
        assert by_stream(list(all_records(place))) == by_stream(expected)
        for name in ("ada", "bob"):
            mine, theirs = store.of(name).people.person(name), people_of(expected, name)
            assert mine._replace(number=0) == theirs._replace(number=0)
    job(files / "state", show=True)
    assert capsys.readouterr().out.startswith("streams: 4; people who have answered: 2; events: 200; ")


def people_of(expected, name):
    """What a file agent knows of a person after all these records."""
    with PeopleStore() as people:
        run(Agent(FakeReader(slow=True), exported(), SETTINGS, people), items(0, 200))
        return people.person(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[1:], r"out.jsonl:1: found event 0 of stream 's0', expected that of .*in.jsonl:\d"),
        (lambda lines: lines[:50], r"expected that of the end of the input: they are not of one agent"),
        (lambda lines: ["{", *lines], r"in.jsonl:1: "),
    ],
)
def test_an_input_of_another_agent_is_refused(change, message, files):
    path = files / "in.jsonl"
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
    with pytest.raises(ValueError, match=message):
        job(files / "state", import_records=str(files / "out.jsonl"), input=str(path))


def test_a_store_with_streams_takes_no_files(files):
    wanted = {"import_records": str(files / "out.jsonl"), "input": str(files / "in.jsonl")}
    job(files / "state", **wanted)
    with pytest.raises(ValueError, match="found streams, expected a store that has none yet"):
        job(files / "state", **wanted)
    with pytest.raises(ValueError, match="--input: found none"):
        job(files / "new", import_records=wanted["import_records"])
    with pytest.raises(ValueError, match="found no partitions"):
        job(files / "new", show=True)
    with pytest.raises(ValueError, match="--person: found it with --show, expected it with --export only"):
        job(files / "state", show=True, person="ada")
    with pytest.raises(ValueError, match="found --show and --export, expected one of"):
        job(files / "state", show=True, export="x")


def test_records_of_all_partitions_come_out_as_one_file_each_stream_in_order(files, capsys):
    job(files / "state", import_records=str(files / "out.jsonl"), input=str(files / "in.jsonl"), partitions=3)
    job(files / "state", export=str(files / "all.jsonl"))
    written = [json.loads(line) for line in (files / "all.jsonl").read_text().splitlines()]
    before = [json.loads(line) for line in (files / "out.jsonl").read_text().splitlines()]
    assert len(written) == len(before)
    for stream in PEOPLE:
        assert [one for one in written if one["stream"] == stream] == [one for one in before if one["stream"] == stream]
    job(files / "state", export=str(files / "ada.parquet"), person="ada")
    table = pq.read_table(files / "ada.parquet")
    adas = [one for one in written if one["stream"] in ("s0", "s1")]
    assert sorted(table["record"].to_pylist()) == sorted(map(json.dumps, adas))
    assert table["event"].to_pylist() == [json.loads(record).get("event") for record in table["record"].to_pylist()]
    with pytest.raises(FileExistsError, match=r"all\.jsonl"):
        job(files / "state", export=str(files / "all.jsonl"))
    assert not list(files.glob("*.partial"))
