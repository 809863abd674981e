"""The people of a state: what is kept of them; export and import; formats; and the number of a deleted person."""

import contextlib
import json
import sqlite3

import pytest

from prism_jax.decision.person import DEFAULT, Belief, Population
from prism_jax.people.exports import StoreError, population_from, read_export
from prism_jax.people.recalibration import Recalibration
from prism_jax.people.store import SCHEMA, PeopleStore, read_file

OTHER = Population(0.9, -0.3, 1.2, 0.05)


def empty(population=None):
    file = sqlite3.connect(":memory:", isolation_level=None)
    file.executescript(f"PRAGMA foreign_keys = ON; {SCHEMA}")
    return PeopleStore(file, "people in memory", population)


def filled():
    store = empty(OTHER)
    for n in range(7):
        person = store.person(f"person {n % 3}")
        person = person._replace(
            belief=Belief(0.1 * n, 0.5), answers=person.answers + 1, time=n / 3, alarm=tuple(map(float, range(18)))
        )
        moved = Recalibration(0.1 * n, 0.0, 1.0, 1.0, 0.0)._asdict()
        store.learn(f"stream/{n}", person._replace(rang=n > 4), recalibration=moved)
    return store


def restored(tree, place="f.json"):
    other = empty(OTHER)
    other.restore(read_export(tree, place))
    return other


def test_a_new_person_is_the_population():
    store = empty()
    assert store.population == DEFAULT
    found = store.person("ann")
    assert (found.belief, found.answers, found.time, found.number) == (Belief(0.0, DEFAULT.spread**2), 0, None, 0)
    assert not list(store)


def test_export_and_import_round_trip_through_json():
    store = filled()
    store.note_records("records.jsonl")
    tree = json.loads(json.dumps(store.describe()))
    other = restored(tree)
    assert other.describe() == store.describe()
    assert other.has_answer("stream/3") and not other.has_answer("stream/3", "another run")
    for name in ("nobody", "person 0", "person 1", "person 2"):  # numbers were used, also when all are deleted
        other.forget(name)
        with pytest.raises(StoreError, match="found 3 people, expected a store that never had one"):
            other.restore(read_export(tree, "f.json"))


def test_a_person_who_stands_twice_in_an_export_is_refused():
    tree = filled().describe()
    tree["people"][1]["number"] = 1
    with pytest.raises(StoreError, match=r"found something twice .*, expected what --people_out writes"):
        restored(tree)
    assert population_from({"format": 1, **OTHER._asdict()}, "p") == OTHER


def test_nobody_gets_the_number_of_a_deleted_person():
    store = filled()
    store.learn("last", store.person("Zoë of 4711")._replace(answers=1))
    assert store.forget("Zoë of 4711")
    assert not store.forget("Zoë of 4711")
    assert not store.has_answer("last")
    for one in (store, restored(store.describe())):
        one.learn("next", one.person("somebody else"))
        assert one.person("somebody else").number == 5


def test_with_another_population_the_map_of_everybody_begins_anew():
    store = filled()
    again = PeopleStore(store._file, "again", DEFAULT)
    assert again.population == DEFAULT and again.fact("recalibration") is None
    assert len(list(again)) == 3
    assert PeopleStore(store._file, "again").population == DEFAULT


def test_other_files_than_a_store_of_people_are_refused_and_stay_as_they_are(tmp_path):
    text, other, later = tmp_path / "text", tmp_path / "other.sqlite", tmp_path / "later.sqlite"
    text.write_text("certainly no database " * 100)
    for path, pragma in ((other, ""), (later, "PRAGMA application_id = 1347572557; PRAGMA user_version = 7;")):
        with contextlib.closing(sqlite3.connect(path)) as file:
            file.executescript(f"CREATE TABLE mine (a); {pragma}")
    for path, message in ((text, "text"), (other, "found another database"), (later, "of people of format 1")):
        before = path.read_bytes()
        with pytest.raises(StoreError, match=message):
            read_file(path)
        assert path.read_bytes() == before
