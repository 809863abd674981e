"""The store of people: what is kept, exactly once; export and import; formats; and what is left of a deleted person."""

import json
import sqlite3
import stat

import pytest

from prism_jax.people.exports import StoreError, population_from
from prism_jax.people.layer import Belief, Population
from prism_jax.people.recalibration import Recalibration
from prism_jax.people.store import DEFAULT, PeopleStore

OTHER = Population(0.9, -0.3, 1.2, 0.05)


def filled(path=None):
    store = PeopleStore(path, OTHER)
    for n in range(7):
        person = store.person(f"person {n % 3}")
        person = person._replace(
            belief=Belief(0.1 * n, 0.5), answers=person.answers + 1, time=n / 3, alarm=tuple(map(float, range(18)))
        )
        store.learn(
            "stream",
            f"stream/{n}",
            person._replace(rang=n > 4),
            recalibration=Recalibration(0.1 * n, 0.0, 1.0, 1.0, 0.0)._asdict(),
        )
    return store


def test_a_new_person_is_the_population():
    with PeopleStore() as store:
        assert store.population == DEFAULT
        found = store.person("ann")
        assert (found.belief, found.answers, found.time, found.number) == (Belief(0.0, DEFAULT.spread**2), 0, None, 0)
        assert len(store) == 0


def test_what_was_learnt_is_there_after_opening_again(tmp_path):
    path = tmp_path / "people.sqlite"
    with filled(path) as store:
        before = store.describe()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["people.sqlite"]  # no log beside it
    with PeopleStore(path) as store:
        assert store.describe() == before
        assert store.has_answer("stream", "stream/3")
        assert not store.has_answer("other", "stream/3")
        assert [one.number for one in store] == [1, 2, 3]
        assert store.person("person 1") == list(store)[1]


def test_an_answer_is_kept_whole_or_not_at_all(tmp_path):
    with filled(tmp_path / "people.sqlite") as store:
        before = store.describe()
        with pytest.raises(sqlite3.IntegrityError):
            store.learn(
                "stream", "stream/3", store.person("person 0")._replace(answers=99), recalibration={"bias": 9.0}
            )
        assert store.describe() == before


def test_export_and_import_round_trip_through_json():
    with filled() as store, PeopleStore() as other:
        store.note_records("records.jsonl", fresh=True)
        tree = json.loads(json.dumps(store.describe()))
        other.restore(tree, "file.json")
        assert other.describe() == store.describe()
        assert other.population == OTHER
        for name in ("nobody", "person 0", "person 1", "person 2"):  # numbers were used, also when all are deleted
            other.forget(name)
            with pytest.raises(StoreError, match="found 3 people, expected a store that never had one"):
                other.restore(tree, "file.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tree: tree.update(format=2), "f.json: format: found 2, expected 1"),
        (
            lambda tree: tree["population"].update(spread=0.0),
            "population.spread: found 0.0, expected a number from",
        ),
        (lambda tree: tree["people"][1].update(variance=-1.0), r"people\[1\].variance: found -1.0, expected"),
        (lambda tree: tree["people"][1].update(mean=float("nan")), r"people\[1\].mean: found nan, expected"),
        (lambda tree: tree["people"][1]["alarm"].pop(), r"people\[1\].alarm: found 17 numbers, expected 18"),
        (lambda tree: tree["recalibration"].pop("bias"), "f.json: recalibration: bias: found no such key, expected it"),
        (lambda tree: tree["recalibration"].update(variance_bias=-1.0), "expected variances and a covariance"),
        (lambda tree: tree.update(recalibration="x"), "f.json: recalibration: found str, expected an object with"),
        (lambda tree: tree["people"][1].pop("answers"), r"people\[1\]: answers: found no such key"),
        (lambda tree: tree["people"][1].update(number=1), "found something twice .*, expected what --export writes"),
        (lambda tree: tree["people"][1].update(answers="many"), r"people\[1\].answers: found 'many', expected a whole"),
        (lambda tree: tree["people"][1].update(number=0), r"people\[1\].number: found 0, expected a whole number of"),
        (lambda tree: tree["people"][1].update(rang="no"), r"people\[1\].rang: found 'no', expected true or false"),
        (lambda tree: tree["people"][1].update(name="\ud800"), r"people\[1\].name: "),
        (lambda tree: tree["people"][1].update(mean=10**400), r"people\[1\].mean: found"),
        (lambda tree: tree["people"][1].update(more=1), r"people\[1\]: found the unknown key 'more'"),
        (lambda tree: tree.update(records="abc"), "f.json: records: found str, expected a list"),
        (lambda tree: tree.update(people={}), "f.json: people: found dict, expected a list"),
        (lambda tree: tree.update(highest_number=2), "f.json: highest_number: found 2, expected a whole number of at"),
    ],
)
def test_another_file_is_refused_and_leaves_the_store_empty(change, message):
    with filled() as store, PeopleStore() as other:
        tree, empty = store.describe(), other.describe()
        change(tree)
        with pytest.raises(StoreError, match=message):
            other.restore(tree, "f.json")
        assert other.describe() == empty


