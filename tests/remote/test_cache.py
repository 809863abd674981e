"""The cache file: what it keeps, how processes share it, and that the budget holds."""

import dataclasses
import os
import random
import shutil
import sqlite3
import stat

import pytest
from asking import ask, echo, endpoint_of
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_jax.remote.cache import BudgetSpent, Cache
from prism_jax.remote.endpoints import RemoteConfig
from prism_jax.remote.fake import FakeEndpoint, Faults
from prism_jax.remote.jobs import open_clients
from prism_jax.remote.requests import Answer


def answer_of(key, cost=0.25, text="x"):
    return Answer(text, None, "m", key, "2026-01-01T00:00:00+00:00", 3, 4, cost, False, 1.5, "stop")


def test_an_answer_comes_back_as_it_was_stored(tmp_path):
    answer = answer_of("k", text="a\x00b 日本")
    with Cache(tmp_path / "deep" / "c.sqlite", budget=1.0) as cache:
        cache.claim("k", 0.5, True)
        cache.settle("k", answer)
    with Cache(tmp_path / "deep" / "c.sqlite") as cache:
        found = cache.get("k")
        assert found == dataclasses.replace(answer, cached=True)
        assert cache.get("other") is None
        assert cache.spent == 0.25


def test_the_file_is_for_its_owner_only(tmp_path):
    with Cache(tmp_path / "c.sqlite"):
        modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("c.sqlite*") if path.is_file()}
    assert modes == {0o600}


@pytest.mark.parametrize("content", [b"not a database, but long enough to look at " * 40, "foreign", "newer"])
def test_another_file_is_refused_and_left_as_it_is(tmp_path, content):
    path = tmp_path / "c.sqlite"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE pictures (x)" if content == "foreign" else "PRAGMA user_version=9")
            if content == "newer":
                database.execute(f"PRAGMA application_id={0x70726D72}")
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"c\.sqlite: found no cache of answers \(.*\), expected one or no file$"):
        Cache(path)
    assert path.read_bytes() == before


def test_a_pipe_is_no_cache(tmp_path):
    os.mkfifo(tmp_path / "c.sqlite")
    with pytest.raises(ValueError, match=r"c\.sqlite: found no regular file, expected a cache of answers or no file$"):
        Cache(tmp_path / "c.sqlite")


@pytest.mark.parametrize("name", ["c.sqlite", "other", "other/c.sqlite"])
def test_of_two_processes_one_sends_and_the_other_waits_whatever_its_name_of_the_cache(tmp_path, name):
    path, other = tmp_path / "c.sqlite", tmp_path / "other"
    if name != "c.sqlite":
        other.symlink_to(path if name == "other" else tmp_path)
    with Cache(path, budget=10.0) as cache, Cache(tmp_path / name, budget=10.0) as again:
        assert cache.claim("k", 0.5, False) == (None, False, False)
        assert again.claim("k", 0.5, False).wait, "it is under way there"
        cache.settle("k", answer_of("k"))
        assert again.claim("k", 0.5, False).answer == cache.get("k")
    assert {file.name for file in tmp_path.iterdir()} - {"other"} == {"c.sqlite", "c.sqlite.owners"}


def test_a_hard_link_is_no_cache(tmp_path):
    with Cache(tmp_path / "c.sqlite"):
        os.link(tmp_path / "c.sqlite", tmp_path / "other")
        with pytest.raises(ValueError, match=r"other: found a file of 2 names \(hard links\), expected one"):
            Cache(tmp_path / "other")


@pytest.mark.parametrize("replaced", [True, False])
def test_nothing_is_sent_once_the_cache_is_gone_and_what_was_is_kept(tmp_path, replaced):
    path = tmp_path / "c.sqlite"
    with Cache(path, budget=10.0) as cache:
        cache.claim("k", 0.5, False)
        path.rename(tmp_path / "moved")
        if replaced:
            path.write_bytes(b"")
        with pytest.raises(OSError, match=r"c\.sqlite: found the cache removed or replaced since it was opened"):
            cache.claim("other", 0.5, False)
        cache.settle("k", answer_of("k"))
        assert cache.get("k")


