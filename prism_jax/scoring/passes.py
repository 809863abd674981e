"""All that a student does at every decision, as rows of the scores table: fast pass, slow pass and response."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from prism_jax.prompting.template import WritingConfig
from prism_jax.scoring.fast import score_streams
from prism_jax.scoring.responses import write_responses
from prism_jax.scoring.slow import read_slow, right_fields, write_fields
from prism_jax.scoring.student import Student
from prism_jax.scoring.writing import Writer
from prism_jax.streams import Stream


@dataclasses.dataclass(frozen=True)
class Passes:
    """What a student can do beside the fast pass."""

    slow: bool = False  # whether it was trained on slow branches; one that was not has null in its slow columns
    responses: bool = False  # whether it was trained on responses
    writing: WritingConfig = dataclasses.field(default_factory=WritingConfig)  # how much it may write


def score_passes(
    student: Student,
    streams: Sequence[Stream],
    passes: Passes,
    *,
    split: str,
    fold: int,
    context: int,
    batch: int,
    rounded: bool = False,
    writer: Writer | None = None,
) -> Iterator[dict[str, Any]]:
    """Yields the rows of `score_streams`, with the columns of the slow pass and the tokens of a response.

    The slow pass writes its fields at every step, and a response is written to every candidate: whatever the costs and
    the margin, the table holds what they would have led to. Other arguments and errors are those of `score_streams`.
    Without a `writer`, which calls on many groups of streams share, one of the same batch is made.
    """
    rows = score_streams(student, streams, split=split, fold=fold, context=context, batch=batch, rounded=rounded)
    if not (passes.slow or passes.responses):
        yield from rows
        return
    writer, limits = writer or Writer(student, batch), passes.writing
    slow, correct, responses = {}, {}, {}
    if passes.slow:
        thought = write_fields(writer, streams, context=context, limit=limits.field_tokens)
        slow = dict(read_slow(student, thought, context=context, batch=batch, rounded=rounded))
        correct = _shares_correct(thought, streams)
    if passes.responses:
        responses = write_responses(writer, streams, context=context, limit=limits.response_tokens)
    for row in rows:
        key = row["stream"], row["step"], row["candidate"]
        if key in slow:
            signals = slow[key]
            row |= {"p_need_slow": signals.p_need, "p_accept_slow": signals.p_accept, "tokens_slow": signals.tokens}
            if (share := correct[key[:2]]) is not None:
                row["fields_correct"] = share
        if key in responses:
            row["tokens_response"] = len(student.template.response(responses[key])[1])
        yield row


def _shares_correct(written: Sequence[Stream], reference: Sequence[Stream]) -> dict[tuple[str, int], float | None]:
    """Share of each step's fields that are as the reference has them; None where it has none."""
    shares: dict[tuple[str, int], float | None] = {}
    for stream, known in zip(written, reference, strict=True):
        for number, (own, step) in enumerate(zip(stream.steps, known.steps, strict=True)):
            right = right_fields(own, step)
            shares[stream.id, number] = None if right is None else sum(right.values()) / len(right)
    return shares
