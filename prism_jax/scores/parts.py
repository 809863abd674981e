"""Scores in many files, or more rows than fit into memory: read part by part, with every step whole.

A part is some row groups of a Parquet file, about `PART_ROWS` rows, and depends on the files alone. It is read in
chunks of about `CHUNK_ROWS` rows, whatever the size of the row groups. A step whose rows stand in two parts belongs to
the first of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from etils import epath
from jaxtyping import Bool

from prism_jax.decision.uncertainty import unit_keys
from prism_jax.scores.files import (
    TYPES,
    from_arrow,
    located,
    naming,
    of_pools,
    open_parquet,
    read_rows,
    to_arrow,
    unknown_columns,
)
from prism_jax.scores.schema import COLUMNS, REQUIRED, ScoresError, as_column, object_array
from prism_jax.scores.table import Scores
from prism_jax.scores.texts import Pool, as_numpy, as_seconds, is_moment

PART_ROWS = 1 << 20
"""About how many rows a part has: row groups are put together up to this number, and never divided."""
CHUNK_ROWS = 1 << 17
"""About how many rows are in memory at once."""
GATHERED_ROWS = 1 << 18
"""About how many rows of whole streams stand in a file that `gather` writes; all of them are in memory at once."""
_MOST_FILES = 500
"""Files that `gather` has open at once; of very many rows, more of them stand in each."""
_UNREAD = ("votes", "tokens_response")


class Part(NamedTuple):
    """Some row groups of a file."""

    path: str
    first: int  # the first row group
    last: int  # the row group after the last
    rows: int
    chunk: int  # about how many rows are in memory at once
    extra: tuple[str, ...] = ()  # columns without a meaning of their own that are read, too, where there are any
    whole: bool = False  # whether all rows of the file are to be in memory at once, in any order


def parts_of(path: str, extra: tuple[str, ...] = ()) -> list[Part]:
    """The parts of a Parquet file, of which some columns that the schema does not know are read, too.

    Raises:
      ScoresError: for a file that cannot be read, has no rows, or is no scores table.
    """
    with naming(path), open_parquet(epath.Path(path)) as reader:
        sizes = [reader.metadata.row_group(i).num_rows for i in range(reader.num_row_groups)]
    if not sum(sizes):
        raise ScoresError("found no rows, expected at least one", place=path)
    parts, first, rows = [], 0, 0
    for i, size in enumerate(sizes):
        if rows and rows + size > PART_ROWS:
            parts.append(Part(path, first, i, rows, CHUNK_ROWS, extra))
            first, rows = i, 0
        rows += size
    return [*parts, Part(path, first, len(sizes), rows, CHUNK_ROWS, extra)]


def columns_of(path: str) -> list[str]:
    """The columns of a Parquet file that are read, in the schema's order; ScoresError if it is no scores table."""
    with naming(path), open_parquet(epath.Path(path)) as reader:
        return _known(reader)


def _known(reader: pq.ParquetFile) -> list[str]:
    return [name for name in COLUMNS if name in reader.schema_arrow.names and name not in _UNREAD]


def read_part(part: Part, *, checked: bool = False) -> Iterator[Scores]:
    """The rows of a part in chunks, each step whole; those that are known to be valid are not `checked` again.

    Raises:
      ScoresError: naming file, row and column.
    """
    for first_row, batch in _chunks(part):
        try:
            rows = _scores(batch, checked)
        except ScoresError as error:
            row = None if error.row is None else error.row + first_row
            raise located(ScoresError(error.problem, error.column, row), part.path) from None
        yield rows


def _chunks(part: Part) -> Iterator[tuple[int, pa.Table]]:
    """Tables of whole steps, each with the number of its first row in the file."""
    with naming(part.path), open_parquet(epath.Path(part.path)) as reader:
        known = _known(reader)
        for name in REQUIRED:
            if name not in known:
                raise ScoresError(f"found only {', '.join(reader.schema_arrow.names)}, expected this column too", name)
        for name in known:  # wrong types are found before anything is read
            from_arrow(name, pa.nulls(0, reader.schema_arrow.field(name).type), 0, Pool())
        known += [name for name in part.extra if name in reader.schema_arrow.names and name not in COLUMNS]
        if part.whole:
            yield 0, reader.read(known, use_threads=False)
            return
        start = sum(reader.metadata.row_group(i).num_rows for i in range(part.first))
        before = _last_key(reader, part.first)
        kept: pa.Table | None = None
        for inside, table in _tables(reader, part, known):
            if before is not None:  # rows of a step that belongs to the part before
                own = _beginning(table, before)
                start += own
                table = table.slice(own)
                if not len(table):
                    continue
                before = None
            if not inside:  # the part ends with the step that it began
                rest = _beginning(table, _key(kept, len(kept) - 1)) if kept is not None else 0
                if kept is not None and rest:
                    kept = pa.concat_tables([kept, table.slice(0, rest)])
                if kept is None or rest < len(table):
                    break
                continue
            whole = table if kept is None else pa.concat_tables([kept, table])
            ends = _last_step(whole)
            kept = whole.slice(ends)
            if ends:
                yield start, whole.slice(0, ends)
                start += ends
        if kept is not None and len(kept):
            yield start, kept


