"""Small random steps for the tests of curves and areas."""

import numpy as np

from prism_jax.decision.passes import Pass


def sample(seed, n=60, decimals=2):
    """Signals with ties and labels with both classes, as float64."""
    rng = np.random.default_rng(seed)
    p_need, p_accept = rng.random(n).round(decimals), rng.random(n).round(decimals)
    y_need, y_accept = rng.random(n) < p_need, rng.random(n) < p_accept
    y_need[0] = y_accept[0] = True
    y_accept[1] = False
    return p_need, p_accept, y_need, y_accept


def slow_sample(seed, n=60):
    rng = np.random.default_rng(seed)
    return {"slow": Pass(rng.random(n).round(1), rng.random(n).round(1))}


def trapezoid(points):
    burden, benefit = np.array(points).T
    return np.trapezoid(benefit, burden)
