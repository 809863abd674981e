"""The slow pass: the student writes the structured fields, and both slots are read again after them.

The template writes the names of the fields, and the model their texts: one line each, of at most
`WritingConfig.field_tokens` tokens, without special tokens. The tokens of a field are always those that the template
encodes its text to, so the slots are read after the same tokens in evaluation, on a live stream, and in training on the
student's own fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from prism_jax.streams import Step, Stream
from prism_jax.streams.edit import map_steps
from prism_jax.streams.types import SLOW_FIELDS
from prism_jax.student.constrained import Span
from prism_jax.student.prompting.supervised import supervised_step
from prism_jax.student.prompting.template import Template
from prism_jax.student.scoring.fast import Part, packed_parts, read_parts
from prism_jax.student.scoring.grammar import LINE
from prism_jax.student.scoring.student import Student
from prism_jax.student.scoring.writing import Continued, Writer


class SlowSignals(NamedTuple):
    """What the slow pass read at one candidate of a step."""

    p_need: float  # probability of need, the same for all candidates of the step
    p_accept: float  # probability of acceptance
    tokens: int  # number of tokens of the step's fields; their names, which the template writes, are not counted


def field_spans(template: Template, limit: int) -> list[Span]:
    """The spans of the slow pass: the name of each field, and at most `limit` tokens of text."""
    return [Span(tuple(name), limit) for name in template.field_names()]


def write_fields(writer: Writer, streams: Sequence[Stream], *, context: int, limit: int) -> list[Stream]:
    """Returns whole streams with the fields that the student writes at every step as its rationale.

    `context` is the maximum number of tokens up to the end of one decision: each step sees the newest events that fit
    before fields of full length, which is `limit` tokens each.

    Raises:
      ValueError: naming the stream, when a decision with fields of full length does not fit into the context.
    """
    template = writer.template
    spans = field_spans(template, limit)
    reserve = sum(len(span.forced) + span.limit for span in spans) + 1
    parts = [part for stream in streams for part in packed_parts(stream, template, context - reserve)]
    opening = template.opening()
    work = [Continued(p.row.trunk, [(int(p.row.stop[slot]), opening) for slot in p.row.need_slot]) for p in parts]
    texts = iter([fields for part in writer.write(work, spans, LINE) for fields in part])
    return [
        map_steps(stream, lambda step: dataclasses.replace(step, rationale=fields_of(next(texts))))
        for stream in streams
    ]


def fields_of(texts: Sequence[str]) -> dict[str, str]:
    """The fields from the texts that were written, in order, as one line each without spaces around it."""
    return {name: " ".join(text.split()) for name, text in zip(SLOW_FIELDS, texts, strict=True)}


def right_fields(written: Step, reference: Step) -> dict[str, bool] | None:
    """Whether each field was written exactly as a step's rationale has it; None where it has none."""
    if reference.rationale is None:
        return None
    fields = written.rationale or {}
    return {name: fields[name] == " ".join(reference.rationale[name].split()) for name in SLOW_FIELDS}


def field_accuracy(written: Sequence[Stream], reference: Sequence[Stream]) -> dict[str, float]:
    """Share of steps at which each field was written exactly as the rationale has it, and all of them as `all`.

    `written` are streams of `write_fields`, `reference` the same streams with their rationales; steps without one are
    left out. Raises ValueError if no step has one.
    """
    right = [
        right_at_step
        for stream, original in zip(written, reference, strict=True)
        for own, step in zip(stream.steps, original.steps, strict=True)
        if (right_at_step := right_fields(own, step)) is not None
    ]
    if not right:
        raise ValueError("rationale: found no step that has one, expected some to compare the written fields with")
    shares = {name: sum(row[name] for row in right) / len(right) for name in SLOW_FIELDS}
    return shares | {"all": sum(all(row.values()) for row in right) / len(right)}


def read_slow(
    student: Student, streams: Sequence[Stream], *, context: int, batch: int, rounded: bool = False
) -> Iterator[tuple[tuple[str, int, int], SlowSignals]]:
    """Reads both slots after the fields that the steps hold, such as those of `write_fields`.

    Yields (id of the stream, number of the step, number of the candidate) and what was read there. `context` is the
    maximum number of tokens up to the end of one decision, `batch` the number of streams, or parts of long streams, per
    forward pass, and `rounded` that of `prism_jax.student.scoring.fast.read_parts`.

    Raises:
      ValueError: naming the stream, when a decision does not fit into the context or a rationale lacks a field.
    """
    slow = [map_steps(stream, lambda step: dataclasses.replace(supervised_step(step), slow=True)) for stream in streams]
    parts = [part for stream in slow for part in packed_parts(stream, student.template, context)]
    for part, p_need, p_accept in read_parts(student, parts, batch, rounded):
        yield from _rows(part, student.template, p_need, p_accept)


def _rows(
    part: Part, template: Template, p_need: np.ndarray, p_accept: np.ndarray
) -> Iterator[tuple[tuple[str, int, int], SlowSignals]]:
    slot = 0
    for number, step in part.steps():
        tokens = sum(len(field.text) for field in template.slow(step.rationale or {}))
        for index in range(len(step.candidates)):
            signals = SlowSignals(float(p_need[number - part.first_step]), float(p_accept[slot]), tokens)
            yield (part.stream.id, number, index), signals
            slot += 1
