"""The loss on validation streams during training, which decides which checkpoint is the best."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from prism_jax.decision.losses import AcceptSums, Sums
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.prompting.packing import Packed
from prism_jax.scoring.slots import Slots
from prism_jax.student import sharding
from prism_jax.student.qwen3 import Params
from prism_jax.training.input.data import PackedSplit
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.optimization.objective import term_sums

Score = Callable[[Params], dict[str, float]]


def make_score(
    slots: Slots, split: PackedSplit, loss: LossConfig, point: OperatingPoint, batch: int, mesh: Mesh
) -> Score:
    """Makes a function of parameters that returns the mean negative log-likelihood of validation labels, in nats.

    Its result has the keys validation_need, validation_accept and their sum, validation_nll; without labels of need or
    of acceptance the score is 0 there. Acceptances are always weighted by self-normalised inverse propensities
    (docs/maths.md, section 4), bounded by the e_min and w_max of the loss config, so that the scores of runs are
    comparable. The costs of `point` do not affect the result. A forward pass takes `batch` rows, which must divide
    evenly over the mesh.
    """
    own = dataclasses.replace(slots, window=split.size.window, visible=split.size.visible, buckets=())
    loss = dataclasses.replace(loss, estimator="snips")
    placed = NamedSharding(mesh, sharding.BATCH)

    @jax.jit
    def sums(params: Params, rows: Packed) -> tuple[Sums, AcceptSums]:
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            terms = term_sums(params, rows, own, loss, point, loss.width_end)
        return terms.need, terms.accept  # XLA drops the other terms

    groups = [_group(split.rows[start : start + batch], batch, placed) for start in range(0, len(split.rows), batch)]

    def score(params: Params) -> dict[str, float]:
        sums_by_group = jax.device_get([sums(params, rows) for rows in groups])
        need, accept = (
            sum(float(part.numerator) for part in parts) / (sum(float(part.denominator) for part in parts) or 1.0)
            for parts in zip(*sums_by_group, strict=True)
        )
        return {"validation_need": need, "validation_accept": accept, "validation_nll": need + accept}

    return score


def _group(rows: Sequence[Packed], count: int, placed: NamedSharding) -> Packed:
    """Stacks rows into a batch of `count` rows, padded with copies of the first row that have weight 0."""
    silent = rows[0]._replace(
        need_weight=np.zeros_like(rows[0].need_weight), accept_weight=np.zeros_like(rows[0].accept_weight)
    )

    def place(*leaves: np.ndarray) -> jax.Array:
        column = np.stack(leaves)
        return jax.make_array_from_callback(column.shape, placed, lambda index: column[index])

    return jax.tree.map(place, *rows, *[silent] * (count - len(rows)))
