"""How much doubt about a person counts in favour of an offer (docs/maths.md, section 13)."""

from __future__ import annotations

MOST, SHARE = 0.5, 0.25


def optimism(cost_ratio: float) -> float:
    """Number of standard deviations of a person's rate that the gate adds to the log-odds of acceptance.

    Only an offer is answered, so a person who is thought to decline would never get the chance to say otherwise. Where
    silence is cheap a gate errs on that side, and an offer now and then pays for itself. With r = C_FN / C_FA it is
    min(0.5, 0.25 / r) up to r = 1, and 0 above: there the gate offers often anyway. 0 for r = 0, which never offers.
    """
    return min(MOST, SHARE / cost_ratio) if 0 < cost_ratio <= 1 else 0.0
