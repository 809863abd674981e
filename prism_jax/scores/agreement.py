"""Checks that the columns of a scores table agree with each other; each raises a ScoresError that names the row."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Shaped

from prism_jax.scores.schema import NEED_TARGETS, ScoresError, fail_at

Columns = Mapping[str, Shaped[np.ndarray, "rows"]]
"""Those columns of the schema that a table has, by name."""


PROPENSITIES = "a number, as other rows have one and some offers were not made (logged is false)"
"""What is expected of each propensity where some offers were made and others not."""


def check_need_target(columns: Columns) -> None:
    """Checks that p_need means the same on every row."""
    if "need_target" not in columns:
        return
    target = columns["need_target"]
    fail_at(~np.isin(target.astype(str), NEED_TARGETS), "need_target", target, f"one of {', '.join(NEED_TARGETS)}")
    fail_at(target != target[0], "need_target", target, f"{target[0]!r} as in row 0: one table has one meaning of need")


def check_calibrated(columns: Columns) -> None:
    """Checks that all probabilities are calibrated, where the table says so of some."""
    if "calibrated" in columns:
        values = columns["calibrated"]
        fail_at(values != 1, "calibrated", values, "true on every row, or no such column where probabilities are raw")


def check_log(columns: Columns) -> None:
    """Checks that labels, log and propensities agree with each other (docs/maths.md, section 4, positivity)."""
    unknown = np.full(len(columns["stream"]), np.nan)
    y_accept, logged, propensity = (columns.get(name, unknown) for name in ("y_accept", "logged", "propensity"))
    silent, recorded = logged == 0, ~np.isnan(propensity)
    fail_at(propensity == 0, "propensity", propensity, "above 0: inverse weights need every offer possible")
    fail_at(silent & (propensity == 1), "propensity", propensity, "below 1 where logged is false")
    fail_at(
        silent & ~np.isnan(y_accept),
        "y_accept",
        y_accept,
        "null where logged is false: nobody saw the answer to an offer that was not made",
    )
    fail_at(
        (logged == 1) & ~recorded & (silent.any() and recorded.any()),
        "propensity",
        propensity,
        PROPENSITIES,
    )


_ROUNDING = 2e-3
"""How far a p_both_true may lie outside its bounds, as where the three are rounded to three digits."""


def check_truth(columns: Columns) -> None:
    """Checks that need and acceptance together are as probable as each of them, and both together, allow."""
    if (both := columns.get("p_both_true")) is None:
        return
    need, accept = (columns.get(f"p_{signal}_true", np.full(len(both), np.nan)) for signal in ("need", "accept"))
    for of, name in ((need, "p_need_true"), (accept, "p_accept_true")):
        fail_at(both > of + _ROUNDING, "p_both_true", both, f"at most {name}, the probability of one of the two")
    fail_at(both < need + accept - 1 - _ROUNDING, "p_both_true", both, "at least p_need_true + p_accept_true - 1")


NEED = ("p_need_slow", "y_need", "p_need_true", "p_both_true", "need_target")
"""The columns of need that make no sense without `p_need_fast`."""


def check_need(columns: Columns) -> None:
    """Checks that a table without probabilities of need has no other column of need."""
    present = [name for name in NEED if name in columns]
    if present and "p_need_fast" not in columns:
        raise ScoresError(
            f"found no such column beside {present[0]}, expected both p_need_fast and y_need, or no column of need, "
            "which evaluates p_accept alone",
            "p_need_fast",
        )


def check_slow(columns: Columns) -> None:
    """Checks that a row has both probabilities of the slow pass or neither; without need there is only one."""
    need, accept = columns.get("p_need_slow"), columns.get("p_accept_slow")
    if "p_need_fast" not in columns:
        return
    if need is not None and accept is not None:
        fail_at(np.isnan(accept) & ~np.isnan(need), "p_accept_slow", accept, "a number, as p_need_slow has one")
        fail_at(np.isnan(need) & ~np.isnan(accept), "p_need_slow", need, "a number, as p_accept_slow has one")
    elif need is not None or accept is not None:
        missing, present = ("p_accept_slow", "p_need_slow") if accept is None else ("p_need_slow", "p_accept_slow")
        raise ScoresError(f"found no such column beside {present}, expected both or neither", missing)
