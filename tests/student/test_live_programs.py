"""Which programs are compiled, and the thread that compiles them; here they are functions of Python."""

import gc
import logging
import threading
import time

import pytest

from prism_jax.student import live_programs
from prism_jax.student.live_programs import Programs


class Owner:
    """Compiles numbered programs, one per call."""

    def __init__(self, count):
        self.programs, self.left, self.threads = Programs(), list(range(count)), []

    def compile_next(self):
        if not self.left:
            return False
        self.threads.append(threading.current_thread().name)
        with self.programs.compile(self.left.pop(0)):
            return True


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(live_programs, "_IDLE", 0.01)
    monkeypatch.setattr(live_programs, "_POLL", 0.001)


def wait():
    for thread in threading.enumerate():
        if thread.name == "programs":
            thread.join(10)
            assert not thread.is_alive()


def test_all_programs_are_compiled_in_a_thread_of_their_own():
    owner = Owner(5)
    owner.programs.compile_behind(owner.compile_next)
    wait()
    assert len(owner.programs) == 5 and set(owner.threads) == {"programs"}


def test_nothing_is_compiled_behind_while_a_program_runs():
    owner = Owner(5)
    with owner.programs.run("read"):
        owner.programs.compile_behind(owner.compile_next)
        time.sleep(0.03)
        assert owner.threads == []
    wait()
    assert len(owner.programs) == 6


def test_a_program_is_compiled_once_and_others_wait_for_it():
    programs, order = Programs(), []

    def needed():
        with programs.run("read"):
            order.append("run")

    with programs.compile("read"):
        other = threading.Thread(target=needed)
        other.start()
        time.sleep(0.01)
        order.append("compiled")
    other.join(10)
    assert order == ["compiled", "run"] and "read" in programs and len(programs) == 1


def test_a_program_that_failed_is_not_taken_for_compiled():
    programs = Programs()
    with pytest.raises(RuntimeError, match="no memory"), programs.run("read"):
        raise RuntimeError("no memory")
    assert "read" not in programs
    with programs.run("read"):
        pass
    assert "read" in programs


def test_a_failure_behind_is_said_and_ends_the_thread(caplog):
    class Broken(Owner):
        def compile_next(self):
            raise RuntimeError("no memory")

    broken = Broken(1)
    with caplog.at_level(logging.WARNING):
        broken.programs.compile_behind(broken.compile_next)
        wait()
    assert "programs are compiled only when they are needed from now on: no memory" in caplog.text


def test_the_thread_ends_with_its_owner():
    owner = Owner(5)
    programs = owner.programs
    with programs.run("read"):
        programs.compile_behind(owner.compile_next)
        del owner
        gc.collect()
        wait()
    assert len(programs) == 1
