"""Writes an evaluation's files and prints its tables.

Everything is computed before the first file is written. If the input is invalid, nothing is written, so a folder never
holds files of different evaluations.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping

from etils import epath

from prism_jax.decision.calibration import CalibrationConfig
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.merged.assembling import Assembled
from prism_jax.evaluation.merged.running import evaluate_rows
from prism_jax.evaluation.results import Evaluation
from prism_jax.gate import Gate
from prism_jax.report import page, tables
from prism_jax.runtime.files import encode_json, write_files
from prism_jax.runtime.shown_text import without_credentials
from prism_jax.scores import Scores, encode_scores
from prism_jax.streams import Stream


def evaluate_into(
    folder: str | os.PathLike[str],
    scores: Scores,
    point: OperatingPoint,
    *,
    facts: Mapping[str, str],
    keep_scores: bool,
    metrics_path: str | os.PathLike[str] | None = None,
    streams: Iterable[Stream] = (),
    population: str = "",
    calibrator: CalibrationConfig | None = None,
    calibration: Calibration | None = None,
    calibrated: str = "",
    base: Scores | None = None,
    kept: Scores | None = None,
    beside: Mapping[str, bytes] = {},
    keep_existing: bool = False,
) -> Evaluation:
    """Calibrates and evaluates; writes calibration.json, gate.json, evaluation.json and report.html; prints the tables.

    Nothing is written where scores, metrics or streams are invalid, which raises ValueError, nor, with `keep_existing`,
    where the folder has an evaluation.json already. `calibrator` is the map to fit, None one temperature per signal;
    `calibration` has maps to apply instead, and `calibrated` words for where they come from. `keep_scores` also writes
    scores.parquet, from the table `kept`, of which `scores` are a part; None is `scores`; `beside` are more files by
    name. `base` are scores of the student before training, calibrated and evaluated by themselves for a section of the
    tables. The report has loss curves only if `metrics_path`, the run's metrics.jsonl, exists; it shows the `facts`
    about the run by name, and may show the event texts of `streams`. `population` is what every table's title adds,
    such as "of shown offers only".
    """
    fitted, assembled = evaluate_rows(scores, point, calibrator, calibration)
    if base is not None:
        before = evaluate_rows(base, point, calibrator, explored=False)[1].evaluation
        assembled = assembled._replace(evaluation=dataclasses.replace(assembled.evaluation, base=before))
    table = scores if kept is None else kept
    return write_evaluation(
        epath.Path(folder),
        fitted,
        assembled,
        point,
        facts=facts,
        metrics_path=metrics_path,
        streams=streams,
        population=population,
        calibrated=calibrated,
        beside={**beside, **({"scores.parquet": encode_scores("scores.parquet", table)} if keep_scores else {})},
        keep_existing=keep_existing,
    )


def write_evaluation(
    place: epath.Path,
    fitted: Calibration,
    assembled: Assembled,
    point: OperatingPoint,
    *,
    facts: Mapping[str, str],
    metrics_path: str | os.PathLike[str] | None = None,
    streams: Iterable[Stream] = (),
    population: str = "",
    calibrated: str = "",
    beside: Mapping[str, bytes] = {},
    keep_existing: bool = False,
) -> Evaluation:
    """Writes an evaluation's files, prints its tables, and gives it back; arguments are those of `evaluate_into`."""
    calibrated = calibrated or fitted.origin
    evaluation = dataclasses.replace(assembled.evaluation, population=population, calibrated=calibrated)
    facts = {name: without_credentials(fact) for name, fact in facts.items()}
    if metrics_path is not None and not epath.Path(metrics_path).exists():
        metrics_path = None
    html = page.render(evaluation, assembled.exploration, fitted, metrics_path, streams, facts)
    if keep_existing and (place / "evaluation.json").exists():
        tables.print_tables(evaluation)
        print(
            f"kept: {place / 'evaluation.json'} of an earlier evaluation, and the files beside it; nothing was written"
        )
        return evaluation
    contents = {
        **beside,
        "calibration.json": encode_json(fitted.to_dict()),
        "gate.json": encode_json(_gate(fitted, point, evaluation).to_dict()),
        "evaluation.json": encode_json(evaluation.to_dict()),
        "report.html": html.encode(),
    }
    place.mkdir(parents=True, exist_ok=True)
    write_files({place / name: content for name, content in contents.items()})
    tables.print_tables(evaluation)
    print(f"report: {place / 'report.html'}")
    return evaluation


def _gate(calibration: Calibration, point: OperatingPoint, evaluation: Evaluation) -> Gate:
    """The gate of the fast pass, for scores from elsewhere."""
    need = None if calibration.need_fast is None else calibration.need_fast.map
    caution = evaluation.caution_of(evaluation.policy(point.policy, "calibrated"))
    return Gate(point, calibration.accept_fast.map, need, calibration.need_target, caution)
