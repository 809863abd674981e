"""Evaluates a scores file of any agent, without a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from prism_jax.decision.calibration import OF_SCORES, CalibrationConfig, Calibrator
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import protocol
from prism_jax.evaluation.facts import shown_facts, unweighted
from prism_jax.evaluation.fits import read_calibration
from prism_jax.evaluation.merged import running as merged
from prism_jax.report.outputs import write_evaluation
from prism_jax.report.tables import SHOWN_ONLY
from prism_jax.runs.running import Running
from prism_jax.runs.sharded import held_in_memory, open_sharded
from prism_jax.runtime.command import check_together
from prism_jax.runtime.dataclass_config import from_config_dict
from prism_jax.runtime.files import read_object
from prism_jax.runtime.provenance import as_facts, provenance
from prism_jax.scores import Scores, ScoresError, located
from prism_jax.scores.files import holds_records
from prism_jax.scores.joining import find_files, read_all, read_files
from prism_jax.scores.records import by_days
from prism_jax.scores.units import folds_of

_FOLDS = 5
_NEED = ("p_need_fast", "p_need_slow", "y_need", "need_target")


def evaluate_scores(
    pattern: str,
    folder: epath.Path,
    point: OperatingPoint,
    *,
    shown_only: bool = False,
    calibrator: Calibrator | None = None,
    calibration: str | None = None,
    running: Running | None = None,
) -> None:
    """Evaluates scores files (docs/scores.md); writes calibration.json, evaluation.json and report.html into a folder.

    `pattern` is a file, a folder or a glob. Up to `MOST_EXACT_ROWS` rows are held in memory, more are evaluated part by
    part. The folder may not hold a run. With `shown_only`, rows whose offer was not made are left out, and the title of
    every table says so. Without a calibrator, the map is `OF_SCORES`. `calibration` is a
    calibration.json to apply instead; of an out-of-fold one, the maps of all folds together.

    Raises:
      ValueError: naming the place, for a folder that holds a run, or a scores file or calibration that cannot be used.
      FileNotFoundError: if `pattern` names no file.
    """
    running = Running() if running is None else running
    if (folder / "config.json").exists():
        raise ValueError(
            f"--scores, --workdir: found both a scores file and a run ({folder}/config.json), expected one of them; "
            "give --scores another folder to write to"
        )
    given = {"calibrator": calibrator, "calibration": calibration}
    check_together("calibrator with calibration: one of them", options=given)
    config, population = CalibrationConfig(calibrator or OF_SCORES), [SHOWN_ONLY] * shown_only
    fits = None if calibration is None else read_calibration(calibration).pooled()
    paths, sharded = find_files(pattern), None
    left_out: dict[str, str] = {}
    try:
        if held_in_memory(paths, running):
            scores, days = _read_all(paths, left_out if running.skip_bad else None, calibrated=fits is not None)
            if shown_only:
                scores = shown_offers(pattern, scores)
            else:
                check_shown(pattern, scores)
            fitted, assembled = merged.evaluate_rows(scores, point, config, fits)
            if days:
                population.append("of one person")
                assembled = assembled._replace(evaluation=dataclasses.replace(assembled.evaluation, unit="days"))
        else:
            refuse_records(paths)
            settings = [dataclasses.astuple(point), str(config), fits and fits.to_dict()]
            sharded = open_sharded(paths, folder, running, shown_only=shown_only, settings=str(settings))
            left_out = sharded.left_out
            fitted, assembled = sharded.all_of(
                lambda run: merged.evaluate(run, point, config, fits, exact=running.are_few(run.rows))
            )
    except ScoresError as error:
        raise located(error, pattern) from None
    calibrated = "" if calibration is None else f"calibrated by {calibration}"
    facts = as_facts(provenance()) | {"scores": pattern} | left_out_fact(left_out, len(paths))
    words: dict[str, Any] = {"population": ", ".join(population), "calibrated": calibrated}
    write_evaluation(folder, fitted, assembled, point, facts=facts, **words)
    if sharded is not None:
        sharded.finish()
    say_left_out(left_out, len(paths))


def _read_all(paths: list[str], left_out: dict[str, str] | None, *, calibrated: bool) -> tuple[Scores, bool]:
    """One table of all files, and whether its streams are the days of one person.

    Files that are `left_out` are put there with the reason, where that is asked.
    """
    # Nothing here reads columns without a meaning.
    scores = read_files(paths, extra=False, left_out=left_out)
    records = next((path for path in paths if path not in (left_out or ()) and holds_records(path)), None)
    return (scores, False) if records is None else of_records(records, scores, calibrated)


def refuse_records(paths: Sequence[str]) -> None:
    """Refuses files of decision records among those that are read part by part."""
    if bad := list(filter(holds_records, paths)):
        raise ScoresError(
            "found decision records, expected a scores table: records are read as a whole, without --runner=ray",
            place=bad[0],
        )


def left_out_fact(left_out: Mapping[str, str], files: int) -> dict[str, str]:
    """What a report says of files that were left out; empty without any."""
    return {"left out": f"{len(left_out)} of {files} files: {', '.join(sorted(left_out))}"} if left_out else {}


def say_left_out(left_out: Mapping[str, str], files: int) -> None:
    """Prints which files were left out, and why; nothing without any."""
    for _, reason in sorted(left_out.items()):
        print(f"left out: {reason}")
    if left_out:
        print(f"left out: {len(left_out)} of {files} files")


def of_records(path: str, scores: Scores, calibrated: bool) -> tuple[Scores, bool]:
    """Decision records as they can be evaluated: with folds, and without need where no outcome says anything of it.

    Each fold of people (of streams, where no event names a person; of the days of one person) is calibrated on the
    others. Beside the rows, whether their streams are days.
    """
    if scores.y_accept is None or np.isnan(scores.y_accept).all():
        raise ScoresError("found no offer with an answer, expected outcomes among the records", "y_accept", place=path)
    if scores.y_need is None or np.isnan(scores.y_need).all():
        without: dict[str, Any] = dict.fromkeys(_NEED)
        scores = dataclasses.replace(scores, **without)
    days = by_days(scores)
    scores = scores if days is None else days
    if calibrated:
        return scores, days is not None
    units = scores.stream if scores.person is None else scores.person
    if len(set(units.tolist())) < 2:
        raise ScoresError(
            f"found records of one {'stream' if scores.person is None else 'person'} on one day, expected two days or "
            "more, each calibrated on the others, or --calibration=FILE with the calibration.json of a run",
            place=path,
        )
    return dataclasses.replace(scores, fold=folds_of(scores.stream, scores.person, _FOLDS)), days is not None


def shown_offers(path: str, scores: Scores) -> Scores:
    """The rows whose offer was made; ScoresError for a table that does not say so, or without any."""
    if scores.logged is None:
        raise ScoresError("found no such column, expected it with --shown_only", "logged", place=path)
    shown = scores.logged == 1
    if not shown.any():
        raise ScoresError("found no offer that was made, expected some with --shown_only", "logged", place=path)
    return scores.take(shown)


def check_shown(path: str, scores: Scores) -> None:
    """Checks that propensities say how to weight the offers that were shown, where others were not.

    The offers that a logging policy showed are a selection; costs on them alone are not those of all steps. An agent's
    record has no propensity where an offer could not be made. ScoresError names the first row that was not shown.
    """
    facts = shown_facts(scores)
    if facts is not None and (error := unweighted(facts, len(scores))) is not None:
        assert scores.logged is not None, "there are facts"
        row = int(np.flatnonzero(scores.logged == 0)[0])
        raise located(ScoresError(error.problem, error.column, row), path)


def deployed_choices(scores: str, calibration: str, streams: Collection[str]) -> dict[tuple[str, int], int]:
    """What the deployed policy does at each step of some streams: the number of the candidate that it offers, or -1.

    Args:
      scores: File, folder or glob of scores, with or without labels; rows of other streams are left out.
      calibration: calibration.json of an evaluation, whose operating point is that of evaluation.json beside it.
      streams: Ids of the streams.

    Raises:
      ValueError, OSError: naming the file that cannot be used.
    """
    path, table = epath.Path(calibration), read_all(scores)
    beside = path.parent / "evaluation.json"
    tree = read_object(beside, "`python -m prism_jax evaluate`", ValueError).get("point")
    if not isinstance(tree, dict):
        raise ValueError(f"{beside}: point: found {tree!r:.80}, expected the operating point")
    point = from_config_dict(OperatingPoint, tree, f"{beside}: point")
    mine = np.isin(table.stream.astype(str), list(streams))
    if not mine.any():
        raise ValueError(f"--scores: {scores}: found no row of the streams of --written, expected theirs")
    rows = dataclasses.replace(table.take(mine), split=None)
    data, _ = protocol.prepare(rows, read_calibration(path).pooled(), point, labelled=False)
    decided, steps = data.decide(data.deployed(), "calibrated"), data.steps
    thought = steps if data.thought is None else data.thought
    offered = np.where(decided.offer, np.where(decided.slow, thought.candidate, steps.candidate), -1)
    return dict(zip(zip(steps.stream, steps.step.tolist(), strict=True), offered.tolist(), strict=True))
