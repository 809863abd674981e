"""The state command: takes what earlier agents have written, shows, exports, deletes people, and rates offers."""

import contextlib
import io
import json
import math
import pathlib
import shutil
import sqlite3
import stat
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from exported_folder import write
from fake_reader import FakeReader, exported
from scipy import special

from prism_jax.agent import loading, rating
from prism_jax.agent.input_loop import InputLoop
from prism_jax.agent.lines import InputLines
from prism_jax.agent.records import OfferOutcome
from prism_jax.agent.settings import AgentSettings, Budget, Terms
from prism_jax.agent.state import moving
from prism_jax.agent.state.durable import DurableAgent, Events
from prism_jax.agent.state.kept import KeptAgent, store_of_one
from prism_jax.agent.state.reading import all_records
from prism_jax.agent.state.store import StateStore, open_store
from prism_jax.agent.steps import Observation
from prism_jax.commands.state import JOBS, run_job
from prism_jax.decision.calibration import fit_platt
from prism_jax.decision.person import Population, believe, predict
from prism_jax.people.layer import fit_population
from prism_jax.streams import Event

EARLIER = pathlib.Path(__file__).parent / "earlier_agent"
"""What an agent of version 0.1, with files in place of a state, has written, and would have written of all events."""
PLAIN = exported(slow=False, responses=False)
SETTINGS = AgentSettings(Terms(PLAIN.point, offers=Budget(5, 900.0)))
POPULATION = Population(0.9, -0.1, 1.0, 0.02)
FLAGS = dict.fromkeys((*JOBS, "stream", "person", "since", "until", "input", "partitions", "model"))


def job(folder, **options):
    lists = {"records": [], "records_gone": [], "keep_texts": False, "questions": 5}
    run_job({"state": str(folder), "tenant": "default", **FLAGS, **lists, **options})


def plain(records):
    """Records without the seconds of their run, and the alarm of each partition."""
    return [{key: one[key] for key in one if key not in ("seconds", "fingerprints")} for one in records]


