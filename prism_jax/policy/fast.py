"""The fast pass: one prefill a stream reads both signals of every decision, and becomes rows of the scores table."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from prism_jax.prompting.packing import Packed, pad, sizes
from prism_jax.prompting.rows import pack_whole
from prism_jax.prompting.template import Template
from prism_jax.slots import Slots
from prism_jax.streams import Stream
from prism_jax.student import Qwen3
from prism_jax.student.qwen3 import Params


def score_streams(
    model: Qwen3,
    params: Params,
    template: Template,
    streams: Sequence[Stream],
    *,
    split: str,
    fold: int,
    context: int,
    batch: int = 16,
) -> Iterator[dict[str, Any]]:
    """Rows of the scores table, one a (step, candidate), signals raw.

    Decisions of a stream longer than the context are each read with the newest events that fit.

    Args:
      model: The static half of the student.
      params: Its parameters.
      template: Over the tokenizer that the student was trained with.
      streams: Whole streams.
      split: Named in every row.
      fold: Named in every row.
      context: Most tokens up to the end of one decision.
      batch: Streams, or parts of long ones, a forward pass.

    Raises:
      ValueError: naming the stream, when a decision does not fit into the context with no event but its own.
    """
    rows, origins = [], []  # a row's stream, and which of its steps is the row's first
    for stream in streams:
        first = 0
        for part in pack_whole(_silent(stream), template, context).parts():
            rows.append(part)
            origins.append((stream, first))
            first += len(part.need_slot)
    size = sizes(rows)

    read = jax.jit(Slots(model, template.yes, template.no, size.window, size.visible).read)
    for start in range(0, len(rows), batch):
        group = rows[start : start + batch]
        # The last group is filled up with its own first row, so that one shape is compiled.
        filled = [pad(row, size, template.tokenizer.pad) for row in group + group[:1] * (batch - len(group))]
        logits = read(params, jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *filled))
        z_need, z_accept = (np.asarray(z, np.float64) for z in logits)
        for i, row in enumerate(group):
            yield from _rows(*origins[start + i], row, _sigmoid(z_need[i]), _sigmoid(z_accept[i]), split, fold)


def _silent(stream: Stream) -> Stream:
    """The stream without responses: silence generates no token, and the gate decides before anything is written."""
    return dataclasses.replace(
        stream,
        steps=tuple(
            dataclasses.replace(
                step, candidates=tuple(dataclasses.replace(offer, response=None) for offer in step.candidates)
            )
            for step in stream.steps
        ),
    )


def _rows(
    stream: Stream, first: int, row: Packed, p_need: np.ndarray, p_accept: np.ndarray, split: str, fold: int
) -> Iterator[dict[str, Any]]:
    """One row a candidate of the steps from `first` on that `row` holds, in the order of its slots."""
    slot = 0
    for number, step in enumerate(stream.steps[first : first + len(row.need_slot)], start=first):
        for index, candidate in enumerate(step.candidates):
            yield {
                "stream": stream.id,
                "step": number,
                "candidate": index,
                "time": float(stream.events[step.event].time),
                "domain": stream.domain,
                "persona": stream.persona,
                "split": split,
                "fold": fold,
                "p_need_fast": float(p_need[number - first]),
                "p_accept_fast": float(p_accept[slot]),
                "y_need": step.y_need,
                "y_accept": candidate.y_accept,
                "votes": list(candidate.votes) or None,
                "logged": candidate.logged,
                "propensity": candidate.propensity,
                "p_need_true": step.p_need_true,
                "p_accept_true": candidate.p_accept_true,
                "p_both_true": candidate.p_both_true,
                # A cold read of this decision alone: its visible trunk, the head and this leaf.
                "tokens_fast": int(row.positions[row.accept_slot[slot]]) + 1,
            }
            slot += 1


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0.0, -z))
