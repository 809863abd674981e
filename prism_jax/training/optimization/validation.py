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
from prism_jax.slots import Slots
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

    Args:
      slots: The student and the tokens of its two answers; window and visible bounds are taken from the split.
      split: Validation streams. A split without labels of need or of acceptance scores 0 there.
      loss: Loss config whose e_min and w_max bound the propensity weights of acceptances. These are always
        self-normalised inverse propensities (docs/maths.md, section 4), so that the scores of runs are comparable.
      point: Operating point; its costs do not affect the result.
      batch: Number of rows per forward pass; it must divide evenly over the mesh.
      mesh: The mesh that holds the parameters.

    Returns:
      The function. Its result has the keys validation_need, validation_accept and their sum, validation_nll.
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
        found = jax.device_get([sums(params, rows) for rows in groups])
        need, accept = (
            sum(float(part.numerator) for part in parts) / (sum(float(part.denominator) for part in parts) or 1.0)
            for parts in zip(*found, strict=True)
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
