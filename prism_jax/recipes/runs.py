"""Trains, scores and evaluates a run, for mains and experiments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
from etils import epath

from prism_jax.policy.fast import score_streams
from prism_jax.report.outputs import evaluate_into
from prism_jax.runtime import distributed
from prism_jax.runtime.files import write_json
from prism_jax.runtime.provenance import as_facts, provenance
from prism_jax.scores import Scores
from prism_jax.student.qwen3 import Params
from prism_jax.training.config import RunConfig
from prism_jax.training.loop import describe, plan, train
from prism_jax.training.run import Run, checkpoint_in_words, open_run, reopen_run, resolve, trained_params
from prism_jax.training.startup import startup
from prism_jax.training.workdir import Workdir


def train_run(
    config: RunConfig,
    workdir: Workdir,
    *,
    report: bool = True,
    profile: int | None = None,
) -> tuple[Run, Params]:
    """Trains a run to its last step, starting from its newest checkpoint if there is one.

    Args:
      config: Config of the run.
      workdir: Folder to which the run writes everything.
      report: Whether to print the start-up report and show a progress bar.
      profile: Step at which a trace of a few steps begins, written to `profile/` in the workdir; None for no trace.

    Returns:
      The run, and its parameters after the last step.

    Raises:
      ValueError, OSError, RuntimeError: with a message of one line; nothing is written if the config or the data
        source cannot be used.
    """
    run = open_run(resolve(config), workdir)
    job = plan(run)
    facts = {**run.facts(), **describe(job), **startup(job)} if report else {}
    if distributed.is_first():
        workdir.claim(run.config)  # the first write
        run.template.tokenizer.save(workdir.tokenizer)
        write_json(workdir.provenance, provenance())
        for name, fact in facts.items():
            print(f"{name:12} {fact}")
    distributed.wait("claimed")
    return run, train(job, progress=report, profile=profile)


def score_run(run: Run, params: Params, splits: tuple[str, ...] = ("calibration", "test"), *, batch: int = 0) -> Scores:
    """The raw signals of every decision of some splits.

    Args:
      run: The run.
      params: Parameters of its student.
      splits: Names of the splits to score.
      batch: Number of streams per forward pass; 0 uses the training batch size.
    """

    def rows() -> Iterator[dict[str, Any]]:
        for split in splits:
            yield from score_streams(
                run.model,
                params,
                run.template,
                getattr(run.splits, split),
                split=split,
                fold=run.config.data.fold,
                context=run.config.packing.context,
                batch=batch or run.config.training.batch,
            )

    return Scores.from_rows(rows())


def evaluate_run(run: Run) -> None:
    """Scores the calibration and test splits, fits temperatures, measures every policy and writes the report.

    Raises:
      ValueError, OSError: before anything is written, for a workdir without a checkpoint or with invalid metrics.
    """
    workdir = run.files
    step, params = trained_params(run.model, run.config, workdir)
    checkpoint = checkpoint_in_words(run.config, step)
    print(f"checkpoint: {checkpoint}")
    made = as_facts(provenance())
    evaluate_into(
        workdir.path,
        score_run(run, params),
        run.config.decision,
        facts={"command": made.pop("command"), "checkpoint": checkpoint, **run.facts(), **made},
        keep_scores=True,
        metrics_path=workdir.metrics,
        streams=run.splits.test,
    )


def train_and_evaluate(config: RunConfig, workdir: Workdir, *, report: bool = True, profile: int | None = None) -> None:
    """Trains a run as `train_run` does, then evaluates it; with several processes, prints how to evaluate it."""
    run, _ = train_run(config, workdir, report=report, profile=profile)
    if jax.process_count() == 1:
        evaluate_run(run)
    elif distributed.is_first():
        print(f"trained; `python -m prism_jax.evaluate --workdir={workdir}` calibrates and evaluates, in one process")


def evaluate_workdir(path: epath.PathLike) -> None:
    """Evaluates the run in a folder again, as `evaluate_run` does.

    Raises:
      ValueError, OSError: in one line, for a folder that holds no run, or a run whose source cannot be read.
    """
    evaluate_run(reopen_run(Workdir(path)))
