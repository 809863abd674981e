"""`prism_jax person`: shows, copies and deletes what an agent knows of people, and rates offers at the terminal."""

import io
import json
import math
import stat
import sys

import numpy as np
import pytest
from exported_folder import write
from fake_reader import FakeReader, exported
from scipy import special

from prism_jax.agent import loading, rating
from prism_jax.agent.agent import Agent
from prism_jax.agent.people import People
from prism_jax.agent.records import encode
from prism_jax.commands import person
from prism_jax.decision.calibration import fit_platt
from prism_jax.people.layer import Population, believe, fit_population, predict
from prism_jax.people.store import PeopleStore
from prism_jax.streams import Event

POPULATION = Population(0.9, -0.1, 1.0, 0.02)
FLAGS = dict.fromkeys(
    ("show", "export", "import_from", "fit_population", "set_population", "forget", "rate", "person", "model")
)


def run(store, **given):
    person.run_job({**FLAGS, "records": [], "records_gone": [], "questions": 5, **given, "store": str(store)})


@pytest.fixture
def files(tmp_path):
    """A store of two people, and the records that it knows of."""
    path, records = tmp_path / "people.sqlite", tmp_path / "records.jsonl"
    lines = []
    with PeopleStore(path, POPULATION) as store:
        agent = Agent(FakeReader(), exported(), people=store)
        store.note_records(records, fresh=True)
        for n in range(40):
            person = ("Ann Example", "Bob Example")[n % 2]
            found = agent.observe(person[:3], Event(time=float(n), text=f"event {n}"), person=person)
            lines.append(encode(found.record()))
            if found.spoke:
                lines.append(encode(agent.outcome(person[:3], found.offer, "ignored", float(n)).record()))
    records.write_bytes(b"".join(lines))
    return path, records


def test_show_names_nobody(files, capsys):
    run(files[0], show=True)
    shown = " ".join(capsys.readouterr().out.split())
    assert "Population: scale 0.9, bias -0.1, spread 1, drift 0.02." in shown
    assert "Example" not in shown
    with PeopleStore(files[0]) as store:
        for one in store:
            assert f"{one.belief.mean:+.2f}" in shown


def test_export_and_import_give_the_same_store(files, tmp_path):
    path, copied, out = files[0], tmp_path / "copy.sqlite", str(tmp_path / "people.json")
    run(path, export=out)
    run(copied, import_from=out)
    assert stat.S_IMODE((tmp_path / "people.json").stat().st_mode) == 0o600
    with PeopleStore(path) as one, PeopleStore(copied) as other:
        assert one.describe() == other.describe()
    for job, target in (("export", path), ("import_from", copied)):
        with pytest.raises(FileExistsError, match=r"(people.json|copy.sqlite): found something there"):
            run(target, **{job: out})
    (tmp_path / "bad.json").write_text(
        json.dumps({**json.loads((tmp_path / "people.json").read_text()), "people": [1]})
    )
    with pytest.raises(ValueError, match=r"people\[0\]: found int, expected an object"):
        run(tmp_path / "new.sqlite", import_from=str(tmp_path / "bad.json"))
    assert not list(tmp_path.glob("new.sqlite*"))


def test_a_person_is_deleted_with_all_their_records(files, tmp_path, capsys):
    path, records = files
    before, more = records.read_bytes().splitlines(), tmp_path / "more.jsonl"
    more.write_bytes(records.read_bytes())
    run(path, forget="Ann Example", records=[str(more)])
    streams = [json.loads(line)["stream"] for line in before]
    assert capsys.readouterr().out == f"deleted: one person of the store, {2 * streams.count('Ann')} records\n"
    for file in tmp_path.iterdir():
        assert b"Ann" not in file.read_bytes()
    kept = [line for line, stream in zip(before, streams, strict=True) if stream == "Bob"]
    assert records.read_bytes().splitlines() == more.read_bytes().splitlines() == kept
    with pytest.raises(ValueError, match="found no such person, neither here nor in 1 files of records"):
        run(path, forget="Ann Example")


def test_records_that_have_moved_are_asked_for_before_anything_is_deleted(files, tmp_path):
    path, records = files
    moved = records.rename(tmp_path / "moved.jsonl")
    with pytest.raises(FileNotFoundError, match=r"records.jsonl: found no such file, .*--records_gone"):
        run(path, forget="Bob Example")
    with PeopleStore(path) as store:
        assert len(store) == 2
    with pytest.raises(ValueError, match=r"moved.jsonl: found the file, expected one that does not exist any more"):
        run(path, forget="Bob Example", records_gone=[str(moved)])
    with pytest.raises(ValueError, match=r"other: found a file that the store does not know, expected one of"):
        run(path, forget="Bob Example", records_gone=[str(tmp_path / "other")])
    run(path, forget="Bob Example", records=[str(moved)], records_gone=[str(records)])
    with PeopleStore(path) as store:
        assert store.records() == []
    assert b"Bob" not in moved.read_bytes() + path.read_bytes()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "flags: found none, expected one of --show, --export"),
        ({"show": True, "forget": "a"}, "flags: found --show and --forget, expected one of"),
        ({"show": True, "person": "a"}, "--person: found it with --show, expected it with --rate only"),
        ({"rate": "f", "person": "a"}, "--model: found none, expected it with --rate"),
    ],
)
def test_a_call_does_one_thing(files, given, message):
    with pytest.raises(ValueError, match=message):
        run(files[0], **given)