def read(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture
def earlier(tmp_path):
    """The files of an earlier agent that had read ten lines of its input."""
    shutil.copytree(EARLIER, tmp_path, dirs_exist_ok=True)
    with contextlib.closing(sqlite3.connect(tmp_path / "people.sqlite")) as file:
        script = (tmp_path / "people.sql").read_text().replace("RECORDS", str(tmp_path / "records.jsonl"))
        file.executescript(f"{script}; PRAGMA application_id = 1347572557; PRAGMA user_version = 1;")
    names = {"import_records": "records.jsonl", "input": "events.jsonl", "import_people": "people.sqlite"}
    return tmp_path, {name: str(tmp_path / file) for name, file in names.items()}


def taken_on(store, source):
    """An agent on a state takes the rest of an input; returns the lines that it writes."""
    written = []
    reader = FakeReader(slow=False, responses=False)
    loop = InputLoop(KeptAgent(reader, PLAIN, store, SETTINGS, texts=False), written.append, "in")
    with source.open("rb") as file:
        path = str(source)
        loop.answer(InputLines(file.fileno(), path, path, store.partition(0).input(path)))
    return [json.loads(line) for line in written]


@pytest.mark.parametrize("cut", [False, True])
def test_an_agent_goes_on_where_one_of_an_earlier_version_was(cut, earlier, capsys):
    """With its file, which may end in a record that was cut; each answer is learnt once."""
    folder, files = earlier
    records = folder / "records.jsonl"
    if cut:
        records.write_bytes(records.read_bytes()[:-100])
    before = records.read_bytes()
    whole = read(folder / "whole.jsonl")
    job(folder / "state", **files)
    assert "records of 3 streams and 1 people" in capsys.readouterr().out
    with store_of_one(folder / "state") as store:
        assert [line for line in store.partition(0).lines()] == before.splitlines(keepends=True)[: 9 if cut else None]
        assert store.partition(0).people.records() == [str(records)]
        assert plain(taken_on(store, folder / "events.jsonl")) == plain(whole[9 if cut else 10 :])
        assert plain(list(all_records(store.folder))) == plain(whole)
        people = {person.name: person for person in store.partition(0).people}
        assert {name: one.answers for name, one in people.items()} == {"ada": 1, "bob": 1}
        assert people["ada"].number == 1
        assert people["ada"].belief.mean == pytest.approx(0.1434178207874609, abs=1e-15)
        assert b"event 3" not in pathlib.Path(store.partition(0).path).read_bytes()


def test_a_server_of_several_partitions_goes_on_where_an_earlier_agent_was(earlier, capsys):
    folder, files = earlier
    job(folder / "state", **files, partitions=5, keep_texts=True)
    whole = read(folder / "whole.jsonl")
    place = folder / "state" / "tenants" / "default"
    with StateStore(place) as store:
        assert store.partitions == 5
        agent = DurableAgent(FakeReader(slow=False, responses=False), PLAIN, store, SETTINGS)
        for line in read(folder / "events.jsonl")[10:]:
            line["time"] = float(line["time"])
            if "offer" in line:
                agent.answer([OfferOutcome(**line)])
            else:
                event = Event(time=line["time"], text=line["text"])
                ((answer,),) = agent.answer([Events((Observation(line["stream"], event),))])
                assert answer["stream"] == line["stream"]
        for stream in ("s0", "s1", "s2"):
            assert plain(all_records(place, stream=stream)) == plain(one for one in whole if one["stream"] == stream)
        assert [store.of(name).people.person(name).answers for name in ("ada", "bob")] == [1, 1]
    job(folder / "state", show=True)
    assert capsys.readouterr().out.splitlines()[1].startswith("streams: 3; people who have answered: 2; events: 12; ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[1:], r"records.jsonl:1: found event 0 of stream 's0', expected that of .*events.jsonl:\d"),
        (lambda lines: lines[:5], r"expected none behind the end of the input: they are not of one agent"),
        (lambda lines: ["{", *lines], r"events.jsonl:1: "),
    ],
)
def test_an_input_of_another_agent_is_refused(change, message, earlier, monkeypatch):
    folder, files = earlier
    monkeypatch.setattr(moving, "BATCH", 2)
    path = folder / "events.jsonl"
    whole = path.read_text()
    path.write_text("\n".join(change(whole.splitlines())) + "\n")
    with pytest.raises(ValueError, match=message):
        job(folder / "state", **files)
    path.write_text(whole)
    job(folder / "state", **files)  # nothing was left of the first


def test_a_file_without_a_whole_line_is_no_file_of_records(earlier):
    folder, files = earlier
    (folder / "records.jsonl").write_text("notes of mine")
    with pytest.raises(ValueError, match=r"records.jsonl:1: found no line that ends, expected the records of an agent"):
        job(folder / "state", **files)


def test_a_store_with_streams_takes_no_files_and_a_call_does_one_thing(earlier):
    folder, files = earlier
    records = {name: files[name] for name in ("import_records", "input")}
    job(folder / "state", **records)
    for given, message in (
        (records, "found streams, expected a store that has none yet: name another --state, or"),
        ({"import_records": "x"}, "--import_records: found it without --input, expected what the agent has read:"),
        ({}, "flags: found none, expected one of --show, --records_out"),
        ({"show": True, "person": "ada"}, "--person: found it without --records_out and --rate, expected one of them"),
        ({"show": True, "records_out": "x"}, "found --show and --records_out, expected one of"),
        ({"show": True, "forget": "a"}, "flags: found --show and --forget, expected one of"),
        ({"rate": "f", "person": "a"}, "--rate: found it without --model, expected the model"),
    ):
        with pytest.raises(ValueError, match=message):
            job(folder / "state", **given)
    for given in ({"show": True}, {"records_out": "out"}, {"forget": "ann"}, {"people_out": "out"}):
        with pytest.raises(ValueError, match="found no partitions, expected the state"):
            job(folder / "new", **given)
    assert not (folder / "new").exists()
    with pytest.raises(ValueError, match=r"expected the state of an agent or of a tenant; of these .*: default"):
        job(folder / "state", show=True, tenant="shp")


