import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny_step import POINT, RUN, SPLIT, params, shape, stacked
from whole_objective import objective

from prism_jax.decision import losses
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.student.prompting.packing import Packed
from prism_jax.student.qwen3 import Tree
from prism_jax.student.scoring.slots import Slots
from prism_jax.student.sharding import make_mesh
from prism_jax.training.input_pipeline import batches
from prism_jax.training.optimization.objective import Objective, Terms
from prism_jax.training.optimization.step import init_state, make_step

SLOTS = Slots(RUN.model, RUN.template.yes, RUN.template.no, SPLIT.size.window, SPLIT.size.visible)


BATCH = stacked(SPLIT.rows)


compiled = jax.jit(objective, static_argnums=(2, 3, 4))


def terms(loss=tiny.CONFIG.loss, point=POINT, batch=BATCH, width=0.1):
    return compiled(params(), batch, SLOTS, loss, point, width)


@functools.cache
def gradient(loss):
    """A compiled program from parameters and a batch to the terms and the gradient of the total."""

    def total(params, batch):
        return objective(params, batch, SLOTS, loss, POINT, 0.1)

    return jax.jit(jax.value_and_grad(total, has_aux=True)).lower(params(), BATCH).compile()


@functools.cache
def logits():
    hidden = jax.jit(RUN.model.branch_hidden, static_argnums=2)(params(), Tree.of(BATCH), SLOTS.window)
    read = [
        np.asarray(RUN.model.answers(params(), hidden, slot, SLOTS.yes, SLOTS.no), np.float64)
        for slot in (BATCH.need_slot, BATCH.accept_slot)
    ]
    return hidden, *read


def test_each_part_of_the_burden_has_its_own_weight():
    z, y, ones = jnp.array([-1.0, 0.5, 2.0]), jnp.array([0.0, 1.0, 0.0]), jnp.ones(3)
    sums = Terms(
        need=losses.need_sums(z, y),
        accept=losses.accept_sums(z, y, ones, ones),
        burden=losses.burden_sums(z, z, y, y, c_fa=1.0, c_fn=2.0, width=0.1),
        response=losses.Sums(jnp.ones(()), jnp.ones(())),
    )
    assert sums.burden.false_alarm.mean() != sums.burden.missed.mean()
    for false_alarm, missed in ((3.0, 0.0), (0.0, 0.5)):
        loss = dataclasses.replace(tiny.CONFIG.loss, slow=0.0, false_alarm=false_alarm, missed=missed)
        expected = false_alarm * sums.burden.false_alarm.mean() + missed * sums.burden.missed.mean()
        assert Objective(SLOTS, loss, POINT).total(sums)[1]["burden"] == expected > 0


def test_steps_without_a_need_label_are_not_in_the_burden():
    judged = np.arange(BATCH.need_weight.shape[1], dtype=np.float32) % 2
    partly = BATCH._replace(need_weight=BATCH.need_weight * judged)
    changed = partly._replace(y_need=np.where(judged, BATCH.y_need, 1 - BATCH.y_need))
    burdens = [float(terms(batch=batch)[1]["burden"]) for batch in (BATCH, partly, changed)]
    assert burdens[0] != burdens[1] == burdens[2] > 0


def test_terms_equal_the_formulas_written_out():
    hidden, z_need, z_accept = logits()
    b = Packed(*(np.asarray(leaf, np.float64) for leaf in BATCH))
    _, found = terms()
    need = np.logaddexp(0, z_need) - b.y_need * z_need
    assert found["need"] == pytest.approx((need * b.need_weight).sum() / b.need_weight.sum(), rel=1e-5)
    w = np.minimum(b.logged / np.maximum(b.propensity, 0.05), 20) * b.accept_weight
    accept = np.logaddexp(0, z_accept) - b.y_accept * z_accept
    assert found["accept"] == pytest.approx((accept * w).sum() / w.sum(), rel=1e-5)
    s = z_accept - np.logaddexp(0, -z_need)  # one candidate per step, so slots correspond
    g = 1 / (1 + np.exp(-(s - np.log(0.5)) / 0.1))
    cost = g * (1 - b.y_accept) * 1.0 + (1 - g) * b.y_need * b.y_accept * 2.0
    assert found["burden"] == pytest.approx((cost * w).sum() / w.sum(), rel=1e-4)
    rows, index = np.nonzero(np.asarray(BATCH.response_weight))
    states = np.asarray(hidden)[rows, np.asarray(BATCH.response_source)[rows, index]]
    scores = jax.nn.log_softmax(states @ np.asarray(params()["embedding"]).T)
    target = np.asarray(BATCH.response_target)[rows, index]
    assert found["response"] == pytest.approx(-np.mean(np.asarray(scores)[np.arange(len(rows)), target]), rel=1e-5)


