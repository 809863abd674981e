"""Dtypes and shapes of the optimizer's state, and agreement of its updates with oracles."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P
from student_sizes import small

from prism_jax.student.model_config import StudentConfig
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.sharding import make_mesh, partition_spec, path_of
from prism_jax.training.optimization.optimizer import Optimizer, is_matrix, schedule, transformation
from prism_jax.training.optimization.step import abstract_state
from prism_jax.training.run_config import TrainingConfig

PARAMS = {"embedding": jnp.full((160, 144), 0.5), "final_norm": {"weight": jnp.ones(144)}}


def gradients(step, scale=1.0):
    """Random gradients whose scale differs by row and by column, as for real matrices."""
    rng = np.random.default_rng(step)
    rows, columns = np.exp(np.linspace(-2, 2, 160))[:, None], np.exp(np.linspace(-1, 1, 144))
    matrix = (rng.normal(size=(160, 144)) + 1) * rows * columns
    return {
        "embedding": jnp.asarray(scale * matrix, jnp.float32),
        "final_norm": {"weight": jnp.asarray(scale * rng.normal(size=144), jnp.float32)},
    }


def directions(config, steps=30):
    """The last update of the optax chain after several steps, and its state."""
    chain = transformation(config)
    state, update = chain.init(PARAMS), jax.jit(chain.update)
    updates = PARAMS
    for step in range(steps):
        updates, state = update(gradients(step), state, PARAMS)
    return updates, state


def settings(**changes):
    return TrainingConfig(**{"steps": 100, "weight_decay": 0.0, "clip": 1e9} | changes)


def moments(state):
    """By path, all leaves of the state with the shape of a parameter or of its factors."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {path_of(path): leaf for path, leaf in leaves if leaf.ndim}


@pytest.mark.slow
def test_the_default_is_optax_adamw_after_clipping():
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
def test_moments_have_the_dtypes_in_the_config(first, second):
    updates, state = directions(settings(first_moment=first, second_moment=second))
    for path, leaf in moments(state).items():
        assert leaf.dtype.name == (first if "/mu/" in path else second), path
    expected, _ = directions(settings())
    # With eight bits per moment, the error is about 1 % of the update.
    for found, exact in zip(jax.tree.leaves(updates), jax.tree.leaves(expected), strict=True):
        error = np.abs(np.asarray(found - exact))
        assert error.max() > 0 and error.mean() < 0.02 * np.abs(np.asarray(exact)).mean()


@pytest.mark.parametrize("name", ["b1", "b2"])
def test_a_moment_without_decay_which_would_be_no_number_is_rejected(name):
    with pytest.raises(ValueError, match=rf"^{name}: found 1\.0, expected a number in \[0, 1\)"):
        settings(**{name: 1.0})


def test_second_moments_in_bfloat16_that_would_never_decay_are_rejected():
    """At b2 = 0.999 a bfloat16 moment would not decay even if the gradient is zero."""
    stuck = jnp.asarray(1.0, jnp.bfloat16)
    assert (0.999 * stuck.astype(jnp.float32)).astype(jnp.bfloat16) == stuck
    with pytest.raises(ValueError, match=r"^second_moment: found 'bfloat16' with b2 = 0\.999, expected 'float32', 'fa"):
        settings(second_moment="bfloat16", b2=0.999)
    highest = settings(second_moment="bfloat16", b2=1 - 2**-8).b2
    for value in np.linspace(1, 2, 129, dtype=np.float32):
        before = jnp.asarray(value, jnp.bfloat16)
        assert (jnp.float32(highest) * before.astype(jnp.float32)).astype(jnp.bfloat16) <= before


def test_factors_have_the_sizes_of_a_row_and_a_column():
    _, state = directions(settings(second_moment="factored"))
    shapes = {path: leaf.shape for path, leaf in moments(state).items() if leaf.size > 1}
    of_matrix = [shape for path, shape in shapes.items() if path.endswith("embedding")]
    assert sorted(of_matrix) == [(144,), (160,), (160, 144)]  # the two factors and the first moment
    of_norm = [shape for path, shape in shapes.items() if path.endswith("weight")]
    assert of_norm == [(144,), (144,)]  # the full second moment and the first


def test_factored_second_moments_equal_adams_if_they_have_rank_one():
    """Factoring is exact if the squares are products of a row and a column, including bias correction.

    Gradients shrink, so that the root mean square of updates stays below 1 and is not clipped.
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


def test_factors_are_replicated_and_everything_else_is_sharded_like_its_parameter():
    sizes = {"hidden_dim": 128, "num_layers": 2, "num_heads": 4, "num_kv_heads": 4, "head_dim": 32, "mlp_dim": 256}
    model = Qwen3(StudentConfig(vocab_size=200, param_dtype="bfloat16", **sizes))
    training = settings(second_moment="factored", first_moment="bfloat16", master="split")
    state = abstract_state(model, training, make_mesh())
    leaves = {path_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(state)}
    factors = {path for path, leaf in leaves.items() if "/v_row/" in path or "/v_col/" in path}
    assert len([path for path in factors if leaves[path].ndim == 2]) == 14  # two for each of seven stacked matrices
    assert {leaves[path].sharding.spec for path in factors} == {P()}
    for path, leaf in jax.tree_util.tree_leaves_with_path(state.params):
        name = path_of(path)
        owners = [one for path, one in leaves.items() if path.endswith("/" + name) and one.shape == leaf.shape]
        assert len(owners) >= 3  # the parameter, its first moment and its lower half
        assert {one.sharding.spec for one in owners} == {partition_spec(name, leaf.ndim)}


@pytest.mark.parametrize(("steps", "warmup"), [(1, 0.1), (1, 1.0), (8, 1.0)])
def test_a_schedule_may_consist_of_its_warm_up(steps, warmup):
    config = TrainingConfig(steps=steps, warmup=warmup, learning_rate=0.5)
    rates = [float(schedule(config)(step)) for step in range(steps + 1)]
    np.testing.assert_allclose(rates, np.linspace(0, 0.5, steps + 1), rtol=1e-6)


def test_the_rate_rises_to_its_peak_and_falls_to_its_end_at_the_last_step():
    config = TrainingConfig(steps=40, warmup=0.1, learning_rate=0.5, final_rate=0.02)
    rates = [float(schedule(config)(step)) for step in range(41)]
    assert rates[0] == 0 and rates[4] == max(rates) == pytest.approx(0.5)
    assert rates[40] == min(rates[4:]) == pytest.approx(0.01)


def test_weights_of_norms_do_not_decay():
    decays = jax.tree_util.tree_leaves_with_path(is_matrix(Qwen3(small(vocab_size=32)).abstract_params()))
    names = {decay: {path_of(path) for path, flag in decays if flag == decay} for decay in (True, False)}
    assert {name.rpartition("/")[2] for name in names[True]} == {"embedding", "kernel"}
    assert {name.rpartition("/")[2] for name in names[False]} == {"weight"}
