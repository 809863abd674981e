"""Curates a file of teacher-labelled streams: the work of `curate`."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from etils import epath

from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.runtime.digests import sha256
from prism_jax.runtime.files import check_folder_of, check_outputs, write_json
from prism_jax.runtime.provenance import provenance
from prism_jax.streams.jsonl import read_streams, write_streams
from prism_jax.training.pathway_config import PathwayConfig
from prism_jax.training.pathways.curated import KEPT, OUTCOMES, UNJUDGED, Curated, curate, in_words

CHOICES = ("keep", "count", "score", "stratify")
"""The fields of `PathwayConfig` that say which rows curation keeps."""


def curate_file(streams: epath.PathLike, out: epath.PathLike, pathway: PathwayConfig) -> Curated:
    """Writes the rows of a file that curation keeps, atomically, and a summary beside them (`summary_path`).

    The streams have labels and a teacher's probabilities. The result has the kept streams and the numbers of rows by
    what became of them.

    Raises:
      FileNotFoundError: if there is no such file, or no folder to write to.
      ValueError: in one line, for malformed streams, streams that are curated already, or rows that cannot be scored or
        selected.
    """
    streams, out = epath.Path(streams), epath.Path(out)
    check_outputs({"out": out}, {"streams": streams})
    check_folder_of(out)
    content = read_streams(streams)
    try:
        curated = curate(content, pathway, count="--count")
    except ValueError as error:
        raise ValueError(f"{streams}: {error}") from error
    summary_path(out).unlink(missing_ok=True)  # a summary never stands beside a file that it does not describe
    write_streams(out, curated.streams)
    write_json(summary_path(out), _summary(streams, out, pathway, curated, len(content)))
    return curated


def summary_path(out: epath.PathLike) -> epath.Path:
    """The file of the summary: `curated.summary.json` beside `curated.jsonl`."""
    path = epath.Path(out)
    return path.with_name(f"{path.stem}.summary.json")


def _summary(
    streams: epath.Path, out: epath.Path, pathway: PathwayConfig, curated: Curated, before: int
) -> dict[str, Any]:
    """The content of the summary, without numbers that are unknown."""

    def error(values: tuple[float, float]) -> list[float | None]:
        return [None if math.isnan(value) else value for value in values]

    return {
        "made": provenance(),
        "choices": {name: getattr(pathway, name) for name in CHOICES},
        "read": {"path": str(streams), "sha256": sha256(streams), "streams": before, "rows": curated.total()},
        "written": {
            "path": str(out),
            "sha256": sha256(out),
            "streams": len(curated.streams),
            "rows": curated.total(KEPT),
        },
        "rows": [count._asdict() for count in curated.counts],
        "teacher_brier_before_after": {"need": error(curated.need), "accept": error(curated.accept)},
    }


def table_of(curated: Curated) -> Table:
    """The numbers of rows by what became of them, for each stratum and domain."""
    strata = sorted({count.stratum for count in curated.counts}, key=lambda name: (name == UNJUDGED, name))
    sections = []
    for stratum in strata:
        inside = [count for count in curated.counts if count.stratum == stratum]
        rows = [
            _row(domain, [count for count in inside if count.domain == domain])
            for domain in sorted({count.domain for count in inside})
        ]
        sections.append(Section(stratum, tuple(rows)))
    sections.append(Section("", (dataclasses.replace(_row("all", list(curated.counts)), strong=True),)))
    return Table(
        title="Rows that curation kept, and why it dropped the others",
        names="domain",
        columns=tuple(Column(outcome) for outcome in OUTCOMES),
        sections=tuple(sections),
        note=f"{len(curated.streams):,} streams are left. The teacher's Brier score on labelled rows, before to after: "
        f"{in_words(curated.need)} for need, {in_words(curated.accept)} for acceptance. Train on these streams only: "
        "labels that the teacher predicted would bias a calibration.",
        mark="total",
    )


def _row(name: str, counts: list[Any]) -> Row:
    cells = (sum(count.rows for count in counts if count.outcome == outcome) for outcome in OUTCOMES)
    return Row(name, tuple(f"{cell:,}" for cell in cells))
