"""Reads and writes scores tables as Parquet, or as JSONL with the same names; missing values are null, never NaN."""

from __future__ import annotations

import collections
import contextlib
import glob
import itertools
import json
import os
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from absl import logging
from etils import epath

from prism_jax.runtime.files import MOST_LINE_BYTES, JsonError, open_regular, parse_json, read_lines, write_bytes
from prism_jax.runtime.shown_text import visible
from prism_jax.runtime.written import one_spelling
from prism_jax.scores.records import is_record, scores_of_records
from prism_jax.scores.schema import COLUMNS, Column, Kind, ScoresError, check_extra, is_known, object_array
from prism_jax.scores.table import Scores
from prism_jax.scores.texts import Numbered, Pool, as_numpy, as_seconds, is_moment, is_text

_EXPECTED = "a scores table (docs/scores.md)"
_BATCH = 2**17
"""Rows of a Parquet file that are decoded at once."""
TYPES: dict[Kind, pa.DataType] = {
    "text": pa.string(),
    "index": pa.int64(),
    "time": pa.float64(),
    "unit": pa.float64(),
    "label": pa.float64(),
    "flag": pa.bool_(),
    "count": pa.int64(),
    "votes": pa.list_(pa.bool_()),
}
"""The Arrow type of each kind of column."""


def read_scores(path: str | os.PathLike[str], *, extra: bool = True) -> Scores:
    """Reads a scores table from a .parquet or .jsonl file, or from the decision records of an agent (.jsonl).

    Columns that the schema does not know are kept in `Scores.extra`, and one warning names them. Parquet is read in
    batches; docs/scores.md says how much memory that takes. Without `extra`, unknown columns of Parquet are not read.

    Raises:
      ScoresError: when the table is not valid, in one line that names the file, the line (JSONL, from 1) or row
        (Parquet, from 0), the column, what was found and what was expected.
      FileNotFoundError: when there is no such file.
    """
    file = epath.Path(path)
    check_suffix(file)
    try:
        scores = _read_parquet(file, extra) if file.suffix == ".parquet" else _from_lines(_read_jsonl(file))
    except ScoresError as error:
        raise located(error, path) from None
    except JsonError as error:  # of the file as a whole, or of a line's length
        line_text, _, problem = str(error).removeprefix(str(file)).partition(": ")
        raise located(ScoresError(problem, None, int(line_text[1:]) - 1 if line_text else None), path) from None
    if scores.extra:
        logging.warning("%s: columns without a meaning here, kept: %s", path, visible(", ".join(scores.extra)))
    return scores


def holds_records(path: str | os.PathLike[str]) -> bool:
    """Whether a file that `read_scores` has read holds the decision records of an agent."""
    file = epath.Path(path)
    return file.suffix == ".jsonl" and is_record(next(_read_jsonl(file), {}))


def located(error: ScoresError, path: str | os.PathLike[str]) -> ScoresError:
    """The error with the name of its file, and a line (JSONL) instead of a row; in a folder or a glob, a row of all.

    An error that names its place already stays as it is.
    """
    if error.place != "scores":
        return error
    if str(path).endswith(".jsonl") and error.row is not None and not glob.has_magic(str(path)):
        return ScoresError(error.problem, error.column, place=f"{path}, line {error.row + 1}")
    return ScoresError(error.problem, error.column, error.row, str(path))


def write_scores(path: str | os.PathLike[str], scores: Scores) -> None:
    """Writes a scores table as .parquet or .jsonl; the bytes depend only on the table and on pyarrow's version.

    A reader sees either the old file or the complete new one. Raises ScoresError for any other suffix.
    """
    write_bytes(path, encode_scores(path, scores))


def encode_scores(path: str | os.PathLike[str], scores: Scores) -> bytes:
    """The bytes that `write_scores` would write to `path`.

    Raises ScoresError for a suffix other than .parquet and .jsonl, or an extra column whose values have no common type.
    """
    suffix = check_suffix(path)
    columns = {name: to_arrow(COLUMNS[name], array) for name, array in scores.columns().items()}
    table = pa.table(columns | {name: _extra_to_arrow(name, array) for name, array in scores.extra.items()})
    if suffix == ".parquet":
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        return sink.getvalue().to_pybytes()
    lines = (json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in table.to_pylist())
    return "".join(lines).encode()