def _tables(reader: pq.ParquetFile, part: Part, names: list[str]) -> Iterator[tuple[bool, pa.Table]]:
    """Tables of about as many rows as a chunk, however small the row groups are; then those beyond the part."""
    batches: list[pa.RecordBatch] = []
    rows = 0
    for batch in _batches(reader, range(part.first, part.last), names, part.chunk):
        if batches and rows + len(batch) > part.chunk:
            yield True, pa.Table.from_batches(batches)
            batches, rows = [], 0
        batches.append(batch)
        rows += len(batch)
    if batches:
        yield True, pa.Table.from_batches(batches)
    for number in range(part.last, reader.num_row_groups):
        for batch in _batches(reader, [number], names, part.chunk):
            yield False, pa.Table.from_batches([batch])


def _batches(reader: pq.ParquetFile, groups: Sequence[int], names: list[str], chunk: int) -> Iterator[pa.RecordBatch]:
    """Batches of at most so many rows, none of two row groups."""
    for batch in reader.iter_batches(chunk, row_groups=list(groups), columns=names, use_threads=False):
        batch.validate(full=True)
        yield batch


Key = tuple[pa.Scalar, pa.Scalar]
"""Stream and step, as pyarrow's own values: to make such of Python's, it imports pandas, which takes 0.2 s."""


def _key(table: pa.Table | pa.RecordBatch, row: int) -> Key:
    one = table.slice(row, 1)
    return _plain(one, "stream")[0], one.column("step")[0]


def _last_key(reader: pq.ParquetFile, group: int) -> Key | None:
    """The stream and step of the row before a row group; None for the first."""
    for number in reversed(range(group)):
        last = None
        for batch in reader.iter_batches(CHUNK_ROWS, row_groups=[number], columns=["stream", "step"]):
            last = batch if len(batch) else last
        if last is not None:
            return _key(last, len(last) - 1)
    return None


def _beginning(table: pa.Table, key: Key) -> int:
    """How many rows at the beginning have this stream and step."""
    same = _is_step(table, key)
    return len(table) if same.all() else int(same.argmin())


def _last_step(table: pa.Table) -> int:
    """The row at which the last step begins, which the last rows tell nearly always."""
    key = _key(table, len(table) - 1)
    for first in (max(len(table) - 1000, 0), 0):
        others = np.flatnonzero(~_is_step(table.slice(first), key))
        if len(others):
            return first + int(others[-1]) + 1
    return 0


def _is_step(table: pa.Table, key: Key) -> Bool[np.ndarray, "rows"]:
    """Whether each row has this stream and step; null, which the check of the rows refuses, has none."""
    import pyarrow.compute as pc  # takes 0.05 s, and a table in memory has no parts

    same = pc.and_(pc.equal(_plain(table, "stream"), key[0]), pc.equal(table.column("step"), key[1]))
    return as_numpy(same.cast(pa.int8()).combine_chunks()) == 1


def _plain(table: pa.Table | pa.RecordBatch, name: str) -> pa.Array | pa.ChunkedArray:
    column = table.column(name)
    return column if pa.types.is_string(column.type) else column.cast(pa.string())


def _scores(table: pa.Table, checked: bool) -> Scores:
    pools = {name: Pool() for name in table.column_names}
    numbers: dict[str, Any] = {}
    for name in table.column_names:
        if name not in COLUMNS:
            numbers[name] = object_array(table.column(name).to_pylist())
            continue
        parts, start = [], 0
        for chunk in table.column(name).chunks:
            parts.append(from_arrow(name, chunk, start, pools[name]))
            start += len(chunk)
        numbers[name] = parts[0] if len(parts) == 1 else np.concatenate(parts)
    columns, texts = of_pools(numbers, pools)
    if not checked:
        return Scores.from_columns(columns, texts)
    columns.setdefault("candidate", np.zeros(len(table), np.int64))
    return Scores.of_checked(columns, texts)


