"""Packing: a whole stream becomes one row, with its trunk once and every decision as a branch of it.

A row has two regions. The trunk of events is causal and its positions start at 0. The branches follow one after
another, each at the positions after its newest visible event. With the columns `stop`, `branch` and `leaf` a branch
token attends to exactly the tokens that it would see if its decision were packed alone
(`prism_jax.student.attention`). `prism_jax.student.prompting.rows` cuts such a row: into one row per decision (row-wise
packing), or into parts of a stream that is longer than the context.

Dimensions: T trunk tokens, R branch tokens, S steps (need slots), C candidates (accept slots), Q supervised tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from prism_jax.streams import Step, Stream
from prism_jax.student.prompting.supervised import (
    SupervisedCandidate,
    SupervisedStep,
    supervised_candidate,
    supervised_step,
)
from prism_jax.student.prompting.template import Template

# A NumPy array during packing and batching, a JAX array or tracer inside a training step.
Column = Any

MULTIPLE = 8
"""What the lengths of padded rows are rounded up to."""


class Packed(NamedTuple):
    """One row, or a batch of rows along a leading axis. Padding attends only to itself and has weight 0."""

    trunk: Column  # [T] token ids of the events
    tokens: Column  # [R] token ids of the branches
    positions: Column  # [R] rotary positions of the branches
    stop: Column  # [R] trunk positions below this are visible
    branch: Column  # [R] number of the branch, from 1; 0 on padding
    leaf: Column  # [R] number of the leaf within its branch, from 1; 0 on the head
    need_slot: Column  # [S] branch index of the token whose next-token logits give p_need
    y_need: Column  # [S] need label in [0, 1]; 0 where unobserved
    need_target: Column  # [S] target of the slot's cross-entropy: the label, unless the step has a target of its own
    # [S] 1 where the label was observed, else 0; in row-wise packing 1 / k, for a step of k decisions
    need_weight: Column
    accept_slot: Column  # [C] branch index of the token whose next-token logits give p_accept
    accept_step: Column  # [C] which of the S steps the candidate belongs to
    y_accept: Column  # [C] acceptance label in [0, 1]; 0 where unobserved
    # [C] target of the slot's cross-entropy: the label, unless the candidate has a target of its own
    accept_target: Column
    accept_mu: Column  # [C] out-of-sample prediction of y_accept, for doubly robust losses
    # [C] 1 where the outcome is known, or the offer was not made and its propensity is known; else 0
    accept_weight: Column
    # [C] tokens of the slow pass that the burden prices at the candidate's step; 0 where it prices none
    slow_tokens: Column
    logged: Column  # [C] A, 1 where the offer was made
    propensity: Column  # [C] e = Pr(A = 1); 1 where nothing was logged
    response_source: Column  # [Q] branch index of the token that predicts the supervised token
    response_target: Column  # [Q] the supervised token
    # [Q] 1, or 0 on padding; in row-wise packing 1 / k for tokens of the head, which all k decisions of a step repeat
    response_weight: Column
    # [Q] factor on the token's loss; unlike the weight, it is not in the denominator of the mean
    response_factor: Column
    row: Column  # [] number of the row in its data set
    # [T] position at which the trunk that a token belongs to begins, in rows that several streams share
    # (`prism_jax.student.prompting.rows`); None in rows of one stream
    begin: Column | None = None


_ON_STEPS = ("y_need", "need_target", "need_weight")
_ON_CANDIDATES = ("y_accept", "accept_target", "accept_mu", "accept_weight", "slow_tokens", "logged", "propensity")
_ON_RESPONSES = ("response_weight", "response_factor")
AXES = {
    "trunk": "trunk",
    **dict.fromkeys(("tokens", "positions", "stop", "branch", "leaf"), "branches"),
    **dict.fromkeys(("need_slot", *_ON_STEPS), "steps"),
    **dict.fromkeys(("accept_slot", "accept_step", *_ON_CANDIDATES), "candidates"),
    **dict.fromkeys(("response_source", "response_target", *_ON_RESPONSES), "responses"),
}
_REAL = {*_ON_STEPS, *_ON_CANDIDATES, *_ON_RESPONSES}


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Static sizes of packed rows."""

    trunk: int  # T, number of trunk tokens
    branches: int  # R, number of branch tokens; a multiple of `window`
    window: int  # W, at least the length of the longest branch
    steps: int  # S, number of need slots
    candidates: int  # C, number of accept slots
    responses: int  # Q, number of supervised tokens; 0 where no row has any
    # upper bound on `stop` in any row, for each chunk of W branch tokens; attention can skip trunk positions beyond it;
    # None means no bound
    visible: tuple[int, ...] | None = None


