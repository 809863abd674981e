"""The norm and the share of the gradient of each loss term, and the warning about wrong propensities."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
from pathway_streams import STREAMS, Example, each_candidate
from tiny_step import POINT, RUN, shape
from whole_objective import objective

from prism_jax.training.job import describe, plan
from prism_jax.training.loop import train
from prism_jax.training.optimization.step import TrainState, make_shares
from prism_jax.training.workdir import Workdir


@pytest.mark.slow
@pytest.mark.parametrize("response", [0.3, 0.0])
def test_norms_are_those_of_the_gradients_of_the_weighted_terms(response):
    example = Example.of(STREAMS)
    loss = dataclasses.replace(tiny.CONFIG.loss, response=response, accept=2.0)
    step = shape(example.slots, loss=loss)
    found = make_shares(step)(TrainState(jnp.asarray(3), example.params, None), example.batch)
    width = step.objective.width(3, tiny.CONFIG.training.steps)

    def term(params, name):
        return getattr(loss, name) * objective(params, example.batch, example.slots, loss, POINT, width)[1][name]

    names = [name for name in ("need", "accept", "burden", "response") if getattr(loss, name) > 0]
    norms = {name: float(optax.global_norm(jax.grad(term)(example.params, name))) for name in names}
    assert found.keys() == {f"gradient_{kind}_{name}" for kind in ("norm", "share") for name in names}
    for name in names:
        assert found[f"gradient_norm_{name}"] == pytest.approx(norms[name], rel=1e-4)
        assert found[f"gradient_share_{name}"] == pytest.approx(norms[name] / sum(norms.values()), rel=1e-4)


def wrong_job(folder=None, **training):
    """The job of the tiny run on a log whose propensities are half of the true ones."""
    halved = each_candidate(RUN.splits.train, lambda c: dataclasses.replace(c, propensity=c.propensity / 2))
    splits = dataclasses.replace(RUN.splits, train=halved)
    config = tiny.with_training(RUN.config, **training)
    workdir = folder and Workdir(folder)
    return plan(dataclasses.replace(RUN, config=config, splits=splits, workdir=workdir))


def test_wrong_propensities_are_reported_at_the_start(tmp_path, caplog):
    fact = describe(wrong_job())["mean(A/e)"]
    assert "the recorded propensities do not fit the log" in fact
    assert f"found mean(A/e) {fact}" in caplog.text
    caplog.clear()
    assert "do not fit" not in describe(plan(RUN))["mean(A/e)"]
    assert "mean(A/e)" not in caplog.text


@pytest.mark.slow
def test_training_continues_with_wrong_propensities_and_logs_shares_when_due(tmp_path):
    """With e half of its true value, all metrics stay finite and mean(A/e) is near 2."""
    train(wrong_job(tmp_path, steps=4, share_every=3), progress=False)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert np.isfinite([list(line.values()) for line in lines[:2]]).all()
    assert np.mean([line["accept_mean_a_over_e"] for line in lines]) == pytest.approx(2, abs=0.35)
    assert ["gradient_share_need" in line for line in lines] == [False, False, True, False]
    shares = [value for name, value in lines[2].items() if name.startswith("gradient_share_")]
    assert len(shares) == 4
    assert sum(shares) == pytest.approx(1, abs=1e-5)
