"""Evaluates a scores file of any agent, without a model."""

from __future__ import annotations

from etils import epath

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.report.outputs import evaluate_into
from prism_jax.runtime.provenance import as_facts, provenance
from prism_jax.scores import ScoresError, read_scores


def evaluate_scores(path: str, folder: epath.Path, point: OperatingPoint) -> None:
    """Evaluates a scores file and writes calibration.json, evaluation.json and report.html into a folder.

    Args:
      path: The scores file, .parquet or .jsonl (docs/scores.md).
      folder: Folder to write to; it may not hold a run.
      point: The costs, margin and policy to evaluate at.

    Raises:
      ValueError: naming the place, for a folder that holds a run or scores that cannot be used.
    """
    if (folder / "config.json").exists():
        raise ValueError(
            f"--scores, --workdir: found both a scores file and a run ({folder}/config.json), expected one of them; "
            "give --scores another folder to write to"
        )
    scores = read_scores(path)
    facts = as_facts(provenance()) | {"scores": path}
    try:
        evaluate_into(folder, scores, point, facts=facts, keep_scores=False)
    except ScoresError as error:
        raise ScoresError(error.found, error.column, error.row, place=path) from None
