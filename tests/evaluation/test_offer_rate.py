import json

import numpy as np
import pytest
from synthetic_scores import SPLITS, make_two_passes

from prism_jax.decision import gate
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import protocol, splits
from prism_jax.evaluation.fits import read_calibration, write_calibration
from prism_jax.gate import Gate
from prism_jax.scores import Scores


def several_offers():
    """Three offers per step; a policy makes the top-ranked one, which is accepted far more often than the others."""
    return Scores.from_columns(make_two_passes(streams=60, splits=SPLITS)[0])


def test_need_only_takes_the_acceptance_rate_of_the_offers_that_a_policy_would_make():
    scores = several_offers()
    fits = protocol.calibrate(scores)
    listed, top = splits.rows_of(scores, "calibration"), splits.rows_of(scores, "calibration").steps()
    assert fits.accept_fast.base_rate == pytest.approx(listed.y_accept.mean(), rel=1e-12)
    assert fits.offer_rate == pytest.approx(top.y_accept.mean(), rel=1e-12)
    assert fits.offer_rate > fits.accept_fast.base_rate + 0.2
    row = protocol.evaluate(scores, fits, OperatingPoint()).policy("need_only", "raw")
    test = splits.rows_of(scores, "test").steps()
    offer = gate.decide(test.p_need_fast, np.full(len(test), top.y_accept.mean()), c_fa=1.0, c_fn=2.0)
    best = splits.rows_of(scores, "test").y_accept.reshape(len(test), -1).max(axis=1)
    cost = np.where(offer, 1 - test.y_accept, 2 * test.y_need * best).mean()
    assert row.realised_cost == pytest.approx(cost, rel=1e-12)


def test_a_calibration_without_the_offer_rate_is_read_and_falls_back_to_the_base_rate(tmp_path):
    path = tmp_path / "calibration.json"
    fits = protocol.calibrate(several_offers())
    write_calibration(path, fits)
    assert read_calibration(path) == fits
    tree = json.loads(path.read_text())
    for fit in tree.values():
        if isinstance(fit, dict):
            fit.pop("offer_rate", None)
    path.write_text(json.dumps(tree))
    assert read_calibration(path).offer_rate == fits.accept_fast.base_rate


def test_a_gate_in_place_of_a_calibration_is_told_where_it_is_used(tmp_path):
    Gate.at_costs(c_fa=1.0, c_fn=2.0).save(tmp_path / "gate.json")
    with pytest.raises(ValueError, match=r"gate.json: found a gate, expected a cal.* evaluate fits maps anew"):
        read_calibration(tmp_path / "gate.json")
