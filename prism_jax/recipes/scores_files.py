"""Evaluates a scores file of any agent, without a model."""

from __future__ import annotations

import numpy as np
from etils import epath
from jaxtyping import Bool

from prism_jax.decision.calibration import CalibrationConfig, Calibrator
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation.fits import read_calibration
from prism_jax.report.outputs import evaluate_into
from prism_jax.runtime.provenance import as_facts, provenance
from prism_jax.scores import Scores, ScoresError, located, read_scores

SHOWN_ONLY = "of shown offers only"


def evaluate_scores(
    path: str,
    folder: epath.Path,
    point: OperatingPoint,
    *,
    shown_only: bool = False,
    calibrator: Calibrator | None = None,
    calibration: str | None = None,
) -> None:
    """Evaluates a scores file and writes calibration.json, evaluation.json and report.html into a folder.

    Args:
      path: The scores file, .parquet or .jsonl (docs/scores.md).
      folder: Folder to write to; it may not hold a run.
      point: The costs, margin and policy to evaluate at.
      shown_only: Whether to leave out the rows whose offer was not made; the title of every table then says so.
      calibrator: The map to fit; None is one temperature per signal.
      calibration: Path of a calibration.json to apply instead; of an out-of-fold one, the maps of all folds together.

    Raises:
      ValueError: naming the place, for a folder that holds a run, or a scores file or calibration that cannot be used.
      OSError: for a file that cannot be read.
    """
    if (folder / "config.json").exists():
        raise ValueError(
            f"--scores, --workdir: found both a scores file and a run ({folder}/config.json), expected one of them; "
            "give --scores another folder to write to"
        )
    if calibrator is not None and calibration is not None:
        raise ValueError("--calibrator: found it with --calibration, expected one of them")
    fits = None if calibration is None else read_calibration(calibration).pooled()
    scores = read_scores(path, extra=False)  # nothing here reads columns without a meaning
    if shown_only:
        scores = shown_offers(path, scores)
    else:
        check_shown(path, scores)
    facts = as_facts(provenance()) | {"scores": path}
    population = SHOWN_ONLY if shown_only else ""
    try:
        evaluate_into(
            folder,
            scores,
            point,
            facts=facts,
            keep_scores=False,
            population=population,
            calibrator=None if calibrator is None else CalibrationConfig(calibrator),
            calibration=fits,
            calibrated="" if fits is None else f"calibrated by {calibration}",
        )
    except ScoresError as error:
        raise located(error, path) from None


def shown_offers(path: str, scores: Scores) -> Scores:
    """The rows whose offer was made.

    Raises:
      ScoresError: for a table that does not say so, or without any.
    """
    if scores.logged is None:
        raise ScoresError("found no such column, expected it with --shown_only", "logged", place=path)
    shown = scores.logged == 1
    if not shown.any():
        raise ScoresError("found no offer that was made, expected some with --shown_only", "logged", place=path)
    return scores.take(shown)


def _by_step(scores: Scores, holds: Bool[np.ndarray, "rows"]) -> Bool[np.ndarray, "steps"]:
    """Whether a condition holds on any row of each step."""
    return np.bincount(scores.step_numbers(), holds) > 0


def check_shown(path: str, scores: Scores) -> None:
    """Checks that propensities say how to weight the offers that were shown, where others were not.

    The offers that a logging policy showed are a selection; costs on them alone are not those of all steps. Every step
    needs a propensity, of a shown offer or of one that could have been: an agent's record has none where it could not.

    Raises:
      ScoresError: naming the first row that was not shown, otherwise.
    """
    if scores.logged is None:
        return
    silent, known = scores.logged == 0, np.zeros(len(scores), bool)
    if scores.propensity is not None:
        known = ~np.isnan(scores.propensity)
    if silent.any() and not (known[scores.logged == 1].all() and _by_step(scores, known | ~silent).all()):
        row = int(np.flatnonzero(silent)[0])
        error = ScoresError(
            f"found no propensity beside logged = false on {silent.sum()} of {len(scores)} rows, expected the "
            "probability of each offer: without it, costs would be those of the shown offers only, which --shown_only "
            "accepts and says in every title",
            "propensity",
            row,
        )
        raise located(error, path)
