import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from prism_jax.student.sampling import make_sampling, next_token, restrict

VOCABULARY, ROWS = 23, 4
restricted, drawn = jax.jit(restrict), jax.jit(next_token)


def draw_logits(seed, rows=ROWS):
    return np.random.default_rng(seed).normal(size=(rows, VOCABULARY)).astype(np.float32) * 3


def theirs(row, temperature, top_k, top_p):
    """Applies the warpers of transformers to one row, in the order that transformers uses."""
    torch = pytest.importorskip("torch", reason="torch is the oracle of sampling")
    from transformers.generation import logits_process

    scores = torch.tensor(row)[None]
    for warper in (
        logits_process.TemperatureLogitsWarper(float(temperature)),
        logits_process.TopKLogitsWarper(top_k) if top_k else None,
        logits_process.TopPLogitsWarper(top_p) if top_p < 1 else None,
    ):
        scores = scores if warper is None else warper(None, scores)
    return scores[0].numpy()


row_settings = st.tuples(
    st.sampled_from([0.3, 1.0, 2.5]), st.integers(0, VOCABULARY + 2), st.sampled_from([0.05, 0.5, 0.9, 0.999, 1.0])
)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), rows=st.lists(row_settings, min_size=ROWS, max_size=ROWS))
def test_what_is_left_to_draw_from_equals_transformers(seed, rows):
    logits = draw_logits(seed)
    temperature, top_k, top_p = (list(column) for column in zip(*rows, strict=True))
    got = np.asarray(restricted(logits, make_sampling(ROWS, temperature, top_k, top_p)))
    want = np.stack([theirs(row, *setting) for row, setting in zip(logits, rows, strict=True)])
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_the_likeliest_token_is_always_left():
    logits = draw_logits(0)
    for restriction in ({"top_k": 1}, {"top_p": 1e-6}):
        left = np.isfinite(restricted(logits, make_sampling(ROWS, 1.0, **restriction)))
        np.testing.assert_array_equal(left, np.arange(VOCABULARY) == logits.argmax(axis=1)[:, None])


def test_draws_have_the_probabilities_that_are_left():
    """Chi-square test over 20,000 rows that differ only in their seeds; excluded tokens are never drawn."""
    count = 20_000
    logits = draw_logits(1, rows=1)
    left = np.asarray(restricted(logits, make_sampling(1, 1.5, 8, 0.9)))[0]
    tokens = np.asarray(drawn(np.repeat(logits, count, axis=0), make_sampling(count, 1.5, 8, 0.9, seed=7), 3))
    observed = np.bincount(tokens, minlength=VOCABULARY)
    probability = np.asarray(jax.nn.softmax(left), np.float64)
    assert not observed[probability == 0].any() and 3 <= (probability > 0).sum() < 8
    kept = probability > 0
    assert stats.chisquare(observed[kept], count * probability[kept] / probability.sum()).pvalue > 1e-3


def test_a_draw_depends_on_its_own_row_seed_and_place_only():
    logits = np.zeros((ROWS, VOCABULARY), np.float32)
    seeds = [5, 9, 5, 2**32 - 1]
    together = np.asarray([drawn(logits, make_sampling(ROWS, 1.0, seed=seeds), place) for place in range(40)])
    np.testing.assert_array_equal(together[:, 0], together[:, 2])
    for row, seed in enumerate(seeds):
        alone = [drawn(logits[:1], make_sampling(1, 1.0, seed=seed), place)[0] for place in range(40)]
        np.testing.assert_array_equal(together[:, row], alone)
    assert len(set(together[:, 0])) > 10  # places differ
    assert (together[:, 0] != together[:, 1]).mean() > 0.5 < (together[:, 1] != together[:, 3]).mean()
    np.testing.assert_array_equal(make_sampling(3, seed=4).seed, [4, 5, 6])


def test_temperature_zero_is_greedy_row_by_row():
    logits = draw_logits(2)
    rows = [drawn(logits, make_sampling(ROWS, [0.0, 5.0, 0.0, 5.0], seed=seed), 0) for seed in range(30)]
    best = logits.argmax(axis=1)
    same = np.asarray(rows) == best
    assert same[:, [0, 2]].all() and not same[:, 1].all() and not same[:, 3].all()
    np.testing.assert_array_equal(drawn(logits, make_sampling(ROWS), 0), best)
    np.testing.assert_array_equal(drawn(jnp.zeros((1, 5)), make_sampling(1), 0), [0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": -0.5}, "temperature: found [-0.5, -0.5], expected a number of at least 0"),
        ({"temperature": [1.0, float("nan")]}, "temperature: found [1.0, nan], expected a number of at least 0"),
        ({"top_k": [-1, 3]}, "top_k: found [-1, 3], expected at least 0"),
        ({"top_p": 0.0}, "top_p: found [0.0, 0.0], expected a number in (0, 1]"),
        ({"seed": [1, 2, 3]}, "seed: found 3 entries, expected one or one for each of the 2 rows"),
        ({"seed": [1, -2]}, "seed: found [1, -2], expected numbers that fit into uint32"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_sampling(2, **changes)