@pytest.fixture
def files(tmp_path):
    """The state of an agent that knows two people, and the file of its records."""
    records, rows = tmp_path / "records.jsonl", []
    with store_of_one(tmp_path / "state", POPULATION) as store:
        agent = KeptAgent(FakeReader(), exported(), store)
        for n in range(40):
            person = ("Ann Example", "Bob Example")[n % 2]
            found = agent.observe(person[:3], Event(time=float(n), text=f"event {n}"), person=person)
            if found.spoke:
                agent.outcome(person[:3], found.offer, "ignored", float(n))
        rows = list(store.partition(0).lines())
        with store.partition(0).transaction():
            store.partition(0).people.note_records(records)
    records.write_bytes(b"".join(rows))
    return tmp_path / "state", records


def people_of(folder):
    with store_of_one(folder) as store:
        return list(store.partition(0).people)


def test_show_names_nobody(files, capsys):
    job(files[0], show=True)
    shown = " ".join(capsys.readouterr().out.split())
    assert "Population: scale 0.9; bias -0.1; spread 1; drift 0.02." in shown
    assert "Example" not in shown
    for one in people_of(files[0]):
        assert f"{one.belief.mean:+.2f}" in shown
    with store_of_one(files[0]):  # an agent has it
        job(files[0], show=True)
    assert " ".join(capsys.readouterr().out.split()) == shown


def test_export_and_import_give_the_same_people(files, tmp_path):
    folder, out = files[0], str(tmp_path / "people.json")
    job(folder, people_out=out)
    job(tmp_path / "copy", import_people=out)
    assert stat.S_IMODE((tmp_path / "people.json").stat().st_mode) == 0o600
    with store_of_one(folder) as one, store_of_one(tmp_path / "copy") as other:
        assert one.partition(0).people.describe() == other.partition(0).people.describe()
    with pytest.raises(FileExistsError, match=r"people.json: found something there"):
        job(folder, people_out=out)
    with pytest.raises(ValueError, match="found 2 people, expected a store that never had one"):
        job(tmp_path / "copy", import_people=out)
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps({**json.loads((tmp_path / "people.json").read_text()), "people": [1]}))
    with pytest.raises(ValueError, match=r"people\[0\]: found 1 .int., expected an object"):
        job(tmp_path / "new", import_people=str(bad))
    assert not (tmp_path / "new").exists()


def test_a_person_is_deleted_with_all_their_records(files, tmp_path, capsys):
    folder, records = files
    before, more = records.read_bytes().splitlines(), tmp_path / "more.jsonl"
    more.write_bytes(records.read_bytes())
    job(folder, forget="Ann Example", records=[str(more)])
    streams = [json.loads(line)["stream"] for line in before]
    count = 2 * streams.count("Ann")
    assert capsys.readouterr().out == f"deleted: one person, 1 streams, {count} records in files\n"
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or b"Ann" not in file.read_bytes()
    kept = [line for line, stream in zip(before, streams, strict=True) if stream == "Bob"]
    assert records.read_bytes().splitlines() == more.read_bytes().splitlines() == kept
    with store_of_one(folder) as store:
        assert b"".join(store.partition(0).lines()).splitlines() == kept, "the file is that of the state"
    with pytest.raises(ValueError, match="found no such person, neither here nor in 1 files of records"):
        job(folder, forget="Ann Example")


