"""Microbatches give the gradient of their batch, even if labels are distributed unevenly over them."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import tiny_step
from tiny_step import LOSS, MESH, batch_of, jit, params, slots

from prism_jax.training.optimization.step import make_gradient, split


def uneven(batch):
    """Removes most labels of row 0 and all labels of row 1, and makes propensities differ strongly between rows."""

    batch = jax.tree.map(np.array, batch)
    batch.need_weight[0, 1:] = batch.accept_weight[0, 1:] = batch.response_weight[0, 3:] = 0
    for column in (batch.need_weight, batch.accept_weight, batch.response_weight):
        column[1] = 0
    spread = np.array([0.06, 0.9, 0.3, 0.5], np.float32)[:, None]
    return batch._replace(propensity=np.where(batch.logged > 0, spread, batch.propensity))


@functools.cache
def whole():
    """The batch that is split."""
    return uneven(batch_of(0, 1, 2, 3))


def function(depth, loss=LOSS, where=None):
    return make_gradient(tiny_step.shape(where, tiny.with_training(accumulation=depth).training, loss))


def gradient(depth, loss):
    return jit(function(depth, loss))(params(), whole(), jnp.asarray(3))


def assert_close(found, expected):
    """Compares gradients up to 1e-5 of the largest gradient of each parameter."""

    def one(a, b):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * float(np.abs(b).max()))

    jax.tree.map(one, found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["snips", "ips", "none"])
def test_four_microbatches_of_one_row_equal_one_batch_of_four(estimator):
    """Their labels are so uneven that the mean of their own gradients would be another one."""
    labels = [weight.sum(axis=1) for weight in (whole().need_weight, whole().accept_weight, whole().response_weight)]
    assert all(own[1] == 0 and own.max() >= 3 * own[0] > 0 for own in labels)
    loss = dataclasses.replace(LOSS, estimator=estimator)
    expected, metrics = gradient(1, loss)
    found, summed = gradient(4, loss)
    assert_close(found, expected)
    chex.assert_trees_all_close(summed, metrics, rtol=1e-5)
    assert all(float(jnp.abs(leaf).max()) > 0 for leaf in jax.tree.leaves(expected))


def test_denominators_are_the_weights_of_the_labels():
    found = jax.jit(tiny_step.shape().objective.denominators)(whole())
    b = jax.tree.map(np.asarray, whole())
    w = np.minimum(b.logged / np.maximum(b.propensity, LOSS.e_min), LOSS.w_max) * b.accept_weight
    known = w * np.take_along_axis(b.need_weight, b.accept_step, axis=1)
    assert found.need.denominator == b.need_weight.sum()
    assert found.accept.denominator == pytest.approx(w.sum(), rel=1e-6)
    assert found.burden.missed.denominator == pytest.approx(known.sum(), rel=1e-6)
    assert found.burden.false_alarm.denominator == found.burden.missed.denominator
    assert found.response.denominator == b.response_weight.sum()


def test_every_device_keeps_its_rows():
    """If two devices hold rows 0..3 and 4..7, each of two microbatches has two rows of each device."""
    batch = batch_of(*range(8))
    found = split(batch, 2, MESH)
    assert found.row.tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    np.testing.assert_array_equal(found.tokens[1], batch.tokens[1::2])
    nothing = batch._replace(response_target=batch.response_target[:, :0])  # rows without a supervised token
    assert split(nothing, 2, MESH).response_target.shape == (2, 4, 0)


@pytest.mark.slow
def test_the_sum_of_gradients_is_kept_in_float32_and_only_if_there_is_one(equations, scan_results):
    """At depth 1 no scan carries an array of the shape of stacked parameters; at depth 2 one carries the sum."""
    narrow = slots(param_dtype="bfloat16")
    abstract = narrow.model.abstract_params()
    shape = abstract["layers"]["mlp"]["up_proj"]["kernel"].shape

    def carried(depth):
        found = set()
        for equation in equations(function(depth, where=narrow), abstract, whole(), jnp.asarray(3)):
            if equation.primitive.name == "scan":
                carry, _ = scan_results(equation)
                found |= {aval.dtype.name for aval in carry if aval.shape == shape}
        return found

    assert carried(1) == set()
    assert carried(2) == {"float32"}
