"""Our gate and the utility floor of PyPI's proactive-gate agree, so its other checks can stand around our agent.

`UtilityFloor` passes where p_accept >= tau; ours compares the expected costs instead of dividing, and is silent where
p_accept * p_need = 0. On generic numbers that is the same; a missing p_need is 1 there, which is our policy `static`.
"""

import datetime

import numpy as np
import pytest

from prism_jax.decision import gate
from prism_jax.decision.policies import POLICIES

peer = pytest.importorskip("proactive_gate")


def allowed(p_need, p_accept, c_fa, c_fn):
    floor = peer.checks.UtilityFloor(cost_false_alarm=c_fa, cost_missed_help=c_fn)
    user = peer.UserState(id="u", consent=True)
    candidate = peer.Candidate(id="c", type="offer", p_need=p_need, p_accept=p_accept)
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    return peer.decide([floor], peer.EvaluateInput(user, candidate, now), {}).allowed


@pytest.mark.parametrize(("policy", "count"), [("dynamic", 10_000), ("static", 500)])
def test_the_gate_agrees_with_the_utility_floor_on_random_inputs(policy, count):
    """Without a need, the floor is the static policy."""
    rng = np.random.default_rng(0)
    p_need, p_accept = rng.random((2, count))
    c_fa, c_fn = 10.0 ** rng.uniform(-2, 2, (2, count))
    ours = gate.decide(p_need, p_accept, c_fa, c_fn, policy)
    rows = np.stack([p_need, p_accept, c_fa, c_fn], axis=1).tolist()
    assert ours.tolist() == [allowed(None if policy == "static" else row[0], *row[1:]) for row in rows]
    assert 0.1 < ours.mean() < 0.9 and POLICIES[policy].deployable


def test_they_differ_only_where_no_offer_can_be_needed_or_taken():
    """A certain acceptance of help that is never needed ties; the floor passes it, our gate is silent."""
    assert allowed(0.0, 1.0, 1.0, 2.0) and not gate.decide(0.0, 1.0, 1.0, 2.0)
    assert not allowed(1.0, 0.0, 1.0, 2.0) and not gate.decide(1.0, 0.0, 1.0, 2.0)
