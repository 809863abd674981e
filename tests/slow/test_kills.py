"""kill -9 at many moments, some during saves: every file stays readable and no saved step is lost."""

import pathlib
import signal
import subprocess
import time

import chex
import driven
import numpy as np
import pytest
from etils import epath

from prism_jax.student.sharding import make_mesh
from prism_jax.training.checkpoints.checkpoint import read, steps
from prism_jax.training.checkpoints.recovery import restore_best
from prism_jax.training.optimization.step import abstract_state
from prism_jax.training.run import resolve
from prism_jax.training.workdir import Workdir

pytestmark = pytest.mark.slow

CONFIG = driven.with_training(keep=2)
EVERY, STEPS = CONFIG.training.checkpoint_every, CONFIG.training.steps


@pytest.fixture(scope="module")
def abstract():
    return abstract_state(resolve(CONFIG).model, CONFIG.training, make_mesh())


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("compiled")


def uninterrupted(folder, steps, cache):
    """A run that keeps all of its checkpoints, one every few steps, and its config."""
    config = driven.with_training(steps=steps, keep=steps)
    process = driven.start(folder, config, cache)
    process.join()
    assert process.exitcode == 0
    return epath.Path(folder), config


def saving(checkpoints):
    return any("orbax-checkpoint-tmp" in path.name for path in checkpoints.glob("*"))


def last_line(seen):
    lines = seen.read_text().split() if seen.exists() else []
    return int(lines[-1]) if lines else 0


def wait_for(condition, process):
    while process.is_alive() and not condition():
        time.sleep(0.005)


def assert_same(run, whole, abstract, config):
    """Asserts that both runs ended, with bit-identical states and metrics."""
    found, expected = (restore_best(Workdir(folder).checkpoints, abstract, config) for folder in (run, whole))
    assert found.step == expected.step == config.training.steps
    chex.assert_trees_all_equal(found.state, expected.state)
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


@pytest.fixture
def disk(tmp_path):
    """A function that mounts a file system in memory at `tmp_path / "disk"` with given options."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options):
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no separate file system: mount printed {done.stderr.strip()!r}")

    yield mount
    subprocess.run(["umount", place], capture_output=True)


@pytest.mark.study
@pytest.mark.parametrize("kills", [20])
def test_a_run_killed_again_and_again_loses_no_saved_step_and_ends_bit_identical(tmp_path, cache, abstract, kills):
    whole, _ = uninterrupted(tmp_path / "whole", STEPS, cache)
    rng = np.random.default_rng(0)
    killed, checkpoints = epath.Path(tmp_path / "killed"), epath.Path(tmp_path / "killed" / "checkpoints")
    newest, in_saves = 0, 0
    for number in range(kills):
        seen = tmp_path / f"seen-{number}"
        process = driven.start(killed, CONFIG, cache, seen=seen, pause=0.02, saving=0.1)
        target = newest + int(rng.integers(1, 3 * EVERY))
        wait_for(lambda seen=seen, target=target: last_line(seen) >= target, process)
        if number % 2:
            wait_for(lambda: saving(checkpoints), process)
        time.sleep(rng.uniform(0, 0.2))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        in_saves += saving(checkpoints)

        first, last = int(seen.read_text().split()[0]), last_line(seen)
        assert first == newest + 1  # it resumed from the newest checkpoint that the previous kill had left
        newest = max(steps(checkpoints), default=0)
        assert newest >= last // EVERY * EVERY - EVERY  # only a save in progress can be lost
        if newest:
            restored = restore_best(Workdir(killed).checkpoints, abstract, CONFIG)
            assert restored.step == newest
            expected = read(whole / "checkpoints" / str(newest), abstract, CONFIG)
            chex.assert_trees_all_equal(restored.state, expected.state)
            assert restored.data == expected.data
    assert in_saves >= kills // 4
    assert 0 < newest < STEPS
    process = driven.start(killed, CONFIG, cache)
    process.join()
    assert process.exitcode == 0
    assert_same(killed, whole, abstract, CONFIG)
    assert not saving(checkpoints)


def test_a_full_disk_gives_one_line_and_the_run_resumes_when_there_is_space(tmp_path, cache, abstract, disk):
    whole, config = uninterrupted(tmp_path / "whole", 28, cache)
    # In pages; a file system may assign blocks to a file long after it was written.
    kept = sum(-(-path.stat().st_size // 4096) for path in pathlib.Path(whole / "checkpoints" / "4").rglob("*"))
    disk(f"size={5 * 4096 * kept}")
    run, seen = epath.Path(tmp_path / "disk" / "run"), tmp_path / "seen"
    process = driven.start(run, config, cache, seen=seen)
    process.join()
    assert process.exitcode == 1
    message = seen.read_text().splitlines()[-1]
    newest = steps(run / "checkpoints")[0]
    failed = newest + EVERY
    assert len(message) < 700
    assert message.startswith(f"{run}/checkpoints/{failed}: failed to write this checkpoint (")
    assert "No space left on device" in message
    assert f"step {newest} is the newest complete one" in message
    for step in steps(run / "checkpoints"):
        expected = read(whole / "checkpoints" / str(step), abstract, config)
        chex.assert_trees_all_equal(read(run / "checkpoints" / str(step), abstract, config).state, expected.state)
    disk("remount,size=256m")
    process = driven.start(run, config, cache)
    process.join()
    assert process.exitcode == 0
    assert_same(run, whole, abstract, config)
