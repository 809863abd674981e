"""Evaluates a scores file of any agent, without a model."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Bool

from prism_jax.decision.calibration import CalibrationConfig, Calibrator
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation.fits import read_calibration
from prism_jax.report.outputs import evaluate_into
from prism_jax.report.tables import SHOWN_ONLY
from prism_jax.runtime.provenance import as_facts, provenance
from prism_jax.scores import Scores, ScoresError, located, read_scores
from prism_jax.scores.files import holds_records
from prism_jax.scores.units import folds_of

_FOLDS = 5
_NEED = ("p_need_fast", "p_need_slow", "y_need", "need_target")


def evaluate_scores(
    path: str,
    folder: epath.Path,
    point: OperatingPoint,
    *,
    shown_only: bool = False,
    calibrator: Calibrator | None = None,
    calibration: str | None = None,
) -> None:
    """Evaluates a scores file (docs/scores.md); writes calibration.json, evaluation.json and report.html into a folder.

    The folder may not hold a run. With `shown_only`, rows whose offer was not made are left out, and the title of every
    table says so. Without a calibrator, the map is one temperature per signal. `calibration` is a calibration.json to
    apply instead; of an out-of-fold one, the maps of all folds together.

    Raises:
      ValueError: naming the place, for a folder that holds a run, or a scores file or calibration that cannot be used.
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
    if holds_records(path):
        scores = _of_records(path, scores, fits is not None)
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


def _of_records(path: str, scores: Scores, calibrated: bool) -> Scores:
    """Decision records as they can be evaluated: with folds, and without need where no outcome says anything of it.

    Each fold of people (of streams, where no event names a person) is calibrated on the others.
    """
    if scores.y_accept is None or np.isnan(scores.y_accept).all():
        raise ScoresError("found no offer with an answer, expected outcomes among the records", "y_accept", place=path)
    if scores.y_need is None or np.isnan(scores.y_need).all():
        without: dict[str, Any] = dict.fromkeys(_NEED)
        scores = dataclasses.replace(scores, **without)
    if calibrated:
        return scores
    units = scores.stream if scores.person is None else scores.person
    if (count := len(set(units.tolist()))) < 2:
        raise ScoresError(
            f"found records of {count} {'stream' if scores.person is None else 'person'}, expected two or more, "
            "each calibrated on the others, or --calibration=FILE with the calibration.json of a run",
            place=path,
        )
    return dataclasses.replace(scores, fold=folds_of(scores.stream, scores.person, _FOLDS))


def shown_offers(path: str, scores: Scores) -> Scores:
    """The rows whose offer was made; ScoresError for a table that does not say so, or without any."""
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
    Otherwise ScoresError names the first row that was not shown.
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
