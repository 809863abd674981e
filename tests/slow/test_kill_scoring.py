"""Scoring many streams, killed, divided among processes and devices: the bytes are those of one undisturbed run."""

import dataclasses
import os
import signal
import subprocess
import sys
import time

import forked
import numpy as np
import pytest
import tiny_export
from test_mains import TINY

from prism_jax.scores import read_scores
from prism_jax.streams.jsonl import write_streams
from prism_jax.training.run import reopen_run
from prism_jax.training.workdir import Workdir

pytestmark = pytest.mark.study
KILLS = 10
STREAMS = 96


@pytest.fixture(scope="module")
def command(tmp_path_factory, template, model, draw_params, with_two_offers):
    """The command without --workdir: a tiny student, and a stream per shard from three files."""
    folder = tmp_path_factory.mktemp("tiny")
    exported = tiny_export.export(folder, template, model, draw_params(model))
    streams = [dataclasses.replace(with_two_offers[n % len(with_two_offers)], id=str(n)) for n in range(STREAMS)]
    (folder / "streams").mkdir()
    for number, (begin, end) in enumerate(((0, 7), (7, 30), (30, STREAMS))):
        write_streams(folder / "streams" / f"{number}.jsonl", streams[begin:end])
    flags = [f"--model={exported}", f"--streams={folder / 'streams'}/*.jsonl", "--shard=1", "--batch=2"]
    return [sys.executable, "-m", "prism_jax", "score", *flags]


def start(command, out, *more, **environment):
    settings = os.environ | forked.QUICK | environment
    return subprocess.Popen(
        [*command, f"--workdir={out}", *more], env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process):
    """The standard output of a process that ends well."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


@pytest.fixture(scope="module")
def whole(command, tmp_path_factory):
    """The files of an undisturbed run."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    assert f"scored: {STREAMS} streams" in finish(start(command, folder))
    return content(folder)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def shards(folder):
    return sorted(folder.glob("scores-*.parquet"))


def wait_for(condition, process):
    while process.poll() is None and not condition():
        time.sleep(0.002)


def test_killed_again_and_again_it_ends_with_the_same_bytes(command, whole, tmp_path):
    rng, folder, finished = np.random.default_rng(0), tmp_path / "out", {}
    for number in range(KILLS):
        process = start(command, folder)
        if number == 0:
            time.sleep(0.5)  # before anything is written
        else:
            wait_for(lambda number=number: len(shards(folder)) >= number * STREAMS // (KILLS + 1), process)
            time.sleep(rng.uniform(0, 0.03))
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        for path in shards(folder):
            assert path.read_bytes() == whole[path.name], "a shard is complete or not there"
            status = path.stat()
            assert finished.setdefault(path.name, (status.st_ino, status.st_mtime_ns)) == (
                status.st_ino,
                status.st_mtime_ns,
            ), "a finished shard is never scored again"
    assert KILLS <= len(finished) < STREAMS, "the kills must have fallen into the work"
    finish(start(command, folder))
    assert content(folder) == whole
    names = [name for path in shards(folder) for name in sorted(set(read_scores(path).stream))]
    assert len(names) == len(set(names)) == STREAMS


def test_several_processes_write_the_same_and_a_dead_one_is_an_error(command, whole, tmp_path):
    folder = tmp_path / "out"
    process = start(command, folder, "--workers=2")
    wait_for(lambda: shards(folder), process)
    os.kill(workers_of(process)[0], signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "error: --workers: found that one of the processes died" in err and "leaked" not in err
    process = start(command, folder, "--workers=2")
    before = len(shards(folder))
    wait_for(lambda: len(shards(folder)) > before, process)
    kill_with_workers(process)
    assert before < len(shards(folder)) < STREAMS
    finish(start(command, folder, "--workers=2"))
    assert content(folder) == whole


def test_the_process_that_counts_devices_ends_with_the_one_that_started_it(command, tmp_path):
    process = start(command, tmp_path / "out", "--workers=2")
    wait_for(lambda: workers_of(process), process)
    time.sleep(0.5)
    kill_with_workers(process)


def kill_with_workers(process):
    """Kills a process, and waits until its workers have ended."""
    workers = workers_of(process)
    assert workers
    process.kill()
    process.wait()
    ends = time.monotonic() + 10
    while any(map(runs, workers)):
        assert time.monotonic() < ends, "workers end with the process that started them"
        time.sleep(0.01)
    process.communicate()


def workers_of(process):
    """The numbers of the processes that work for another."""
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        try:
            with open(f"/proc/{number}/stat") as stat, open(f"/proc/{number}/cmdline") as line:  # noqa: PTH123
                if int(stat.read().rsplit(")", 1)[1].split()[1]) == process.pid and "spawn_main" in line.read():
                    found.append(int(number))
        except OSError:
            continue  # has ended
    return sorted(found)


def runs(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def test_several_devices_write_the_same(command, whole, tmp_path):
    devices = "--xla_force_host_platform_device_count=2"
    finish(start(command, tmp_path / "out", XLA_FLAGS=f"{os.environ.get('XLA_FLAGS', '')} {devices}", NPROC="4"))
    assert content(tmp_path / "out") == whole


def test_the_workdir_of_a_run_gives_the_scores_of_its_evaluation(tmp_path):
    run, out = tmp_path / "run", tmp_path / "out"
    done = forked.run("prism_jax.train", *TINY, f"--workdir={run}")
    assert done.returncode == 0, done.stderr
    opened = reopen_run(Workdir(run))
    write_streams(tmp_path / "test.jsonl", opened.splits.test)
    done = forked.run("prism_jax", "score", f"--model={run}", f"--streams={tmp_path}/test.jsonl", f"--workdir={out}")
    assert done.returncode == 0, done.stderr
    found, evaluated = read_scores(out / "scores-00000.parquet"), read_scores(run / "scores.parquet")
    expected = evaluated.take(evaluated.split == "test")
    assert found.columns().keys() == expected.columns().keys()
    for name, column in expected.columns().items():
        if name in ("p_need_fast", "p_accept_fast", "p_need_slow", "p_accept_slow"):
            np.testing.assert_allclose(found.columns()[name], column, atol=1e-5)
        else:
            np.testing.assert_array_equal(found.columns()[name], column, name)
