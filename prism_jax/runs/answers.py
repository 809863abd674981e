"""Studies a log of answers that need not fit into memory, in processes or on a Ray cluster."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from etils import epath

from prism_jax.acceptance.columns import LogColumns, LogError
from prism_jax.acceptance.findings import Question, publish
from prism_jax.acceptance.log_evaluation import evaluate_log
from prism_jax.acceptance.parts import PART_ROWS, Divided, divide, read_people
from prism_jax.acceptance.study import study_parts
from prism_jax.runs.scores_files import Running, say_left_out, usable_cpus
from prism_jax.runs.sharded import Sharded, Work, count_rows
from prism_jax.scores.joining import find_files

_MOST_PARTS = 500
SUFFIXES = (".csv", ".parquet")
"""Of the files of a log."""


def evaluate_answers(
    pattern: str,
    columns: LogColumns,
    workdir: str | os.PathLike[str],
    question: Question,
    *,
    shown_only: bool = False,
    export_scores: str | None = None,
    keep_names: bool = False,
    running: Running | None = None,
) -> dict[str, Any]:
    """Evaluates a log in memory where it fits (`log_evaluation.evaluate_log`), else part by part.

    Columns of context and `export_scores` need all rows in memory; several files are read in parts. Other arguments
    and errors are those of `evaluate_log_parts` and `evaluate_log`.
    """
    running = Running() if running is None else running
    paths = find_files(pattern, SUFFIXES, "log")
    wanted = {"--context": question.context, "--export_scores": export_scores}
    of_memory = [name for name, value in wanted.items() if value]
    if len(paths) == 1 and (running.in_memory(paths) or (of_memory and running == Running())):
        return evaluate_log(
            paths[0],
            columns,
            workdir,
            c_fa=question.c_fa,
            c_fn=question.c_fn,
            context=question.context,
            weighted=question.weighted,
            export_scores=export_scores,
            keep_names=keep_names,
            shown_only=shown_only,
            seed=question.seed,
        )
    if of_memory:
        raise LogError(
            f"{pattern}: found {of_memory[0]} with a log that is read part by part, expected one file, without "
            "--runner, --workers and --skip_bad: it needs all rows in memory"
        )
    return evaluate_log_parts(pattern, columns, workdir, question, shown_only=shown_only, running=running)


def evaluate_log_parts(
    pattern: str,
    columns: LogColumns,
    workdir: str | os.PathLike[str],
    question: Question,
    *,
    shown_only: bool = False,
    running: Running | None = None,
) -> dict[str, Any]:
    """Evaluates a log as `acceptance.log_evaluation.evaluate_log`, part by part.

    Args:
      pattern: A file, .csv or .parquet, a folder of them, or a glob.
      columns: Says which columns are which.
      workdir: Folder for the results, and until they are there for what a later call resumes from.
      question: What is asked; context is not supported.
      shown_only: Whether to leave out the offers that were not made; the titles then say so.
      running: How the parts are run.

    Raises:
      ValueError, OSError: in one line, for a log that cannot be read, or on which nothing can be measured.
    """
    if question.context:
        raise LogError("--context: found it with a log that is read part by part, expected it with one in memory")
    running = Running() if running is None else running
    sharded = ShardedLog(pattern, columns, question, Path(workdir), shown_only, running)
    findings = sharded.all_of(lambda run: study_parts(run, sharded.log, columns.score, question, shown_only))
    value = publish(findings._replace(left_out=sharded.left_out), question, epath.Path(workdir))
    sharded.finish()
    say_left_out(sharded.left_out, len(sharded.paths))
    return value


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
