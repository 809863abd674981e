"""The need slot learns need given acceptance: its loss is weighted by the acceptance of the offer that ranks first."""

import dataclasses

import jax
import numpy as np
import pytest
from pathway_streams import STREAMS, Example, each_step
from whole_objective import objective, sums

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.optimization.objective import Objective

LOSS = LossConfig(need_target="given_accept", response=0.0)
POINT = OperatingPoint()


def three_candidates(step):
    """The step with three candidates, of which the second has the other answer and the third none."""
    (first,) = step.candidates
    other = None if first.y_accept is None else 1.0 - first.y_accept
    return dataclasses.replace(
        step, candidates=(first, dataclasses.replace(first, y_accept=other), dataclasses.replace(first, y_accept=None))
    )


EXAMPLES = {1: Example.of(STREAMS), 3: Example.of(each_step(STREAMS, three_candidates))}


def need_given_accept(example):
    """Numerator and denominator of the need loss, step by step."""
    batch = jax.tree.map(np.asarray, example.batch)
    z_need, z_accept = example.logits(batch.need_slot), example.logits(batch.accept_slot)
    numerator = denominator = 0.0
    for i, rows in enumerate(batch.accept_step):
        for step in range(batch.need_slot.shape[1]):
            (own,) = np.nonzero((rows == step) & (batch.accept_slot[i] > 0))
            if not own.size or not batch.need_weight[i, step]:
                continue
            inverse = np.minimum(1 / np.maximum(batch.propensity[i], LOSS.e_min), LOSS.w_max)
            accepted = (batch.accept_weight * batch.logged * batch.y_accept)[i] * inverse
            loss = np.logaddexp(0, z_need[i, step]) - batch.y_need[i, step] * z_need[i, step]
            numerator += accepted[own[z_accept[i, own].argmax()]] * loss
            denominator += accepted[own].mean()
    return numerator, denominator


@pytest.mark.parametrize("candidates", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_a_step_counts_with_the_acceptance_of_the_offer_that_ranks_first(candidates):
    example = EXAMPLES[candidates]
    numerator, denominator = need_given_accept(example)
    found = sums(example.params, example.batch, example.slots, LOSS, POINT, 0.1).need
    assert 0 < numerator != denominator > 0
    np.testing.assert_allclose(found, (numerator, denominator), rtol=1e-5)
    denominators = jax.jit(Objective(example.slots, LOSS, POINT).denominators)(example.batch)
    assert float(denominators.need.denominator) == float(found.denominator)


def test_answers_of_offers_that_were_not_accepted_teach_it_nothing():
    example = EXAMPLES[1]
    rejected = np.asarray(example.batch.y_accept * example.batch.logged) == 0
    flipped = example.batch._replace(need_target=np.where(rejected, 0.5, example.batch.need_target))
    found = [
        sums(example.params, batch, example.slots, dataclasses.replace(LOSS, need_target=target), POINT, 0.1).need
        for target in ("given_accept", "marginal")
        for batch in (example.batch, flipped)
    ]
    assert float(found[0].numerator) == float(found[1].numerator)
    assert float(found[2].numerator) != float(found[3].numerator)


@pytest.mark.slow
def test_the_choice_of_the_offer_has_no_gradient():
    example = EXAMPLES[3]

    def need(hidden):
        return objective({**example.params, "hidden": hidden}, example.batch, example.slots, LOSS, POINT, 0.1)[1][
            "need"
        ]

    reached = np.abs(np.asarray(jax.grad(need)(example.params["hidden"]))).max(axis=-1) > 0
    assert reached.any()
    for row, slots in enumerate(np.asarray(example.batch.accept_slot)):
        assert not reached[row, slots[slots > 0]].any()
