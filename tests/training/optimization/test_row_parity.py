"""Packed streams and single decisions train the same student if the batches hold the same labels."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny_step import MESH, RUN, shape

from prism_jax.streams import Candidate
from prism_jax.student.scoring.slots import Slots
from prism_jax.training.input_pipeline import pack_split
from prism_jax.training.optimization.step import init_state, make_step
from prism_jax.training.run_config import PackingConfig

pytestmark = pytest.mark.usefixtures("compile_quickly")

STEPS, STREAMS = 10, 4


def with_offers(stream):
    """The stream with a second offer at every other step, so that steps have one or two rows."""

    def more(number, step):
        other = Candidate(text="Something else?", y_accept=float(number % 4 == 0))
        return dataclasses.replace(step, candidates=(*step.candidates, other)) if number % 2 else step

    return dataclasses.replace(stream, steps=tuple(more(i, step) for i, step in enumerate(stream.steps)))


def empty(row):
    """A row of padding."""
    return jax.tree.map(np.zeros_like, row)._replace(propensity=np.ones_like(row.propensity))


def trained(split, config):
    """Parameters and metrics of ten steps, where each step uses the rows of the same four streams in both packings."""
    slots = Slots(RUN.model, RUN.template.yes, RUN.template.no, split.size.window, split.size.visible)
    state = init_state(RUN.model, config, MESH, jax.random.key(0))
    step = make_step(shape(slots, config, split=split))
    groups = [
        [row for row, owner in zip(split.rows, split.streams, strict=True) if owner[0] // STREAMS == group]
        for group in range(3)
    ]
    most, metrics = max(map(len, groups)), []
    for number in range(STEPS):
        rows = groups[number % 3]
        rows = rows + [empty(rows[0])] * (most - len(rows))
        state, found = step(state, jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *rows))
        metrics.append({name: float(value) for name, value in found.items()})
    return jax.device_get(state.params), metrics


@pytest.mark.slow
def test_row_wise_and_packed_training_agree():
    streams = [with_offers(stream) for stream in RUN.splits.train]
    config = tiny.with_training(steps=STEPS, learning_rate=3e-3).training
    (packed, metrics), (alone, metrics_alone) = (
        trained(pack_split(streams, RUN.template, PackingConfig(512, unit=unit)), config)
        for unit in ("streams", "decisions")
    )
    start = jax.device_get(RUN.model.init(jax.random.key(0)))
    for mine, other, before in zip(*map(jax.tree.leaves, (packed, alone, start)), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-4, rtol=0)
        assert np.abs(mine - before).max() > 5e-3
    for mine, other in zip(metrics, metrics_alone, strict=True):
        assert mine == pytest.approx(other, rel=1e-4, abs=1e-4)
    assert metrics[-1]["loss"] != metrics[0]["loss"]