def test_a_deleted_person_is_gone_from_the_file_and_nobody_gets_their_number(tmp_path):
    path = tmp_path / "people.sqlite"
    with filled(path) as store:
        store.learn("stream", "last", store.person("Zoë of 4711")._replace(answers=1))
        assert store.forget("Zoë of 4711")
        assert not store.forget("Zoë of 4711")
        assert not store.has_answer("stream", "last")
        for file in tmp_path.iterdir():
            assert "Zoë of 4711".encode() not in file.read_bytes()
        with PeopleStore() as copy:
            copy.restore(store.describe(), "file")
            for one in (store, copy):
                one.learn("stream", "next", one.person("somebody else"))
                assert one.person("somebody else").number == 5


def test_one_program_at_a_time_and_one_population(tmp_path):
    path = tmp_path / "people.sqlite"
    with filled(path), pytest.raises(StoreError, match="found it in use by another program, expected one at a time"):
        PeopleStore(path)
    with pytest.raises(StoreError, match=r"population: found scale 0.9, .*, expected scale 1.07, .*--set_population"):
        PeopleStore(path, DEFAULT)
    with PeopleStore(path) as store:
        store.set_population(DEFAULT)
        assert store.fact("recalibration") is None
        assert len(store) == 3
    PeopleStore(path, DEFAULT).close()


def test_other_files_are_refused_and_stay_as_they_are(tmp_path):
    text, other, later = tmp_path / "text", tmp_path / "other.sqlite", tmp_path / "later.sqlite"
    text.write_text("certainly no database " * 100)
    with sqlite3.connect(other) as file:
        file.execute("CREATE TABLE mine (a)")
    file.close()
    filled(later).close()
    file = sqlite3.connect(later)
    file.execute("PRAGMA user_version = 7")
    file.close()
    for path, message in (
        (text, "found no store of people"),
        (other, "found a database of another program"),
        (later, "format: found 7, expected 1"),
    ):
        before = path.read_bytes()
        with pytest.raises(StoreError, match=message):
            PeopleStore(path)
        assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ([], "p: found list, expected an object with the keys scale, bias, spread, drift"),
        ({**OTHER._asdict(), "tau": 1}, "p: found the unknown key 'tau'"),
        ({"scale": 1.0}, "p: bias: found no such key"),
        ({**OTHER._asdict(), "scale": -0.1}, "p.scale: found -0.1, expected a number from 0 to 100"),
        ({**OTHER._asdict(), "drift": True}, "p.drift: found True, expected a number"),
        ({**OTHER._asdict(), "spread": 1e200}, "p.spread: found 1e[+]200, expected a number from 1e-09 to 100"),
        ({**OTHER._asdict(), "format": 3}, "p.format: found 3, expected 1"),
    ],
)
def test_a_population_is_four_numbers(tree, message):
    assert population_from({"format": 1, **OTHER._asdict()}, "p") == OTHER
    with pytest.raises(StoreError, match=message):
        population_from(tree, "p")
