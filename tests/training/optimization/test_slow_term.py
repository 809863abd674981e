"""The burden prices the slow pass that the operating point deploys, for students that train slow branches."""

import dataclasses
import functools
import re

import chex
import jax
import numpy as np
import pytest
import tiny
from pathway_streams import STREAMS, TEMPLATE, Example, config, each_step, supervised
from synthetic_scores import evaluate, make_scores
from whole_objective import objective, sums

from prism_jax.decision import gate
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.training.pathways.supervision import supervise

FOUND = supervised(slow=0.5)
EXAMPLE = Example.of(FOUND.streams)


def terms(point, loss=FOUND.loss, example=EXAMPLE):
    """The total loss and its parts."""
    total, found = objective(example.params, example.batch, example.slots, loss, point, 0.1)
    return float(total), {name: float(value) for name, value in found.items()}


@functools.cache
def without_price():
    """Where it costs nothing, the slow pass is not priced, whatever the operating point."""
    return terms(OperatingPoint(), dataclasses.replace(FOUND.loss, slow=0.0))


@pytest.mark.slow
def test_changing_the_margin_or_the_policy_changes_the_loss():
    totals = [terms(OperatingPoint(margin=margin))[0] for margin in (0.0, 0.05, 0.2, 0.5)]
    assert totals == sorted(totals) and len(set(totals)) == 4
    assert terms(OperatingPoint(policy="static"))[0] == totals[0]
    assert terms(OperatingPoint(margin=0.2, policy="product"))[0] == totals[0]


@pytest.mark.parametrize("policy", ["dynamic", "static"])
@pytest.mark.parametrize("margin", [0.0, 0.1])
def test_training_prices_the_slow_pass_exactly_where_the_operating_point_deploys_it(policy, margin):
    point = OperatingPoint(policy=policy, margin=margin)
    (deployed,) = {row.policy for row in evaluate(make_scores(streams=20), point).policies if row.deployed}
    total, found = terms(point)
    assert (found["burden_slow"] > 0) == (deployed == "slow_on_margin")
    without = without_price()
    assert "burden_slow" not in without[1]
    assert found["burden"] == pytest.approx(without[1]["burden"] + found["burden_slow"], rel=1e-6)
    assert total == pytest.approx(without[0] + FOUND.loss.burden * found["burden_slow"], rel=1e-6)


def test_with_a_sharp_edge_it_is_the_tokens_that_the_deployed_margin_spends():
    """The mean over fast branches of the tokens of their slow pass where the gate's own band holds."""
    point = OperatingPoint(margin=0.15)
    loss = dataclasses.replace(FOUND.loss, slow=1.0, slow_width=1e-6)
    z_need, z_accept = EXAMPLE.logits(EXAMPLE.batch.need_slot), EXAMPLE.logits(EXAMPLE.batch.accept_slot)
    tokens, inside = [], []
    for i, stream in enumerate(FOUND.streams):
        for j, step in enumerate(stream.steps):
            if not step.slow:
                p_need, p_accept = (1 / (1 + np.exp(-z[i, j])) for z in (z_need, z_accept))
                tokens.append(sum(len(field.text) for field in TEMPLATE.slow(step.rationale)))
                inside.append(bool(gate.slow_band(p_need, p_accept, point.c_fa, point.c_fn, point.margin)))
    assert 0 < sum(inside) < len(inside)
    assert terms(point, loss)[1]["burden_slow"] == pytest.approx(np.mean(np.multiply(tokens, inside)), rel=1e-5)


@pytest.mark.slow
def test_the_gradient_reaches_the_signals_of_fast_branches_only():
    def price(hidden):
        params = {**EXAMPLE.params, "hidden": hidden}
        return objective(params, EXAMPLE.batch, EXAMPLE.slots, FOUND.loss, OperatingPoint(), 0.1)[1]["burden_slow"]

    reached = np.abs(np.asarray(jax.grad(price)(EXAMPLE.params["hidden"]))).max(axis=-1) > 0
    batch = jax.tree.map(np.asarray, EXAMPLE.batch)
    fast = np.zeros_like(reached)
    for row in range(len(fast)):
        priced = batch.slow_tokens[row] > 0
        fast[row, batch.accept_slot[row][priced]] = fast[row, batch.need_slot[row][batch.accept_step[row][priced]]] = (
            True
        )
    np.testing.assert_array_equal(reached, fast)


def test_without_slow_branches_the_margin_changes_nothing():
    plain = supervised()
    assert plain.loss.slow == 0 and plain.streams == STREAMS
    example = Example.of(plain.streams)
    near, far = (terms(OperatingPoint(margin=margin), plain.loss, example) for margin in (0.0, 0.5))
    assert near == far and "burden_slow" not in near[1]
    # Even if it is asked for, there is no slow pass to price.
    assert terms(OperatingPoint(), tiny.CONFIG.loss, example)[1]["burden_slow"] == 0


@pytest.mark.slow
def test_the_sums_of_microbatches_add_up():
    def slow_of(rows):
        part = jax.tree.map(lambda leaf: leaf[rows], EXAMPLE.batch)
        params = {**EXAMPLE.params, "hidden": EXAMPLE.params["hidden"][rows]}
        return sums(params, part, EXAMPLE.slots, FOUND.loss, OperatingPoint(), 0.1).burden.slow

    parts = [slow_of(np.arange(0, 5)), slow_of(np.arange(5, 12))]
    chex.assert_trees_all_close(jax.tree.map(lambda a, b: a + b, *parts), slow_of(np.arange(12)), rtol=1e-5)


def test_a_step_without_a_rationale_costs_the_mean_of_the_others():
    bare = each_step(STREAMS[:1], lambda step: dataclasses.replace(step, rationale=None))
    steps = [step for stream in supervised((*bare, *STREAMS[1:]), slow=0.5).streams for step in stream.steps]
    lengths = [sum(len(f.text) for f in TEMPLATE.slow(step.rationale)) for step in steps if step.rationale is not None]
    found = {step.slow_tokens for step in steps if step.rationale is None}
    assert list(found) == [pytest.approx(np.mean(lengths))]
    assert all(step.slow_tokens == 0 for step in steps if step.slow)


def test_an_incomplete_rationale_is_named():
    lacking = each_step(STREAMS[:1], lambda step: dataclasses.replace(step, rationale={"state": "a"}))
    with pytest.raises(ValueError, match=rf"^stream {re.escape(repr(STREAMS[0].id))}, steps\[0\]\.rationale: found"):
        supervise(lacking, config(slow=0.5), TEMPLATE)
