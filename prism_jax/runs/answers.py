"""Evaluates a log of answers to offers: what predicts them, what gate do the costs ask for, what did it cost.

People are held out whole: ten folds of them, or one per person where there are fewer. Maps and the person layer are
fitted on the other people, and the layer predicts each answer before it sees it
(`prism_jax/evaluation/answers/study.py`). A log that does not fit into memory is studied part by part, in processes or
on a Ray cluster. Files in the workdir: acceptance_log.json with every number, and the tables as CSV and Markdown.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Float64

from prism_jax.decision.off_policy import EstimateSettings, OverlapError
from prism_jax.evaluation.answers.columns import LogColumns, LogError
from prism_jax.evaluation.answers.findings import GATE, Drawn, Findings, Question
from prism_jax.evaluation.answers.log_scores import scores_of_log
from prism_jax.evaluation.answers.logs import AcceptanceLog, check_all_made, read_log
from prism_jax.evaluation.answers.own_score import MAPS
from prism_jax.evaluation.answers.parts import PART_ROWS, Answers, Divided, answered_rows, divide, read_people
from prism_jax.evaluation.answers.statistics import EVERYBODY
from prism_jax.evaluation.answers.study import in_memory, study_parts
from prism_jax.report.answers.publish import publish
from prism_jax.runs.counterfactual import decisions_of_log, estimate_decisions
from prism_jax.runs.running import Running, usable_cpus
from prism_jax.runs.scores_files import say_left_out
from prism_jax.runs.sharded import Sharded, Work, count_rows, held_in_memory
from prism_jax.runtime.files import check_folder_of, check_outputs, without_links
from prism_jax.scores import encode_scores
from prism_jax.scores.joining import find_files

_MOST_PARTS = 500
MOST_CONTEXT_ROWS = 2_000_000
"""Most rows of a log whose context is looked at."""
SUFFIXES = (".csv", ".parquet")
"""Of the files of a log."""


def evaluate_log(
    pattern: str | os.PathLike[str],
    columns: LogColumns,
    workdir: str | os.PathLike[str],
    question: Question,
    *,
    truth: Float64[np.ndarray, " rows"] | None = None,
    scores_out: str | None = None,
    keep_names: bool = False,
    shown_only: bool = False,
    running: Running | None = None,
) -> dict[str, Any]:
    """Evaluates a log, prints and writes its tables, and returns what acceptance_log.json holds.

    One file of few rows is held in memory, as one part. Others are studied part by part.

    Args:
      pattern: A file, .csv or .parquet, a folder of them, or a glob.
      columns: Says which columns are which; a policy to compare, `target`, is that of a log in memory.
      workdir: Folder for the results, and of a log in parts, until they are there, for what a later call resumes from.
      question: What is asked; context needs all rows in memory, at most `MOST_CONTEXT_ROWS`.
      truth: True probability of each row that is read, where a log in memory is simulated.
      scores_out: Scores file to write of a log in memory, .parquet or .jsonl, which numbers people unless
        `keep_names`.
      keep_names: Whether that file names people.
      shown_only: Whether to leave out the offers that were not made; the titles then say so.
      running: How a log is read, and the parts are run.

    Raises:
      ValueError, OSError: in one line, for a log that cannot be read, or on which nothing can be measured.
    """
    question = question._replace(group=columns.group or "")
    pattern, running = os.fspath(pattern), Running() if running is None else running
    paths = find_files(pattern, SUFFIXES, "log")
    wanted = {"--context": question.context, "--scores_out": scores_out, "--target": columns.target}
    of_memory = [name for name, value in wanted.items() if value]
    if len(paths) == 1 and (held_in_memory(paths, running) or (of_memory and running == Running())):
        if scores_out is not None:
            parent = without_links(epath.Path(scores_out).parent)
            if parent != without_links(workdir) or epath.Path(workdir).is_dir():  # else it is made with the results
                check_folder_of(scores_out)
            check_outputs({"scores_out": scores_out}, {"scores": paths})
        log, findings = _studied(paths[0], columns, question, truth, shown_only)
        best, files = "" if findings.own is None else findings.own.best, {}
        if scores_out is not None:
            scores = scores_of_log(log, best, question.seed, keep_names=keep_names)
            files[epath.Path(scores_out)] = encode_scores(scores_out, scores)
        value = publish(findings, question, workdir, files)
        if scores_out is not None:
            print(f"scores: {scores_out}; p_accept is {columns.score} by {MAPS[best]}, fitted on other {log.unit}")
            only = " --shown_only" if log.left_out else ""
            print(f"python -m prism_jax evaluate --scores={scores_out}{only} --workdir=DIR reads it")
        return value
    if of_memory:
        raise LogError(
            f"{pattern}: found {of_memory[0]} with a log that is read part by part, expected one file, without "
            "--runner, --workers and --skip_bad: it needs all rows in memory"
        )
    sharded = ShardedLog(pattern, columns, question, Path(workdir), shown_only, running)
    findings = sharded.all_of(lambda run: study_parts(run, sharded.log, columns, question, shown_only))
    findings = findings._replace(left_out=sharded.left_out, drawn=_left_out_beside_today(findings, columns, shown_only))
    value = publish(findings, question, epath.Path(workdir))
    sharded.finish()
    say_left_out(sharded.left_out, len(sharded.paths))
    return value


def _studied(
    path: str,
    columns: LogColumns,
    question: Question,
    truth: Float64[np.ndarray, " rows"] | None,
    shown_only: bool,
) -> tuple[AcceptanceLog, Findings]:
    """A log in memory, and what it says."""
    log = read_log(path, columns, question.context, shown_only=shown_only, one_person=True)
    targets = {} if log.target is None else {columns.target or "": log.target}
    if question.context and len(log) > MOST_CONTEXT_ROWS:
        raise LogError(
            f"{path}: found --context with {len(log):,} rows, expected at most {MOST_CONTEXT_ROWS:,}: its quantiles "
            "and nested folds need all rows in memory"
        )
    if log.propensity is None:
        check_all_made(path, int((~log.logged).sum()), len(log))
    divided = Divided.of_log(log, weighted=question.weighted, seed=question.seed, truth=truth)
    findings = study_parts(in_memory(divided), divided, columns, question, log.left_out > 0)
    if log.propensity is not None and findings.own is not None and log.score is not None:
        (answers,) = divided.parts
        assert isinstance(answers, Answers), "they are in memory"
        fold = np.full(len(log.names), EVERYBODY)
        fold[log.person[answered_rows(log)]] = answers.fold
        targets = {GATE: findings.own.offers(log.score, fold[log.person])} | targets
    return log, findings._replace(drawn={name: _beside_today(path, log, pi, question) for name, pi in targets.items()})


def _beside_today(path: str, log: AcceptanceLog, pi: Float64[np.ndarray, " rows"], question: Question) -> Drawn:
    """A policy with the probability pi of an offer beside the one that made the log."""
    settings = EstimateSettings(question.c_fa, question.c_fn)
    try:
        found = estimate_decisions(decisions_of_log(path, log, pi, shown_only=log.propensity is None), settings)
    except OverlapError as error:
        return Drawn(float(pi.mean()), None, None, str(error))
    return Drawn(float(pi.mean()), found.level["target"]["ips"] if found.level else None, found.difference["ips"])


def _left_out_beside_today(findings: Findings, columns: LogColumns, shown_only: bool) -> dict[str, Drawn]:
    """The gate of a log in parts, whose costs beside today's are not known, and how to get them."""
    if columns.propensity is None or findings.own is None or shown_only:
        return {}
    how = (
        f"it takes all rows in memory, as --target='{findings.own.column}>=NUMBER' does with one file and without "
        "--runner, --workers and --skip_bad"
    )
    return {GATE: Drawn(findings.costs[findings.own.best].speak_rate, None, None, how)}


class ShardedLog(Sharded):
    """Runs statistics over the people of a log."""

    log: Divided

    def __init__(
        self, pattern: str, columns: LogColumns, question: Question, folder: Path, shown_only: bool, running: Running
    ):
        self.pattern, self.columns = pattern, columns
        self.weighted, self.seed = question.weighted, question.seed
        settings = ["answers", dataclasses.astuple(columns), tuple(question)]
        super().__init__(
            find_files(pattern, SUFFIXES, "log"),
            folder,
            runner=running.runner,
            workers=running.workers or usable_cpus(),
            skip_bad=running.skip_bad,
            shown_only=shown_only,
            settings=str(settings),
        )

    def _open(self) -> None:
        self.log = divide(
            self.pattern,
            self.paths,
            self.columns,
            self.scratch / "people",
            number=min(_MOST_PARTS, -(-max(1, count_rows(self.paths)) // PART_ROWS)),
            shown_only=self.shown_only,
            weighted=self.weighted,
            skip_bad=self.skip_bad,
            seed=self.seed,
        )
        self.parts, self.left_out = list(self.log.parts), self.log.left_out

    def _work(self, name: str, statistic: Any) -> Work:
        return Work(statistic, read_people)
