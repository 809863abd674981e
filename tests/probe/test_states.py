import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from full_pass import trunk
from offers import make_stream
from safetensors.numpy import load_file

from prism_jax.probe import kept_states
from prism_jax.probe.probe_config import StatesConfig
from prism_jax.probe.states import Reader
from prism_jax.streams.edit import map_candidates
from prism_jax.student.attention import no_branches
from prism_jax.student.prompting.packing import decisions
from prism_jax.student.qwen3 import Tree

STREAM = make_stream(1, steps=3, most=3)


@pytest.fixture(scope="module")
def reader(model, template, draw_params):
    return Reader(model, draw_params(model), template, (1, 2), 4096)


@pytest.fixture(scope="module")
def read(reader):
    (states,) = reader.read([STREAM])
    return states


def test_a_call_that_was_interrupted_gives_the_states_of_one_that_was_not(reader, tmp_path, monkeypatch):
    monkeypatch.setattr(kept_states, "load_reader", lambda config: reader)
    (tmp_path / "model.gguf").write_bytes(b"tensors")
    config = StatesConfig(weights=str(tmp_path / "model.gguf"), blocks=reader.blocks)
    streams = [make_stream(2, steps=20, most=3), STREAM]
    _, whole = kept_states.states_of(streams, config, tmp_path / "states")
    (lost,) = [path for path in (tmp_path / "states").iterdir() if np.array_equal(load_file(path)["states"], whole)]
    lost.unlink()
    np.testing.assert_array_equal(kept_states.states_of(streams, config, tmp_path / "states")[1], whole)


def test_an_offer_has_the_states_of_its_own_conversation(reader, read):
    """As a plain causal sequence through a model of as many blocks as were read, for the offer that is furthest in."""
    *_, alone = decisions(STREAM)
    template, step = reader.template, alone.steps[0]
    ids = trunk(template, alone.events) + template.head()
    leaf, text = template.leaf(step.candidates[0]), template.tokenizer.encode(f" {step.candidates[0].text}")
    start = len(ids) + next(i for i in range(len(leaf)) if leaf[i : i + len(text)] == text)
    tokens = jnp.array([[*ids, *leaf]])

    @jax.jit
    def after(params, tokens):
        positions, mask = jnp.arange(tokens.shape[1])[None], no_branches(*tokens.shape)
        first = jax.tree.map(lambda leaf: leaf[:1], params["layers"])
        others = jax.tree.map(lambda leaf: leaf[1:], params["layers"])
        x = reader.model._blocks(first, reader.model._embed(params, tokens), positions, mask, None)
        return x[0], reader.model._blocks(others, x, positions, mask, None)[0]

    expected = [part for x in after(reader.params, tokens) for part in (x[start : start + len(text)].mean(0), x[-1])]
    np.testing.assert_allclose(read[-1], np.concatenate(expected), atol=2e-5)


def test_a_stream_that_is_cut_has_all_its_offers(reader):
    """A context that holds half of the stream cuts it into several rows."""
    parts = dataclasses.replace(reader, context=len(reader.template.system()) + 90).packed(STREAM)
    assert len(parts) > 1
    assert sum(len(row.accept_slot) for row in parts) == sum(len(step.candidates) for step in STREAM.steps)


def test_labels_and_responses_are_not_read(reader):
    answered = map_candidates(STREAM, lambda one: dataclasses.replace(one, y_accept=None, votes=(), response="Sure"))
    for ours, theirs in zip(reader.packed(answered)[0], reader.packed(STREAM)[0], strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("at", [(), (2, 1), (0, 1), (1, 3)])
def test_only_blocks_that_exist_can_be_read(model, at):
    none = np.zeros((1, 8), np.int32)
    tree = Tree(*[none] * 6)
    with pytest.raises(ValueError, match=r"at: found .* expected ascending numbers of blocks from 1 to 2"):
        model.branch_states({}, tree, 8, None, at)