def test_other_jobs_than_import_and_rate_need_a_store(tmp_path):
    for given in ({"show": True}, {"export": str(tmp_path / "out")}, {"forget": "ann"}):
        with pytest.raises(FileNotFoundError, match="found no such file, expected the store of an agent"):
            run(tmp_path / "none.sqlite", **given)
    assert list(tmp_path.iterdir()) == []


def test_a_population_is_fitted_to_the_answers_in_the_records(files, tmp_path, capsys):
    """The fit is that of the layer on what the records say: the population's log-odds, and the answers in order."""
    path, out = files[0], tmp_path / "population.json"
    with pytest.raises(ValueError, match="of 2 people and 1 kinds, expected answers of two people, some accepted"):
        run(path, fit_population=str(out))
    records = tmp_path / "more.jsonl"
    agent, lines, z, y, person = Agent(FakeReader(), exported()), [], [], [], []
    for n in range(150):
        name, flipped = ("Ann", "Bob", "Cal")[n % 3], n % 7 != 0
        found = agent.observe(name, Event(time=float(n), text=f"event {n}"), person=name)
        lines.append(encode(found.record()))
        if found.spoke:
            accepted = (n % 5 == 0) or name == "Ann" or (found.p_accept > 0.7) == flipped
            outcome = "accepted" if accepted else "dismissed"
            lines.append(encode(agent.outcome(name, found.offer, outcome, float(n)).record()))
            used = (found.fast if found.slow is None else found.slow).accept[0]
            z.append(math.log(used / (1 - used)))
            y.append(float(accepted))
            person.append(n % 3)
    records.write_bytes(b"".join(lines))
    with PeopleStore(tmp_path / "new.sqlite") as store:
        store.note_records(records, fresh=True)
    run(tmp_path / "new.sqlite", fit_population=str(out))
    platt = fit_platt(special.expit(z), np.array(y))
    own = fit_population(platt.scale * np.array(z) + platt.bias, np.array(y), np.array(person), calibrated=True)
    expected = (own.scale * platt.scale, own.scale * platt.bias, own.spread, own.drift)
    found = json.loads(out.read_text())
    assert found.pop("format") == 1
    np.testing.assert_allclose(list(found.values()), expected, rtol=1e-6)
    cold = Population(**found)  # somebody new is met by the corrected score
    np.testing.assert_allclose(predict(believe(cold), np.array(z), cold), platt.scale * np.array(z) + platt.bias)
    assert f"{len(y)} answers of 3 people" in capsys.readouterr().out
    run(path, set_population=str(out))
    with PeopleStore(path) as store:
        assert store.population == pytest.approx(expected)
        assert len(store) == 2


def scenarios(path, count=8):
    rows = [{"events": [f"event {n}", "stuck"], "offer": f"offer {n}"} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rating.read_scenarios(path)


def test_the_next_question_is_the_one_that_says_most(tmp_path):
    """p (1 - p) of the chosen offer is the largest of all that are left, under what the answers so far have taught."""
    found = scenarios(tmp_path / "scenarios.jsonl")
    p_accept = [0.02, 0.2, 0.45, 0.5, 0.6, 0.9, 0.97, 0.99]
    people, asked = People(PeopleStore(None, POPULATION)), []

    def ask(scenario):
        number, mean = found.index(scenario), people.known("ann").belief.mean
        own = [1 / (1 + math.exp(-(0.9 * math.log(p / (1 - p)) - 0.1 + mean))) for p in p_accept]
        information = {i: own[i] * (1 - own[i]) for i in range(8) if i not in asked}
        assert information[number] == pytest.approx(max(information.values()))
        asked.append(number)
        return True

    assert rating.rate(people, "ann", found, p_accept, 5, ask) == 5
    known = people.known("ann")
    assert known.answers == 5
    assert known.belief.mean > 0.5
    assert known.belief.variance < 0.7 * POPULATION.spread**2
    assert people.store.person("ann").alarm == People(PeopleStore()).store.person("x").alarm  # nothing was offered
    assert rating.rate(people, "ann", found, p_accept, 5, lambda scenario: False) == 3  # what was not rated before
    assert rating.rate(people, "bob", found, p_accept, 5, lambda scenario: None) == 0


def test_rating_at_the_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(loading, "load_reader", lambda folder, exported, **options: FakeReader(exported.has_slow_pass))
    model, store = write(tmp_path / "model"), tmp_path / "people.sqlite"
    scenarios(tmp_path / "scenarios.jsonl", 3)
    monkeypatch.setattr(sys, "stdin", io.StringIO("perhaps\ny\nNo\n"))
    run(store, rate=str(tmp_path / "scenarios.jsonl"), person="ann", model=str(model))
    shown = capsys.readouterr().out
    assert shown.count("Would you accept it now? [y/n] ") == 4  # one answer was neither, and the input ends
    assert "  stuck\nOffer: offer " in shown
    with PeopleStore(store) as found:
        person = found.person("ann")
    assert person.answers == 2
    assert f"2 answers; own rate {person.belief.mean:+.2f} ± {np.sqrt(person.belief.variance):.2f}" in shown


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "found no scenario"),
        ("{}\n", "f:1: expected an object with the keys events, offer and perhaps domain"),
        ('{"events": [], "offer": null}\n', "f:1: events: found no list of texts"),
        ('{"events": ["a", 3], "offer": null}\n', r"f:1: events\[1\]: found no text, expected words"),
        ('{"events": ["a"], "offer": " "}\n', "f:1: offer: found no text"),
    ],
)
def test_bad_scenarios_are_named_by_line(tmp_path, line, message):
    (tmp_path / "f").write_text(line)
    with pytest.raises(rating.ScenarioError, match=message):
        rating.read_scenarios(tmp_path / "f")