@pytest.mark.slow
def test_the_total_is_the_weighted_sum_of_the_terms():
    loss = dataclasses.replace(tiny.CONFIG.loss, response=0.3, need=0.7, accept=1.1, burden=0.2)
    total, found = terms(loss)
    names = ("response", "need", "accept", "burden")
    assert total == pytest.approx(sum(getattr(loss, name) * float(found[name]) for name in names), rel=1e-6)
    assert found["loss"] == total


@pytest.mark.slow
def test_a_response_with_weight_zero_is_reported_without_computing_its_gradient():
    trained, reported = gradient(tiny.CONFIG.loss), gradient(dataclasses.replace(tiny.CONFIG.loss, response=0.0))
    values = [program(params(), BATCH)[0][1]["response"] for program in (reported, trained)]
    chex.assert_trees_all_close(*values, rtol=1e-6)
    # One multiplication and one addition for each of the gradients of the head and of the hidden states.
    saved = 4 * BATCH.response_target.size * RUN.model.config.vocab_size * RUN.model.config.hidden_dim
    assert reported.cost_analysis()["flops"] <= trained.cost_analysis()["flops"] - saved


@pytest.mark.slow
def test_rows_without_response_tokens_have_the_same_other_terms():
    none = {name: getattr(BATCH, name)[:, :0] for name in Packed._fields if name.startswith("response_")}
    _, found = terms(dataclasses.replace(tiny.CONFIG.loss, response=0.0), batch=BATCH._replace(**none))
    _, whole = terms(dataclasses.replace(tiny.CONFIG.loss, response=0.0))
    assert found.pop("response") == 0 < whole.pop("response")
    chex.assert_trees_all_close(found, whole, rtol=1e-6)


def test_the_costs_of_the_operating_point_change_only_the_burden():
    assert POINT.c_fn < 4.0
    _, cheap = terms()
    _, dear = terms(point=OperatingPoint(c_fn=4.0))
    assert cheap["burden"] != dear["burden"]
    for name in ("need", "accept", "response"):
        assert cheap[name] == dear[name]


def test_rows_of_padding_change_nothing():
    empty = jax.tree.map(lambda leaf: np.zeros_like(leaf), SPLIT.rows[0])
    empty = empty._replace(propensity=np.ones_like(empty.propensity))
    padded = stacked([*SPLIT.rows, empty])
    # The mean of A / e is taken over offers, and a row of padding has none.
    chex.assert_trees_all_close(terms(batch=padded)[1], terms()[1], rtol=1e-5)


@pytest.mark.slow
def test_a_batch_without_labels_has_loss_zero_and_a_finite_gradient():
    blank = BATCH._replace(
        **{name: jnp.zeros_like(getattr(BATCH, name)) for name in ("need_weight", "accept_weight", "response_weight")}
    )
    (total, _), grads = gradient(tiny.CONFIG.loss)(params(), blank)
    assert total == 0
    chex.assert_tree_all_finite(grads)


def test_the_gate_narrows_geometrically():
    width = Objective(SLOTS, tiny.CONFIG.loss, POINT).width
    widths = np.array([float(width(step, 5)) for step in range(5)])
    assert widths[0] == pytest.approx(0.25)
    assert widths[-1] == pytest.approx(0.05)
    assert np.diff(np.log(widths)) == pytest.approx(np.log(0.05 / 0.25) / 4, rel=1e-4)


@pytest.mark.slow
def test_the_step_compiles_once_and_donates_its_state():
    config = tiny.CONFIG.training
    step = make_step(shape(SLOTS))
    state = init_state(RUN.model, config, make_mesh(), jax.random.key(0))
    first = state.params["embedding"]
    iterator = batches(SPLIT, config.batch, 0)
    for _ in range(3):
        state, _ = step(state, next(iterator))
    assert step._cache_size() == 1
    assert first.is_deleted()
    assert int(state.step) == 3


def test_every_stream_occurs_once_per_epoch_in_a_new_order():
    iterator = batches(SPLIT, 4, seed=3)
    epochs = [np.concatenate([next(iterator).row for _ in range(3)]).tolist() for _ in range(3)]
    assert all(sorted(epoch) == list(range(12)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
