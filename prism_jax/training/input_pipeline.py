"""The input pipeline: packs the streams of a split into rows of few shapes, and shuffles them into batches (Grain)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import grain
import jax
import numpy as np
from jaxtyping import Int

from prism_jax.streams import Stream
from prism_jax.streams.summary import summarise
from prism_jax.student.prompting.packing import MULTIPLE, Packed, Sizes, pad, sizes
from prism_jax.student.prompting.rows import HISTORY, first_fit_decreasing, join_rows, pack_stream
from prism_jax.student.prompting.template import Template
from prism_jax.training.run_config import PackingConfig


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Rows that are padded to one shape."""

    size: Sizes  # sizes of the padded rows
    rows: tuple[int, ...]  # indices of the rows


@dataclasses.dataclass(frozen=True)
class PackedSplit:
    """A split as rows of few static sizes."""

    rows: tuple[Packed, ...]  # padded rows; the column `row` of each holds its index
    buckets: tuple[Bucket, ...]  # groups of rows that share a shape, shortest first
    streams: tuple[tuple[int, ...], ...]  # indices of the streams in each row
    batch: int  # number of rows per batch that the buckets were chosen for
    tokens: int  # number of tokens before padding
    tokens_alone: int  # number of tokens if every decision were read separately, each with its own copy of the trunk
    need: int  # number of need labels; a label counts once even if several rows share it
    accept: int  # number of acceptance labels
    # number of tokens whose next token is trained on: labelled slots and written text; each counts once
    supervised: int

    @property
    def size(self) -> Sizes:
        """The sizes of the largest bucket."""
        return max((bucket.size for bucket in self.buckets), key=lambda size: size.trunk + size.branches)

    @property
    def stream_count(self) -> int:
        """The number of streams in the rows."""
        return len({stream for row in self.streams for stream in row})

    @property
    def epoch(self) -> float:
        """The number of batches per epoch; a fraction if batches continue from one epoch into the next."""
        return sum(len(bucket.rows) + _filling(self, bucket, self.batch) for bucket in self.buckets) / self.batch

    @property
    def padding(self) -> float:
        """The share of an epoch's positions that hold no token."""
        positions = sum(
            (len(bucket.rows) + _filling(self, bucket, self.batch)) * (bucket.size.trunk + bucket.size.branches)
            for bucket in self.buckets
        )
        return 1 - self.tokens / positions


def _filling(split: PackedSplit, bucket: Bucket, batch: int) -> int:
    """Returns the number of empty rows that complete the last batch of a bucket; a single bucket needs none."""
    return -len(bucket.rows) % batch if len(split.buckets) > 1 else 0


def pack_split(streams: Sequence[Stream], template: Template, packing: PackingConfig, batch: int = 1) -> PackedSplit:
    """Packs the streams of a split into padded rows, in buckets that suit this number of rows per batch.

    ValueError for a decision longer than the context, a label that is lost or duplicated, or streams without labels.
    """
    rows: list[Packed] = []
    owners: list[tuple[int, ...]] = []
    alone = 0
    for number, stream in enumerate(streams):
        whole = pack_stream(stream, template, packing.context)
        if packing.unit == "decisions":
            cut = list(whole.single_decisions())
        else:
            most = packing.max_decisions
            cut = list(whole.groups(HISTORY, most)) if most else whole.parts(HISTORY)
        alone += whole.single_decision_tokens()
        rows += cut
        owners += [(number,)] * len(cut)
    counts = _labels(streams, rows)
    if packing.row_tokens:
        groups = first_fit_decreasing(rows, packing.row_tokens)
        rows = [join_rows([rows[i] for i in group]) for group in groups]
        owners = [tuple(sorted({owners[i][0] for i in group})) for group in groups]
    rows = [row._replace(row=np.asarray(i, np.int32)) for i, row in enumerate(rows)]
    padded, chosen = list(rows), []
    for group in choose_buckets(rows, packing.buckets, batch):
        size = sizes([rows[i] for i in group])
        chosen.append(Bucket(size, tuple(group)))
        for i in group:
            padded[i] = pad(rows[i], size, template.tokenizer.pad)
    return PackedSplit(
        rows=tuple(padded),
        buckets=tuple(chosen),
        streams=tuple(owners),
        batch=batch,
        tokens=sum(len(row.trunk) + len(row.tokens) for row in rows),
        tokens_alone=alone,
        **counts,
    )


def _labels(streams: Sequence[Stream], rows: Sequence[Packed]) -> dict[str, int]:
    """Counts labels and supervised tokens; raises ValueError unless the rows hold each label once, and at least one."""
    known = summarise(streams)["all"]
    need = float(sum(row.need_weight.sum(dtype=np.float64) for row in rows))
    accept = int(sum((row.accept_weight * row.logged).sum() for row in rows))
    for name, count, expected in (("need", need, known.need_labels), ("accept", accept, known.accept_labels)):
        # A need label can be split over several rows, and each part is rounded to float32.
        if abs(count - expected) > 1e-6 + 1e-7 * expected:
            raise ValueError(
                f"data: found {count:.9g} {name} labels in {len(rows)} rows, expected each of the streams' {expected} "
                "once"
            )
    if not known.need_labels + accept:
        raise ValueError(f"data: found {len(streams)} streams without any need or acceptance label, expected some")
    written = float(sum(row.response_weight.sum(dtype=np.float64) for row in rows))
    supervised = known.need_labels + accept + round(written)
    return {"need": known.need_labels, "accept": accept, "supervised": supervised}


