"""Histograms of decision indices over a sorted cost grid, for every margin: the counting behind `surface`.

Two implementations give the same integers. On a CPU, XLA's scatter takes about 40 ns per counted number and
`numpy.bincount` less than 2 ns. So on the host XLA computes indices block by block in a thread, while `numpy.bincount`
counts the previous block; nothing larger than a block is held in memory. Few indices are computed by NumPy, too. Inside
`jit`, and on accelerators, whose scatters are fast, XLA does everything, one margin at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from prism_jax.decision import arrays
from prism_jax.decision.arrays import Array
from prism_jax.decision.costs.cost_grid import CostGrid, decision_index, round_up, slow_range
from prism_jax.decision.passes import BothPasses

_CHUNK = 1 << 15
"""Largest number of steps in a block; with `_MARGINS` margins its indices take 2 MiB and fit the level-2 cache."""
_MARGINS = 8
"""Largest number of margins in a block."""
_FEW = 1 << 21
"""Largest number of indices, steps times margins above 0, that NumPy computes, before JAX is loaded and compiles."""


class Classes(NamedTuple):
    """The group and the label class under which each step is counted."""

    group: Int[Array, " n"] | None  # group of each step, below `groups`; None if all steps are one group
    label: Int[Array, " n"]  # label class of each step, below `labels`
    groups: int  # number of groups G
    labels: int  # number of label classes C


class Histograms(NamedTuple):
    """Counts of steps by index into a grid of K costs; index K, the last, is beyond every cost."""

    # steps by their first intervening cost: [margin, group, label, K + 1]
    first: Int[Array, "margins groups labels K_plus_1"]
    # steps by the first cost at which the slow pass runs: [margin, group, K + 1]
    slow_from: Int[Array, "margins groups K_plus_1"]
    # steps by the index after the last cost at which the slow pass runs, of the same shape
    slow_to: Int[Array, "margins groups K_plus_1"]
    # as `slow_from`, with each step weighted by its tokens; None without tokens
    tokens_from: Int[Array, "margins groups K_plus_1"] | None
    tokens_to: Int[Array, "margins groups K_plus_1"] | None  # as `slow_to`, with the same weights


def count_on_device(
    signals: BothPasses,
    classes: Classes,
    tokens: Int[Array, " n"] | None,
    margins: Float[Array, " M"],
    grid: CostGrid,
    columns: int,
) -> Histograms:
    """The histograms, `columns` = K + 1 bins each, counted by XLA's scatter in int32; may be traced."""
    import jax
    import jax.numpy as jnp

    label = classes.label.astype(jnp.int32)
    group = jnp.zeros_like(label) if classes.group is None else classes.group.astype(jnp.int32)
    base, label_base = group * columns, (group * classes.labels + label) * columns
    fast = decision_index(*signals.fast, grid)
    slow = decision_index(*signals.slow, grid)

    def one_margin(margin: Array) -> Histograms:
        start, stop = slow_range(*signals.fast, fast, margin[None, None], grid)
        start, stop = start[0], stop[0]

        def histogram(index: Any, *shape: int, weight: Any = 1) -> Array:
            bins = jnp.zeros(int(np.prod(shape)) * columns, jnp.int32)
            return bins.at[index].add(weight).reshape(*shape, columns)

        return Histograms(
            first=histogram(label_base + jnp.clip(slow, start, stop), classes.groups, classes.labels),
            slow_from=histogram(base + start, classes.groups),
            slow_to=histogram(base + stop, classes.groups),
            tokens_from=None if tokens is None else histogram(base + start, classes.groups, weight=tokens),
            tokens_to=None if tokens is None else histogram(base + stop, classes.groups, weight=tokens),
        )

    return jax.lax.map(one_margin, jnp.asarray(margins))


