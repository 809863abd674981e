"""Reads CSV and Parquet files chunk by chunk, and only the columns that are asked for."""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from etils import epath

from prism_jax.evaluation.answers.columns import LogError
from prism_jax.runtime.files import open_regular
from prism_jax.runtime.shown_text import visible

MOST_BYTES = 2**31
"""Largest file of an acceptance log that is held in memory."""
MOST_ROWS = 20_000_000
"""Largest number of rows of an acceptance log that is held in memory."""
CHUNK_ROWS = 1 << 19
"""About how many rows of a log that is read in parts are in memory at once."""
_MOST_HEADER = 2**20
"""Longest header of a CSV file."""
_Chooser = Callable[[str, tuple[str, ...]], Sequence[str]]
_CSV = "CSV in UTF-8 with commas, semicolons or tabs"
_BROKEN = (pa.ArrowException, OSError, UnicodeDecodeError)  # OSError: damaged or encrypted Parquet


def read_log_parts(
    path: epath.PathLike, wanted: _Chooser, most_bytes: int | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """Reads a .csv or .parquet file in tables of about `CHUNK_ROWS` rows, each with the number of its first row.

    Every value of CSV is read as text: Arrow's guesses would make one person of "7" and "007". `wanted` gives the
    columns to read, from the file's path and the names of its columns. A file may have any size unless `most_bytes`
    bounds it.

    Raises:
      LogError: for another suffix, or a file that is too large or damaged.
    """
    place, suffix = str(path), _suffix(epath.Path(path))
    kind = "Parquet" if suffix == ".parquet" else _CSV
    start, waiting, rows = 0, [], 0
    with open_regular(path, LogError, "an acceptance log") as file:
        if most_bytes is not None and file.seek(0, os.SEEK_END) > most_bytes:
            raise LogError(f"{path}: found a file of more than {most_bytes} bytes, expected a smaller one")
        file.seek(0)
        uneven: list[pyarrow.csv.InvalidRow] = []
        try:
            batches = (
                _parquet_batches(file, place, wanted)
                if kind == "Parquet"
                else _csv_batches(file, place, wanted, uneven)
            )
            for batch in batches:
                batch.validate(full=True)  # that texts are UTF-8, for one
                waiting.append(batch)
                rows += len(batch)
                if rows >= CHUNK_ROWS:
                    yield start, pa.Table.from_batches(waiting)
                    start, waiting, rows = start + rows, [], 0
        except _BROKEN as error:
            raise _uneven(place, uneven[0]) if uneven else _damaged(place, kind, error) from None
        if rows:
            yield start, pa.Table.from_batches(waiting)


def _parquet_batches(file: Any, place: str, wanted: _Chooser) -> Iterator[pa.RecordBatch]:
    reader = pq.ParquetFile(file, pre_buffer=False)
    names = wanted(place, tuple(reader.schema_arrow.names))
    yield from reader.iter_batches(CHUNK_ROWS, columns=list(names), use_threads=False)


def _csv_batches(
    file: Any, place: str, wanted: _Chooser, uneven: list[pyarrow.csv.InvalidRow]
) -> Iterator[pa.RecordBatch]:
    _check_text(file, place)
    all_names, separator = _header(place, file.read(_MOST_HEADER))
    names = wanted(place, all_names)
    file.seek(0)
    read, parse, convert = _csv_options(names, uneven, separator)
    read.block_size = _MOST_HEADER * 8
    for batch in pyarrow.csv.open_csv(file, read, parse, convert):
        yield batch if separator == "," else _with_points(batch)


def _with_points(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Texts with a point for the comma in numbers: where commas do not separate columns, they stand there."""
    columns = [
        pc.replace_substring_regex(column, r"^(\s*[-+]?\d*),(\d+\s*%?\s*)$", r"\1.\2") for column in batch.columns
    ]
    return pa.record_batch(columns, batch.column_names)


def _check_text(file: Any, place: str) -> None:
    """Raises LogError for a file that is not UTF-8, as the whole file is read for; then goes back to its beginning."""
    decoder, start = codecs.getincrementaldecoder("utf-8")(), 0
    block = b"no end yet"
    while block:
        block, waiting = file.read(_MOST_HEADER), len(decoder.getstate()[0])
        try:
            decoder.decode(block, not block)
        except UnicodeDecodeError as error:
            byte, at = error.object[error.start], start - waiting + error.start
            words = f'{place}: found byte {byte:#04x} at {at}, expected UTF-8: save it as "CSV UTF-8"'
            raise LogError(words) from None
        start += len(block)
    file.seek(0)


def first_row(path: epath.PathLike) -> int:
    """The number of a file's first row in messages: of CSV as a spreadsheet counts, where the header is row 1."""
    return 2 if str(path).endswith(".csv") else 0


def _suffix(file: epath.Path) -> str:
    if file.suffix not in (".csv", ".parquet"):
        raise LogError(
            f'{file}: found the suffix {file.suffix!r}, expected .csv or .parquet: save tables as "CSV UTF-8"'
        )
    return file.suffix


def _header(place: str, data: bytes) -> tuple[tuple[str, ...], str]:
    """The names of the columns of a CSV file, and what separates them: of commas, semicolons and tabs the most."""
    data = data[:_MOST_HEADER].removeprefix(codecs.BOM_UTF8)
    rows = csv.reader(io.StringIO(data.decode("utf-8", "ignore"), newline="\n"))
    try:
        next(rows, None)  # names in quotes may have several lines
        lines = rows.line_num
    except csv.Error:
        lines = 1
    header = b"".join(line + b"\n" for line in data.split(b"\n", lines)[:lines])
    if not header.strip():
        raise LogError(f"{place}: found no header, expected the names of the columns in the first line")
    outside = re.sub(rb'"[^"]*"', b"", header)
    separator = max(",;\t", key=lambda mark: outside.count(mark.encode()))
    try:
        names = pyarrow.csv.read_csv(io.BytesIO(header), *_csv_options((), [], separator)).column_names
        return tuple(names), separator
    except _BROKEN as error:
        raise _damaged(place, _CSV, error) from None


def _csv_options(
    names: Sequence[str], uneven: list[pyarrow.csv.InvalidRow], separator: str
) -> tuple[pyarrow.csv.ReadOptions, pyarrow.csv.ParseOptions, pyarrow.csv.ConvertOptions]:
    """How CSV is read; a row with too few or too many values is kept in `uneven`."""

    def keep(row: pyarrow.csv.InvalidRow) -> str:
        uneven.append(row)
        return "error"

    return (
        pyarrow.csv.ReadOptions(use_threads=False),
        pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True, invalid_row_handler=keep),
        pyarrow.csv.ConvertOptions(
            include_columns=list(names),
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=True,
        ),
    )


def _uneven(place: str, row: pyarrow.csv.InvalidRow) -> LogError:
    where = place if row.number is None else f"{place}, row {row.number}"
    return LogError(f"{where}: found {row.actual_columns} values, expected {row.expected_columns}")


def _damaged(place: str, kind: str, error: Exception) -> LogError:
    words = str(error).splitlines()[0] if str(error) else type(error).__name__
    return LogError(f"{place}: found no readable {kind} ({visible(words[:200])})")