FIRST_VERSION = """
CREATE TABLE answers (key TEXT PRIMARY KEY, text TEXT, error TEXT, model TEXT NOT NULL, time TEXT NOT NULL,
  prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, cost REAL NOT NULL, seconds REAL NOT NULL,
  finish TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE flights (key TEXT PRIMARY KEY, worst REAL NOT NULL, lost INTEGER NOT NULL, owner TEXT NOT NULL);
CREATE TABLE spending (spent REAL NOT NULL);
INSERT INTO spending VALUES (0.75);
INSERT INTO answers VALUES ('k', 'a', NULL, 'm', '2026-01-01T00:00:00+00:00', 3, 4, 0.25, 1.5, 'stop');
INSERT INTO flights VALUES ('f', 0.1, 1, '0123456789abcdef0123456789abcdef');
PRAGMA application_id=1886547314;
PRAGMA user_version=1;
"""


@pytest.fixture(params=["first version", "this version"])
def written(request, tmp_path):
    """The path of a cache with an answer, a request under way, and 0.75 USD spent."""
    path = tmp_path / "c.sqlite"
    with sqlite3.connect(path) as database:
        database.executescript(FIRST_VERSION)
    if request.param == "this version":
        Cache(path).close()
    return path


def test_a_cache_of_the_first_version_is_kept(written):
    for _ in range(2):
        with Cache(written, budget=1.0) as cache:
            assert cache.get("k") == dataclasses.replace(answer_of("k", text="a"), cached=True)
            assert cache.spent == 0.75
    with Cache(written, budget=1.0) as cache:
        assert cache.claim("f", 0.05, True).resent


ANSWERS = ("text = x'ff00'", "prompt_tokens = 'many'", "cost = -1.0", "model = 3.5, time = x'00'", "seconds = 1e999")
DAMAGE = (
    *(f"UPDATE answers SET {change}" for change in ANSWERS),
    *(f"UPDATE flights SET {change}" for change in ("lost = 'x'", "owner = '../precious'")),
    *(f"UPDATE spending SET spent = {spent}" for spent in ("'nothing'", "-5.0")),
    *("DELETE FROM spending", "INSERT INTO spending SELECT * FROM spending", "DROP TABLE flights"),
)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_cache_with_other_values_is_refused_when_it_is_opened(written, damage):
    precious = written.parent / "precious"
    precious.write_text("keep")
    database = sqlite3.connect(written, isolation_level=None)
    database.execute("PRAGMA ignore_check_constraints=ON")
    database.execute(damage)
    database.close()
    with pytest.raises(ValueError, match=r"c\.sqlite: found a damaged cache of answers \(.*\), so nothing was sent"):
        Cache(written)
    assert precious.exists()


def test_a_changed_value_of_the_right_type_is_noticed(tmp_path):
    path = tmp_path / "c.sqlite"
    changes = ("answers SET key = 'l'", "answers SET text = 'b'", "flights SET worst = 0.0", "spending SET spent = 0.0")
    for change in changes:
        path.unlink(missing_ok=True)
        with Cache(path, budget=1.0) as cache:
            for key in "fk":
                cache.claim(key, 0.3, True)
            cache.settle("k", answer_of("k"))
        with sqlite3.connect(path) as database:
            database.execute(f"UPDATE {change}")
        table = change.split()[0]
        with pytest.raises(ValueError, match=rf"\(1 rows of its table of {table} are not as they were written\)"):
            Cache(path)


@pytest.mark.parametrize("flips", [1, 40])
def test_flipped_bytes_are_noticed_or_harm_nothing(tmp_path, flips):
    """No answer is lost or changed unnoticed, and no flip is an error of another kind."""
    whole, path, draw, refused = tmp_path / "whole.sqlite", tmp_path / "c.sqlite", random.Random(flips), 0
    with Cache(whole, budget=10.0) as cache:
        for number in range(150):
            cache.claim(str(number), 0.01, True)
            cache.settle(str(number), answer_of(str(number), 0.01, f"text {number} " * 8))
        answers = [cache.get(str(number)) for number in range(150)]
        spent = cache.spent
    content = whole.read_bytes()
    for _ in range(40):
        flipped = bytearray(content)
        for _ in range(flips):
            flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
        shutil.rmtree(tmp_path / "c.sqlite.owners", ignore_errors=True)
        for name in ("", "-wal", "-shm"):
            path.with_name(path.name + name).unlink(missing_ok=True)
        path.write_bytes(flipped)
        try:
            with Cache(path, budget=10.0) as cache:
                assert [cache.get(str(number)) for number in range(150)] == answers
                assert cache.spent == spent
        except ValueError as error:
            assert str(error).startswith(f"{path}: found ")
            refused += 1
    assert refused >= 20  # the others hit space that is free


