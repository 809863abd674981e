"""Scores in several files, as one table in memory."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from etils import epath

from prism_jax.runtime.files import read_object
from prism_jax.scores.files import located, read_scores
from prism_jax.scores.schema import REQUIRED, ScoresError
from prism_jax.scores.table import Scores


def find_files(
    pattern: str, suffixes: tuple[str, ...] = (".parquet", ".jsonl"), kind: str = "scores file"
) -> list[str]:
    """The files of a kind that a path, a folder or a glob pattern names, in alphabetical order.

    Raises:
      FileNotFoundError: if there is none.
      ScoresError: for a folder that `score` has not finished, or a file in one.
    """
    place = Path(pattern)
    if place.is_dir():
        # `score` keeps what a student wrote beside its scores.
        names = (path for path in place.iterdir() if not path.name.startswith("written-"))
        found = [str(path) for path in names if path.suffix in suffixes]
    elif place.exists() or not glob.has_magic(pattern):
        found = [pattern]
    else:
        found = [path for path in glob.glob(pattern, recursive=True) if Path(path).is_file()]  # noqa: PTH207 -- of any root
    for folder in [place] if place.is_dir() else dict.fromkeys(Path(path).parent for path in found):
        said = folder / "score.json"
        if said.is_file() and not read_object(epath.Path(said), str(said)).get("complete", True):
            raise ScoresError(
                "found an unfinished run of scoring, expected a complete one; run it again", place=str(said)
            )
    if not found:
        raise FileNotFoundError(f"{pattern}: found no {kind}, expected {' or '.join(suffixes)}")
    return sorted(found)


def find_log(pattern: str) -> str | None:
    """The first of the files that a pattern names, where it is a log of answers; None where it is a scores file.

    A log is CSV, or Parquet without any of the columns that scores files need. A folder without scores files may hold
    logs.

    Raises:
      FileNotFoundError: if `pattern` names no file.
    """
    try:
        path = find_files(pattern)[0]
    except FileNotFoundError:
        if not Path(pattern).is_dir():
            raise
        path = find_files(pattern, (".csv",), "scores file or log")[0]
    if not path.endswith(".parquet"):
        return None if path.endswith(".jsonl") else path
    try:
        return None if {*REQUIRED} & {*pq.read_schema(path).names} else path
    except (OSError, pa.ArrowException):
        return None


def read_all(pattern: str | os.PathLike[str], *, extra: bool = True) -> Scores:
    """One table of the scores files that a path, a folder or a glob names: `read_files` of `find_files`."""
    return read_files(find_files(os.fspath(pattern)), extra=extra)


def read_files(paths: Sequence[str], *, extra: bool = True, left_out: dict[str, str] | None = None) -> Scores:
    """One table of scores files, which have the same columns, in this order; `extra` keeps Parquet's unknown columns.

    A file that cannot be read is put into `left_out`, with the reason, if there is one; else it is an error.

    Raises:
      ScoresError: naming the file, for a bad one, other columns than the first file has, or rows that do not go
        together with those of the files before; or if none can be read.
    """
    tables: dict[str, Scores] = {}
    for path in paths:
        try:
            tables[path] = read_scores(path, extra=extra)
        except ScoresError as error:
            if left_out is None:
                raise
            left_out[path] = str(error)
    if not tables:
        raise ScoresError(f"found no file that can be read among {len(paths)}, expected some", place=paths[0])
    check_columns({path: table.columns().keys() for path, table in tables.items()})
    try:
        return joined(list(tables.values()))
    except ScoresError as error:
        raise _in_file(error, tables) from None


def check_columns(names: Mapping[str, Collection[str]]) -> None:
    """Checks that files have the same columns, here by the file's path; ScoresError names the first that has not."""
    first, *others = names
    for path in others:
        if differing := sorted({*names[path]} ^ {*names[first]}):
            words = "no such column" if differing[0] in names[first] else "this column"
            raise ScoresError(f"found {words}, expected the columns of {first}", differing[0], place=path)


def _in_file(error: ScoresError, tables: Mapping[str, Scores]) -> ScoresError:
    """An error of the joined table, at the file and the row of that file."""
    row = error.row
    for path, table in tables.items():
        if row is not None and row < len(table):
            return located(ScoresError(error.problem, error.column, row), path)
        row = None if row is None else row - len(table)
    first = next(iter(tables))
    return located(error, first if len(tables) == 1 else f"{len(tables)} files, {first} and others")


def joined(tables: Sequence[Scores]) -> Scores:
    """One table of the rows of several; unknown columns are None where one lacks them, others a ScoresError."""
    first = tables[0]
    if len(tables) == 1:
        return first
    names = first.columns().keys()
    for table in tables[1:]:
        if differing := sorted(names ^ table.columns().keys()):
            raise ScoresError(
                f"found tables with and without {', '.join(differing)}, expected the same columns in each"
            )
    columns: dict[str, Any] = {name: np.concatenate([getattr(table, name) for table in tables]) for name in names}
    unknown = dict.fromkeys(name for table in tables for name in table.extra)
    extra = {
        name: np.concatenate([table.extra.get(name, np.full(len(table), None, object)) for table in tables])
        for name in unknown
    }
    return Scores(**columns, extra=extra)
