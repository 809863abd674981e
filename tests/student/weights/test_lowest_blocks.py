"""A model that ends after its lowest blocks: the same weights, and the hidden states of the whole model after them."""

import chex
import jax
import numpy as np
import pytest
from full_pass import quick_jit as jit
from student_sizes import small

from prism_jax.student.qwen3 import Qwen3, Tree
from prism_jax.student.weights import load, load_hf, save_hf

MODEL = Qwen3(small(vocab_size=48, num_layers=3))


@pytest.fixture(scope="module")
def saved(draw_params, tmp_path_factory):
    folder, params = tmp_path_factory.mktemp("whole"), jax.device_get(draw_params(MODEL))
    save_hf(folder, MODEL, params)
    return folder, params


def test_the_lowest_blocks_are_those_of_the_file_with_its_norm_and_embedding(saved):
    folder, params = saved
    cut = load_hf(folder, "float32", blocks=2)
    assert cut.model.config == MODEL.config.lowest(2)
    expected = params | {"layers": jax.tree.map(lambda leaf: leaf[:2], params["layers"])}
    chex.assert_trees_all_equal(jax.device_get(cut.params), expected)
    for all_of_them in (0, 3):
        assert load(folder, "float32", blocks=all_of_them).model == MODEL


def test_it_computes_the_whole_models_state_after_its_last_block(saved):
    folder, params = saved
    cut = load_hf(folder, "float32", blocks=2)
    rows = [np.array([row], np.int32) for row in ((5, 6, 7, 8), (8, 8, 8, 8), (1, 1, 2, 2), (0, 0, 0, 0))]
    tree = Tree(np.array([[1, 2, 3]], np.int32), rows[0], rows[0], rows[1], rows[2], rows[3])
    found = jit(lambda params: cut.model.branch_hidden(params, tree, 4))(cut.params)

    @jit
    def states(params):
        return [MODEL._norm(params, state) for state in MODEL.branch_states(params, tree, 4, at=(2, 3))]

    after = states(params)
    np.testing.assert_allclose(found, after[0], rtol=1e-5, atol=1e-5)
    assert np.abs(found - after[1]).max() > 0.1


def test_a_file_is_checked_whole_and_cannot_be_cut_above_its_last_block(saved, tmp_path):
    folder, _ = saved
    with pytest.raises(ValueError, match=r"^blocks: found 4, expected 0 \(all\) to 3, the model's number of blocks"):
        load_hf(folder, "float32", blocks=4)
    with pytest.raises(ValueError, match=r"^blocks: found -1, expected 0 \(all\) to 3"):
        MODEL.config.lowest(-1)
    save_hf(tmp_path / "short", Qwen3(MODEL.config.lowest(2)), load_hf(folder, "float32", blocks=2).params)
    (tmp_path / "short" / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(ValueError, match=r"missing model\.layers\.2\."):
        load_hf(tmp_path / "short", "float32", blocks=1)
