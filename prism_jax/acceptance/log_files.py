"""Opens CSV and Parquet files, and reads only the columns that are asked for."""

from __future__ import annotations

import abc
import codecs
import csv
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from etils import epath

from prism_jax.acceptance.columns import LogError
from prism_jax.runtime.files import open_regular, read_bounded
from prism_jax.runtime.shown_text import visible

MOST_BYTES = 2**31
"""Largest file of an acceptance log."""
MOST_ROWS = 20_000_000
"""Largest number of rows of an acceptance log."""
CHUNK_ROWS = 1 << 19
"""About how many rows of a log that is read in parts are in memory at once."""
_MOST_HEADER = 2**20
"""Longest header of a CSV file."""
_Chooser = Callable[[str, tuple[str, ...]], Sequence[str]]
_CSV = "CSV in UTF-8 with commas"
_BROKEN = (pa.ArrowException, OSError, UnicodeDecodeError)  # OSError: damaged or encrypted Parquet


class LogFile(abc.ABC):
    """An open file."""

    place: str  # its path, for messages
    names: tuple[str, ...]  # the names of its columns

    @abc.abstractmethod
    def read(self, names: Sequence[str]) -> pa.Table:
        """The columns with these names; raises LogError for a file that is damaged, or has too many rows."""


def open_log_file(path: epath.PathLike) -> LogFile:
    """Opens a .csv or .parquet file; raises LogError for another suffix, or a file too large or damaged."""
    file = epath.Path(path)
    kind = {".csv": _Csv, ".parquet": _Parquet}[_suffix(file)]
    return kind(str(path), read_bounded(file, LogError, MOST_BYTES, "an acceptance log"))


def read_log_parts(path: epath.PathLike, wanted: _Chooser) -> Iterator[tuple[int, pa.Table]]:
    """Reads a .csv or .parquet file of any size in tables of about `CHUNK_ROWS` rows, each with its first row's number.

    `wanted` gives the columns to read, from the file's path and the names of its columns. Raises LogError as
    `open_log_file` and `LogFile.read`, though not for its size.
    """
    place, suffix = str(path), _suffix(epath.Path(path))
    kind = "Parquet" if suffix == ".parquet" else _CSV
    start, waiting, rows = 0, [], 0
    with open_regular(path, LogError, "an acceptance log") as file:
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
    names = wanted(place, _header(place, file.read(_MOST_HEADER)))
    file.seek(0)
    read, parse, convert = _csv_options(names, uneven)
    read.block_size = _MOST_HEADER * 8
    yield from pyarrow.csv.open_csv(file, read, parse, convert)


def _check_text(file: Any, place: str) -> None:
    """Raises LogError for a file that is not UTF-8, as the whole file is read for; then goes back to its beginning."""
    decoder, start = codecs.getincrementaldecoder("utf-8")(), 0
    block = b"no end yet"
    while block:
        block, waiting = file.read(_MOST_HEADER), len(decoder.getstate()[0])
        try:
            decoder.decode(block, not block)
        except UnicodeDecodeError as error:
            raise _not_text(place, error.object[error.start], start - waiting + error.start) from None
        start += len(block)
    file.seek(0)


def _not_text(place: str, byte: int, at: int) -> LogError:
    return LogError(f"{place}: found byte {byte:#04x} at {at}, expected UTF-8")


def _suffix(file: epath.Path) -> str:
    if file.suffix not in (".csv", ".parquet"):
        raise LogError(f"{file}: found the suffix {file.suffix!r}, expected .csv or .parquet")
    return file.suffix


class _Parquet(LogFile):
    def __init__(self, place: str, data: bytes) -> None:
        self.place = place
        try:
            self._file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
            self.names = tuple(self._file.schema_arrow.names)
        except _BROKEN as error:
            raise _damaged(place, "Parquet", error) from None
        _check_rows(place, self._file.metadata.num_rows)

    def read(self, names: Sequence[str]) -> pa.Table:
        try:
            # In one thread: those of `read_table` can outlive an error and then abort the process as it ends.
            table = self._file.read(list(names), use_threads=False)
            table.validate(full=True)  # that texts are UTF-8, for one
        except _BROKEN as error:
            raise _damaged(self.place, "Parquet", error) from None
        _check_rows(self.place, len(table))
        return table


class _Csv(LogFile):
    """Every value is read as text: Arrow's guesses would make one person of "7" and "007"."""

    def __init__(self, place: str, data: bytes) -> None:
        self.place, self._data = place, data
        try:
            codecs.utf_8_decode(data, "strict", True)  # Arrow reports it later, and not for every row
        except UnicodeDecodeError as error:
            raise _not_text(place, data[error.start], error.start) from None
        self.names = _header(place, data)

    def read(self, names: Sequence[str]) -> pa.Table:
        table = _parse(self.place, self._data, names)
        _check_rows(self.place, len(table))
        return table


def _header(place: str, data: bytes) -> tuple[str, ...]:
    """The names of the columns of a CSV file."""
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
    return tuple(_parse(place, header, ()).column_names)


def _parse(place: str, data: bytes, names: Sequence[str]) -> pa.Table:
    uneven: list[pyarrow.csv.InvalidRow] = []
    try:
        return pyarrow.csv.read_csv(io.BytesIO(data), *_csv_options(names, uneven))
    except _BROKEN as error:
        raise _uneven(place, uneven[0]) if uneven else _damaged(place, _CSV, error) from None


def _csv_options(
    names: Sequence[str], uneven: list[pyarrow.csv.InvalidRow]
) -> tuple[pyarrow.csv.ReadOptions, pyarrow.csv.ParseOptions, pyarrow.csv.ConvertOptions]:
    """How CSV is read; a row with too few or too many values is kept in `uneven`."""

    def keep(row: pyarrow.csv.InvalidRow) -> str:
        uneven.append(row)
        return "error"

    return (
        pyarrow.csv.ReadOptions(use_threads=False),
        pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=keep),
        pyarrow.csv.ConvertOptions(
            include_columns=list(names),
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=True,
        ),
    )


def _uneven(place: str, row: pyarrow.csv.InvalidRow) -> LogError:
    where = place if row.number is None else f"{place}, row {row.number - 2}"
    return LogError(f"{where}: found {row.actual_columns} values, expected {row.expected_columns}")


def _damaged(place: str, kind: str, error: Exception) -> LogError:
    """An error about the whole file."""
    words = str(error).splitlines()[0] if str(error) else type(error).__name__
    return LogError(f"{place}: found no readable {kind} ({visible(words[:200])})")


def _check_rows(place: str, rows: int) -> None:
    if rows > MOST_ROWS:
        raise LogError(f"{place}: found {rows} rows, expected at most {MOST_ROWS}")