def count_on_host(
    signals: BothPasses,
    classes: Classes,
    tokens: Int[Array, " n"] | None,
    margins: Float[Array, " M"],
    grid: CostGrid,
    columns: int,
) -> Histograms:
    """The histograms, `columns` = K + 1 bins each, counted by `numpy.bincount` in int64 from NumPy arrays."""
    groups, labels = classes.groups, classes.labels
    shape = (len(margins), groups * columns)
    first = np.zeros((len(margins), groups * labels * columns), np.int64)
    slow_from, slow_to = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    tokens_from, tokens_to = (None, None) if tokens is None else (np.zeros(shape, np.int64), np.zeros(shape, np.int64))
    for block in _one_ahead(_blocks(signals, np.asarray(margins), grid)):
        rows = block.rows
        group = None if classes.group is None else classes.group[rows].astype(np.int32)
        label = classes.label[rows].astype(np.int32)
        label_base = (label if group is None else group * labels + label) * columns
        for offset, (start, stop) in enumerate(zip(block.start, block.stop, strict=True)):
            margin = block.margin + offset
            chosen = np.minimum(np.maximum(block.slow, start), stop)
            first[margin] += np.bincount(chosen + label_base, minlength=first.shape[1])
            if group is not None:
                start, stop = start + group * columns, stop + group * columns
            slow_from[margin] += np.bincount(start, minlength=shape[1])
            slow_to[margin] += np.bincount(stop, minlength=shape[1])
            if tokens is not None and tokens_from is not None and tokens_to is not None:
                weight = tokens[rows]  # summed in float64: exact below 2^53
                tokens_from[margin] += np.bincount(start, weight, minlength=shape[1]).astype(np.int64)
                tokens_to[margin] += np.bincount(stop, weight, minlength=shape[1]).astype(np.int64)
    by_group = (len(margins), groups, columns)
    return Histograms(
        first=first.reshape(len(margins), groups, labels, columns),
        slow_from=slow_from.reshape(by_group),
        slow_to=slow_to.reshape(by_group),
        tokens_from=None if tokens_from is None else tokens_from.reshape(by_group),
        tokens_to=None if tokens_to is None else tokens_to.reshape(by_group),
    )


def host_slow_range(signals: BothPasses, margin: Any, grid: CostGrid) -> tuple[np.ndarray, np.ndarray]:
    """`slow_range` of NumPy signals at one margin, [n] each."""
    blocks = list(_one_ahead(_blocks(signals, np.full(1, margin, grid.costs.dtype), grid)))
    return np.concatenate([block.start[0] for block in blocks]), np.concatenate([block.stop[0] for block in blocks])


def on_accelerator(value: Any) -> bool:
    """Whether an array is concrete and on a device other than a CPU."""
    return arrays.is_jax(value) and any(device.platform != "cpu" for device in value.devices())


class _Block(NamedTuple):
    """Indices of the steps `rows` at consecutive margins, of which `margin` is the first."""

    rows: slice
    margin: int
    slow: np.ndarray  # [rows]: the decision index of the slow signals
    start: np.ndarray  # [margins, rows]
    stop: np.ndarray


def _blocks(signals: BothPasses, margins: np.ndarray, grid: CostGrid) -> Iterator[_Block]:
    """Computes the indices in blocks of few different shapes, so that jit compiles few programs."""
    steps = len(signals.fast.need)
    few = steps * np.count_nonzero(margins) <= _FEW
    chunk = min(_CHUNK, round_up(steps, 256))
    wide = min(_MARGINS, round_up(len(margins), 1))
    padded_margins = np.pad(margins, (0, -len(margins) % wide))
    if not few:
        from prism_jax.decision.costs import cost_search
    for row in range(0, steps, chunk):
        rows = slice(row, min(row + chunk, steps))
        valid = rows.stop - row
        if few:
            need, accept, need_slow, accept_slow = (value[rows] for value in signals.arrays)
            fast, slow = decision_index(need, accept, grid), decision_index(need_slow, accept_slow, grid)
            for margin, at in enumerate(margins):  # the temporary arrays of one margin fit the cache
                ranges = slow_range(need, accept, fast, at[None, None], grid) if at else (fast[None], fast[None])
                yield _Block(rows, margin, slow, *ranges)
            continue
        part = [np.pad(value[rows], (0, chunk - valid)) if valid < chunk else value[rows] for value in signals.arrays]
        with cost_search.host_precision(grid.costs.dtype):
            fast = cost_search.compiled_decision_index(part[0], part[1], grid)
            slow = np.asarray(cost_search.compiled_decision_index(part[2], part[3], grid))[:valid]
        for margin in range(0, len(margins), wide):
            real = min(wide, len(margins) - margin)
            with cost_search.host_precision(grid.costs.dtype):
                of = padded_margins[margin : margin + wide]
                ranges = cost_search.compiled_slow_range(part[0], part[1], fast, of[:, None], grid)
            start, stop = (np.asarray(index)[:real, :valid] for index in ranges)
            yield _Block(rows, margin, slow, start, stop)


def _one_ahead(blocks: Iterator[_Block]) -> Iterator[_Block]:
    """The same blocks; while the caller works on one, a thread computes the next.

    The thread also keeps the computation out of a caller's `jit`, where known values would be traced.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        pending = pool.submit(next, blocks, None)
        while (block := pending.result()) is not None:
            pending = pool.submit(next, blocks, None)
            yield block
