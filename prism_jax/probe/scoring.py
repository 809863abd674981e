"""A probe's probabilities as rows of the scores table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from prism_jax.probe.fitting import Probe, Seen
from prism_jax.streams.stream_columns import offer_columns


def score(probe: Probe, streams: Sequence[Seen], *, split: str, fold: int) -> Iterator[dict[str, Any]]:
    """Yields one row per offer, with the columns that a student's fast pass has; no token is read to decide by words.

    The probe must not have been fitted on any of the streams.
    """
    # A table without the column means the unconditional need, as a student's does.
    target = {} if probe.need_target == "marginal" else {"need_target": probe.need_target}
    for seen in streams:
        stream = seen.words.stream
        p_need, p_accept = (p.tolist() for p in probe.predict(seen))
        accept = iter(p_accept)
        for number, step in enumerate(stream.steps):
            for index, offer in enumerate(step.candidates):
                yield {
                    **offer_columns(stream, step, offer, split=split, fold=fold),
                    "step": number,
                    "candidate": index,
                    "p_need_fast": p_need[number],
                    "p_accept_fast": next(accept),
                    **target,
                }
