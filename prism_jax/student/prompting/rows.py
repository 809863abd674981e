"""Cuts rows from packed streams, parts of long streams or single decisions; and joins several streams into one row.

A stream is packed once, as a whole (`packing.py`). A cut keeps some of its decisions, the system
message and the newest events, and shifts their positions. The result equals packing these decisions and events alone.
Where a step's decisions are in several rows, what belongs to the step counts in each of them by its share of them.

In a row of several streams the trunks stand one after another, and the branches too, in the same order. Every branch
still sees only its own trunk (`begin`; `prism_jax.student.attention`), so the logits equal those of separate rows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from prism_jax.streams import Stream
from prism_jax.student.prompting.packing import AXES, Packed, pack
from prism_jax.student.prompting.template import Template

HISTORY = 0.5
"""Minimum share of the history that fits into the context that a decision keeps when it shares a training row.

At 1, a stream longer than the context would need about as many rows as decisions."""


class PackedStream(NamedTuple):
    """A packed stream of any length, from which rows are cut."""

    stream: str  # id of the stream, for messages
    context: int  # maximum number of positions for a decision: the trunk up to it and its longest leaf
    row: Packed  # the packed row of the whole stream
    # [events + 1] trunk position at which each event begins, and at which the last one ends; for a stream that fits
    # into the context only the first entry
    begins: Int[np.ndarray, " events"]
    stops: Int[np.ndarray, " C"]  # trunk position at which the events visible to a candidate end
    tails: Int[np.ndarray, " C"]  # number of positions of head, leaf and response, after the events

    def parts(self, history: float = 1.0) -> list[Packed]:
        """Cuts the stream into as few rows as the context allows: one, if the stream fits.

        Every step is in exactly one row, in order. A row consists of the system message, the newest events that fit
        together with each of its decisions, and these decisions. Its first event still gives the time since the event
        before it, which is cut off. Steps share a row as long as each keeps at least the share `history`, in (0, 1], of
        the event tokens that it could keep alone; at 1 each keeps all of them. Raises ValueError naming the stream and
        step, when a decision does not fit even with only its newest event.
        """
        return [self.row] if len(self.begins) == 1 else [_cut(self, keep, first) for keep, first in self._runs(history)]

    def groups(self, history: float, most: int) -> Iterator[Packed]:
        """Yields the rows of `parts`, each divided into rows of at most `most` decisions, as equal as possible.

        Each decision keeps the events that it has in `parts`; a row ends with the newest event that its decisions see.
        The need label and the supervised tokens of the head of a step of k decisions have the weight m / k in a row
        with m of these decisions. The errors are those of `parts`.
        """
        for keep, first in self._runs(history):
            decisions = np.flatnonzero(keep)
            for group in np.array_split(decisions, max(1, -(-len(decisions) // most))) if len(decisions) else ():
                yield _shared(self, np.isin(np.arange(len(keep)), group), first)

    def _runs(self, history: float) -> Iterator[tuple[Bool[np.ndarray, " C"], int]]:
        """Yields, for each row of `parts`, which decisions it holds and the number of its oldest event."""
        step, count = self.row.accept_step, len(self.row.need_slot)
        if len(self.begins) == 1:
            yield np.ones(len(step), bool), 0
            return
        tails, stops = np.zeros(count, np.int64), np.zeros(count, np.int64)
        np.maximum.at(tails, step, self.tails)
        stops[step] = self.stops
        firsts = _oldest(self, stops, tails, np.arange(count))
        for a, b in _runs(self.begins, stops, firsts, history):
            yield (a <= step) & (step < b), int(firsts[a:b].max())

    def single_decisions(self) -> Iterator[Packed]:
        """Yields each decision in a row of its own, with the newest events that fit (row-wise packing).

        The need label and the supervised tokens of the head belong to a step and are repeated in the row of each of its
        k decisions; each copy has the weight 1 / k. The errors are those of `parts`.
        """
        step = self.row.accept_step
        for number, first in enumerate(_oldest(self, self.stops, self.tails, step).tolist()):
            yield _shared(self, np.arange(len(step)) == number, first)

    def single_decision_tokens(self) -> int:
        """Total number of tokens in the rows of `single_decisions`."""
        firsts = _oldest(self, self.stops, self.tails, self.row.accept_step)
        return int((self.stops - (self.begins[firsts] - self.begins[0]) + self.tails).sum())


def pack_stream(stream: Stream, template: Template, context: int, *, responses: bool = True) -> PackedStream:
    """Packs a stream of any length into one row, from which rows can be cut that fit into the context.

    `responses` says whether leaves have those of their candidates. Raises ValueError naming the stream and step, when
    the rationale of a slow branch lacks a field.
    """
    row = pack(stream, template, sys.maxsize, responses=responses)
    ends = np.flatnonzero(np.diff(row.leaf, append=0) | np.diff(row.branch, append=0))
    ends = ends[row.leaf[ends] > 0]  # the last token of each leaf
    tails = (row.positions - row.stop)[ends].astype(np.int64) + 1
    packed = PackedStream(stream.id, context, row, np.array([len(template.system())]), row.stop[row.accept_slot], tails)
    if (packed.stops + tails).max(initial=len(row.trunk)) <= context:
        return packed
    lengths = [len(template.event(*pair)) for pair in zip(stream.events, (None, *stream.events), strict=False)]
    return packed._replace(begins=np.cumsum([*packed.begins, *lengths]))


def _oldest(
    packed: PackedStream, stops: Int[np.ndarray, " n"], tails: Int[np.ndarray, " n"], steps: Int[np.ndarray, " n"]
) -> Int[np.ndarray, " n"]:
    """Number of the oldest event that fits into the context, for each of n decisions."""
    begins, system = packed.begins, int(packed.begins[0])
    if len(begins) == 1:
        return np.zeros(len(stops), np.int64)
    firsts = np.searchsorted(begins, stops + tails + system - packed.context)
    newest = np.searchsorted(begins, stops) - 1
    for i in np.flatnonzero(firsts > newest)[:1].tolist():
        used = int(system + stops[i] - begins[newest[i]] + tails[i])
        raise ValueError(
            f"stream {packed.stream!r}, steps[{steps[i]}]: found {used} tokens up to the end of the decision, expected "
            f"at most the context of {packed.context}; raise packing.context or shorten the stream's events"
        )
    return firsts


def _runs(
    begins: Int[np.ndarray, " events"], stops: Int[np.ndarray, " S"], firsts: Int[np.ndarray, " S"], history: float
) -> Iterator[tuple[int, int]]:
    """Yields (start, stop) of runs of steps that share a row, each as long as `history` allows (greedy)."""
    least = history * (stops - begins[firsts])
    start = 0
    for end in range(1, len(stops) + 1):
        if end < len(stops):
            kept = stops[start : end + 1] - begins[firsts[start : end + 1].max()]
            if (kept >= least[start : end + 1]).all():
                continue
        yield start, end
        start = end


def _owner(row: Packed, keep: Bool[np.ndarray, " C"]) -> Int[np.ndarray, " R"]:
    """Index of the kept candidate whose leaf each branch token belongs to; -1 on heads and on dropped leaves."""
    span = int(row.leaf.max(initial=0)) + 1
    slots = row.accept_slot[keep]
    keys = row.branch[slots] * span + row.leaf[slots]  # ascending, because candidates are in row order
    token_keys = row.branch * span + row.leaf
    places = np.minimum(np.searchsorted(keys, token_keys), len(keys) - 1)
    return np.where((row.leaf > 0) & (keys[places] == token_keys), places, -1)


def _shared(packed: PackedStream, keep: Bool[np.ndarray, " C"], first: int) -> Packed:
    """`_cut`, with the weight of what belongs to a step in proportion to the share of its decisions that are kept."""
    step = packed.row.accept_step
    counts = np.bincount(step[keep], minlength=len(packed.row.need_slot)), np.bincount(step)
    kept = counts[0] > 0
    share = (counts[0][kept] / counts[1][kept]).astype(np.float32)
    row = _cut(packed, keep, first)
    on_head = row.leaf[row.response_source] == 0
    of_head = share[row.branch[row.response_source] - 1]
    return row._replace(
        need_weight=row.need_weight * share,
        response_weight=row.response_weight * np.where(on_head, of_head, np.float32(1)),
    )


def _cut(packed: PackedStream, keep: Bool[np.ndarray, " C"], first: int) -> Packed:
    """Cuts the row of the kept candidates, with the events from number `first` on."""
    row, system, begin = packed.row, int(packed.begins[0]), int(packed.begins[first])
    steps, kept_step = np.unique(row.accept_step[keep], return_inverse=True)
    owner = _owner(row, keep)
    tokens = (owner >= 0) | ((row.leaf == 0) & np.isin(row.branch - 1, steps))
    masks = {
        "branches": tokens,
        "steps": np.isin(np.arange(len(row.need_slot)), steps),
        "candidates": keep,
        "responses": tokens[row.response_source],
    }
    columns = {name: getattr(row, name)[masks[axis]] for name, axis in AXES.items() if axis != "trunk"}
    index, shift = np.cumsum(tokens) - 1, begin - system
    for name in ("need_slot", "accept_slot", "response_source"):
        columns[name] = index[columns[name]]
    # Leaves are renumbered from 1 among the kept candidates of their step.
    leaf = np.arange(len(kept_step)) - np.searchsorted(kept_step, kept_step) + 1
    columns["leaf"] = np.where(owner[tokens] >= 0, leaf[owner[tokens]], 0)
    columns["branch"] = np.searchsorted(steps, columns["branch"] - 1) + 1
    columns["accept_step"] = kept_step
    columns["positions"] = columns["positions"] - shift
    columns["stop"] = columns["stop"] - shift
    columns["trunk"] = np.concatenate([row.trunk[:system], row.trunk[begin : packed.stops[keep].max()]])
    return Packed(**{name: values.astype(getattr(row, name).dtype) for name, values in columns.items()}, row=row.row)


def first_fit_decreasing(rows: Sequence[Packed], tokens: int) -> list[list[int]]:
    """Chooses which unpadded rows are joined into one, by first-fit decreasing bin packing.

    Rows are assigned from the longest to the shortest, each to the first group with room. Trunk and branch regions have
    separate static sizes, so each has its own limit: the region's share of `tokens`, in proportion to the lengths over
    all rows, or the longest row if that is more. A group therefore has about `tokens` tokens at most. The groups of row
    numbers, ascending within each, depend only on the lengths and their order.
    """
    lengths = np.array([[len(row.trunk), len(row.tokens)] for row in rows])
    limit = np.maximum(lengths.max(axis=0), tokens * lengths.sum(axis=0) // lengths.sum())
    room = np.empty_like(lengths)
    groups: list[list[int]] = []
    for number in np.argsort(-lengths.sum(axis=1), kind="stable").tolist():
        fits = (room[: len(groups)] >= lengths[number]).all(axis=1)
        group = int(fits.argmax()) if fits.any() else len(groups)
        if group == len(groups):
            groups.append([])
            room[group] = limit
        groups[group].append(number)
        room[group] -= lengths[number]
    return [sorted(group) for group in groups]


def join_rows(rows: Sequence[Packed]) -> Packed:
    """Joins unpadded rows of one trunk each into one row, which gets the number of the first."""
    trunks, tokens, steps = (
        np.cumsum([0, *(len(getattr(row, name)) for row in rows)]) for name in ("trunk", "tokens", "need_slot")
    )
    offsets_by_column = {
        "stop": trunks,
        "branch": steps,
        "need_slot": tokens,
        "accept_slot": tokens,
        "accept_step": steps,
        "response_source": tokens,
    }
    columns = {}
    for name in AXES:
        parts = [getattr(row, name) for row in rows]
        offsets = offsets_by_column.get(name, np.zeros(len(rows)))
        whole = np.concatenate([part + offset for part, offset in zip(parts, offsets, strict=False)])
        columns[name] = whole.astype(parts[0].dtype)
    begin = np.repeat(trunks[:-1], np.diff(trunks)).astype(np.int32)
    return Packed(**columns, row=rows[0].row, begin=begin)
