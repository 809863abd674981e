"""What p_need is to estimate where the config leaves it open, with `loss.need_target=auto`.

The gate needs Pr(need and accept) = p_accept * Pr(need | accept), so `given_accept` is chosen unless there is a reason
against it (docs/maths.md, section 2).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, NamedTuple

from prism_jax.streams import Stream
from prism_jax.streams.splits import Splits
from prism_jax.training.config import RunConfig
from prism_jax.training.loss_config import NeedTarget


class Choice(NamedTuple):
    """A meaning of p_need, and why it was chosen."""

    target: NeedTarget
    reason: str


def chosen(config: RunConfig, splits: Splits, first: NeedTarget | Literal["auto"] | None = None) -> Choice:
    """Chooses what p_need estimates.

    Args:
      config: Config of the run, whose `loss.need_target` may be `auto`.
      splits: Its streams; those of training and calibration count.
      first: What p_need estimates in the run that a second stage starts from; None without one.
    """
    pathway = config.pathway
    if config.loss.need_target != "auto":
        return Choice(config.loss.need_target, "as set")
    if pathway.alpha:
        return Choice("marginal", f"pathway.alpha = {pathway.alpha:g}: a teacher's need is not given acceptance")
    if pathway.resolved.losses == "schema":
        return Choice("marginal", f"pathway {pathway.name} trains on a teacher's need, which is not given acceptance")
    if first is not None and first != "auto":
        return Choice(first, "as in the run of training.start")
    for name in ("train", "calibration"):
        needed = _need_of_accepted(getattr(splits, name))
        if len(needed) == 0:
            return Choice("marginal", f"no accepted offer of the {name} streams has a label of need")
        if min(needed) == 1:
            return Choice(
                "marginal",
                f"help was needed wherever an offer of the {name} streams was accepted, so p_accept alone would "
                "decide as well (decision.policy=static)",
            )
        if max(needed) == 0:
            return Choice("marginal", f"help was needed at no accepted offer of the {name} streams")
    return Choice("given_accept", "right however need and acceptance depend on each other")


def with_target(config: RunConfig, target: NeedTarget) -> RunConfig:
    """The config with a meaning of p_need."""
    return dataclasses.replace(config, loss=dataclasses.replace(config.loss, need_target=target))


def _need_of_accepted(streams: Sequence[Stream]) -> set[float]:
    """The labels of need that occur at steps with an accepted offer."""
    return {
        step.y_need
        for stream in streams
        for step in stream.steps
        if step.y_need is not None and any(offer.y_accept for offer in step.candidates)
    }
