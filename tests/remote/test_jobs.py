"""Many items at once: order, a bounded window, errors, interruptions and progress."""

import asyncio
import signal
import threading
import time

import pytest

from prism_jax.remote import jobs
from prism_jax.remote.requests import Message, Request
from prism_jax.remote.tally import Tally


def test_the_window_is_bounded_whatever_the_consumer_does():
    read, active, most = 0, 0, 0

    def items():
        nonlocal read
        for number in range(1, 201):
            read = number
            yield number

    async def work(item):
        nonlocal active, most
        active += 1
        most = max(most, active)
        await asyncio.sleep(0.0005)
        active -= 1
        return item

    for done in jobs.work_through(items(), work, at_once=3):
        assert done <= read <= done + jobs.AHEAD * 3
    assert (done, most) == (200, 3)


def test_a_slow_item_does_not_stop_those_behind_it():
    release, finished = asyncio.Event(), []

    async def work(item):
        if item == 0:
            await release.wait()
        else:
            finished.append(item)
            if len(finished) == 6:
                release.set()
        return item

    assert list(jobs.work_through(range(20), work, at_once=2)) == list(range(20))


@pytest.mark.parametrize("at_once", [1, 4])
def test_an_error_is_raised_in_its_place_and_nothing_is_started_after_it(at_once, capsys):
    started, ended, got = [], [], []

    async def work(item):
        started.append(item)
        await asyncio.sleep(0.005)
        ended.append(item)
        if item == 5:
            raise ValueError("five")
        return item

    with pytest.raises(ValueError, match=r"^five$"):
        got.extend(jobs.work_through(range(1000), work, at_once=at_once, tally=Tally(dry=True)))
    assert started == ended  # what was under way has ended
    assert not capsys.readouterr().err  # of a dry run, no answer is awaited
    assert len(started) <= 6 + 2 * jobs.AHEAD * at_once


def test_a_consumer_that_leaves_ends_the_work():
    ended = []

    async def work(item):
        await asyncio.sleep(0.002)
        ended.append(item)
        return item

    for item in jobs.work_through(range(1000), work, at_once=4):
        if item == 3:
            break
    count = len(ended)
    time.sleep(0.02)
    assert len(ended) == count < 50


def test_ctrl_c_awaits_the_oldest_item_as_well():
    ended, main = [], threading.main_thread().ident

    async def work(item):
        if item == 1:
            signal.pthread_kill(main, signal.SIGINT)
        await asyncio.sleep(0.05 * (item == 0))
        ended.append(item)
        return item

    with pytest.raises(KeyboardInterrupt):
        list(jobs.work_through(range(2), work, at_once=2))
    assert ended == [1, 0]


def test_an_error_of_the_items_is_raised():
    def items():
        yield 1
        raise KeyError("items")

    async def work(item):
        return item

    with pytest.raises(KeyError, match="items"):
        list(jobs.work_through(items(), work, at_once=2))


def test_progress_shows_cost_failures_and_the_cache(capsys):
    async def work(item):
        return item

    tally = Tally(cost=1.25, failed=3, cached=7)
    list(jobs.work_through(range(5), work, at_once=2, total=5, label="judging", tally=tally))
    shown = capsys.readouterr().err
    assert "judging" in shown
    assert "5/5" in shown
    assert "1.25 USD, 3 failed, 7 cached" in shown
    list(jobs.work_through(range(5), work, at_once=2))
    assert capsys.readouterr().err == ""


def test_several_jobs_can_follow_one_another_with_the_same_clients(connected):
    with connected() as (fake, client):

        def work(item):
            return client.ask(Request((Message("user", str(item)),)))

        for start in (0, 10):
            answers = list(jobs.work_through(range(start, start + 10), work, at_once=4))
            assert [answer.text for answer in answers] == [f"heard {i}" for i in range(start, start + 10)]
    assert fake.received.total() == 20
