"""Files of a store that were copied, damaged, left half-way or put in another's place are refused by name."""

import contextlib
import json
import os
import pickle
import shutil
import sqlite3
import struct

import pytest
from batches import PEOPLE, ask, durable, holding, in_memory, log_of, observation, requests

from prism_jax.agent.state.durable import Events
from prism_jax.agent.state.places import check_idle, check_journal
from prism_jax.agent.state.reading import Cursor, CursorError, newest, read_log
from prism_jax.agent.state.schema import StateError, WrongFileError
from prism_jax.agent.state.store import IncompleteError, StateStore
from prism_jax.agent.steps import Observation
from prism_jax.streams import Event


@pytest.mark.parametrize("closed", [True, False])
def test_a_copied_store_resumes_where_the_other_was(closed, tmp_path):
    """Copied after its process has ended, or has died with its journals unwritten."""
    batches = list(requests(16))
    store = StateStore(tmp_path / "one", partitions=3)
    agent = durable(store)
    for batch in batches[:8]:
        agent.answer(batch)
    if closed:
        store.close()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with StateStore(tmp_path / "two") as copy:
        agent = durable(copy)
        for batch in batches[8:]:
            agent.answer(batch)
        assert {stream: log_of(copy, stream) for stream in PEOPLE} == in_memory(batches)
    if not closed:
        store.close()