def test_records_that_have_moved_are_asked_for_before_anything_is_deleted(files, tmp_path):
    folder, records = files
    moved = records.rename(tmp_path / "moved.jsonl")
    with pytest.raises(FileNotFoundError, match=r"records.jsonl: found no such file, .*--records_gone"):
        job(folder, forget="Bob Example")
    assert len(people_of(folder)) == 2
    with pytest.raises(ValueError, match=r"moved.jsonl: found the file, expected one that does not exist any more"):
        job(folder, forget="Bob Example", records_gone=[str(moved)])
    with pytest.raises(ValueError, match=r"other: found a file that the state does not know, expected one of"):
        job(folder, forget="Bob Example", records_gone=[str(tmp_path / "other")])
    job(folder, forget="Bob Example", records=[str(moved)], records_gone=[str(records)])
    with store_of_one(folder) as store:
        assert store.partition(0).people.records() == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"Bob" in path.read_bytes()]


def test_a_deletion_by_a_server_reaches_the_file_of_records_too(files):
    folder, records = files
    with open_store(folder / "tenants" / "default") as store:
        assert store.forget_person("Ann Example") == ["Ann"]
    assert b"Ann" not in records.read_bytes() and b"Bob" in records.read_bytes()


def test_a_population_is_fitted_to_the_answers_in_the_records(files, tmp_path, capsys):
    """The fit is that of the layer on what the records say: the population's log-odds, and the answers in order."""
    folder, out = files[0], tmp_path / "population.json"
    with pytest.raises(ValueError, match="of 2 people and 1 kinds, expected answers of two people, some accepted"):
        job(folder, population_out=str(out))
    lines, z, y, person = [], [], [], []
    with store_of_one(tmp_path / "new") as store:
        agent = KeptAgent(FakeReader(), exported(), store)
        for n in range(150):
            name, flipped = ("Ann", "Bob", "Cal")[n % 3], n % 7 != 0
            found = agent.observe(name, Event(time=float(n), text=f"event {n}"), person=name)
            if found.spoke:
                accepted = (n % 5 == 0) or name == "Ann" or (found.p_accept > 0.7) == flipped
                agent.outcome(name, found.offer, "accepted" if accepted else "dismissed", float(n))
                used = (found.fast if found.slow is None else found.slow).accept[0]
                z.append(math.log(used / (1 - used)))
                y.append(float(accepted))
                person.append(n % 3)
        lines = list(store.partition(0).lines())
    job(tmp_path / "new", population_out=str(out))
    platt = fit_platt(special.expit(z), np.array(y))
    own = fit_population(platt.scale * np.array(z) + platt.bias, np.array(y), np.array(person), calibrated=True)
    expected = (own.scale * platt.scale, own.scale * platt.bias, own.spread, own.drift)
    found = json.loads(out.read_text())
    assert found.pop("format") == 1
    np.testing.assert_allclose(list(found.values()), expected, rtol=1e-6)
    cold = Population(**found)  # somebody new is met by the corrected score
    np.testing.assert_allclose(predict(believe(cold), np.array(z), cold), platt.scale * np.array(z) + platt.bias)
    assert f"{len(y)} answers of 3 people" in capsys.readouterr().out
    (tmp_path / "more.jsonl").write_bytes(b"".join(lines))
    with store_of_one(tmp_path / "empty") as store:
        store.partition(0)
    job(tmp_path / "empty", population_out=str(tmp_path / "same.json"), records=[str(tmp_path / "more.jsonl")])
    assert (tmp_path / "same.json").read_bytes() == out.read_bytes()
    job(folder, set_population=str(out))
    with store_of_one(folder) as store:
        assert store.population == store.partition(0).people.population == pytest.approx(expected)
        assert len(list(store.partition(0).people)) == 2


