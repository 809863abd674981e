"""The presets have the published numbers of parameters."""

import jax
import pytest

from prism_jax.student import presets
from prism_jax.student.qwen3 import Qwen3


@pytest.mark.parametrize(
    ("preset", "count"),
    [
        (presets.qwen3_0_6b, 596_049_920),
        (presets.qwen3_1_7b, 1_720_574_976),
        (presets.qwen3_4b, 4_022_468_096),
        (presets.qwen3_8b, 8_190_735_360),
        (presets.smollm2_135m, 134_515_008),
        (presets.smollm2_360m, 361_821_120),
        (presets.smollm2_1_7b, 1_711_376_384),
    ],
)
def test_number_of_parameters_is_the_published_one(preset, count):
    """Tied embeddings are counted once."""
    assert sum(leaf.size for leaf in jax.tree.leaves(Qwen3(preset()).abstract_params())) == count


def test_keywords_change_fields():
    changed = presets.qwen3_8b(dtype="bfloat16", param_dtype="bfloat16", num_layers=2)
    assert (changed.dtype, changed.param_dtype) == ("bfloat16", "bfloat16")
    assert (changed.num_layers, changed.hidden_dim) == (2, 4096)
