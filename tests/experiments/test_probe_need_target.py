import numpy as np
import pytest
from offers import make_stream

from prism_jax.decision import gate
from prism_jax.experiments.probe_need_target import compare, study
from prism_jax.probe.probe_config import StatesConfig


@pytest.fixture(scope="module")
def found():
    ((_, steps),) = study([make_stream(number) for number in range(5)], None, StatesConfig())
    return steps


def test_both_meanings_share_acceptance_and_differ_in_need(found):
    np.testing.assert_array_equal(found["marginal"].p_accept, found["given_accept"].p_accept)
    assert np.abs(found["marginal"].p_need - found["given_accept"].p_need).max() > 0.01


def test_costs_are_those_of_the_steps_own_offer(found):
    """The mean difference of the two gates, from sums over the steps one by one."""
    section = compare(found, "", 100)
    differences = []
    for steps, sign in ((found["given_accept"], 1), (found["marginal"], -1)):
        for need, accept, needed, accepted in zip(
            steps.p_need, steps.p_accept, steps.y_need, steps.y_first, strict=True
        ):
            speaks = bool(gate.decide(need, accept, 1.0, 2.0))
            differences.append(sign * (1 - accepted if speaks else 2 * needed * accepted))
    expected = sum(differences) / len(found["marginal"])
    row = next(row for row in section.rows if row.name == "C_FN / C_FA = 2")
    assert float(row.cells[2].split(" ")[0].replace("−", "-")) == pytest.approx(expected, abs=5e-4)
