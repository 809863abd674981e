"""What a stream itself says of an offer, as columns of the scores table (docs/scores.md), whoever scores it."""

from __future__ import annotations

from typing import Any

from prism_jax.streams.types import Candidate, Step, Stream


def offer_columns(stream: Stream, step: Step, offer: Candidate, *, split: str, fold: int) -> dict[str, Any]:
    """The time, the kind, the labels, the log and the truth of an offer; None where the stream does not know."""
    return {
        "stream": stream.id,
        "time": float(stream.events[step.event].time),
        "domain": stream.domain,
        "persona": stream.persona,
        "split": split,
        "fold": fold,
        "y_need": step.y_need,
        "y_accept": offer.y_accept,
        "votes": list(offer.votes) or None,
        "logged": offer.logged,
        "propensity": offer.propensity,
        "p_need_true": step.p_need_true,
        "p_accept_true": offer.p_accept_true,
        "p_both_true": offer.p_both_true,
    }
