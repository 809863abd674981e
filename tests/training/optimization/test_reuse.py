"""Frozen blocks are not differentiated, and their features of a row can be computed once and reused."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import tiny_step
from tiny_step import LOSS, POINT
from whole_objective import objective

from prism_jax.runtime.dataclass_config import ConfigError, from_config_dict
from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.training.job import plan
from prism_jax.training.loop import train
from prism_jax.training.optimization.frozen import FrozenFeatures, Partition
from prism_jax.training.optimization.step import make_gradient
from prism_jax.training.pathways.supervision import with_soft_labels
from prism_jax.training.run import resolve
from prism_jax.training.run_config import RunConfig
from prism_jax.training.workdir import Workdir

LOWER = ("embedding", "layers/[01]/.*")
SLOTS = tiny_step.slots(num_layers=3)
PARTITION = Partition(SLOTS.model.abstract_params(), LOWER)
WIDTH = jnp.asarray(0.1)


@pytest.fixture(scope="module")
def params(draw_params):
    return draw_params(SLOTS.model)


def test_depth_counts_completely_frozen_blocks_from_the_lowest_if_the_embedding_is_frozen():
    shapes = SLOTS.model.abstract_params()
    for patterns, depth in (
        ((), 0),
        (LOWER, 2),
        (("layers/[01]/.*",), 0),  # the embedding trains
        (("embedding", "layers/[02]/.*"), 1),
        (("embedding", "layers/0/.*", "layers/1/attention/.*"), 1),
        (("embedding", "layers/.*"), 3),
    ):
        assert Partition(shapes, patterns).depth == depth, patterns


@pytest.mark.slow
def test_features_give_the_losses_and_the_gradient_of_ids(params):
    """From ids and from features, with the frozen blocks cut off; the oracle differentiates through all blocks."""
    batch = tiny_step.batch_of(0, 1)
    cut = dataclasses.replace(SLOTS, frozen=PARTITION.depth)
    trained = PARTITION.split(params)

    def loss_and_gradient(slots, batch):
        def loss(trained, batch):
            return objective(PARTITION.merge(params, trained), batch, slots, LOSS, POINT, WIDTH)

        return tiny_step.jit(jax.value_and_grad(loss, has_aux=True))(trained, batch)

    expected = loss_and_gradient(SLOTS, batch)
    chex.assert_trees_all_close(loss_and_gradient(cut, batch), expected, rtol=1e-5, atol=1e-6)
    kept = FrozenFeatures(SLOTS, PARTITION)(params, batch)
    assert kept.tokens.shape == (*batch.tokens.shape, SLOTS.model.config.hidden_dim)
    chex.assert_trees_all_close(loss_and_gradient(cut, kept), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_the_backward_pass_does_not_visit_frozen_blocks(equations, params):
    """The gradient scans the lower blocks forward only; just the upper block is also scanned in reverse."""

    def scans(patterns):
        step = tiny_step.shape(SLOTS, tiny.with_training(frozen=patterns).training)
        found = equations(make_gradient(step), params, tiny_step.batch_of(0, 1), jnp.asarray(1))
        # The chunked response loss also scans, but does not read parameters of blocks.
        kernel = params["layers"]["mlp"]["up_proj"]["kernel"].shape[1:]
        return sorted(
            (equation.params["length"], equation.params["reverse"])
            for equation in found
            if equation.primitive.name == "scan" and any(v.aval.shape[1:] == kernel for v in equation.invars)
        )

    assert scans(()) == [(3, False), (3, True)]
    assert scans(LOWER) == [(1, False), (1, True), (2, False)]


@pytest.mark.slow
def test_each_row_is_computed_once_for_any_order_of_batches(params, monkeypatch):
    features = FrozenFeatures(SLOTS, PARTITION)
    read, seen = features._read, []
    monkeypatch.setattr(features, "_read", lambda params, row: (seen.append(int(row.row[0])), read(params, row))[1])
    first = features(params, tiny_step.batch_of(0, 1))
    again = features(params, tiny_step.batch_of(1, 2, 0))
    assert seen == [0, 1, 2]
    np.testing.assert_array_equal(again.tokens[[2, 0]], first.tokens)
    np.testing.assert_array_equal(again.trunk[[2, 0]], first.trunk)
    np.testing.assert_array_equal(again.row, [1, 2, 0])


def run(folder, **training):
    student = dataclasses.replace(tiny.CONFIG.student, num_layers=3)
    folder.mkdir()
    config = tiny.with_training(
        dataclasses.replace(tiny.CONFIG, student=student), steps=7, checkpoint_every=5, frozen=LOWER, **training
    )
    return functools.partial(train, plan(resolve(config, Workdir(folder))), progress=False)


@pytest.mark.slow
def test_a_run_with_reused_features_equals_one_without_even_if_resumed(tmp_path):
    """Seven steps are more than two epochs; one run is stopped in its second epoch and then resumed."""
    expected = run(tmp_path / "ids")()
    whole = run(tmp_path / "whole", reuse_frozen=True)()
    chex.assert_trees_all_close(whole, expected, rtol=1e-5, atol=1e-5)
    job = run(tmp_path / "parts", reuse_frozen=True)
    with pytest.raises(tiny.StoppedError):
        job(after_step=tiny.stop_after(6))
    chex.assert_trees_all_equal(job(), whole)


def test_reuse_without_frozen_blocks_is_rejected_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"^training\.reuse_frozen: found True, but the embedding or a part of layers"):
        plan(resolve(tiny.with_training(reuse_frozen=True, frozen=("layers/0/.*",))))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match=r"^config\.training\.reuse_frozen: found True on data 2 x fsdp 1 x tensor 1"):
        from_config_dict(RunConfig, {"training": {"reuse_frozen": True}, "mesh": {"data": 2}})


def test_soft_labels_are_shares_of_votes_and_keep_other_labels():
    candidates = (
        Candidate(text="a", y_accept=1.0, votes=(True, False, True), logged=True),
        Candidate(text="b", y_accept=0.0, votes=(False, False)),
        Candidate(text="c", y_accept=1.0),
        Candidate(text="d"),
    )
    stream = Stream(
        id="s", events=(Event(time=0.0, text="x"),), steps=(Step(event=0, candidates=candidates, y_need=1.0),)
    )
    (soft,) = with_soft_labels([stream])
    assert [c.y_accept for c in soft.steps[0].candidates] == [pytest.approx(2 / 3), 0.0, 1.0, None]
    undone = dataclasses.replace(soft, steps=(dataclasses.replace(soft.steps[0], candidates=candidates),))
    assert undone == stream