def batches(
    split: PackedSplit, batch: int, seed: int, host: int | None = None, hosts: int | None = None
) -> grain.DatasetIterator:
    """An endless iterator over batches: every row once per epoch, and a new random order in every epoch.

    With one bucket, batches continue from one epoch into the next. With several buckets, the rows of every batch belong
    to one bucket, and an epoch holds the batches of all buckets in random order. Empty rows, with weight 0 and index
    -1, complete the batches of a bucket; they are shuffled among its rows. The state of the iterator (`get_state`,
    `set_state`) is the position in the data, which checkpoints store.

    A batch has `batch` rows over all hosts, and each host loads its consecutive share of it. By default, hosts are JAX
    processes.

    Raises:
      ValueError: if the hosts cannot share a batch evenly.
    """
    host = jax.process_index() if host is None else host
    hosts = jax.process_count() if hosts is None else hosts
    if batch % hosts:
        raise ValueError(f"training.batch: found {batch}, expected a multiple of the {hosts} hosts that share it")

    def of_host(rows: grain.MapDataset) -> grain.MapDataset:
        runs = rows.batch(batch // hosts, drop_remainder=True)
        return runs if hosts == 1 else runs[host::hosts]

    if len(split.buckets) == 1:
        dataset = of_host(grain.MapDataset.source(split.rows).seed(seed).shuffle().repeat())
    else:
        parts = []
        for bucket in split.buckets:
            rows = [split.rows[i] for i in bucket.rows]
            rows += [empty_like(rows[0])] * _filling(split, bucket, batch)
            parts.append(of_host(grain.MapDataset.source(rows).seed(seed).shuffle()))
        dataset = grain.MapDataset.concatenate(parts).seed(seed).shuffle().repeat()
    return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=4)))


def empty_like(row: Packed) -> Packed:
    """Returns a row of the same sizes that holds only padding."""
    return jax.tree.map(np.zeros_like, row)._replace(propensity=np.ones_like(row.propensity), row=np.int32(-1))


# Maximum number of places where a bucket may end. More would save almost nothing, and the time grows quadratically.
_PLACES = 256


def choose_buckets(rows: Sequence[Packed], count: int, batch: int) -> list[list[int]]:
    """Divides the rows into at most `count` groups such that the total number of padded positions is minimal.

    The rows are sorted by length and cut into consecutive groups. The first group, of the shortest rows, may hold any
    number of rows; every other group holds whole batches. Among all such cuts, a dynamic programme finds the one with
    the fewest positions, where every row is padded to the sizes of its group and incomplete batches are filled with
    empty rows. Among equal cuts it takes the one with the fewest groups. In a large split, only about 256 evenly spaced
    cut places are considered. The result depends only on the lengths and their order.

    Lengths are rounded up as in `packing.sizes`. Returns the indices of the rows in each group.
    """
    everything = list(range(len(rows)))
    if count == 1:
        return [everything]
    lengths = np.array([_lengths(row) for row in rows])
    order = np.argsort(lengths[:, :2].sum(axis=1), kind="stable")
    ends = np.arange(len(rows), 0, -batch)[::-1]
    ends = ends[np.unique(np.linspace(0, len(ends) - 1, min(len(ends), _PLACES)).round().astype(int))]
    starts = np.concatenate([[0], ends[:-1]])
    longest = np.maximum.reduceat(lengths[order], starts, axis=0)
    # best[g][e]: fewest positions of all rows before place e in g + 1 groups; cut[g][e]: where the last group starts.
    costs = [_costs(longest[: e + 1], ends[e] - starts[: e + 1], batch) for e in range(len(ends))]
    best, cut = [np.array([cost[0] for cost in costs], np.float64)], [np.zeros(len(ends), int)]
    for _ in range(min(count, len(ends)) - 1):
        options = [best[-1][:e] + costs[e][1:] for e in range(1, len(ends))]
        best.append(np.array([np.inf, *(option.min() for option in options)]))
        cut.append(np.array([0, *(1 + int(option.argmin()) for option in options)]))
    # A single group needs no empty rows, because its batches continue into the next epoch.
    whole = _shapes(lengths.max(axis=0, keepdims=True)).sum()
    totals = [len(rows) * whole, *(column[-1] for column in best[1:])]
    groups, end = [], len(ends)
    for level in range(int(np.argmin(totals)), -1, -1):
        start = int(cut[level][end - 1])
        groups.append(order[starts[start] : ends[end - 1]])
        end = start
    return [sorted(group.tolist()) for group in _merge(groups[::-1], lengths)]


def _lengths(row: Packed) -> tuple[int, int, int]:
    """The lengths of the trunk, of all branches together and of the longest branch."""
    return len(row.trunk), len(row.tokens), int(np.bincount(row.branch).max(initial=0))


def _shapes(longest: Int[np.ndarray, "g 3"]) -> Int[np.ndarray, "g 2"]:
    """The sizes of the trunk and of the branch region, rounded up as in `packing.sizes`."""
    trunk, branches, branch = np.maximum(longest, 1).T
    window = -(-branch // MULTIPLE) * MULTIPLE
    return np.stack([-(-trunk // MULTIPLE) * MULTIPLE, -(-branches // window) * window], axis=1)


def _costs(longest: np.ndarray, rows: np.ndarray, batch: int) -> np.ndarray:
    """The number of positions of each group that starts at one of the places and ends after the last one."""
    whole = np.maximum.accumulate(longest[::-1], axis=0)[::-1]
    return -(-rows // batch) * batch * _shapes(whole).sum(axis=1)


def _merge(groups: list[np.ndarray], lengths: np.ndarray) -> list[np.ndarray]:
    """Merges groups of equal sizes, because batches are distinguished by their sizes only."""
    merged: dict[tuple[int, ...], np.ndarray] = {}
    for group in groups:
        key = tuple(_shapes(lengths[group].max(axis=0, keepdims=True))[0].tolist())
        merged[key] = np.concatenate([merged[key], group]) if key in merged else group
    return list(merged.values())
