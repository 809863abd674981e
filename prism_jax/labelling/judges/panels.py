"""A panel's verdict: the majority of an odd number of judges, by a stated policy on missing verdicts and ties."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
from jaxtyping import Float64

from prism_jax.labelling.judges.ballots import Ballots

Missing = Literal["majority_of_all", "majority_of_present", "require_all"]
Ties = Literal["missing", "rejected", "accepted"]


@dataclasses.dataclass(frozen=True)
class PanelConfig:
    """How verdicts become a label."""

    soft: bool = False  # whether the label is the share of present verdicts that accept, instead of their majority
    # which labels are known where verdicts are missing: `majority_of_all` those that the missing ones could not change,
    # because more than half of all judges agree; `majority_of_present` all with a verdict; `require_all` none
    missing: Missing = "majority_of_all"
    # the label of equally many verdicts for and against, which only occur with `majority_of_present`, and for human
    # votes of an even number; a soft label is 0.5 there
    ties: Ties = "missing"


def panel_labels(
    verdicts: Float64[np.ndarray, "items judges"], config: PanelConfig = PanelConfig()
) -> Float64[np.ndarray, " items"]:
    """The panel's label of each item: 1 accepted, 0 rejected, the share if soft, NaN where it is not known.

    Verdicts are 1, 0, or NaN for a missing one.
    """
    judges = verdicts.shape[1]
    present = (~np.isnan(verdicts)).sum(1)
    accepted = np.nansum(verdicts, axis=1)
    rejected = present - accepted
    known = {
        "majority_of_all": 2 * np.maximum(accepted, rejected) > judges,
        "majority_of_present": present > 0,
        "require_all": present == judges,
    }[config.missing] & (present > 0)
    if config.soft:
        return np.where(known, accepted / np.maximum(present, 1), np.nan)
    tie = {"missing": np.nan, "rejected": 0.0, "accepted": 1.0}[config.ties]
    majority = np.where(accepted == rejected, tie, np.where(accepted > rejected, 1.0, 0.0))
    return np.where(known, majority, np.nan)


def majority(ballots: Ballots, config: PanelConfig = PanelConfig()) -> Ballots:
    """The panel as a single judge, always with hard labels: `config.soft` is ignored."""
    labels = panel_labels(ballots.verdicts, dataclasses.replace(config, soft=False))
    return Ballots(ballots.items, ("majority",), labels[:, None])
