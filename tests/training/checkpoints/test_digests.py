"""Digests of a checkpoint's files: any changed byte is found, and the checkpoint before it is taken."""

import dataclasses
import hashlib
import json
import logging
import pathlib
import shutil

import chex
import jax
import numpy as np
import pytest
import tiny
from absl import logging as absl_logging

from prism_jax.runtime.digests import NAME
from prism_jax.student.sharding import make_mesh
from prism_jax.training.checkpoints.recovery import restore_best, restore_latest
from prism_jax.training.checkpoints.saver import Saver
from prism_jax.training.optimization.step import abstract_state
from prism_jax.training.run import resolve
from prism_jax.training.workdir import Workdir

CONFIG = dataclasses.replace(
    tiny.with_training(steps=4, checkpoint_every=2, keep=2),
    data=dataclasses.replace(tiny.CONFIG.data, validation=0.25),
)


@pytest.fixture(scope="module")
def abstract():
    return abstract_state(resolve(CONFIG).model, CONFIG.training, make_mesh())


def state_of(abstract, step):
    """A state of random numbers, so that a changed byte changes a number."""
    rng = np.random.default_rng(step)

    def draw(leaf):
        drawn = 100 * rng.normal(size=leaf.shape)
        return jax.device_put(drawn.astype(leaf.dtype), leaf.sharding)

    return jax.tree.map(draw, abstract)


@pytest.fixture(scope="module")
def whole(abstract, tmp_path_factory):
    """A workdir with checkpoints of steps 2 and 4; the first is the better one."""
    folder = tmp_path_factory.mktemp("whole")
    with Saver(Workdir(folder).checkpoints, CONFIG) as saver:
        for step, score in ((2, 0.5), (4, 0.75)):
            saver.save(step, state_of(abstract, step), {"position": step}, {"validation_nll": score})
    return folder


@pytest.fixture
def copy(whole, tmp_path):
    return pathlib.Path(shutil.copytree(whole, tmp_path / "run"))


@pytest.fixture
def warnings(caplog, monkeypatch):
    monkeypatch.setattr(absl_logging.get_absl_logger(), "propagate", True)
    return lambda: [
        record.getMessage() for record in caplog.records if record.name == "absl" and record.levelno >= logging.WARNING
    ]


def files(step):
    return sorted(path for path in pathlib.Path(step).rglob("*") if path.is_file())


def test_every_file_but_those_that_orbax_writes_last_has_its_digest(copy):
    step = copy / "checkpoints" / "4"
    expected = {
        str(path.relative_to(step)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files(step)
        if path not in {step / "_CHECKPOINT_METADATA", step / "commit_success.txt", step / NAME}
    }
    assert json.loads((step / NAME).read_text()) == expected
    assert {"data/metadata", "config/metadata", "metrics/metrics"} < expected.keys()
    assert any(name.startswith("state/d/") for name in expected)


@pytest.mark.parametrize("name", ["state/d", "data/metadata", "config/metadata", "metrics/metrics"])
def test_a_changed_checkpoint_is_renamed_and_the_one_before_it_is_read(abstract, copy, warnings, name):
    path = next(path for path in files(copy / "checkpoints" / "4" / name)) if name == "state/d" else None
    path = path or copy / "checkpoints" / "4" / name
    content = bytearray(path.read_bytes())
    digits = [i for i, byte in enumerate(content) if name != "state/d" and chr(byte) in "45"]
    content[digits[-1] if digits else len(content) // 2] ^= 1  # another digit leaves JSON valid
    path.write_bytes(content)
    found = restore_latest(Workdir(copy).checkpoints, abstract, CONFIG)
    assert (found.step, found.data) == (2, {"position": 2})
    chex.assert_trees_all_equal(found.state, state_of(abstract, 2))
    relative = path.relative_to(copy / "checkpoints" / "4")
    assert warnings() == [
        f"{copy}/checkpoints/4: found {relative} that differs from its digest in digests.json, expected a whole "
        "checkpoint; renamed to 4.damaged, resuming from step 2"
    ]


def test_a_changed_score_does_not_choose_another_checkpoint_in_silence(abstract, copy, warnings):
    best = tiny.with_training(CONFIG, keep_best=1)
    assert restore_best(Workdir(copy).checkpoints, abstract, best).step == 2
    metrics = copy / "checkpoints" / "2" / "metrics" / "metrics"
    metrics.write_text(metrics.read_text().replace("0.5", "0.9"))
    assert restore_best(Workdir(copy).checkpoints, abstract, best).step == 4
    assert "checkpoints/2: found metrics/metrics that differs from its digest" in warnings()[0]


def test_a_checkpoint_of_an_older_version_is_read_with_a_note(abstract, copy, warnings):
    (copy / "checkpoints" / "4" / NAME).unlink()
    found = restore_latest(Workdir(copy).checkpoints, abstract, CONFIG)
    chex.assert_trees_all_equal(found.state, state_of(abstract, 4))
    assert warnings() == [
        f"{copy}/checkpoints/4: found no digests.json, as older versions wrote it: changed bytes are not detected"
    ]


@pytest.mark.parametrize("content", ["", "[]", '{"state/_METADATA": 3}'])
def test_damaged_digests_are_a_damaged_checkpoint(abstract, copy, warnings, content):
    (copy / "checkpoints" / "4" / NAME).write_text(content)
    assert restore_latest(Workdir(copy).checkpoints, abstract, CONFIG).step == 2
    assert (copy / "checkpoints" / "4.damaged").exists()
    assert "digests.json" in warnings()[0]
