"""Writes the files of an experiment: each sheet as CSV, Markdown and LaTeX, the figure, and what produced them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from etils import epath

from prism_jax.experiments.paper import drawing
from prism_jax.experiments.paper.study import ExperimentResult
from prism_jax.report.table import Table
from prism_jax.runtime.files import encode_json, read_object, write_files, write_text


def write(folder: epath.Path, name: str, result: ExperimentResult, facts: Mapping[str, Any]) -> list[str]:
    """Writes all files of one experiment at once and returns their names, in place of those of an earlier call.

    The folder is created if it does not exist. The name is the stem of the figure, which is left out where matplotlib
    is not installed, and of the facts, which say in NAME.json what produced the result, and which files these are.
    """
    contents: dict[str, bytes] = {}
    for stem, table in result.tables.items():
        contents |= table.encoded(stem)
    contents |= {f"{sheet.name}.csv": sheet.to_csv().encode() for sheet in result.sheets}
    if result.draw is not None and drawing.can_draw():
        figures = drawing.save(result.draw, with_paper=result.with_paper)
        contents |= {f"{name}.{suffix}": content for suffix, content in figures.items()}
    contents[f"{name}.json"] = encode_json({"experiment": name, **facts, "files": sorted(contents)})
    folder.mkdir(parents=True, exist_ok=True)
    paths: dict[str | os.PathLike[str], bytes] = {folder / file: content for file, content in contents.items()}
    earlier = _listed(folder, name)
    write_files(paths)
    for file in earlier - contents.keys():
        (folder / file).unlink(missing_ok=True)
    return list(contents)


def _listed(folder: epath.Path, name: str) -> set[str]:
    """The files of an earlier call; none where its list is missing or damaged, since what is made now must be kept."""
    with contextlib.suppress(OSError, ValueError):
        said = read_object(folder / f"{name}.json", "`python -m prism_jax experiments`")
        if said.get("experiment") == name:
            return {file for file in said.get("files", ()) if epath.Path(file).name == file}
    return set()


PAGE = "tables.md"


def write_page(folder: epath.Path, results: Mapping[str, ExperimentResult]) -> None:
    """Writes the tables of several experiments as one page of Markdown, `PAGE`, under the name of each."""
    parts = [
        f"## {name}\n\n" + "\n".join(map(Table.to_markdown, result.tables.values())) for name, result in results.items()
    ]
    write_text(folder / PAGE, "\n".join(parts))