class _RowBuilder:
    def __init__(self, row: int) -> None:
        self.columns: dict[str, Any] = {name: [] for name in AXES}
        # (number of tokens, position of the first, stop, branch, leaf) of tokens that were added together
        self.runs: list[tuple[int, int, int, int, int]] = []
        self.row = row

    def __len__(self) -> int:
        return len(self.columns["tokens"])

    def branch(self, ids: list[int], position: int, stop: int, branch: int, leaf: int) -> int:
        """Adds branch tokens that start at `position`; returns the position after them."""
        self.columns["tokens"] += ids
        self.runs.append((len(ids), position, stop, branch, leaf))
        return position + len(ids)

    def supervise(self, source: int, targets: list[int], factor: float) -> None:
        """Adds supervised tokens; the branch tokens from index `source` on predict them, one each."""
        columns, count = self.columns, len(targets)
        columns["response_source"] += range(source, source + count)
        columns["response_target"] += targets
        columns["response_weight"] += [1.0] * count
        columns["response_factor"] += [factor] * count

    def put(self, **values: int | float) -> None:
        """Appends one value to each of the named columns."""
        for name, value in values.items():
            self.columns[name].append(value)

    def finish(self) -> Packed:
        counts, *starts = np.array(self.runs, np.int64).reshape(-1, 5).T
        same = dict(zip(("positions", "stop", "branch", "leaf"), (np.repeat(of, counts) for of in starts), strict=True))
        same["positions"] += np.arange(len(self)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.columns |= same
        columns = {k: np.asarray(v, np.float32 if k in _REAL else np.int32) for k, v in self.columns.items()}
        return Packed(**columns, row=np.asarray(self.row, np.int32))


def pack(stream: Stream, template: Template, context: int, row: int = 0, *, responses: bool = True) -> Packed:
    """Packs one stream, unpadded: its events become the trunk, and its steps the branches.

    The context is the maximum number of positions for a decision: the trunk up to it and its longest leaf. `row` is the
    number of the row in its data set; `responses` says whether leaves have those of their candidates. Raises ValueError
    naming the stream and step, when a decision does not fit into the context, or the rationale of a slow branch lacks a
    field.
    """
    out, trunk, stops = _RowBuilder(row), template.system(), []
    for before, event in zip((None, *stream.events), stream.events, strict=False):
        trunk += template.event(event, before)
        stops.append(len(trunk))
    for number, step in enumerate(stream.steps, start=1):
        try:
            used = _add_branch(out, step, number, stops[step.event], template, responses)
        except ValueError as error:
            raise ValueError(f"stream {stream.id!r}, steps[{number - 1}].{error}") from error
        if used > context:
            raise ValueError(
                f"stream {stream.id!r}, steps[{number - 1}]: found {used} tokens up to the end of the decision, "
                f"expected at most the context of {context}; raise packing.context or shorten the stream"
            )
    out.columns["trunk"] = trunk[: stops[stream.steps[-1].event]] if stream.steps else trunk
    return out.finish()


def _add_branch(out: _RowBuilder, step: Step, number: int, stop: int, template: Template, responses: bool) -> int:
    """Adds the branch of one step; returns the number of positions up to the end of its longest leaf."""
    supervised = supervised_step(step)
    after_head = _add_head(out, supervised, number, stop, template)
    _add_need(out, supervised, template)
    used = after_head
    for leaf, candidate in enumerate(map(supervised_candidate, step.candidates), start=1):
        position = out.branch(template.leaf(candidate), after_head, stop, number, leaf)
        out.put(slow_tokens=supervised.slow_tokens)
        _add_accept(out, candidate, number - 1, template)
        if responses and candidate.response is not None:
            before, response = template.response(candidate.response)
            # The last token is only a target; no prediction is made from it.
            position = out.branch([*before, *response[:-1]], position, stop, number, leaf)
            out.supervise(len(out) - len(response), response, candidate.loss_factor)
        used = max(used, position)
    return used


def _add_head(out: _RowBuilder, step: SupervisedStep, number: int, stop: int, template: Template) -> int:
    """Adds the head up to the need slot; returns the position after it.

    The texts of slow fields are targets, unless the student itself wrote them.
    """
    if not step.slow:
        return out.branch(template.head(), stop, stop, number, 0)
    position = out.branch(template.opening(), stop, stop, number, 0)
    own = step.own_fields is not None
    for name, text in template.slow((step.own_fields if own else step.rationale) or {}):
        position = out.branch([*name, *text], position, stop, number, 0)
        if not own:
            out.supervise(len(out) - len(text) - 1, text, step.loss_factor)
    return out.branch(template.need(), position, stop, number, 0)


def _add_need(out: _RowBuilder, step: SupervisedStep, template: Template) -> None:
    """Adds the need slot, which is the newest token, with its label and target."""
    label = 0.0 if step.y_need is None else step.y_need
    out.put(
        need_slot=len(out) - 1,
        y_need=label,
        need_target=label if step.need_target is None else step.need_target,
        need_weight=float(step.y_need is not None),
    )
    _add_answer(out, step.need_answer, step.loss_factor, template)


def _add_accept(out: _RowBuilder, candidate: SupervisedCandidate, step: int, template: Template) -> None:
    """Adds the accept slot, which is the newest token, with its label, target and log."""
    observed = candidate.y_accept is not None
    label = 0.0 if candidate.y_accept is None else candidate.y_accept
    logged = observed if candidate.logged is None else candidate.logged
    # An offer that was not made counts in the mean over the log if its propensity is known. An offer that was made but
    # whose outcome is unknown does not count.
    known = observed or (candidate.logged is False and candidate.propensity is not None)
    out.put(
        accept_slot=len(out) - 1,
        accept_step=step,
        y_accept=label,
        accept_target=label if candidate.accept_target is None else candidate.accept_target,
        accept_mu=candidate.accept_mu,
        accept_weight=float(known),
        logged=float(logged),
        propensity=1.0 if candidate.propensity is None else candidate.propensity,
    )
    _add_answer(out, candidate.accept_answer, candidate.loss_factor, template)


def _add_answer(out: _RowBuilder, answer: bool | None, factor: float, template: Template) -> None:
    """Adds an answer as the supervised next token of the slot, the newest token; it isn't written to the branch."""
    if answer is not None:
        out.supervise(len(out) - 1, [template.yes if answer else template.no], factor)


def decisions(stream: Stream) -> Iterator[Stream]:
    """Yields each decision of the stream as a stream of its own: its visible events, one step, one candidate."""
    for step in stream.steps:
        for candidate in step.candidates:
            alone = dataclasses.replace(step, candidates=(candidate,))
            yield dataclasses.replace(stream, events=stream.events[: step.event + 1], steps=(alone,))


def sizes(rows: Sequence[Packed], multiple: int = MULTIPLE) -> Sizes:
    """The smallest sizes into which every row fits, with lengths rounded up to `multiple`."""

    def up(count: int, to: int) -> int:
        return max(1, -(-count // to)) * to

    window = up(max(int(np.bincount(row.branch).max(initial=0)) for row in rows), multiple)
    branches = up(max(len(row.tokens) for row in rows), window)
    stops = [_chunk_stops(row, branches, window) for row in rows]
    return Sizes(
        trunk=up(max(len(row.trunk) for row in rows), multiple),
        branches=branches,
        window=window,
        steps=max(1, max(len(row.need_slot) for row in rows)),
        candidates=max(1, max(len(row.accept_slot) for row in rows)),
        responses=-(-max(len(row.response_target) for row in rows) // multiple) * multiple,
        visible=tuple(up(int(stop), multiple) for stop in np.max(stops, axis=0)),
    )


def _chunk_stops(row: Packed, branches: int, window: int) -> np.ndarray:
    """The largest `stop` in each chunk of `window` branch tokens, after padding to `branches` tokens."""
    stops = np.zeros(branches, row.stop.dtype)
    stops[: len(row.stop)] = row.stop
    return stops.reshape(-1, window).max(axis=1)


def empty_row(size: Sizes) -> Packed:
    """A row that consists of padding only, with the shapes and dtypes of any row of these sizes."""
    return pad(_RowBuilder(0).finish(), size, 0)


def pad(row: Packed, size: Sizes, token: int) -> Packed:
    """Pads a row to static sizes: token ids with `token`, propensities with 1, everything else with 0.

    Raises ValueError when the row does not fit into these sizes.
    """
    fill = {"trunk": token, "tokens": token, "propensity": 1.0}
    padded = {}
    for name, axis in AXES.items() if row.begin is None else {**AXES, "begin": "trunk"}.items():
        values = getattr(row, name)
        if len(values) > getattr(size, axis):
            raise ValueError(f"{name}: found {len(values)} entries, expected at most {getattr(size, axis)}")
        padded[name] = np.full(getattr(size, axis), fill.get(name, 0), values.dtype)
        padded[name][: len(values)] = values
    if size.visible is not None:
        beyond = np.flatnonzero(_chunk_stops(row, size.branches, size.window) > size.visible)
        if beyond.size:
            at = int(beyond[0])
            raise ValueError(
                f"stop: found a branch in chunk {at} that sees beyond {size.visible[at]}, expected sizes of this row"
            )
    return Packed(**padded, row=row.row)