def check_suffix(path: str | os.PathLike[str]) -> str:
    """The suffix of a scores file; ScoresError for any but .parquet and .jsonl."""
    suffix = epath.Path(path).suffix
    if suffix not in (".parquet", ".jsonl"):
        raise ScoresError(f"found the suffix {suffix!r}, expected .parquet or .jsonl", place=str(path))
    return suffix


def read_rows(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """The lines of a JSONL file as mappings, unchecked; ScoresError names file and line of what is none."""
    with naming(path):
        yield from _read_jsonl(epath.Path(path))


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Names the file in the errors of a block that reads it."""
    try:
        yield
    except JsonError as error:  # of the file as a whole
        raise ScoresError(str(error).removeprefix(f"{path}: "), place=str(path)) from None
    except ScoresError as error:
        raise located(error, path) from None


def _read_jsonl(path: epath.Path) -> Iterator[dict[str, Any]]:
    """Yields one mapping per line; an error's `row` is the line number minus one."""
    for number, line in read_lines(path, expected=_EXPECTED):
        row = number - 1
        try:
            value = parse_json(line, "")  # `read_scores` names the place
        except JsonError as error:
            raise ScoresError(str(error).removeprefix(": "), None, row) from None
        if not isinstance(value, dict):
            raise ScoresError(f"found {reprlib.repr(value)}, expected an object with columns as keys", None, row)
        yield value


def _from_lines(lines: Iterator[dict[str, Any]]) -> Scores:
    """A table from rows, or from the decision records of an agent; the first line says which."""
    first = next(lines, None)
    whole = lines if first is None else itertools.chain([first], lines)
    return scores_of_records(whole) if first is not None and is_record(first) else Scores.from_rows(whole)


def _read_parquet(path: epath.Path, extra: bool) -> Scores:
    """Reads batch by batch into compact columns, so that nothing but these grows with the number of rows."""
    with open_parquet(path) as reader:
        unknown = unknown_columns(reader.schema_arrow.names)
        scores = Scores.from_columns(*_columns(reader, unknown, extra))
    if unknown and not extra:
        logging.warning("%s: columns without a meaning here, not read: %s", path, visible(", ".join(unknown)))
    return scores


@contextlib.contextmanager
def open_parquet(path: epath.Path) -> Iterator[pq.ParquetFile]:
    """A Parquet file of scores, whose texts are read as numbers and a dictionary; ScoresError names no place."""
    with open_regular(path, expected=_EXPECTED) as file:
        _check_footer(file)
        try:
            # In one thread: those of others can outlive an error and then abort the process as it ends.
            schema = pq.ParquetFile(file, pre_buffer=False).schema_arrow
            unknown_columns(schema.names)
            file.seek(0)
            texts = [name for name in texts_of(schema.names) if is_text(schema.field(name).type)]  # others would fail
            yield pq.ParquetFile(file, read_dictionary=texts, pre_buffer=False)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # OSError: damaged or encrypted
            raise ScoresError(f"found no readable Parquet ({str(error).splitlines()[0]})") from None


def _check_footer(file: Any) -> None:
    """Refuses a footer that is longer than a table's can be, before it is read."""
    start = file.seek(0, os.SEEK_END) - 8
    file.seek(max(start, 0))
    size = int.from_bytes(file.read(4), "little")
    file.seek(0)
    if MOST_LINE_BYTES < size <= start:
        raise ScoresError(f"found a footer of {size} bytes, expected at most {MOST_LINE_BYTES}")


def unknown_columns(names: list[str]) -> list[str]:
    """The columns of a file that the schema does not know; raises for a column that is there twice."""
    if repeated := [name for name, count in collections.Counter(names).items() if count > 1]:
        raise ScoresError(f"found the column {repeated[0]!r} twice, expected each once")
    unknown = [name for name in names if not is_known(name)]
    check_extra(unknown)
    return unknown


def texts_of(names: list[str]) -> list[str]:
    """The columns of text among those of a file."""
    return [name for name in names if name in COLUMNS and COLUMNS[name].kind == "text"]


def _columns(reader: pq.ParquetFile, unknown: list[str], extra: bool) -> tuple[dict[str, Any], dict[str, Numbered]]:
    """The columns of a file by name, as arrays, or lists of the values that the schema does not know; and its texts."""
    schema = reader.schema_arrow
    names = [name for name in schema.names if extra or name not in unknown]
    pools = {name: Pool() for name in names}
    parts: dict[str, list[Any]] = {}
    for name in names:  # wrong types are found before anything is read
        empty = pa.nulls(0, schema.field(name).type)
        parts[name] = [] if name in unknown else [from_arrow(name, empty, 0, pools[name])]
    start = 0
    for batch in reader.iter_batches(_BATCH, columns=names, use_threads=False):
        batch.validate(full=True)  # that texts are UTF-8, for one
        for name, part in parts.items():
            column = batch.column(name)
            part.append(column.to_pylist() if name in unknown else from_arrow(name, column, start, pools[name]))
        start += len(batch)
    columns = {name: list(itertools.chain(*part)) if name in unknown else _joined(part) for name, part in parts.items()}
    return of_pools(columns, pools)


def of_pools(columns: dict[str, Any], pools: Mapping[str, Pool]) -> tuple[dict[str, Any], dict[str, Numbered]]:
    """The columns with their values in place of numbers in pools (`from_arrow`), and the texts with their numbers."""
    texts = {name: (pools[name].values, columns[name]) for name in texts_of(list(columns))}
    filled = {
        name: object_array(pools[name].values)[column] if name in texts or name == "votes" else column
        for name, column in columns.items()
    }
    return filled, texts


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """One array of the parts, which are let go."""
    joined = np.concatenate(parts)
    parts.clear()
    return joined


def _extra_to_arrow(name: str, array: np.ndarray) -> pa.Array:
    try:
        return pa.array(array.tolist())
    except (pa.ArrowException, OverflowError) as error:
        raise ScoresError(f"cannot write these values ({str(error).splitlines()[0]})", name) from None


def from_arrow(name: str, column: pa.Array, start: int, pool: Pool) -> np.ndarray:
    """Converts some rows of an Arrow column, from row `start` on, to the array that holds them in memory.

    Of texts and votes these are their numbers in the pool.
    """
    spec = COLUMNS[name]
    if pa.types.is_null(column.type):
        column = column.cast(TYPES[spec.kind])
    if spec.kind == "time" and is_moment(column.type):
        column = as_seconds(column)
    if not _has_kind(column.type, spec.kind):
        raise ScoresError(f"found the type {column.type}, expected {TYPES[spec.kind]}: {spec.expected}", name)
    null = column.null_count > 0 and as_numpy(column.is_null().cast(pa.int8())).astype(bool)
    if not (null is False or spec.nullable):
        raise ScoresError(f"found null, expected {spec.expected}", name, start + int(null.argmax()))
    if spec.kind == "text":
        return pool.texts(column, one_spelling if name == "person" else str)
    if spec.kind == "votes":
        return pool.votes(column)
    if spec.kind == "index":
        index = as_numpy(column)
        if (large := index > np.iinfo(np.int64).max).any():
            row = int(large.argmax())
            raise ScoresError(f"found {index[row]}, expected {spec.expected} and below 2^63", name, start + row)
        return index.astype(np.int64, copy=False)
    numbers = column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
    values = as_numpy(numbers).astype(np.float64, copy=False)
    invalid = np.isnan(values) & np.logical_not(null)
    if invalid.any():
        raise ScoresError(f"found nan, expected {spec.expected}", name, start + int(invalid.argmax()))
    return values


def _has_kind(arrow_type: pa.DataType, kind: Kind) -> bool:
    """Whether a column of the given kind may have this Arrow type; integers and narrower floats may hold numbers."""
    if kind == "text":
        plain = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
        return is_text(plain)
    if kind == "votes":
        return (pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type)) and pa.types.is_boolean(
            arrow_type.value_type
        )
    if pa.types.is_boolean(arrow_type):
        return kind in ("flag", "label")
    if kind == "flag":
        return False
    return pa.types.is_integer(arrow_type) or (kind in ("time", "unit", "label") and pa.types.is_floating(arrow_type))


def to_arrow(spec: Column, array: np.ndarray) -> pa.Array:
    """The Arrow column of an array that holds a column in memory, NaN as null."""
    kind = TYPES[spec.kind]
    if spec.kind == "votes":
        return pa.array([list(votes) for votes in array], kind)
    if not spec.nullable:
        return pa.array(array, kind)
    null = np.isnan(array)
    return pa.array(np.where(null, 0.0, array).astype(kind.to_pandas_dtype()), kind, mask=null)
