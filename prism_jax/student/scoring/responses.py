"""Responses under a locked schema: the template writes braces, keys and quotes, and the model the insides of strings.

The result is valid JSON by construction: a value ends at its quote or at its limit, and escapes are well formed.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

from prism_jax.streams import RESPONSE_KEYS, Candidate, Stream
from prism_jax.streams.edit import map_candidates, without_answers
from prism_jax.streams.traces import says_null
from prism_jax.streams.types import TASK
from prism_jax.student.constrained import Span
from prism_jax.student.prompting.template import Template
from prism_jax.student.scoring.fast import packed_parts
from prism_jax.student.scoring.grammar import JSON_STRING
from prism_jax.student.scoring.writing import Continued, Writer


def response_spans(template: Template, limit: int) -> list[Span]:
    """The spans of a response: each key, and at most `limit` tokens of its value."""
    return [Span(tuple(key), limit) for key in template.response_keys()]


def response_text(values: Sequence[str]) -> str:
    """A response as JSON text, from the raw insides of its strings."""
    # Strict parsing: what the automaton allows is what JSON allows.
    parsed = {key: json.loads(f'"{value}"') for key, value in zip(RESPONSE_KEYS, values, strict=True)}
    return json.dumps({key: value.strip() for key, value in parsed.items()}, ensure_ascii=False)


def write_responses(
    writer: Writer, streams: Sequence[Stream], *, context: int, limit: int
) -> dict[tuple[str, int, int], str]:
    """Writes a response to every candidate of every step, as if the fast pass had offered it.

    Returns JSON texts by (id of the stream, number of the step, number of the candidate). `context` is the maximum
    number of tokens up to the end of a response of full length, which is `limit` tokens per value; each step sees the
    newest events that fit.

    Raises:
      ValueError: naming the stream, when a decision with a response of full length does not fit into the context.
    """
    template = writer.template
    spans = response_spans(template, limit)
    reserve = sum(len(span.forced) + span.limit for span in spans) + 1
    keys, work, head = [], [], template.head()
    for stream in streams:
        for part in packed_parts(stream, template, context - reserve):
            branches = []
            for (number, step), slot in zip(part.steps(), part.row.need_slot, strict=True):
                for index, candidate in enumerate(step.candidates):
                    keys.append((stream.id, number, index))
                    branches.append((int(part.row.stop[slot]), [*head, *template.leaf(candidate)]))
            work.append(Continued(part.row.trunk, branches))
    texts = [values for part in writer.write(work, spans, JSON_STRING) for values in part]
    return {key: response_text(values) for key, values in zip(keys, texts, strict=True)}


def with_responses(stream: Stream, responses: Mapping[tuple[str, int, int], str]) -> Stream:
    """What an unlabelled stream shows, with the texts of `write_responses`: every candidate has its response.

    Where the slot shows the constant offer, the written task is the candidate's `proposal`, None where it says null.
    """
    numbered = (
        responses[stream.id, number, index]
        for number, step in enumerate(stream.steps)
        for index in range(len(step.candidates))
    )
    written = map_candidates(without_answers(stream), lambda offer: _written(offer, next(numbered)))
    return dataclasses.replace(written, curated=stream.curated)


def _written(offer: Candidate, response: str) -> Candidate:
    task = json.loads(response)[TASK]
    return Candidate(
        text=offer.text, proposal=None if offer.text is not None or says_null(task) else task, response=response
    )
