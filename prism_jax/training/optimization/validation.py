"""How well the slots predict held-out streams while training goes on: what the best checkpoint is best at."""

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
    """A function of parameters that gives the mean negative log-likelihood of held-out labels, in nats.

    Args:
      slots: The student and its two answers; window and visible bounds are the split's own.
      split: Held-out streams; one without labels of a kind scores 0 in it.
      loss: Its e_min and w_max bound the self-normalised inverse propensities (maths section 4) that weight acceptances
        whatever training does, so that scores compare.
      point: Costs, which enter no number here.
      batch: Rows a forward pass, which the mesh can share out.
      mesh: Where parameters live.

    Returns:
      The function; its result has validation_need, validation_accept and their sum validation_nll.
    """
    own = dataclasses.replace(slots, window=split.size.window, visible=split.size.visible, buckets=())
    loss = dataclasses.replace(loss, estimator="snips")
    placed = NamedSharding(mesh, sharding.BATCH)

    @jax.jit
    def sums(params: Params, rows: Packed) -> tuple[Sums, AcceptSums]:
        terms = term_sums(params, rows, own, loss, point, loss.width_end)  # what is not returned is not computed
        return terms.need, terms.accept

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
    """Rows as a batch of `count`, filled up with the first one, which then weighs nothing."""
    silent = rows[0]._replace(
        need_weight=np.zeros_like(rows[0].need_weight), accept_weight=np.zeros_like(rows[0].accept_weight)
    )

    def place(*leaves: np.ndarray) -> jax.Array:
        column = np.stack(leaves)
        return jax.make_array_from_callback(column.shape, placed, lambda index: column[index])

    return jax.tree.map(place, *rows, *[silent] * (count - len(rows)))
