"""Opens CSV and Parquet files, and reads only the columns that are asked for."""

from __future__ import annotations

import abc
import codecs
import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from etils import epath

from prism_jax.acceptance.columns import LogError
from prism_jax.runtime.files import read_bounded
from prism_jax.runtime.shown_text import visible

MOST_BYTES = 2**31
"""Largest file of an acceptance log."""
MOST_ROWS = 20_000_000
"""Largest number of rows of an acceptance log."""
_MOST_HEADER = 2**20
"""Longest header of a CSV file."""
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
    kinds = {".csv": _Csv, ".parquet": _Parquet}
    if file.suffix not in kinds:
        raise LogError(f"{path}: found the suffix {file.suffix!r}, expected .csv or .parquet")
    return kinds[file.suffix](str(path), read_bounded(file, LogError, MOST_BYTES, "an acceptance log"))


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
            raise LogError(f"{place}: found byte {data[error.start]:#04x} at {error.start}, expected UTF-8") from None
        header = data[:_MOST_HEADER].removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0] + b"\n"
        if not header.strip():
            raise LogError(f"{place}: found no header, expected the names of the columns in the first line")
        self.names = tuple(self._parse(header, ()).column_names)

    def read(self, names: Sequence[str]) -> pa.Table:
        table = self._parse(self._data, names)
        _check_rows(self.place, len(table))
        return table

    def _parse(self, data: bytes, names: Sequence[str]) -> pa.Table:
        options = pyarrow.csv.ConvertOptions(
            include_columns=list(names),
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=True,
        )
        uneven: list[pyarrow.csv.InvalidRow] = []

        def keep(row: pyarrow.csv.InvalidRow) -> str:
            uneven.append(row)
            return "error"

        try:
            return pyarrow.csv.read_csv(
                io.BytesIO(data),
                read_options=pyarrow.csv.ReadOptions(use_threads=False),
                parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=keep),
                convert_options=options,
            )
        except _BROKEN as error:
            if uneven:
                number, actual, expected = uneven[0].number - 2, uneven[0].actual_columns, uneven[0].expected_columns
                raise LogError(f"{self.place}, row {number}: found {actual} values, expected {expected}") from None
            raise _damaged(self.place, "CSV in UTF-8 with commas", error) from None


def _damaged(place: str, kind: str, error: Exception) -> LogError:
    """An error about the whole file."""
    words = str(error).splitlines()[0] if str(error) else type(error).__name__
    return LogError(f"{place}: found no readable {kind} ({visible(words[:200])})")


def _check_rows(place: str, rows: int) -> None:
    if rows > MOST_ROWS:
        raise LogError(f"{place}: found {rows} rows, expected at most {MOST_ROWS}")