def scenarios(path, count=8):
    rows = [{"events": [f"event {n}", "stuck"], "offer": f"offer {n}"} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rating.read_scenarios(path)


def test_the_next_question_is_the_one_that_says_most(tmp_path):
    """p (1 - p) of the chosen offer is the largest of all that are left, under what the answers so far have taught."""
    found = scenarios(tmp_path / "scenarios.jsonl")
    p_accept = [0.02, 0.2, 0.45, 0.5, 0.6, 0.9, 0.97, 0.99]
    asked = []
    with store_of_one(tmp_path / "state", POPULATION) as store:
        partition = store.partition(0)

        def ask(scenario):
            number, mean = found.index(scenario), partition.people.person("ann").belief.mean
            own = [1 / (1 + math.exp(-(0.9 * math.log(p / (1 - p)) - 0.1 + mean))) for p in p_accept]
            information = {i: own[i] * (1 - own[i]) for i in range(8) if i not in asked}
            assert information[number] == pytest.approx(max(information.values()))
            asked.append(number)
            return True

        assert rating.rate(store, "ann", found, p_accept, 5, ask) == 5
        known = partition.people.person("ann")
        assert known.answers == 5
        assert known.belief.mean > 0.5
        assert known.belief.variance < 0.7 * POPULATION.spread**2
        assert known.alarm == partition.people.person("x").alarm  # nothing was offered
        assert rating.rate(store, "ann", found, p_accept, 5, lambda scenario: False) == 3  # not rated before
        assert rating.rate(store, "bob", found, p_accept, 5, lambda scenario: None) == 0


def test_rating_at_the_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(loading, "load_reader", lambda folder, exported, **options: FakeReader(exported.has_slow_pass))
    model, folder = write(tmp_path / "model"), tmp_path / "state"
    scenarios(tmp_path / "scenarios.jsonl", 3)
    monkeypatch.setattr(sys, "stdin", io.StringIO("perhaps\ny\nNo\n"))
    job(folder, rate=str(tmp_path / "scenarios.jsonl"), person="ann", model=str(model))
    shown = capsys.readouterr().out
    assert shown.count("Would you accept it now? [y/n] ") == 4  # one answer was neither, and the input ends
    assert "  stuck\nOffer: offer " in shown
    (person,) = people_of(folder)
    assert person.answers == 2
    assert f"2 answers; own rate {person.belief.mean:+.2f} ± {np.sqrt(person.belief.variance):.2f}" in shown


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "found no scenario"),
        ("{}\n", "f:1: events: found nothing, expected this key"),
        ('{"events": [], "offer": null}\n', "f:1: events: found an empty list"),
        ('{"events": ["a", 3], "offer": null}\n', r"f:1: events\[1\]: found 3 \(int\), expected text"),
        ('{"events": ["a"], "offer": " "}\n', "f:1: offer: found ' ', expected words"),
    ],
)
def test_bad_scenarios_are_named_by_line(tmp_path, line, message):
    (tmp_path / "f").write_text(line)
    with pytest.raises(rating.ScenarioError, match=message):
        rating.read_scenarios(tmp_path / "f")


def test_records_of_all_partitions_come_out_as_one_file_each_stream_in_order(earlier):
    folder, files = earlier
    job(folder / "state", import_records=files["import_records"], input=files["input"], partitions=3)
    left = folder / f".all.jsonl.{0:032}.partial"
    left.write_text("of an export that was killed")
    job(folder / "state", records_out=str(folder / "all.jsonl"))
    assert not left.exists()
    written, before = read(folder / "all.jsonl"), read(folder / "records.jsonl")
    assert len(written) == len(before)
    for stream in ("s0", "s1", "s2"):
        assert [one for one in written if one["stream"] == stream] == [one for one in before if one["stream"] == stream]
    job(folder / "state", records_out=str(folder / "ada.parquet"), person="ada")
    table = pq.read_table(folder / "ada.parquet")
    assert sorted(table["record"].to_pylist()) == sorted(json.dumps(one) for one in written if one["stream"] == "s0")
    assert table["event"].to_pylist() == [json.loads(record).get("event") for record in table["record"].to_pylist()]
    with pytest.raises(FileExistsError, match=r"all\.jsonl"):
        job(folder / "state", records_out=str(folder / "all.jsonl"))
    with pytest.raises(ValueError, match="--since: found nan"):
        job(folder / "state", records_out=str(folder / "new.jsonl"), since=float("nan"))
    assert not (folder / "new.jsonl").exists()
