"""Clipped inverse-propensity weights, and the check that propensities can weight a log (docs/maths.md, section 4)."""

from __future__ import annotations

from typing import Any

from prism_jax.decision import arrays
from prism_jax.decision.arrays import Number, Vector


def propensity_weight(logged: Vector, propensity: Vector, *, e_min: Number = 0.05, w_max: Number = 20.0) -> Vector:
    """The clipped inverse-propensity weight w = min(A / max(e, e_min), w_max) of docs/maths.md, section 4.

    Args:
      logged: A, 1 where the logging policy intervened, else 0.
      propensity: e, the logging policy's probability of A = 1.
      e_min: Lower bound to which smaller propensities are raised before the division.
      w_max: Upper bound to which larger weights are lowered.

    Returns:
      Weights in [0, w_max], one per row.

    Raises:
      ValueError: as `check_positivity`.
    """
    check_positivity(logged, propensity)
    return clipped_weight(logged, propensity, e_min, w_max)


def clipped_weight(logged: Any, propensity: Any, e_min: Any, w_max: Any) -> Any:
    """`propensity_weight` without its check."""
    _, chosen, e = arrays.as_floats(logged, propensity)
    xp = arrays.namespace(chosen, e)
    return xp.minimum(chosen / xp.maximum(e, e_min), w_max)


def check_positivity(logged: Vector, propensity: Vector, weight: Vector | None = None) -> None:
    """Raises ValueError where propensities cannot weight a log, on rows of positive weight.

    These are rows with e = 0 (offers are never made in that context, so acceptance there cannot be learned), with A = 0
    although e = 1 (the log contradicts itself), with an e that is not a probability, or with an A other than 0 and 1.
    Inside `jit` nothing is checked.
    """
    arrays.check_lengths(logged=logged, propensity=propensity, weight=weight)
    if arrays.is_traced(logged, propensity, weight):
        return
    chosen, e = arrays.host(logged), arrays.host(propensity)
    rows = arrays.host(weight) > 0 if weight is not None else chosen == chosen
    good = ((chosen == 0) | (chosen == 1)) & (e > 0) & (e <= 1) & ~((chosen == 0) & (e == 1))
    for index in (rows & ~good).nonzero()[0][:1]:
        raise ValueError(
            f"propensity: found e = {e[index]} with A = {chosen[index]} at index {index}, expected A of 0 or 1, "
            "e in (0, 1], and A = 1 where e = 1"
        )
