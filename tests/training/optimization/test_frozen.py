"""Frozen parameters: which names a pattern matches; that matched parameters do not change and have no state."""

import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from flax import traverse_util
from student_sizes import small

from prism_jax.runtime.dataclass_config import ConfigError, from_config_dict
from prism_jax.student.qwen3 import Qwen3
from prism_jax.training.optimization.frozen import Partition
from prism_jax.training.run_config import RunConfig

MODEL = Qwen3(small(vocab_size=40, num_layers=3))


@pytest.fixture
def params(draw_params):
    return draw_params(MODEL)


def flat(tree):
    return traverse_util.flatten_dict(tree, sep="/")


def test_without_patterns_every_parameter_trains(params):
    everything = Partition(params, ())
    chex.assert_trees_all_equal(everything.split(params), params)
    other = jax.tree.map(lambda leaf: leaf + 1, params)
    chex.assert_trees_all_equal(everything.merge(params, other), other)
    assert everything.frozen == 0 and everything.trained == sum(leaf.size for leaf in jax.tree.leaves(params))


def test_a_pattern_must_match_whole_names(params):
    assert "embedding" not in Partition(params, ("embedding",)).split(params)
    with pytest.raises(ValueError, match=r"found 'embed', which matches no parameter"):
        Partition(params, ("embed",))
    trained = flat(Partition(params, (r".*norm/weight",)).split(params))
    assert trained.keys() == {name for name in flat(params) if not name.endswith("norm/weight")}


@pytest.mark.slow
def test_single_layers_can_be_frozen(params):
    """Freezes the first and the last of three layers; the middle one trains in every parameter of the stack."""
    part = Partition(params, (r"layers/[02]/.*", "embedding"))
    trained = part.split(params)
    assert "embedding" not in trained
    for name, leaf in flat(trained).items():
        whole = flat(params)[name]
        np.testing.assert_array_equal(leaf, whole[1:2] if name.startswith("layers/") else whole)
    merged = flat(part.merge(params, jax.tree.map(lambda leaf: leaf + 1, trained)))
    for name, leaf in flat(params).items():
        moved = np.zeros(leaf.shape[:1] + (1,) * (leaf.ndim - 1))
        if name != "embedding":
            moved[1 if name.startswith("layers/") else slice(None)] = 1
        np.testing.assert_allclose(merged[name] - leaf, np.broadcast_to(moved, leaf.shape), atol=1e-6)
    assert part.trained == sum(leaf.size for leaf in jax.tree.leaves(trained))
    assert part.trained + part.frozen == sum(leaf.size for leaf in jax.tree.leaves(params))


def test_an_unmatched_pattern_is_named(params):
    message = (
        "training.frozen: found 'layers/9/.*', which matches no parameter, expected a regular expression of whole "
        "names such as 'embedding'"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Partition(params, ("embedding", "layers/9/.*"))


def test_freezing_everything_is_rejected(params):
    with pytest.raises(ValueError, match=r"^training\.frozen: found \('\.\*',\), which freezes all"):
        Partition(params, (".*",))


def test_an_invalid_regular_expression_is_rejected():
    with pytest.raises(ConfigError, match=r"^config\.training\.frozen: found 'layers/\(', expected a regular expr"):
        from_config_dict(RunConfig, {"training": {"frozen": ["layers/("]}})


def test_a_frozen_parameter_has_no_state_and_no_gradient(equations):
    """Checks the state and the gradient with the embedding and the lower of two layers frozen."""
    import tiny_step

    from prism_jax.training.optimization.step import make_gradient

    patterns = ("embedding", "layers/0/.*")
    training = tiny.with_training(frozen=patterns, steps=3).training
    step = tiny_step.shape(training=training)
    shapes = step.slots.model.abstract_params()
    part = Partition(shapes, patterns)
    trained = jax.eval_shape(part.split, shapes)
    state = step.state
    assert "embedding" in state.params
    assert sum(leaf.size for leaf in jax.tree.leaves(state.optimizer)) == 2 * part.trained + 2  # two counters of steps
    gradient = make_gradient(step)
    found, _ = jax.eval_shape(gradient, shapes, tiny_step.batch_of(0, 1), jnp.asarray(1))
    chex.assert_trees_all_equal_shapes_and_dtypes(found, trained)
    # No array of the shape of the embedding is accumulated, as the gradient of a lookup or a tied head would be.
    shape = shapes["embedding"].shape
    adders = [
        equation.primitive.name
        for equation in equations(gradient, shapes, tiny_step.batch_of(0, 1), jnp.asarray(1))
        if equation.primitive.name in ("scatter-add", "add_any")
        and any(variable.aval.shape == shape for variable in equation.outvars)
    ]
    assert adders == []


@pytest.mark.slow
def test_frozen_parameters_stay_bit_identical_and_the_others_change():
    import tiny_step

    states, _ = tiny_step.steps(3, tiny.with_training(frozen=("embedding", "layers/0/.*")).training)
    before, after = flat(states[0].params), flat(states[-1].params)
    for name, leaf in before.items():
        if name == "embedding":
            np.testing.assert_array_equal(after[name], leaf)
        elif name.startswith("layers/"):
            np.testing.assert_array_equal(after[name][0], leaf[0])
            assert (after[name][1] != leaf[1]).any()
        else:
            assert (after[name] != leaf).any()
