"""Streams in, batches out: a split packed and counted once, shuffled by Grain from one seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import grain
import jax
import numpy as np

from prism_jax.prompting.packing import Packed, Sizes, pad, sizes
from prism_jax.prompting.rows import HISTORY, pack_whole
from prism_jax.prompting.sharing import first_fit_decreasing, join_rows
from prism_jax.prompting.template import Template
from prism_jax.streams import Stream
from prism_jax.streams.summary import summarise
from prism_jax.training.config import Unit
from prism_jax.training.input.buckets import choose_buckets


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Rows of one shape.

    Attributes:
      size: Of the padded rows.
      rows: Their numbers.
    """

    size: Sizes
    rows: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class PackedSplit:
    """A split as rows of few static sizes.

    Attributes:
      rows: Padded; number i says so in its column `row`.
      buckets: Which of them share a shape, shortest first.
      streams: Which streams a row was made of, by number.
      batch: Rows a batch, which the buckets were chosen for.
      tokens: Tokens before padding.
      tokens_alone: Tokens if every decision were read by itself, its trunk again and again.
      need: Need labels; each counts once, in however many rows it is read.
      accept: Acceptance labels.
      supervised: Tokens whose successor is trained on: slots with a label, and what is written; each counts once too.
    """

    rows: tuple[Packed, ...]
    buckets: tuple[Bucket, ...]
    streams: tuple[tuple[int, ...], ...]
    batch: int
    tokens: int
    tokens_alone: int
    need: int
    accept: int
    supervised: int

    @property
    def size(self) -> Sizes:
        """Sizes of the largest bucket."""
        return max((bucket.size for bucket in self.buckets), key=lambda size: size.trunk + size.branches)

    @property
    def stream_count(self) -> int:
        """Streams that the rows were made of."""
        return len({stream for row in self.streams for stream in row})

    @property
    def epoch(self) -> float:
        """Batches an epoch; a fraction where batches go on from one epoch into the next."""
        return sum(len(bucket.rows) + _filling(self, bucket, self.batch) for bucket in self.buckets) / self.batch

    @property
    def padding(self) -> float:
        """Share of an epoch's positions that hold no token."""
        positions = sum(
            (len(bucket.rows) + _filling(self, bucket, self.batch)) * (bucket.size.trunk + bucket.size.branches)
            for bucket in self.buckets
        )
        return 1 - self.tokens / positions


def _filling(split: PackedSplit, bucket: Bucket, batch: int) -> int:
    """Empty rows that fill up the batches of one of several buckets."""
    return -len(bucket.rows) % batch if len(split.buckets) > 1 else 0


def pack_split(
    streams: Sequence[Stream],
    template: Template,
    context: int,
    *,
    unit: Unit = "streams",
    row_tokens: int = 0,
    buckets: int = 1,
    batch: int = 1,
) -> PackedSplit:
    """Packs streams: each in one row if it fits into the context, else in several; or each decision in its own.

    Args:
      streams: Of the split.
      template: Gives the token ids.
      context: Most tokens up to the end of one decision.
      unit: What a row holds, as in `PackingConfig`.
      row_tokens: Short rows share one of about so many tokens; 0 for none.
      buckets: Most shapes of rows.
      batch: Rows a batch.

    Raises:
      ValueError: for a decision longer than the context, a label that is in no row or in several, or when nothing is
        supervised.
    """
    rows: list[Packed] = []
    owners: list[tuple[int, ...]] = []
    alone = 0
    for number, stream in enumerate(streams):
        whole = pack_whole(stream, template, context)
        cut = whole.parts(HISTORY) if unit == "streams" else list(whole.alone())
        alone += whole.tokens_alone()
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
    """Labels of each kind, and supervised tokens.

    Raises:
      ValueError: when the rows hold other labels than the streams, or none.
    """
    known = summarise(streams)["all"]
    need = float(sum(row.need_weight.sum(dtype=np.float64) for row in rows))
    accept = int(sum((row.accept_weight * row.logged).sum() for row in rows))
    for name, found, expected in (("need", need, known.need_labels), ("accept", accept, known.accept_labels)):
        # Shares of a need label are rounded to float32 each.
        if abs(found - expected) > 1e-6 + 1e-7 * expected:
            raise ValueError(
                f"data: found {found:.9g} {name} labels in {len(rows)} rows, expected each of the streams' {expected} "
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
    """An endless iterator over batches: every row once an epoch, each epoch in an order of its own.

    With one bucket batches go on from one epoch into the next. With several, every batch comes from one of them; an
    epoch holds the batches of all in a random order, and empty rows, of weight 0 and number -1, fill up those of a
    bucket, here and there among its rows. Its state (`get_state`, `set_state`) is the position in the data; the
    checkpoint keeps it.

    Args:
      split: Packed.
      batch: Rows a batch, on all hosts together.
      seed: Names the order.
      host: Which of the hosts this is, this process by default; it loads its run of every batch's rows.
      hosts: How many there are.

    Raises:
      ValueError: when the hosts can't share a batch evenly.
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
    """A row of padding, of the same sizes."""
    return jax.tree.map(np.zeros_like, row)._replace(propensity=np.ones_like(row.propensity), row=np.int32(-1))
