"""Runs experiments: prints and writes each as soon as it is made, and skips by name what cannot run."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

from etils import epath

from prism_jax.evaluation import protocol
from prism_jax.experiments.paper import drawing, outputs
from prism_jax.experiments.paper.registry import function
from prism_jax.experiments.paper.study import SkippedError, Study
from prism_jax.report.table import print_all
from prism_jax.runtime.provenance import provenance
from prism_jax.scores import ScoresError, located, read_scores


def study_of_scores(path: str, **knobs: Any) -> tuple[Study, dict[str, Any]]:
    """The study of a scores file, and the facts about it that every experiment records.

    Args:
      path: The file, .parquet or .jsonl (docs/scores.md).
      **knobs: Point and settings of the `Study`.

    Raises:
      ValueError: naming the place, for a file that is no scores table, or that cannot be calibrated or evaluated.
      OSError: if it cannot be read.
    """
    scores = read_scores(path, extra=False)  # no table reads columns without a meaning
    try:
        fits = protocol.calibrate(scores)
        steps = protocol.evaluated_rows(scores).steps()
        study = Study(scores, fits, f"{len(steps)} test steps of {epath.Path(path).name}", **knobs)
        study.at()
    except ScoresError as error:
        raise located(error, path) from None
    with epath.Path(path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return study, {"scores": path, "sha256": digest}


def run(names: Sequence[str], study: Study, folder: epath.Path, facts: dict[str, Any]) -> list[str]:
    """Makes experiments, prints their tables and writes their files.

    An experiment that cannot run is skipped, with one line that says why; the others are unaffected.

    Args:
      names: Names of experiments.
      study: What they are computed on.
      folder: Folder for the files.
      facts: What to record beside each experiment.

    Returns:
      The names of those that were made.

    Raises:
      SkippedError: if the only experiment was skipped.
    """
    made = []
    for name in names:
        try:
            outcome = function(name)(study)
        except SkippedError as error:
            if len(names) == 1:
                raise SkippedError(f"{name}: {error}") from None
            print(f"skipped {name}: {error}")
            continue
        settings = dataclasses.asdict(study.settings) | {"point": dataclasses.asdict(study.point)}
        files = outputs.write(folder, name, outcome, {**facts, "settings": settings, "made": provenance()})
        print_all([sheet.table() for sheet in outcome.sheets])
        print(f"{name}: {len(files)} files in {folder}\n")
        made.append(name)
    if made and not drawing.can_draw():
        print(drawing.MISSING)
    return made