def gather(parts: Sequence[Part], folder: Path) -> list[Part]:
    """Writes rows that are in no order into files of whole streams, and gives their parts.

    The file of a stream follows from its name, so equal input gives equal files.

    Raises:
      ScoresError: naming file, row and column.
    """
    number = min(max(1, -(-sum(part.rows for part in parts) // GATHERED_ROWS)), _MOST_FILES)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"streams-{i:05d}.parquet" for i in range(number)]
    writers: list[pq.ParquetWriter | None] = [None] * number
    try:
        for part in parts:
            for _, table in _chunks(part):
                for i, rows in _by_stream(table, number):
                    rows = _decoded(rows)
                    writer = writers[i] or pq.ParquetWriter(paths[i], rows.schema, compression="lz4")
                    writers[i] = writer
                    writer.write_table(rows)
    finally:
        for writer in writers:
            if writer is not None:
                writer.close()
    found = []
    for path, writer in zip(paths, writers, strict=True):
        if writer is not None:
            rows = pq.read_metadata(path)
            extra = parts[0].extra
            found.append(Part(str(path), 0, rows.num_row_groups, rows.num_rows, CHUNK_ROWS, extra, whole=True))
    return found


def _by_stream(table: pa.Table, number: int) -> Iterator[tuple[int, pa.Table]]:
    """The rows of a table by the file of their stream."""
    streams = _plain(table, "stream").combine_chunks().dictionary_encode()
    place = (unit_keys(streams.dictionary.to_pylist()) % np.uint64(number)).astype(np.int64)
    of_row = place[streams.indices.to_numpy()]
    order = np.argsort(of_row, kind="stable")
    sorted_rows = table.take(pa.array(order))
    edges = np.searchsorted(of_row[order], np.arange(number + 1))
    for i in range(number):
        if edges[i] < edges[i + 1]:
            yield i, sorted_rows.slice(edges[i], edges[i + 1] - edges[i])


def _decoded(table: pa.Table) -> pa.Table:
    """The table with the types of `TYPES`, so that tables of several files have one schema."""
    for i, name in enumerate(table.column_names):
        wanted = TYPES[COLUMNS[name].kind if name in COLUMNS else "unit"]
        column = table.column(name)
        if column.type != wanted:
            try:
                column = as_seconds(column) if is_moment(column.type) else column.cast(wanted)
                table = table.set_column(i, name, column)
            except pa.ArrowException as error:  # of a column that the schema does not know
                raise _no_numbers(name, error) from None
    return table


def as_parquet(path: str, folder: Path, name: str, extra: tuple[str, ...] = ()) -> str:
    """Writes the scores of a JSONL file as Parquet, in batches of bounded size, and gives the new path.

    Of the columns that the schema does not know, those in `extra` are kept; they hold numbers.

    Raises:
      ScoresError: naming file, line and column.
    """
    target = folder / f"{name}.parquet"
    folder.mkdir(parents=True, exist_ok=True)
    columns = _all_columns(path, extra)
    start, writer = 0, None
    try:
        for batch in _line_batches(path):
            table = _table_of(path, batch, columns, start)
            writer = writer or pq.ParquetWriter(target, table.schema, compression="lz4")
            writer.write_table(table)
            start += len(batch)
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        raise ScoresError("found no rows, expected at least one", place=path)
    return str(target)


def _table_of(path: str, rows: list[dict[str, Any]], columns: list[str], start: int) -> pa.Table:
    """Checked values of some lines, of which the first is number `start` from 0."""
    try:
        arrays = {name: as_column(name, [row.get(name) for row in rows]) for name in columns if name in COLUMNS}
        numbers = {name: _numbers(name, [row.get(name) for row in rows]) for name in columns if name not in COLUMNS}
    except ScoresError as error:
        row = None if error.row is None else error.row + start
        raise located(ScoresError(error.problem, error.column, row), path) from None
    return pa.table({name: to_arrow(COLUMNS[name], array) for name, array in arrays.items()} | numbers)


def _numbers(name: str, values: list[Any]) -> pa.Array:
    """The values of a column that the schema does not know."""
    try:
        return pa.array([float(value) if isinstance(value, bool) else value for value in values], pa.float64())
    except pa.ArrowException as error:
        raise _no_numbers(name, error) from None


def _no_numbers(name: str, error: pa.ArrowException) -> ScoresError:
    return ScoresError(f"found values that are no numbers ({str(error).splitlines()[0]})", name)


def _line_batches(path: str) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for row in read_rows(path):
        batch.append(row)
        if len(batch) == CHUNK_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def _all_columns(path: str, extra: tuple[str, ...]) -> list[str]:
    """The columns of the schema, and of those to be read beside it, that some line has."""
    found: set[str] = set()
    for row in read_rows(path):
        found |= row.keys()
    unknown_columns(sorted(found))
    names = [name for name in COLUMNS if name not in _UNREAD]
    return [name for name in (*names, *(name for name in extra if name not in COLUMNS)) if name in found]
