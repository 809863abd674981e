"""Decoding by the kernels for NVIDIA GPUs, which Pallas's interpreter runs: the same as by the blocks elsewhere."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_jax.student import constrained, decoding
from prism_jax.student.kv_cache import LayerCache, Segment, read_next, unstack_layers
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.qwen3 import Qwen3

pytestmark = pytest.mark.slow

CONFIG = StudentConfig(
    vocab_size=96, hidden_dim=64, num_layers=2, num_heads=8, num_kv_heads=2, head_dim=32, mlp_dim=96, qk_norm=True
)
ROWS = 3


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    pallas_call = functools.partial(decoding.pl.pallas_call, interpret=True)
    monkeypatch.setattr(decoding.pl, "pallas_call", pallas_call)


def cache_of(config, count, length, seed):
    """Random keys and values."""
    heads, keys = (count, config.num_kv_heads), jax.random.split(jax.random.key(seed), 2 * config.num_layers)
    shapes = [(*heads, config.head_dim, length), (*heads, length, config.head_dim)] * config.num_layers
    arrays = [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]
    return tuple(LayerCache(*pair) for pair in zip(arrays[::2], arrays[1::2], strict=True))


@pytest.mark.parametrize("qk_norm", [True, False])
@pytest.mark.parametrize(
    ("rows", "programs"),
    [(ROWS, decoding._PROGRAMS), (decoding.ROWS + 1, decoding._PROGRAMS), pytest.param(ROWS, 11, id="rows suffice")],
)
def test_a_token_is_read_as_by_the_blocks(rows, programs, qk_norm, monkeypatch):
    """After pages of a trunk and visible rows of a cache of its own, in which only the new position is written."""
    monkeypatch.setattr(decoding, "_PROGRAMS", programs)
    config = dataclasses.replace(CONFIG, qk_norm=qk_norm)
    model = Qwen3(config)
    params = unstack_layers(jax.tree.map(lambda leaf: leaf * 3, model.init(jax.random.key(0))))
    random = np.random.default_rng(0)
    pool, own = cache_of(config, 2 * rows + 1, 32, 1), cache_of(config, rows, 48, 2)
    lengths = random.integers(1, 64, rows).astype(np.int32)
    trunk = Segment.first(pool, lengths, random.permutation(2 * rows).reshape(rows, 2).astype(np.int32) + 1)
    seen = (random.random((rows, 48)) < 0.5) & (np.arange(48) < 20) | (np.arange(48) == 20)
    token = random.integers(config.vocab_size, size=rows).astype(np.int32)
    given = model, params, token, lengths + 20, Segment(own, seen), jnp.array(20), [trunk]
    fused, plain = (jax.jit(read_next, static_argnums=(0, 7))(*given, fused) for fused in (True, False))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5, rtol=2e-5), fused, plain)


def test_texts_are_the_same(monkeypatch):
    """The decoder takes the kernels where cudnn is asked for and one device holds the parameters."""
    model = Qwen3(dataclasses.replace(CONFIG, vocab_size=32))
    params = unstack_layers(jax.tree.map(lambda leaf: leaf * 3, model.init(jax.random.key(0))))
    every = constrained.make_automaton(np.zeros((1, 32), np.int8), np.full(32, -1), [True])
    spans, automaton = [constrained.Span((1,), 9), constrained.Span((2, 3), 5)], constrained.DeviceAutomaton(every)
    lengths = np.array([5, 16, 11], np.int32)
    trunk = Segment.first(cache_of(model.config, ROWS, 16, 1), np.array([16, 2, 7], np.int32))

    def texts(model):
        logits = jax.random.normal(jax.random.key(3), (ROWS, 32))
        own = cache_of(model.config, ROWS, 16 + constrained.room(spans), 2)
        return constrained.write_spans(
            model, params, constrained.Start(own, lengths, 16, logits, trunk), spans, automaton
        )

    plain, programs = texts(model), []
    original = decoding.attend_in_runs
    monkeypatch.setattr(decoding, "attend_in_runs", lambda *args: programs.append(1) or original(*args))
    assert texts(Qwen3(dataclasses.replace(model.config, attention="cudnn"))) == plain
    assert programs


@pytest.mark.parametrize(
    "change", [{"head_dim": 24}, {"hidden_dim": 72}, {"mlp_dim": 100}, {"num_heads": 34, "num_kv_heads": 2}]
)
def test_other_sizes_are_left_to_xla(change):
    assert decoding.fits(CONFIG, [48, 16]) and not decoding.fits(CONFIG, [40])
    assert not decoding.fits(dataclasses.replace(CONFIG, **change), [48])
