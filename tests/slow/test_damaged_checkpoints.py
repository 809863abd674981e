"""A checkpoint with damaged files is refused, or restored unchanged, as the files of tests/slow/test_fuzz.py are."""

import chex
import numpy as np
import pytest
from mutations import BINARY, damaged, flip
from saved_checkpoints import abstract, best, save, state_of
from test_fuzz import SEEDS

from prism_jax.training.checkpoints.checkpoint import CheckpointError, parameters_alone

pytestmark = pytest.mark.slow


def test_a_damaged_checkpoint_is_refused_or_read_unchanged(tmp_path):
    save(tmp_path, {4: 0.5})
    folder, expected, alone, refused = tmp_path, state_of(4).params, parameters_alone(abstract()), 0
    rng = np.random.default_rng(0)
    paths = sorted(path for path in (folder / "checkpoints" / "4").rglob("*") if path.is_file())
    damages = [(path, (flip,)) for path in paths] + [(paths[rng.integers(len(paths))], BINARY) for _ in range(SEEDS)]
    for seed, (path, kinds) in enumerate(damages):
        whole = path.read_bytes()
        path.write_bytes(damaged(whole, seed, kinds))
        try:
            restored = best(folder, of=alone)
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
