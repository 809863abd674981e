"""The curves of a log's page beside brute force."""

import numpy as np
import pytest

from prism_jax.decision.calibration import Rule, reliability_curve
from prism_jax.decision.score_maps import Scale, maps_of_units
from prism_jax.evaluation.answers.curves import Curves
from prism_jax.evaluation.answers.labelled import Labelled


@pytest.mark.parametrize("offer", ["at_least", "at_most"])
def test_a_curve_has_the_cost_of_each_gate_and_the_bins_of_each_map_on_other_people(offer):
    rng = np.random.default_rng(0)
    score, fold = np.round(rng.uniform(0, 1, 900), 2), rng.integers(0, 3, 900)
    y = (rng.random(900) < score).astype(np.float64)
    scores, maps, ones = {}, {}, np.ones(900)
    for i in range(3):
        inside = fold == i
        scores[i] = Labelled.of(score[inside], y[inside], ones[inside], Scale())
        maps[i] = maps_of_units(Scale(), score[~inside], y[~inside], ones[~inside])
    found = Curves.of(scores, maps, Rule(offer, 0.5), (1.0, 3.0))
    assert (np.diff(found.threshold) > 0).all() and len(found.threshold) == len(np.unique(score))
    for threshold, cost in zip(found.threshold, found.cost, strict=True):
        offers = Rule(offer, threshold).offers(score)
        assert cost == pytest.approx((offers * (1 - y) + 3 * ~offers * y).mean(), abs=1e-12)
    for name, curve in found.reliability.items():
        p = np.zeros(900)
        for i in range(3):
            p[fold == i] = maps[i][name](score[fold == i])
        expected = reliability_curve(p, y, bins=len(curve.count))
        for column in ("count", "mean_p", "mean_y", "low", "high"):
            np.testing.assert_allclose(getattr(curve, column), getattr(expected, column), atol=1e-9)
