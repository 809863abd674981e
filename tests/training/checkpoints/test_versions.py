"""A checkpoint that one version of JAX, Flax and Orbax wrote is read by the others.

PYTHONPATH=.:tests/training python tests/training/checkpoints/test_versions.py  # writes one as installed
"""

import dataclasses
import pathlib
import shutil
import tempfile

import chex
import jax
import numpy as np
import pytest
import tiny
from etils import epath

from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.sharding import make_mesh
from prism_jax.training.checkpoints.recovery import restore_latest
from prism_jax.training.checkpoints.saver import Saver
from prism_jax.training.optimization.step import abstract_state

WRITTEN = pathlib.Path(__file__).parent / "written"  # by versions of JAX
DATA = {"position": 7}


def state_to_write():
    """The state of the tiny student, each leaf with numbers of its own that zip can pack."""
    student = dataclasses.replace(tiny.CONFIG.student, vocab_size=400)
    abstract = abstract_state(Qwen3(student), tiny.CONFIG.training, make_mesh())
    leaves, tree = jax.tree.flatten(abstract)
    values = [np.arange(leaf.size).reshape(leaf.shape) % 5 + place for place, leaf in enumerate(leaves)]
    pairs = zip(values, leaves, strict=True)
    return jax.tree.unflatten(tree, [jax.device_put(value.astype(leaf.dtype), leaf.sharding) for value, leaf in pairs])


@pytest.mark.parametrize("archive", sorted(WRITTEN.glob("*.zip")), ids=lambda path: path.stem)
def test_a_checkpoint_of_another_version_is_read(archive, tmp_path):
    shutil.unpack_archive(archive, tmp_path)
    expected = state_to_write()
    restored = restore_latest(epath.Path(tmp_path), jax.eval_shape(lambda: expected), tiny.CONFIG)
    assert (restored.step, restored.data, restored.damaged) == (4, DATA, ())
    chex.assert_trees_all_equal(restored.state, expected)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        with Saver(epath.Path(folder), tiny.CONFIG) as saver:
            saver.save(4, state_to_write(), DATA, {})
        shutil.make_archive(str(WRITTEN / f"jax-{jax.__version__}"), "zip", folder)
