import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_jax.student.heads import token_cross_entropy

TOKENS, WIDTH, VOCABULARY = 24, 6, 50


def draw(seed, tokens=TOKENS, vocabulary=VOCABULARY):
    rng = np.random.default_rng(seed)
    head = jnp.asarray(rng.normal(size=(vocabulary, WIDTH)), jnp.float32)
    hidden = jnp.asarray(rng.normal(size=(tokens, WIDTH)), jnp.float32)
    targets = jnp.asarray(rng.integers(vocabulary, size=tokens), jnp.int32)
    weights = jnp.asarray(rng.choice([0.0, 0.5, 1.0], size=tokens), jnp.float32)
    return head, hidden, targets, weights


def whole(head, hidden, targets, weights):
    """Cross-entropy from all logits at once."""
    losses = optax.losses.softmax_cross_entropy_with_integer_labels(hidden @ head.T, targets)
    return jnp.sum(losses * weights)


def whole_dynamic(head, hidden, targets, weights):
    """The dynamic loss from all logits at once, whose gradient is that of -p."""
    losses = optax.losses.softmax_cross_entropy_with_integer_labels(hidden @ head.T, targets)
    return jnp.sum(jnp.exp(jax.lax.stop_gradient(-losses)) * losses * weights)


chunked = jax.jit(token_cross_entropy, static_argnames="chunk")


def total(chunk, dynamic=False):
    return lambda *args: token_cross_entropy(*args, chunk=chunk, dynamic=dynamic)[0]


@functools.cache
def with_gradients(function, *settings):
    """Returns a compiled function for the loss and its gradients by head, hidden states and weights."""
    function = function(*settings) if settings else function
    return jax.jit(jax.value_and_grad(function, argnums=(0, 1, 3)))


@pytest.mark.parametrize(("chunk", "dynamic"), [*((chunk, False) for chunk in (1, 5, 8, TOKENS, 100)), (5, True)])
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1))
def test_chunked_equals_whole(chunk, dynamic, seed):
    """Loss and gradients agree, whether or not the chunk divides the number of tokens."""
    args = draw(seed)
    got = with_gradients(total, chunk, dynamic)(*args)
    want = with_gradients(whole_dynamic if dynamic else whole)(*args)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4, rtol=1e-5), got, want)


def test_the_loss_of_no_tokens_is_zero():
    sums, gradients = jax.value_and_grad(total(8), argnums=(0, 1, 3))(*draw(0, tokens=0))
    assert sums == 0
    assert not np.any(gradients[0]) and [x.size for x in gradients[1:]] == [0, 0]
    assert token_cross_entropy(*draw(0, tokens=0)) == (0, 0)


def test_weights_are_summed_and_padding_changes_nothing():
    head, hidden, targets, weights = draw(0)
    loss, weight = chunked(head, hidden, targets, weights, chunk=7)
    assert weight == weights.sum()
    padded = [jnp.pad(x, [(0, 9)] + [(0, 0)] * (x.ndim - 1)) for x in (hidden, targets, weights)]
    loss_padded, weight_padded = chunked(head, *padded, chunk=7)
    np.testing.assert_allclose(loss_padded, loss, rtol=1e-6)
    assert weight_padded == weight


def test_logits_are_compared_in_float32():
    """With hidden states and head in bfloat16 the loss is float32 and near the exact one."""
    head, hidden, targets, weights = (x.astype(jnp.bfloat16) if x.ndim == 2 else x for x in draw(0))
    loss, _ = chunked(head, hidden, targets, weights, chunk=8)
    assert loss.dtype == jnp.float32
    exact = whole(head.astype(jnp.float32), hidden.astype(jnp.float32), targets, weights)
    np.testing.assert_allclose(loss, exact, rtol=2.0**-8)


def largest_traced(equations, function, args):
    """Size of the largest traced array with a vocabulary axis, except for the head and its gradient."""
    shapes = {variable.aval.shape for equation in equations(function, *args) for variable in equation.outvars}
    return max(math.prod(shape) for shape in shapes if VOCABULARY in shape and WIDTH not in shape)


def largest_compiled(function, args):
    """The same in the compiled program."""
    text = jax.jit(function).lower(*args).compile().as_text()
    shapes = [tuple(map(int, found.split(","))) for found in re.findall(r"[a-z]+\d+\[([\d,]+)\]", text)]
    return max(math.prod(shape) for shape in shapes if VOCABULARY in shape and WIDTH not in shape)


def test_no_more_than_a_chunk_of_logits_ever_exists(equations):
    """Neither in the forward nor in the backward pass; the plain loss shows that the check detects larger arrays."""
    args = draw(0, tokens=640)
    for function, most in ((total(16), 16 * VOCABULARY), (whole, 640 * VOCABULARY)):
        gradients = jax.value_and_grad(function, argnums=(0, 1))
        assert largest_traced(equations, gradients, args) == most
        assert largest_compiled(gradients, args) == most