def test_damage_while_it_is_open_names_the_file(tmp_path):
    path = tmp_path / "c.sqlite"
    with Cache(path, budget=1.0) as cache:
        cache.claim("k", 0.1, True)
        cache.settle("k", answer_of("k"))
        with sqlite3.connect(path) as database:
            database.execute("DROP TABLE answers")
        with pytest.raises(OSError, match=r"c\.sqlite: found a cache that cannot be read or written"):
            cache.get("k")


def test_a_damaged_cache_pays_nothing_twice(connected, remote):
    with connected() as (fake, client):
        ask(client, "hello")
        port = int(fake.url.split(":")[2].split("/")[0])
    with sqlite3.connect(remote.cache) as database:
        database.execute("UPDATE answers SET text = 'other'")
    with FakeEndpoint(echo, port=port) as fake:
        with pytest.raises(ValueError, match="damaged"), open_clients(remote, {"only": endpoint_of(fake)}) as clients:
            ask(clients.by_name["only"], "hello")
        assert fake.received.total() == 0


def test_what_a_process_that_ended_had_sent_is_sent_again_and_keeps_its_reservation(tmp_path):
    with Cache(tmp_path / "c.sqlite", budget=1.0) as gone:
        gone.claim("k", 0.6, False)
    with Cache(tmp_path / "c.sqlite", budget=1.3) as cache:
        with pytest.raises(BudgetSpent):
            cache.claim("other", 0.8, True)
        assert cache.claim("k", 0.6, False).resent
        cache.settle("k", answer_of("k", 0.01))
        assert cache.spent == pytest.approx(0.61)  # the attempt that was lost, at its worst
    assert list((tmp_path / "c.sqlite.owners").iterdir()) == []


def test_a_budget_waits_for_those_under_way_and_ends_when_nothing_can_free_it(tmp_path):
    with Cache(tmp_path / "c.sqlite", budget=1.0) as cache:
        cache.claim("a", 0.6, True)
        assert cache.claim("b", 0.6, True).wait
        cache.settle("a", answer_of("a", 0.1))
        assert cache.claim("b", 0.6, True) == (None, False, False)
        cache.settle("b", answer_of("b", 0.6))
        with pytest.raises(BudgetSpent, match=r"^budget: found 0\.7000 USD spent and up to 0\.6000 for the next"):
            cache.claim("c", 0.6, True)
        assert cache.claim("d", 0.2, True) == (None, False, False)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from("cslfb"), st.integers(0, 5), st.floats(0.01, 0.4)), max_size=40))
def test_spending_and_reservations_never_pass_the_budget(tmp_path_factory, steps):
    """Any order of claims, answers of at most the worst case, lost attempts, and failures, billed and not."""
    folder = tmp_path_factory.mktemp("budget")
    worst, spent = {}, 0.0
    with Cache(folder / "c.sqlite", budget=1.0) as cache:
        for kind, key, share in steps:
            name = f"{key} {len(worst)}" if kind == "c" else next((one for one in worst if one[0] == str(key)), None)
            try:
                if kind == "c" and not cache.claim(name, share, False).wait:
                    worst[name] = [share, 0]
                elif kind == "l" and name and cache.lose(name):
                    worst[name][1] += 1
                elif kind in "sfb" and name:
                    price, lost = worst.pop(name)
                    cost = price * min(share, 1.0)
                    cache.settle(name, answer_of(name, cost) if kind == "s" else None, billed=kind == "b")
                    spent += price * (lost + (kind == "b")) + (cost if kind == "s" else 0)
            except BudgetSpent:
                pass
            assert cache.spent == pytest.approx(spent)
            assert spent + sum(price * (lost + 1) for price, lost in worst.values()) <= 1.0 + 1e-9


def test_the_budget_is_never_passed_under_concurrency(connected, tmp_path):
    """The server computes answers of any length up to the limit, and sums what it bills."""
    draw, bills = random.Random(3), []
    config = RemoteConfig(str(tmp_path / "c.sqlite"), budget=0.002)

    def brain(body):
        words = draw.randrange(1, 49)
        bills.append((len(body["messages"][0]["content"]) // 4 + 2 * (words + 1)) / 1e6)
        return "word" * words

    with connected(Faults(limited=0.2, delay=0.005), brain, config, concurrency=16) as (fake, client):
        texts = [f"question {number}" for number in range(60)]
        with pytest.raises(BudgetSpent):
            ask(client, *texts)
        assert 0.001 < sum(bills) <= 0.002
        assert 5 < fake.billed.total() < 60
        paid = fake.billed.total()
        with pytest.raises(BudgetSpent):
            ask(client, *texts)
        assert fake.billed.total() - paid <= 16
        assert sum(bills) <= 0.002
