"""What the optimizer's state is kept in, and that it still optimises as its oracle does."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from prism_jax.student import Qwen3, StudentConfig
from prism_jax.student.sharding import make_mesh, partition_spec, path_of
from prism_jax.training.config import TrainingConfig
from prism_jax.training.optimization.optimizer import Optimizer, is_matrix, schedule, transformation
from prism_jax.training.optimization.step import abstract_state

PARAMS = {"embedding": jnp.full((160, 144), 0.5), "final_norm": {"weight": jnp.ones(144)}}


def gradients(step, scale=1.0):
    """Drawn, about a mean that differs by row and by column, as gradients of matrices do."""
    rng = np.random.default_rng(step)
    rows, columns = np.exp(np.linspace(-2, 2, 160))[:, None], np.exp(np.linspace(-1, 1, 144))
    matrix = (rng.normal(size=(160, 144)) + 1) * rows * columns
    return {
        "embedding": jnp.asarray(scale * matrix, jnp.float32),
        "final_norm": {"weight": jnp.asarray(scale * rng.normal(size=144), jnp.float32)},
    }


def directions(config, steps=30):
    """The last update of a run of the optax chain, and its state."""
    chain = transformation(config)
    state, update = chain.init(PARAMS), jax.jit(chain.update)
    updates = PARAMS
    for step in range(steps):
        updates, state = update(gradients(step), state, PARAMS)
    return updates, state


def settings(**changes):
    return TrainingConfig(**{"steps": 100, "weight_decay": 0.0, "clip": 1e9} | changes)


def moments(state):
    """dtype and bytes by path of all that has the shape of a parameter or of its factors."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {path_of(path): leaf for path, leaf in leaves if leaf.ndim}


def test_the_default_is_optax_adamw_behind_a_clip():
    config = TrainingConfig(steps=20)
    oracle = optax.chain(
        optax.clip_by_global_norm(config.clip),
        optax.adamw(schedule(config), b1=config.b1, b2=config.b2, weight_decay=config.weight_decay, mask=is_matrix),
    )
    optimizer = Optimizer(config)
    expected, kept = PARAMS, oracle.init(PARAMS)
    params, state = PARAMS, optimizer.init(PARAMS)
    for step in range(3):
        updates, kept = oracle.update(gradients(step), kept, expected)
        expected = optax.apply_updates(expected, updates)
        params, state = optimizer.update(gradients(step), state, params, jnp.asarray(step))
    jax.tree.map(np.testing.assert_array_equal, params, expected)


@pytest.mark.parametrize(("first", "second"), [("bfloat16", "float32"), ("float32", "bfloat16"), ("bfloat16",) * 2])
def test_moments_live_in_the_dtypes_that_the_config_names(first, second):
    updates, state = directions(settings(first_moment=first, second_moment=second))
    for path, leaf in moments(state).items():
        assert leaf.dtype.name == (first if "/mu/" in path else second), path
    expected, _ = directions(settings())
    # Eight bits a moment: about 1 % of what the update is.
    for found, exact in zip(jax.tree.leaves(updates), jax.tree.leaves(expected), strict=True):
        error = np.abs(np.asarray(found - exact))
        assert error.max() > 0 and error.mean() < 0.02 * np.abs(np.asarray(exact)).mean()


def test_second_moments_in_bfloat16_that_would_never_fall_are_refused():
    """At b2 = 0.999 a moment of which nothing is left in the gradient would stay where it is."""
    stuck = jnp.asarray(1.0, jnp.bfloat16)
    assert (0.999 * stuck.astype(jnp.float32)).astype(jnp.bfloat16) == stuck
    with pytest.raises(ValueError, match=r"^second_moment: found 'bfloat16' with b2 = 0\.999, expected 'float32', 'fa"):
        settings(second_moment="bfloat16", b2=0.999)
    highest = settings(second_moment="bfloat16", b2=1 - 2**-8).b2
    for value in np.linspace(1, 2, 129, dtype=np.float32):
        before = jnp.asarray(value, jnp.bfloat16)
        assert (jnp.float32(highest) * before.astype(jnp.float32)).astype(jnp.bfloat16) <= before


def test_factors_are_as_small_as_a_row_and_a_column():
    _, state = directions(settings(second_moment="factored"))
    shapes = {path: leaf.shape for path, leaf in moments(state).items() if leaf.size > 1}
    of_matrix = [shape for path, shape in shapes.items() if path.endswith("embedding")]
    assert sorted(of_matrix) == [(144,), (160,), (160, 144)]  # the two factors and the first moment
    of_norm = [shape for path, shape in shapes.items() if path.endswith("weight")]
    assert of_norm == [(144,), (144,)]  # a whole second moment and the first


def test_factored_second_moments_are_adams_where_they_have_rank_one():
    """Squares that are a product of a row and a column lose nothing by factoring; bias correction included.

    Gradients shrink, so that updates are shorter than 1 and the bound on their root mean square doesn't bind.
    """
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.normal(size=(160, 1))) * np.exp(rng.normal(size=144))
    only = {"embedding": PARAMS["embedding"]}

    def run(second):
        chain = transformation(settings(b1=0.0, second_moment=second))
        state, update, updates = chain.init(only), jax.jit(chain.update), only
        for step in range(20):
            signs = np.sign(np.random.default_rng(step).normal(size=sizes.shape))
            updates, state = update({"embedding": jnp.asarray((1 - step / 40) * signs * sizes)}, state, only)
        return updates["embedding"]

    np.testing.assert_allclose(run("factored"), run("float32"), rtol=1e-4)


def test_factors_are_everywhere_and_everything_else_lies_with_its_parameter():
    sizes = {"hidden_dim": 128, "num_layers": 2, "num_heads": 4, "num_kv_heads": 4, "head_dim": 32, "mlp_dim": 256}
    model = Qwen3(StudentConfig(vocab_size=200, param_dtype="bfloat16", **sizes))
    training = settings(second_moment="factored", first_moment="bfloat16", master="split")
    state = abstract_state(model, training, make_mesh())
    leaves = {path_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(state)}
    factors = {path for path, leaf in leaves.items() if "/v_row/" in path or "/v_col/" in path}
    assert len([path for path in factors if leaves[path].ndim == 2]) == 14  # of seven stacked matrices
    assert {leaves[path].sharding.spec for path in factors} == {P()}
    for path, leaf in jax.tree_util.tree_leaves_with_path(state.params):
        name = path_of(path)
        owners = [one for path, one in leaves.items() if path.endswith("/" + name) and one.shape == leaf.shape]
        assert len(owners) >= 3  # the parameter, its first moment and its lower half
        assert {one.sharding.spec for one in owners} == {partition_spec(name, leaf.ndim)}
