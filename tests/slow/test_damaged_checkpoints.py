"""A checkpoint with damaged files is refused, or restored unchanged, as the files of tests/slow/test_fuzz.py are."""

import chex
import jax
import numpy as np
import pytest
import tiny
from mutations import BINARY, damaged, flip
from test_fuzz import SEEDS

from prism_jax.student.sharding import make_mesh
from prism_jax.training.checkpoints.checkpoint import CheckpointError, parameters_alone
from prism_jax.training.checkpoints.recovery import restore_best
from prism_jax.training.checkpoints.saver import Saver
from prism_jax.training.optimization.step import abstract_state
from prism_jax.training.run import resolve
from prism_jax.training.workdir import Workdir

pytestmark = pytest.mark.slow

RUN = tiny.with_training(steps=4, checkpoint_every=2, keep=2)


@pytest.fixture(scope="module")
def abstract():
    return abstract_state(resolve(RUN).model, RUN.training, make_mesh())


@pytest.fixture
def checkpoint(abstract, tmp_path):
    """The folder of a run with one checkpoint, whose state is random so that a change shows."""
    rng = np.random.default_rng(0)

    def draw(leaf):
        return jax.device_put((100 * rng.normal(size=leaf.shape)).astype(leaf.dtype), leaf.sharding)

    state = jax.tree.map(draw, abstract)
    with Saver(Workdir(tmp_path).checkpoints, RUN) as saver:
        saver.save(4, state, {"position": 4}, {"validation_nll": 0.5})
    return tmp_path, state.params


def test_a_damaged_checkpoint_is_refused_or_read_unchanged(abstract, checkpoint):
    folder, expected = checkpoint
    alone, refused = parameters_alone(abstract), 0
    rng = np.random.default_rng(0)
    paths = sorted(path for path in (folder / "checkpoints" / "4").rglob("*") if path.is_file())
    damages = [(path, (flip,)) for path in paths] + [(paths[rng.integers(len(paths))], BINARY) for _ in range(SEEDS)]
    for seed, (path, kinds) in enumerate(damages):
        whole = path.read_bytes()
        path.write_bytes(damaged(whole, seed, kinds))
        try:
            restored = restore_best(Workdir(folder).checkpoints, alone, RUN)
        except CheckpointError as error:
            refused += 1
            assert str(folder) in str(error) and "\n" not in str(error), f"seed {seed}: {str(error)[:500]!r}"
        else:
            assert restored.data == {"position": 4}, f"seed {seed}: {path}"
            # Of the files that are read, none may change without notice.
            assert whole in (b"", path.read_bytes()) or path.name in ("_CHECKPOINT_METADATA", "commit_success.txt")
            chex.assert_trees_all_equal(restored.state.params, expected)
        path.write_bytes(whole)
    assert refused > len(damages) // 2
