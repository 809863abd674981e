"""The fast pass: one prefill per stream reads both signals of every decision, as rows of the scores table."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Array, Float64

from prism_jax.streams import Step, Stream
from prism_jax.streams.stream_columns import offer_columns
from prism_jax.student.branches import bucket
from prism_jax.student.prompting.packing import Packed, Sizes, pad, sizes
from prism_jax.student.prompting.rows import pack_stream
from prism_jax.student.prompting.template import Template
from prism_jax.student.qwen3 import Params
from prism_jax.student.scoring.slots import Slots
from prism_jax.student.scoring.student import Student


class Part(NamedTuple):
    """A packed row of a stream: the whole stream, or some of its steps where it is longer than the context."""

    stream: Stream  # the whole stream
    first_step: int  # number of the first step in the row
    row: Packed

    def steps(self) -> Iterator[tuple[int, Step]]:
        """The steps of the row with their numbers in the stream."""
        last = self.first_step + len(self.row.need_slot)
        return enumerate(self.stream.steps[self.first_step : last], start=self.first_step)


class Offers(NamedTuple):
    """What is read of a packed row, and what is known of it before."""

    row: Packed
    columns: list[dict[str, Any]]  # of the row of the scores table of each candidate, in the order of the slots


R = TypeVar("R", Part, Offers)


def packed_offers(
    stream: Stream, template: Template, *, split: str, fold: int, context: int, written: int = 0
) -> Iterator[Offers]:
    """Packs a stream as `score_offers` reads it; `split` and `fold` stand in every row.

    Each decision of a stream longer than the context is read with the newest events that fit: `context` is the maximum
    number of tokens up to the end of one decision.

    Raises:
      ValueError: naming the stream, when a decision does not fit into the context even with only its newest event, and
        `written` tokens that are to be written after it.
    """
    for part in packed_parts(stream, template, context, written):
        # Tokens to read for each decision alone, without a cache: the visible trunk, the head and this leaf.
        tokens = iter((part.row.positions[part.row.accept_slot] + 1).tolist())
        columns = [
            {
                **offer_columns(stream, step, candidate, split=split, fold=fold),
                "step": number,
                "candidate": index,
                "tokens_fast": next(tokens),
            }
            for number, step in part.steps()
            for index, candidate in enumerate(step.candidates)
        ]
        yield Offers(part.row, columns)


def score_streams(
    student: Student,
    streams: Iterable[Stream],
    *,
    split: str,
    fold: int,
    context: int,
    batch: int = 16,
    rounded: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yields what `score_offers` yields of streams, which are packed first (`packed_offers`, whose error it raises)."""
    packing: dict[str, Any] = {"split": split, "fold": fold, "context": context}
    offers = [part for stream in streams for part in packed_offers(stream, student.template, **packing)]
    return score_offers(student, offers, batch, rounded)


def score_offers(
    student: Student, offers: Sequence[Offers], batch: int, rounded: bool = False
) -> Iterator[dict[str, Any]]:
    """Yields rows of the scores table, one per (step, candidate), with raw signals.

    `batch` is the number of streams, or parts of long streams, per forward pass. `rounded` is that of `read_parts`.
    """
    for part, p_need, p_accept in read_parts(student, offers, batch, rounded):
        yield from _rows(part, p_need, p_accept)


def read_parts(
    student: Student, parts: Sequence[R], batch: int, rounded: bool = False
) -> Iterator[tuple[R, Float64[np.ndarray, " S"], Float64[np.ndarray, " C"]]]:
    """Yields each part with the probabilities at its need slots and at its accept slots, padded.

    The parts were packed with the student's template; `batch` is the number of parts per forward pass. Rows are padded
    to the smallest sizes that fit, or with `rounded` to sizes of which there are few, so that calls on many groups of
    parts share their programs.
    """
    if not parts:
        return
    size, template = sizes([part.row for part in parts]), student.template
    size = _rounded(size) if rounded else size
    read = _reading(Slots(student.model, template.yes, template.no, size.window, size.visible))
    ahead: tuple[Sequence[R], tuple[Array, Array]] | None = None
    for start in range(0, len(parts), batch):
        group = parts[start : start + batch]
        logits = read(student.params, _stack([part.row for part in group], batch, size, template.tokenizer.pad))
        if ahead is not None:  # it was read while this group was put together
            yield from _probabilities(*ahead)
        ahead = group, logits
    if ahead is not None:
        yield from _probabilities(*ahead)


def _probabilities(
    parts: Sequence[R], logits: tuple[Array, Array]
) -> Iterator[tuple[R, Float64[np.ndarray, " S"], Float64[np.ndarray, " C"]]]:
    """Each part with the probabilities that logits say."""
    z_need, z_accept = (np.asarray(z, np.float64) for z in logits)
    for i, part in enumerate(parts):
        yield part, _sigmoid(z_need[i]), _sigmoid(z_accept[i])


@functools.lru_cache(maxsize=32)
def _reading(slots: Slots) -> Callable[[Params, Packed], tuple[Array, Array]]:
    """`Slots.read` as a program, which is kept: without this, every call would compile it again."""
    return jax.jit(slots.read)


def _rounded(size: Sizes) -> Sizes:
    """Sizes into which rows of the given ones fit, about four per doubling, without bounds on the visible trunk."""
    window = bucket(size.window)
    return Sizes(
        trunk=bucket(size.trunk, 64),
        branches=bucket(-(-size.branches // window), 1) * window,
        window=window,
        steps=bucket(size.steps),
        candidates=bucket(size.candidates),
        responses=bucket(size.responses) if size.responses else 0,
    )


def unscored(
    template: Template, streams: Sequence[Stream], *, split: str, fold: int, context: int
) -> Iterator[dict[str, Any]]:
    """Yields the rows that `score_streams` would yield, without a student: every signal is one half.

    It packs the streams as scoring does, so it finds before training what scoring would refuse after it.
    """
    for stream in streams:
        for part in packed_offers(stream, template, split=split, fold=fold, context=context):
            need, accept = (np.full(len(slots), 0.5) for slots in (part.row.need_slot, part.row.accept_slot))
            yield from _rows(part, need, accept)


def packed_parts(stream: Stream, template: Template, context: int, written: int = 0) -> Iterator[Part]:
    """Packs a stream without its responses: the gate decides before a response is written.

    ValueError names a stream of which a decision does not fit into the context even with only its newest event, and
    `written` tokens after it.
    """
    first_step, packed = 0, pack_stream(stream, template, context - written, responses=False)
    if written:
        packed.parts()
    for row in packed._replace(context=context).parts():
        yield Part(stream, first_step, row)
        first_step += len(row.need_slot)


def _stack(rows: list[Packed], batch: int, size: Sizes, token: int) -> Packed:
    """A batch of padded rows. A short group repeats its first row, so that only one shape is compiled."""
    padded = [pad(row, size, token) for row in rows]
    padded += padded[:1] * (batch - len(rows))
    return jax.device_put(jax.tree.map(lambda *leaves: np.stack(leaves), *padded))


def _rows(offers: Offers, p_need: np.ndarray, p_accept: np.ndarray) -> Iterator[dict[str, Any]]:
    """One row per candidate, in the order of the slots."""
    need, accept = p_need[offers.row.accept_step].tolist(), p_accept.tolist()  # the latter is padded
    for columns, of_step, of_offer in zip(offers.columns, need, accept, strict=False):
        yield {**columns, "p_need_fast": of_step, "p_accept_fast": of_offer}


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0.0, -z))
