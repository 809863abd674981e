"""All that a student does at every decision, as rows of the scores table: fast pass, slow pass and response."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from prism_jax.streams import Candidate, Stream
from prism_jax.streams.edit import map_candidates
from prism_jax.student.prompting.template import WritingConfig
from prism_jax.student.scoring.fast import Offers, score_offers, score_streams
from prism_jax.student.scoring.responses import with_responses, write_responses
from prism_jax.student.scoring.slow import read_slow, right_fields, write_fields
from prism_jax.student.scoring.student import Student
from prism_jax.student.scoring.writing import Writer

_Key = tuple[str, int, int]


@dataclasses.dataclass(frozen=True)
class Passes:
    """What a student can do beside the fast pass."""

    slow: bool = False  # whether it was trained on slow branches; one that was not has null in its slow columns
    responses: bool = False  # whether it was trained on responses
    # how much it may write, and whether the accept slot is read again after what was written
    writing: WritingConfig = dataclasses.field(default_factory=WritingConfig)


class Scored(NamedTuple):
    """What a student read, and what it wrote."""

    rows: Iterator[dict[str, Any]]  # of the scores table
    written: list[Stream]  # every stream with its responses (`with_responses`); empty of a student that writes none


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
    packed: Sequence[Offers] | None = None,
) -> Scored:
    """The rows of `score_streams`, with the columns of the slow pass and of a response, and the responses themselves.

    The slow pass writes its fields at every step, and a response is written to every candidate: whatever the costs and
    the margin, the table holds what they would have led to. Other arguments and errors are those of `score_streams`.
    Without a `writer`, which calls on many groups of streams share, one of the same batch is made. `packed` is what
    `packed_offers` makes of the streams, which the fast pass alone then does not need.
    """
    reading: dict[str, Any] = {"context": context, "batch": batch, "rounded": rounded}
    if packed is None:
        rows = score_streams(student, streams, split=split, fold=fold, **reading)
    else:
        rows = score_offers(student, packed, batch, rounded)
    if not (passes.slow or passes.responses):
        return Scored(rows, [])
    writer, limits = writer or Writer(student, batch), passes.writing
    more: dict[_Key, dict[str, Any]] = {}
    written: list[Stream] = []
    if passes.slow:
        thought = write_fields(writer, streams, context=context, limit=limits.field_tokens)
        correct = _shares_correct(thought, streams)
        for key, signals in read_slow(student, thought, **reading):
            columns = {"p_need_slow": signals.p_need, "p_accept_slow": signals.p_accept, "tokens_slow": signals.tokens}
            more[key] = columns | ({} if (share := correct[key[:2]]) is None else {"fields_correct": share})
    if passes.responses:
        responses = write_responses(writer, streams, context=context, limit=limits.response_tokens)
        written = [with_responses(stream, responses) for stream in streams]
        for key, text in responses.items():
            more.setdefault(key, {})["tokens_response"] = len(student.template.response(text)[1])
        for key, p_accept in _read_again(student, written, reading).items() if limits.reread else ():
            more[key]["p_accept_written"] = p_accept
    return Scored((row | more.get((row["stream"], row["step"], row["candidate"]), {}) for row in rows), written)


def _read_again(student: Student, written: Sequence[Stream], reading: Mapping[str, Any]) -> dict[_Key, float | None]:
    """p_accept where the slot stands after the written proposal instead of the constant; None without a proposal."""
    said = [
        map_candidates(stream, lambda offer: offer if offer.proposal is None else Candidate(text=offer.proposal))
        for stream in written
    ]
    rows = score_streams(student, said, split="test", fold=0, **reading)
    offers = (offer for stream in written for step in stream.steps for offer in step.candidates)
    return {
        (row["stream"], row["step"], row["candidate"]): None if offer.proposal is None else row["p_accept_fast"]
        for row, offer in zip(rows, offers, strict=True)
    }


def _shares_correct(written: Sequence[Stream], reference: Sequence[Stream]) -> dict[tuple[str, int], float | None]:
    """Share of each step's fields that are as the reference has them; None where it has none."""
    shares: dict[tuple[str, int], float | None] = {}
    for stream, known in zip(written, reference, strict=True):
        for number, (own, step) in enumerate(zip(stream.steps, known.steps, strict=True)):
            right = right_fields(own, step)
            shares[stream.id, number] = None if right is None else sum(right.values()) / len(right)
    return shares
