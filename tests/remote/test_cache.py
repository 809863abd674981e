"""The cache file: what it keeps, how processes share it, and that the budget holds."""

import random
import sqlite3
import stat

import pytest
from asking import ask
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_jax.remote.cache import BudgetSpent, Cache
from prism_jax.remote.config import RemoteConfig
from prism_jax.remote.fake import Faults
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
        assert found == Answer(**(vars(answer) | {"cached": True}))
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
    with pytest.raises(ValueError, match=r"c\.sqlite: found no cache of answers \(.*\), expected one or no file$"):
        Cache(path)
    if isinstance(content, bytes):
        assert path.read_bytes() == content


def test_one_of_two_processes_sends_and_the_other_waits(tmp_path):
    with Cache(tmp_path / "c.sqlite") as one, Cache(tmp_path / "c.sqlite") as other:
        assert one.claim("k", 0.0, False) == (None, False, False)
        assert other.claim("k", 0.0, False).wait
        one.settle("k", answer_of("k", 0.0))
        assert other.claim("k", 0.0, False).answer == one.get("k")


def test_what_a_process_that_ended_had_sent_is_sent_again(tmp_path):
    with Cache(tmp_path / "c.sqlite", budget=1.0) as gone:
        gone.claim("k", 0.1, False)
    with Cache(tmp_path / "c.sqlite", budget=1.0) as cache:
        assert cache.claim("k", 0.1, False).resent
        cache.settle("k", answer_of("k", 0.01))
        assert cache.spent == pytest.approx(0.11)  # the attempt that was lost, at its worst
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


def test_a_killed_process_leaves_its_reservation(tmp_path):
    with Cache(tmp_path / "c.sqlite", budget=1.0) as gone:
        gone.claim("a", 0.6, True)
    with Cache(tmp_path / "c.sqlite", budget=1.0) as cache, pytest.raises(BudgetSpent):
        cache.claim("b", 0.6, True)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from("cslf"), st.integers(0, 5), st.floats(0.01, 0.4)), max_size=40))
def test_spending_and_reservations_never_pass_the_budget(tmp_path_factory, steps):
    """Any order of claims, answers of at most the worst case, lost attempts and failures."""
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
                elif kind in "sf" and name:
                    price, lost = worst.pop(name)
                    cost = price * min(share, 1.0)
                    cache.settle(name, answer_of(name, cost) if kind == "s" else None, billed=False)
                    spent += price * lost + (cost if kind == "s" else 0)
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
