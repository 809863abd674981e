"""What a stream itself says of an offer, as columns of the scores table (docs/scores.md), whoever scores it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


def offer_rows(
    stream: Stream, p_need: Iterable[float | None], p_accept: Iterable[float | None], *, split: str, fold: int
) -> Iterator[dict[str, Any]]:
    """Yields a row of the scores table for each offer of a stream, with the signals of a fast pass.

    There is one `p_need` for each step, and one `p_accept` for each offer, in order.
    """
    accept = iter(p_accept)
    for number, (step, need) in enumerate(zip(stream.steps, p_need, strict=True)):
        for index, offer in enumerate(step.candidates):
            signals = {"p_need_fast": need, "p_accept_fast": next(accept)}
            columns = offer_columns(stream, step, offer, split=split, fold=fold)
            yield {**columns, "step": number, "candidate": index, **signals}
