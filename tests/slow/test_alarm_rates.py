"""How often the alarm rings falsely over 10,000 null replays, and how soon it rings after a shift."""

import numpy as np
import pytest

from prism_jax.experiments.alarms import replay

pytestmark = pytest.mark.slow
ALPHA = 0.05


def test_false_alarms_at_any_time_are_at_most_alpha():
    rings = replay(shift=0.0, people=10_000, answers=300, change=0, alpha=ALPHA, seed=0)
    assert 0.002 < (rings > 0).mean() <= ALPHA


def test_larger_shifts_ring_sooner_and_small_ones_ring_as_well():
    shares, delays = [], []
    for shift in (0.5, 1.0, -1.0, 2.0):
        rings = replay(shift=shift, people=500, answers=300, change=0, alpha=ALPHA, seed=1)
        shares.append((rings > 0).mean())
        delays.append(np.median(np.where(rings > 0, rings, 301)))
    assert min(shares[1:]) > 0.98 and shares[0] > 0.6
    assert delays[3] < delays[1] < delays[0]
