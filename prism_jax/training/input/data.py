"""Packs the streams of a split into rows, counts their labels, and shuffles the rows into batches with Grain."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import grain
import jax
import numpy as np

from prism_jax.prompting.packing import Packed, Sizes, pad, sizes
from prism_jax.prompting.rows import HISTORY, first_fit_decreasing, join_rows, pack_stream
from prism_jax.prompting.template import Template
from prism_jax.streams import Stream
from prism_jax.streams.summary import summarise
from prism_jax.training.config import Unit
from prism_jax.training.input.buckets import choose_buckets


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


def pack_split(
    streams: Sequence[Stream],
    template: Template,
    context: int,
    *,
    unit: Unit = "streams",
    max_decisions: int = 0,
    row_tokens: int = 0,
    buckets: int = 1,
    batch: int = 1,
) -> PackedSplit:
    """Packs the streams of a split into padded rows; the settings are those of `PackingConfig`, and the rows per batch.

    Raises:
      ValueError: for a decision longer than the context, a label that is lost or duplicated, or streams without labels.
    """
    rows: list[Packed] = []
    owners: list[tuple[int, ...]] = []
    alone = 0
    for number, stream in enumerate(streams):
        whole = pack_stream(stream, template, context)
        if unit == "decisions":
            cut = list(whole.single_decisions())
        else:
            cut = list(whole.groups(HISTORY, max_decisions)) if max_decisions else whole.parts(HISTORY)
        alone += whole.single_decision_tokens()
        rows += cut
        owners += [(number,)] * len(cut)
    counts = _labels(streams, rows)
    if row_tokens:
        groups = first_fit_decreasing(rows, row_tokens)
        rows = [join_rows([rows[i] for i in group]) for group in groups]
        owners = [tuple(sorted({owners[i][0] for i in group})) for group in groups]
    rows = [row._replace(row=np.asarray(i, np.int32)) for i, row in enumerate(rows)]
    padded, chosen = list(rows), []
    for group in choose_buckets(rows, buckets, batch):
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
