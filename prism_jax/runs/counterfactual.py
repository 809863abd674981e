"""The job of `counterfactual`: what another gate would have cost, and how much of it a log can tell."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Mapping, Sequence

import numpy as np
from etils import epath

from prism_jax.decision import off_policy
from prism_jax.decision.off_policy import Drawn, EstimateSettings, Estimator, Logged, Support
from prism_jax.decision.uncertainty import Estimate
from prism_jax.evaluation import logged_steps
from prism_jax.evaluation.answers.columns import LogColumns, LogError
from prism_jax.evaluation.answers.logs import ONE_PERSON, AcceptanceLog, read_log
from prism_jax.evaluation.fits import read_calibration
from prism_jax.evaluation.logged_steps import Decisions, Reading, Rows, model_feature, target_gate
from prism_jax.evaluation.merged.counterfactual import Estimates, estimate, over_log
from prism_jax.report.numbers import DASH, number, percent, show_estimate
from prism_jax.report.table import Column, Row, Section, Table, print_all
from prism_jax.report.tables import over_units
from prism_jax.runs.running import Running
from prism_jax.runs.scores_files import refuse_records, say_left_out
from prism_jax.runs.sharded import Sharded, held_in_memory, open_sharded
from prism_jax.runtime.files import parse_json, read_lines, write_files
from prism_jax.scores import ScoresError, located
from prism_jax.scores.files import holds_records
from prism_jax.scores.joining import find_files, read_files
from prism_jax.scores.records import by_days, is_record

FEW = 100
"""With fewer people, intervals cover less often than they say (docs/counterfactual.md)."""
NAMES: Mapping[Estimator, str] = {"ips": "inverse propensities", "snips": "self-normalised", "dr": "doubly robust"}


def estimate_scores(
    path: str,
    settings: EstimateSettings,
    *,
    target: str | None = None,
    calibration: str | None = None,
    out: str | None = None,
    running: Running | None = None,
) -> None:
    """Prints what another gate would have cost by a scores table, and writes it into a folder where asked.

    Args:
      path: A file, a folder or a glob, whose tables are one.
      settings: Costs, limits and resampling.
      target: Column with the target's probability of an offer; None is the gate at the settings' costs.
      calibration: A calibration.json to apply to the signals.
      out: Folder for the tables; what is merged so far of many rows stands there, too.
      running: How files are read; more than `running.MOST_EXACT_ROWS` rows are read part by part.

    Raises:
      ScoresError: for a table without log or propensities.
      OverlapError: where the log cannot support the estimate; the message says why.
    """
    running = Running() if running is None else running
    paths = find_files(path)
    reading = _reading(settings, target, calibration)
    left_out: dict[str, str] = {}
    if held_in_memory(paths, running):
        decisions = _of_files(paths, path, reading, left_out if running.skip_bad else None)
        write_tables(estimate_decisions(decisions, settings), settings, out)
    else:
        with tempfile.TemporaryDirectory(prefix="prism_jax_") as folder:
            sharded = _sharded(paths, reading, running, out or folder)
            try:
                estimates = sharded.all_of(lambda run: estimate(run, reading))
            except ScoresError as error:
                raise located(error, path) from None
            write_tables(estimates, settings, out)
            sharded.finish()
            left_out = sharded.left_out
    say_left_out(left_out, len(paths))


def _sharded(paths: Sequence[str], reading: Reading, running: Running, folder: str) -> Sharded:
    """What runs statistics over the parts of some files, and keeps in the folder what a later call resumes from."""
    refuse_records(paths)
    settings = ["counterfactual", dataclasses.astuple(reading.settings), reading.target]
    return open_sharded(
        paths,
        folder,
        running,
        extra=() if reading.target is None else (reading.target,),
        settings=str([*settings, reading.fits and reading.fits.to_dict()]),
    )


def of_scores(
    path: str,
    settings: EstimateSettings,
    *,
    target: str | None = None,
    calibration: str | None = None,
    records: bool = False,
) -> Decisions:
    """One row per step of a scores table or of an agent's records: the offer that was made or could have been.

    `path` is a file, a folder or a glob, whose tables are one, and each of whose records files is whole. `target` and
    `calibration` are those of `estimate_scores`. With `records`, the file holds decision records, where a missing
    propensity means that no offer was possible. ScoresError for a table without log or propensities.
    """
    paths = find_files(path)
    if records:
        for file in paths:
            _check_records(file)
    return _of_files(paths, path, _reading(settings, target, calibration, records=records))


def _reading(
    settings: EstimateSettings, target: str | None, calibration: str | None, *, records: bool = False
) -> Reading:
    fits = None if calibration is None else read_calibration(calibration).pooled()
    return Reading(settings, target, fits, calibration, records)


def _of_files(paths: Sequence[str], path: str, reading: Reading, left_out: dict[str, str] | None = None) -> Decisions:
    """The steps of some files that `path` names, in memory."""
    scores = read_files(paths, left_out=left_out)
    days = by_days(scores) if any(path not in (left_out or ()) and holds_records(path) for path in paths) else None
    try:
        steps, facts = logged_steps.decided(scores if days is None else days)
        logged_steps.check(facts)
        decisions = logged_steps.decisions(steps, reading)
    except ScoresError as error:
        raise located(error, path) from None
    facts["nobody"] *= days is None
    notes = logged_steps.notes(facts, reading) + (() if days is None else (ONE_PERSON.format("days"),))
    return dataclasses.replace(decisions, notes=notes)


def of_log(path: str, columns: LogColumns, settings: EstimateSettings, *, shown_only: bool = False) -> Decisions:
    """The rows of an acceptance log of any columns; need is not known there, so every acceptable offer counts.

    Without a target among the columns, the policy offers where the score, a probability, reaches C_FA / (C_FA + C_FN).
    `shown_only` leaves out the offers that were not made, of a log without propensities: what is left is the log of a
    policy that always offers.

    Raises:
      LogError: for a log that cannot be read, or that misses what the estimate needs.
    """
    log = read_log(path, columns, one_person=True)
    if log.target is not None:
        pi = log.target
    elif bad_score := _bad_score(log):
        place = f"{path}, column {columns.score!r}" if columns.score else path
        raise LogError(
            f"{place}: {bad_score}, expected score=COLUMN with a probability in every row, or "
            "--target='COLUMN>=NUMBER' for a threshold on any score, or --target=COLUMN with the "
            "target's probability of an offer"
        )
    else:
        assert log.score is not None, "it can decide"
        pi = target_gate(None, log.score, settings)
    return decisions_of_log(path, log, pi, shown_only=shown_only)


def decisions_of_log(
    path: str | os.PathLike[str], log: AcceptanceLog, pi: Rows, *, shown_only: bool = False
) -> Decisions:
    """The rows of a log with the probability of an offer, pi, of a target policy in each.

    `shown_only` is that of `of_log`. LogError for a log without propensities.
    """
    propensity = _propensity(path, log, shown_only=shown_only)
    score = np.full(len(log), 0.5) if log.score is None else log.score
    notes: tuple[str, ...] = ("The log has no judgement of need: every offer that would be accepted counts as needed.",)
    if shown_only:
        notes += (f"Of shown offers only: {log.not_made} of {len(log) + log.left_out} were not made and are left out.",)
    notes += () if log.unit == "people" else (ONE_PERSON.format(log.unit),)
    known = np.where(np.isnan(score), np.nanmedian(score), score)
    features = np.column_stack([model_feature(known) if log.score_is_probability else known, np.isnan(score)])
    rows = log.logged if shown_only else np.ones(len(log), bool)
    accepted = np.where(log.logged, log.accepted, 0.0)
    logged = Logged(log.logged[rows], propensity[rows], accepted[rows], np.ones(int(rows.sum())))
    person = np.unique(log.person[rows], return_inverse=True)[1]
    return Decisions(pi[rows], logged, person, features[rows].astype(np.float64), notes)


def estimate_decisions(decisions: Decisions, settings: EstimateSettings) -> Estimates:
    """What the target policy of a log in memory would have cost; OverlapError where the log cannot support that."""
    return estimate(over_log(decisions), Reading(settings))._replace(notes=decisions.notes)


def _bad_score(log: AcceptanceLog) -> str | None:
    """What keeps the score of a log from deciding as a probability; None if it can."""
    if log.score is None:
        return "found no role score in --columns"
    if not log.score_is_probability:
        return f"found scores from {np.nanmin(log.score):g} to {np.nanmax(log.score):g}"
    missing = int(np.isnan(log.score).sum())
    return f"found no score at {missing} of {len(log)} rows" if missing else None


def _propensity(path: str | os.PathLike[str], log: AcceptanceLog, *, shown_only: bool) -> Rows:
    """The propensities; 1 for all offers of a log of shown offers only."""
    if shown_only and log.propensity is not None:
        raise LogError(
            f"{path}: found propensity=COLUMN and --shown_only, expected one: with it, silent rows count too"
        )
    if shown_only:
        return np.ones(len(log))
    if log.propensity is None:
        silent = int((~log.logged).sum())
        hint = f"; or --shown_only, which leaves out {silent} offers that were not made" if silent else ""
        raise LogError(
            f"{path}: found no column of propensities, expected propensity=COLUMN; 1 where all were offered{hint}"
        )
    return log.propensity


def tables(estimates: Estimates, settings: EstimateSettings) -> list[Table]:
    """The difference from the logging policy, the level of the cost where the log tells it, and the support."""
    support, people = estimates.support, estimates.support.people
    notes = [*estimates.notes, f"{over_units(people, 'people')}."]
    if people < FEW:
        notes.append(f"With fewer than {FEW} people they may cover less often.")
    if uncovered := support.unknown + support.impossible:
        notes.append(
            f"The log cannot show {100 * uncovered:.2g} % of the target's offers: the intervals are wider by all that "
            "these may cost."
        )
    level = [_level(estimates.level)] if estimates.level else []
    doubt = off_policy.doubt(estimates.drawn)
    if doubt:
        notes.append(f"{doubt[0].upper()}{doubt[1:]}.")
    difference = _difference(estimates.difference, settings, " ".join(notes), doubted=doubt is not None)
    return [difference, *level, _support(support, estimates.drawn)]


def write_tables(estimates: Estimates, settings: EstimateSettings, out: str | None) -> None:
    """Prints the tables, and writes them as CSV, Markdown and LaTeX into a folder where asked."""
    results = tables(estimates, settings)
    if out:
        names = ("difference", *(("level",) if estimates.level else ()), "support")
        folder = epath.Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        named = zip(names, results, strict=True)
        write_files({folder / file: text for name, table in named for file, text in table.encoded(name).items()})
    print_all(results)
    if estimates.level_unknown:
        print(f"The mean cost itself is not shown: {estimates.level_unknown}.")


def _difference(means: Mapping[Estimator, Estimate], settings: EstimateSettings, note: str, *, doubted: bool) -> Table:
    rows = tuple(
        Row(NAMES[name], (show_estimate(mean, sign=True),), strong=name == "ips") for name, mean in means.items()
    )
    title = "Cost of the target policy minus that of the policy that made the log (below 0: cheaper)"
    title += f", {off_policy.DOUBTED}" if doubted else ""
    columns = (Column("difference per step", f"C_FA = {settings.c_fa:g}, C_FN = {settings.c_fn:g}."),)
    return Table(title, "estimate", columns, (Section("", rows),), note, mark="headline")


def _level(level: Mapping[str, Mapping[Estimator, Estimate]]) -> Table:
    sections = tuple(
        Section(policy, tuple(Row(NAMES[name], (show_estimate(mean),)) for name, mean in means.items()))
        for policy, means in level.items()
    )
    note = "Every offer had a chance, so the cost itself is known; its intervals are wider than those of differences."
    return Table("Mean cost per step", "policy", (Column("cost"),), sections, note)


def _support(support: Support, drawn: Sequence[Drawn]) -> Table:
    shares = {
        "rows": str(support.rows),
        "offers in the log": str(support.offers),
        "rows where the target offers (%)": percent(support.target),
        "of these without a propensity (%)": percent(support.unknown),
        "of these that could never be offered (%)": percent(support.impossible),
        f"of these with a weight above {off_policy.support.LARGE:g} (%)": percent(support.large),
        "effective offers": number(support.effective, 1),
        "effective changes": DASH if np.isinf(support.changes) else number(support.changes, 1),
        "people": str(support.people),
        "effective people": number(support.effective_people, 1),
        **{f"mean(A/e) of {of.where}": show_estimate(of.weight) for of in drawn},
    }
    if drawn:
        shares["offers made for each expected one"] = show_estimate(drawn[0].offers)
    rows = tuple(Row(name, (value,)) for name, value in shares.items())
    note = (
        "By the probabilities of the log, whatever was drawn. Effective offers: (Σπ)² / Σ(π²/e). Effective changes: "
        "(Σec²)² / Σ(ec⁴), c = π/e − 1. Effective people: the same over people. No weight is clipped. "
        "mean(A/e) and sum(A)/sum(e) are 1 where the propensities are right, and a log is refused where they cannot be."
    )
    return Table("What the log can tell", "", (Column("value"),), (Section("", rows),), note)


def _check_records(path: str) -> None:
    """Raises for a file that holds no decision records: in another table an unknown propensity means something else."""
    if not path.endswith(".parquet"):
        line = next(read_lines(path, ScoresError, "decision records of `agent`"), None)
        value = {} if line is None else parse_json(line[1], path)
        if isinstance(value, dict) and (line is None or is_record(value)):
            return
    raise ScoresError("found a scores table, expected decision records of `agent`; --scores reads it", place=path)