def make_data(folder):
    """A store of four partitions with a stream of each of some people, and one of nobody, closed."""
    event = Event(time=0.0, text="x")
    items = [Observation(f"canary {i}", event, person=f"person {i}" if i else None) for i in range(12)]
    with StateStore(folder, partitions=4) as store:
        ask(durable(store), *items)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Copies the store of `make_data` to a folder, which it returns."""
    made = make_data(tmp_path_factory.mktemp("data") / "state")
    return lambda folder: shutil.copytree(made, folder, dirs_exist_ok=True)


def edited(path, statement):
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute(statement)


def edit_store(folder, **changes):
    (folder / "store.json").write_text(json.dumps(json.loads((folder / "store.json").read_text()) | changes))


def file_of(folder, number, suffix=""):
    """The file of a partition, or what SQLite keeps beside it."""
    return folder / "partitions" / f"{number:05d}.sqlite{suffix}"


WRONG = {
    "emptied": lambda folder: file_of(folder, 2).write_bytes(b""),
    "emptied of its tables": lambda folder: shutil.copy(empty(folder), file_of(folder, 2)),
    "a pipe": lambda folder: as_pipe(file_of(folder, 2)),
    "removed": lambda folder: file_of(folder, 2).unlink(),
    "removed with its folder": lambda folder: shutil.rmtree(folder / "partitions"),
    "copied over": lambda folder: shutil.copy(file_of(folder, 1), file_of(folder, 2)),
    "of another store": lambda folder: shutil.copy(file_of(make_data(folder / "other"), 2), folder / "partitions"),
    "of a later format": lambda folder: edited(file_of(folder, 2), "PRAGMA user_version = 99"),
    "fewer partitions": lambda folder: edit_store(folder, partitions=3),
    "more partitions": lambda folder: edit_store(folder, partitions=8),
    "another store.json": lambda folder: edit_store(folder, id="0123456789abcdef"),
    "no store.json": lambda folder: (folder / "store.json").unlink(),
}


def as_pipe(path):
    path.unlink()
    os.mkfifo(path)


def empty(folder):
    with contextlib.closing(sqlite3.connect(folder / "empty.sqlite")) as file:
        file.execute("PRAGMA journal_mode = WAL")
    return folder / "empty.sqlite"


@pytest.mark.parametrize("damage", WRONG.values(), ids=WRONG)
def test_what_is_not_the_partition_that_was_made_is_refused_by_name_and_read_by_nobody(damage, data, tmp_path):
    folder = data(tmp_path / "state")
    cursor = newest(folder)
    damage(folder)
    with pytest.raises(StateError, match=r"0000\d.sqlite: (found|format: found)|store.json: no such file") as refused:
        StateStore(folder)
    assert "expected" in str(refused.value)
    for read in (lambda: read_log(folder, Cursor(), 1000), lambda: newest(folder)):
        with pytest.raises(StateError):
            read()
    with pytest.raises(StateError):
        read_log(folder, cursor, 1000)


def test_a_partition_that_is_given_up_begins_anew_and_cursors_of_before_are_refused(data, tmp_path):
    folder = data(tmp_path / "state")
    before = newest(folder)
    file_of(folder, 2).unlink()
    lines = (folder / "made.txt").read_text().splitlines(keepends=True)
    (folder / "made.txt").write_text("".join(line for line in lines if not line.startswith("00002")))
    with StateStore(folder) as store:
        store.partition(2)
        for text in (str(before), str(Cursor(before.numbers)), str(newest(make_data(tmp_path / "other")))):
            with pytest.raises(CursorError, match="after: found a cursor"):
                read_log(folder, Cursor.read(text), 1000)
            with pytest.raises(CursorError, match="after: found a cursor"):
                Cursor.read(text).within(newest(folder))
        assert read_log(folder, Cursor(), 1000)[1].numbers == newest(folder).numbers


@pytest.mark.parametrize("name", ["backup.sqlite", "00001 (copy).sqlite", "00007.sqlite", "2.sqlite", "notes.txt"])
def test_strange_files_beside_partitions_are_named_and_left_alone(name, data, tmp_path):
    folder = data(tmp_path)
    shutil.copy(file_of(folder, 1), folder / "partitions" / name)
    before = len(read_log(folder, Cursor(), 1000)[0])
    with StateStore(folder) as store:
        assert [line for line in store.problems if name in line]
        assert store.forget_person("person 3") == ["canary 3"]
    assert len(read_log(folder, Cursor(), 1000)[0]) == before - 1


def test_a_copy_in_place_of_a_partition_that_was_not_made_is_refused(tmp_path):
    with StateStore(tmp_path, partitions=64) as store:
        ask(durable(store), observation("s0", 0))
        number = store.number_of("ada")
    copied = shutil.copy(file_of(tmp_path, number), file_of(tmp_path, (number + 1) % 64))
    with pytest.raises(WrongFileError, match=f"{copied.name}: found number {number}"):
        StateStore(tmp_path)


def older(folder):
    """The same store as a version wrote it that knew no ids."""
    tree = json.loads((folder / "store.json").read_text())
    del tree["id"]
    (folder / "store.json").write_text(json.dumps(tree))
    (folder / "made.txt").unlink()
    for path in (folder / "partitions").glob("*.sqlite"):
        edited(path, "DELETE FROM facts WHERE name IN ('partition', 'journal')")
    return folder


def test_a_store_that_is_older_than_ids_is_brought_up_to_date(data, tmp_path):
    folder = older(data(tmp_path / "state"))
    records, _ = read_log(folder, Cursor(), 1000)
    old = Cursor.read(str(Cursor(newest(folder).numbers)))
    with StateStore(folder) as store:
        assert ask(durable(store), observation("s0", 0))[0][0]["id"] == "s0/0"
        found, _ = read_log(folder, old, 1000)
        assert [one.record["stream"] for one in found] == ["s0"]
        assert len(read_log(folder, Cursor(), 1000)[0]) == len(records) + 1
    file_of(folder, 2).unlink()
    with pytest.raises(WrongFileError, match=r"00002.sqlite: found no file"):
        StateStore(folder)
    copied = older(data(tmp_path / "copied"))
    shutil.copy(file_of(copied, 1), file_of(copied, 2))
    with pytest.raises(WrongFileError, match=r"00002.sqlite: found streams of another one"):
        StateStore(copied)


def garbage(path):
    path.write_bytes(b"no database" * 100)


def torn(path):
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


@pytest.mark.parametrize("damage", [garbage, torn])
@pytest.mark.parametrize("whose", ["person 3", "another"])
def test_a_deletion_deletes_what_it_can_and_names_what_is_left(damage, whose, data, tmp_path):
    folder = data(tmp_path)
    with StateStore(folder) as store:
        own = store.number_of("person 3")
        number = own if whose == "person 3" else next(i for i in range(4) if i != own)
    damage(file_of(folder, number))
    with StateStore(folder) as store:
        with pytest.raises(IncompleteError) as told:
            store.forget_person("person 3")
        assert list(told.value.left) == [f"partitions/{number:05d}.sqlite"]
        assert told.value.streams == int(whose == "another")
        assert pickle.loads(pickle.dumps(told.value)).left == told.value.left
        assert holding(folder / "partitions", b"person 3") in ([], [file_of(folder, number)])


@pytest.mark.parametrize("running", [True, False], ids=["backup of a running store", "copy of a stopped store"])
@pytest.mark.parametrize("more", [1, 9], ids=["one log", "several logs"])
def test_a_backup_over_the_files_of_a_process_that_died_is_not_mixed_with_its_log(running, more, tmp_path, monkeypatch):
    folder, copy = tmp_path / "state", tmp_path / "copy.sqlite"
    store = StateStore(folder, partitions=1)
    agent = durable(store)
    ask(agent, observation("s0", 0))
    if running:
        back_up(file_of(folder, 0), copy)
    else:
        store.close()
        shutil.copy(file_of(folder, 0), copy)
        store = StateStore(folder)
        agent = durable(store)
    for number in range(1, more + 1):
        monkeypatch.setattr("prism_jax.agent.state.owned_file.MOST_LOG", 2**14 if number < more else 2**30)
        ask(agent, observation("s0", number))
    died = tmp_path / "died"
    shutil.copytree(folder, died)  # as a killed process leaves it
    with StateStore(died) as again:
        assert len(log_of(again, "s0")) == more + 1, "its own log is taken"
    shutil.rmtree(died)
    shutil.copytree(folder, died)
    behind = newest(folder)
    store.close()
    restored = shutil.copy(copy, file_of(died, 0))
    monkeypatch.setattr("time.sleep", lambda _: None)  # between the looks at it
    message = r"00000.sqlite-wal: found the log of changes of another file.*move the log and its -shm"
    for open_it in (StateStore, check_idle, lambda folder: StateStore(folder, alone=False)):
        with pytest.raises(WrongFileError, match=message):
            open_it(died)
    assert restored.read_bytes() == copy.read_bytes(), "nothing was moved into it"
    for suffix in ("-wal", "-shm"):
        file_of(died, 0, suffix).unlink()
    (died / "made.txt").write_text("")
    with StateStore(died) as again:
        ask(durable(again), *(observation("s0", number) for number in range(1, more + 2)))
        assert len(log_of(again, "s0")) == more + 2, "what the backup had, and what came since"
    with pytest.raises(CursorError, match="after: found a cursor"):
        read_log(died, behind, 1000)


def back_up(path, copy):
    with contextlib.closing(sqlite3.connect(path)) as file, contextlib.closing(sqlite3.connect(copy)) as to:
        file.backup(to)


def died_moving_its_log(folder):
    """A store whose process was to move the log of a deletion into a file; which pages the log has of it, and the file.

    Pages stand by their number, which is how they are written.
    """
    with StateStore(folder, partitions=1) as store:
        agent = durable(store)
        agent.answer([Events(tuple(observation(stream, number) for number in range(12))) for stream in PEOPLE])
        agent.drop_person("ada")
        partition = store.partition(0)
        partition.forget_person("ada")
        partition.rows("VACUUM")  # after which every page is another one
        partition._write_mark(*{*partition._of_file, partition._mark})
        path = file_of(folder, 0)
        died = {suffix: file_of(folder, 0, suffix).read_bytes() for suffix in ("", "-wal")}
    frames = range(32, len(died["-wal"]), 24 + 4096)
    pages = {struct.unpack(">I", died["-wal"][at : at + 4])[0]: died["-wal"][at + 24 : at + 24 + 4096] for at in frames}
    return path, died, dict(sorted(pages.items()))


def test_a_process_that_died_while_its_log_was_moved_begins_again_with_all_that_was_kept(tmp_path):
    """With each number of the pages written, in their order; some of the files cannot be read alone."""
    path, died, pages = died_moving_its_log(tmp_path)
    kept, unread = [], 0
    for count in range(0, len(pages) + 1, 5):
        content = bytearray(died[""].ljust(4096 * max(pages), b"\0") if count else died[""])
        for number, page in list(pages.items())[:count]:
            content[4096 * (number - 1) : 4096 * number] = page
        path.write_bytes(content)
        file_of(tmp_path, 0, "-wal").write_bytes(died["-wal"])
        file_of(tmp_path, 0, "-shm").unlink(missing_ok=True)
        unread += len(check_journal(path)) > 1
        with StateStore(tmp_path) as store:
            assert not store.problems
            kept.append([log_of(store, stream) for stream in PEOPLE])
            ask(durable(store), observation("s3", 12))
    assert unread > 1 and len(kept) > 3
    assert all(one == kept[0] for one in kept) and not kept[0][0] and len(kept[0][3]) == 12


def test_a_file_that_no_log_makes_whole_is_reported_and_never_called_anothers(tmp_path):
    path, died, _ = died_moving_its_log(tmp_path)
    torn = died[""][:4096] + b"\xff" * (len(died[""]) - 4096)
    path.write_bytes(torn)
    file_of(tmp_path, 0, "-wal").write_bytes(died["-wal"][: 32 + 4120])
    with StateStore(tmp_path) as store:
        assert "00000.sqlite: found a file that cannot be read, neither alone nor with its log" in store.problems[0]
    assert path.read_bytes() == torn


@pytest.mark.parametrize("statement", ["UPDATE log SET record = '{\"kind\": '", "UPDATE log SET record = '{}'"])
def test_damaged_json_in_a_record_is_said_with_the_name_of_the_file(statement, tmp_path):
    with StateStore(tmp_path, partitions=1) as store:
        ask(durable(store), observation("s0", 0))
    edited(file_of(tmp_path, 0), statement)
    with StateStore(tmp_path) as store:
        (answer,) = ask(durable(store), observation("s0", 1))
        assert isinstance(answer, StateError) and "partitions/00000.sqlite: " in str(answer)
    with pytest.raises(StateError, match=r"partitions/00000.sqlite: "):
        read_log(tmp_path, Cursor(), 10)


def test_a_file_that_is_removed_or_restored_under_an_open_store_is_noticed(tmp_path):
    with StateStore(tmp_path, partitions=1) as store:
        agent = durable(store)
        ask(agent, observation("s0", 0))
        back_up(file_of(tmp_path, 0), tmp_path / "copy")
        ask(agent, observation("s0", 1))
        file_of(tmp_path, 0).unlink()
        (answer,) = ask(agent, observation("s0", 2))
        assert isinstance(answer, WrongFileError) and "found no file" in str(answer)
        shutil.copy(tmp_path / "copy", file_of(tmp_path, 0))
        (answer,) = ask(agent, observation("s0", 1))
        assert isinstance(answer, WrongFileError) and "00000.sqlite-wal: found the log" in str(answer)
        for suffix in ("-wal", "-shm"):
            file_of(tmp_path, 0, suffix).unlink()
        (answer,) = ask(agent, observation("s0", 1))
        assert answer[0]["id"] == "s0/1"
    assert [record["event"] for record in log_of(store, "s0")] == [0, 1]
