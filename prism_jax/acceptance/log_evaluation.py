"""Evaluates a log of answers to offers: what predicts them, what gate do the costs ask for, what did it cost.

People are held out whole: ten folds of them, or one per person where there are fewer. Maps and the person layer are
fitted on the other people, and the layer predicts each answer before it sees it (`study.py`). Files in the workdir:
acceptance_log.json with every number, and the tables as CSV and Markdown.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Float64

from prism_jax.acceptance.columns import LogColumns, LogError
from prism_jax.acceptance.findings import Question, publish
from prism_jax.acceptance.log_scores import scores_of_log
from prism_jax.acceptance.logs import check_propensities, read_log
from prism_jax.acceptance.own_score import MAPS
from prism_jax.acceptance.parts import Divided
from prism_jax.acceptance.study import in_memory, study_parts
from prism_jax.runtime.files import check_folder_of, check_outputs
from prism_jax.scores import encode_scores

MOST_CONTEXT_ROWS = 2_000_000
"""Most rows of a log whose context is looked at."""

EXAMPLES: dict[str, LogColumns] = {
    "copilot": LogColumns(person="person", time="time", score="confidence", accepted="accepted"),
    "coauthor": LogColumns(person="person", time="time", score="max_log_prob", accepted="accepted"),
    "distraction": LogColumns(person="person", time="time", accepted="distraction<4"),
}
"""The columns of three public logs, by the name of their file (docs/acceptance_logs.md).

The confidence of copilot is a product's own, coauthor's largest log-probability is no probability of acceptance, and
distraction has no score at all: there, an interruption that distracted little counts as accepted.
"""


def evaluate_log(
    path: str | os.PathLike[str],
    columns: LogColumns,
    workdir: str | os.PathLike[str],
    *,
    c_fa: float,
    c_fn: float,
    context: Sequence[str] = (),
    weighted: bool = False,
    truth: Float64[np.ndarray, " rows"] | None = None,
    export_scores: str | None = None,
    keep_names: bool = False,
    shown_only: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Evaluates a log (.csv or .parquet), prints and writes its tables, and returns what acceptance_log.json holds.

    Args:
      path: Names the log.
      columns: Says which columns are which.
      workdir: Folder for the results.
      c_fa: Cost of an offer that is not accepted, above 0.
      c_fn: Cost of silence where the offer would have been accepted, at least 0.
      context: Columns that were known at the moment of the offer, of at most `MOST_CONTEXT_ROWS` rows.
      weighted: Whether fits and measures weigh answers by their clipped inverse propensities.
      truth: True probability of each row that is read, where the log is simulated.
      export_scores: Scores file to write as well, .parquet or .jsonl, which numbers people unless `keep_names`.
      keep_names: Whether that file names people.
      shown_only: Whether to leave out the offers that were not made; the titles then say so.
      seed: Seed of the folds and of the resampling.

    Raises:
      ValueError, OSError: in one line, for a log that cannot be read, or on which nothing can be measured.
    """
    if export_scores is not None:
        check_folder_of(export_scores)
        check_outputs({"export_scores": export_scores}, {"scores": path})
    question = Question(c_fa, c_fn, context, weighted, seed)
    log = read_log(path, columns, context, shown_only=shown_only)
    if question.context and len(log) > MOST_CONTEXT_ROWS:
        raise LogError(
            f"{path}: found --context with {len(log):,} rows, expected at most {MOST_CONTEXT_ROWS:,}: its quantiles "
            "and nested folds need all rows in memory"
        )
    check_propensities(path, log)
    divided = Divided.of_log(log, weighted=weighted, seed=seed, truth=truth)
    findings = study_parts(in_memory(divided), divided, columns.score, question, log.left_out > 0)
    files = {}
    if export_scores is not None:
        best = None if findings.own is None else findings.own.best
        scores = scores_of_log(log, best, seed, keep_names=keep_names)
        files[epath.Path(export_scores)] = encode_scores(export_scores, scores)
    value = publish(findings, question, workdir, files)
    if export_scores is not None:
        best = None if findings.own is None else MAPS[findings.own.best]
        by = "" if best is None else f"; p_accept is {columns.score} by {best}, fitted on other people"
        print(f"scores: {export_scores}{by}")
        only = " --shown_only" if log.left_out else ""
        print(f"python -m prism_jax.evaluate --scores={export_scores}{only} --workdir=DIR reads it")
    return value
