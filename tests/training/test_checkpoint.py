"""Damaged checkpoints: one line that names the checkpoint, what is wrong, and where training goes on without it."""

import re
import shutil

import jax
import numpy as np
import pytest
import tiny
from etils import epath

from prism_jax.student.sharding import make_mesh
from prism_jax.training.checkpoint import CheckpointError, Checkpoints
from prism_jax.training.data import batches
from prism_jax.training.loop import plan, train
from prism_jax.training.run import open_run, trained_params
from prism_jax.training.step import abstract_state


@pytest.fixture(scope="module")
def opened():
    return open_run(tiny.with_training(steps=4, checkpoint_every=2))


@pytest.fixture(scope="module")
def trained(opened, tmp_path_factory):
    """A workdir with checkpoints of steps 2 and 4, as training leaves it."""
    folder = tmp_path_factory.mktemp("trained")
    checkpoints = Checkpoints(folder)
    abstract = abstract_state(opened.model, opened.config.training, make_mesh())
    state = jax.tree.map(lambda leaf: jax.device_put(np.ones(leaf.shape, leaf.dtype), leaf.sharding), abstract)
    for step in (2, 4):
        position = batches(plan(opened, epath.Path(folder)).split, 4, 0).get_state()
        checkpoints.save(step, state, position)
    checkpoints.close()
    return folder


def cut(pattern):
    def damage(step):
        for path in step.glob(pattern):
            if path.is_file():
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return damage


def removed(name):
    return lambda step: shutil.rmtree(step / name)


def emptied(name):
    def damage(step):
        shutil.rmtree(step / name)
        (step / name).mkdir()

    return damage


def replaced(name, content):
    def damage(step):
        if (step / name).is_dir():
            shutil.rmtree(step / name)
        (step / name).write_text(content)

    return damage


DAMAGE = {
    "emptied": (emptied(""), "no state/ in it"),
    "emptied state": (emptied("state"), "no state/ in it"),
    "no data": (removed("data"), "no data/ in it"),
    "a file for the state": (replaced("state", ""), "no state/ in it"),
    "another position": (replaced("data/metadata", "[]"), "[] in data/, no position in the data"),
    "every file cut": (cut("**/*"), "what cannot be restored ("),
    "arrays cut": (cut("**/d/*"), "what cannot be restored (ValueError: OUT_OF_RANGE: "),
    "no arrays": (removed("state/d"), "what cannot be restored (ValueError: NOT_FOUND: "),
    "metadata cut": (cut("state/_METADATA"), "what cannot be restored (JSONDecodeError: "),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_checkpoint_is_one_line_and_nothing_changes(opened, trained, tmp_path, case):
    damage, found = DAMAGE[case]
    folder = epath.Path(shutil.copytree(trained, tmp_path / "run"))
    damage(tmp_path / "run" / "checkpoints" / "4")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    start = f"{folder}/checkpoints/4: found {found}"
    end = ", expected a whole checkpoint; delete it, and training goes on from step 2"
    for attempt in (
        lambda: trained_params(opened.model, opened.config.training, folder),
        lambda: train(plan(opened, folder), progress=False),
    ):
        with pytest.raises(CheckpointError, match=rf"^{re.escape(start)}.*{re.escape(end)}$") as caught:
            attempt()
        assert len(str(caught.value)) < 700
        assert "\n" not in str(caught.value)
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_what_the_message_says_of_deleting_it_is_true(opened, trained, tmp_path):
    folder = epath.Path(shutil.copytree(trained, tmp_path / "run"))
    assert trained_params(opened.model, opened.config.training, folder)[0] == 4
    (folder / "checkpoints" / "4").rmtree()
    assert trained_params(opened.model, opened.config.training, folder)[0] == 2
    emptied("state")(tmp_path / "run" / "checkpoints" / "2")
    with pytest.raises(CheckpointError, match=r"; delete it, and training starts from the beginning$"):
        train(plan(opened, folder), progress=False)
    (folder / "checkpoints" / "2").rmtree()
    assert Checkpoints(folder).latest() is None


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path):
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(NotADirectoryError, match=r"/checkpoints: found a file, expected a folder of checkpoints"):
        Checkpoints(tmp_path)
