"""Page faults are counted in separate processes, because the settings of glibc apply until a process ends."""

import platform
import subprocess
import sys

import pytest

from prism_jax.runtime import command

STEPS = """
import resource, sys, threading

if sys.argv[1] == "kept":
    from prism_jax.runtime.command import keep_freed_memory

    assert keep_freed_memory()

import numpy as np


def steps():
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        np.ones(2**24)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


faults = []
thread = threading.Thread(target=steps)
thread.start()
thread.join()
print(max(faults[1:]))
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_a_thread_reuses_the_memory_that_it_freed():
    def faults(how):
        done = subprocess.run([sys.executable, "-c", STEPS, how], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    assert 20 * faults("kept") < faults("freed")


def test_nothing_is_done_without_glibc(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert not command.keep_freed_memory()
