"""How decisions change when calibration drifts (docs/maths.md, section 7; the paper's drift table).

A drift (T, epsilon) rescales both signals, p_T = sigmoid(logit(p) / T), and lowers the threshold by epsilon: intervene
exactly if p_accept,T >= tau(p_need,T) - epsilon. T = 1 and epsilon = 0 is the gate itself.
"""

from __future__ import annotations

import numpy as np

from prism_jax.decision import arrays, calibration, gate
from prism_jax.decision.arrays import Booleans, Floats, Number, Reals, Vector

PAPER_GRID = (
    (1.0, 0.0),
    (0.75, 0.0),
    (1.25, 0.0),
    (1.0, 0.15),
    (1.0, -0.15),
    (0.75, 0.15),
    (0.75, -0.15),
    (1.25, 0.15),
    (1.25, -0.15),
    (0.5, 0.30),
    (1.5, -0.30),
)
"""The pairs (T, epsilon) of the paper's table in its order; the first is the baseline."""


def decide(
    p_need: Reals, p_accept: Reals, c_fa: Reals, c_fn: Reals, temperature: Reals = 1.0, epsilon: Reals = 0.0
) -> Booleans:
    """The dynamic gate under drift, elementwise.

    The gate's two expected costs are compared at p_accept,T + epsilon, and the decision is silent where
    p_accept * p_need = 0, so it equals `gate.decide` exactly at (1, 0). A larger epsilon never removes an intervention.

    Args:
      p_need: Probability that help is needed.
      p_accept: Probability that an offer would be accepted.
      c_fa: Cost C_FA > 0 of an offer that is not accepted.
      c_fn: Cost C_FN >= 0 of silence where help was needed and would have been accepted.
      temperature: Temperature T > 0.
      epsilon: Finite amount by which the threshold is lowered, in units of probability; a positive one adds offers.

    Raises:
      ValueError: for a value outside its range or shapes that do not broadcast.
    """
    arrays.check_costs(c_fa, c_fn, p_need, p_accept)
    arrays.check_finite("epsilon", epsilon)
    arrays.check_probability("p_need", p_need)
    arrays.check_probability("p_accept", p_accept)
    arrays.check_broadcast(
        p_need=p_need, p_accept=p_accept, c_fa=c_fa, c_fn=c_fn, temperature=temperature, epsilon=epsilon
    )
    _, need, accept, cost_fa, cost_fn, shift = arrays.as_floats(
        calibration.apply_temperature(p_need, temperature),
        calibration.apply_temperature(p_accept, temperature),
        c_fa,
        c_fn,
        epsilon,
    )
    shifted = accept + shift
    offer, silence = gate.expected_costs(shifted, shifted * need, cost_fa, cost_fn)
    return (offer <= silence) & (accept * need > 0)


def flip_rate(
    p_need: Vector,
    p_accept: Vector,
    c_fa: Reals,
    c_fn: Reals,
    temperature: Number,
    epsilon: Number,
    weight: Vector | None = None,
) -> Floats:
    """Share of rows whose decision under (T, epsilon) differs from that under (1, 0).

    Arguments are those of `decide`, with one probability of each signal per row, and the importance `weight` of each
    row; None is 1 everywhere.

    Returns:
      A scalar in [0, 1].

    Raises:
      ValueError: for unequal lengths, empty input, or a value outside its range.

    Examples:
      >>> p_need, p_accept = np.array([0.9, 0.5, 0.5, 0.1]), np.array([0.9, 0.45, 0.3, 0.9])
      >>> float(flip_rate(p_need, p_accept, c_fa=1.0, c_fn=2.0, temperature=1.0, epsilon=0.1))
      0.25
    """
    arrays.check_lengths(p_need=p_need, p_accept=p_accept, weight=weight)
    arrays.check_weight("weight", weight)
    drifted = decide(p_need, p_accept, c_fa, c_fn, temperature, epsilon)
    xp = arrays.namespace(drifted)
    flipped = xp.not_equal(drifted, decide(p_need, p_accept, c_fa, c_fn))
    if weight is None:
        return flipped.mean(dtype=np.float64 if xp is np else None)
    _, v = arrays.as_floats(weight)
    return (v * flipped).sum() / v.sum()
