"""Trains, scores and evaluates a run, for commands and experiments."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
from etils import epath

from prism_jax.evaluation import protocol
from prism_jax.evaluation.rows import SignalRow
from prism_jax.report.outputs import evaluate_into
from prism_jax.runs.probe_export import is_probe
from prism_jax.runtime import distributed
from prism_jax.runtime.dataclass_config import ConfigError
from prism_jax.runtime.files import write_files, write_json
from prism_jax.runtime.lock import only_training
from prism_jax.runtime.provenance import as_facts, provenance
from prism_jax.runtime.shown_text import visible, without_credentials
from prism_jax.scores import Scores, ScoresError, encode_scores
from prism_jax.streams import Stream
from prism_jax.streams.jsonl import encode_streams
from prism_jax.student.qwen3 import Params
from prism_jax.student.scoring.fast import unscored
from prism_jax.student.scoring.passes import Passes, score_passes
from prism_jax.student.scoring.slow import write_fields
from prism_jax.student.scoring.writing import Writer
from prism_jax.training.job import Job, describe, plan
from prism_jax.training.logs.profiling import Profile
from prism_jax.training.loop import train
from prism_jax.training.memory import gib, plan_memory
from prism_jax.training.pathways.supervision import attach_fields, only_own_fields
from prism_jax.training.run import (
    NOT_TRAINED,
    Run,
    checkpoint_in_words,
    reopen_run,
    resolve,
    restore_trained,
    untrained_params,
)
from prism_jax.training.run_config import RunConfig
from prism_jax.training.start import is_run
from prism_jax.training.workdir import Workdir

LARGE_TEMPERATURE = 3.0
"""Above it, calibration leaves less than a third of the log-odds of a student."""


def startup(job: Job) -> dict[str, str]:
    """Reports mesh, attention path, remat policy, parameters by dtype, and predicted and compiled memory per device.

    The step is compiled here only if there is a compilation cache, because the first step can then reuse the program.

    Raises:
      ValueError: if a step needs more memory than a device has.
    """
    student = job.shape.slots.model.config
    kinds: Counter[str] = Counter()
    for leaf in jax.tree.leaves(job.shape.slots.model.abstract_params()):
        kinds[leaf.dtype.name] += leaf.size
    plan = plan_memory(job.shape, compiled=bool(jax.config.values["jax_compilation_cache_dir"]))
    plan.check()
    predicted = sum(plan.persistent) + plan.working.peak
    compiled = "not yet" if plan.compiled is None else gib(sum(plan.persistent) + plan.compiled)
    sizes = " x ".join(f"{name} {size}" for name, size in job.shape.mesh.shape.items())
    return {
        "mesh": f"{sizes}, {jax.process_count()} process{'es' * (jax.process_count() > 1)}",
        "attention": plan.attention,
        "remat": plan.remat,
        "dtypes": ", ".join(f"{count:,} parameters in {name}" for name, count in kinds.items())
        + f", computing in {student.dtype}"
        + (", products in bfloat16" if student.compute == "bfloat16" else ""),
        "memory": f"per device: {gib(predicted)} predicted, {compiled} compiled, "
        f"{gib(plan.limit) if plan.limit else 'unknown'} available",
    }


def with_own_fields(run: Run) -> tuple[Stream, ...]:
    """The training streams, with the fields that the student of `training.start` writes at the chosen steps.

    Without `pathway.own_fields` these are the training streams themselves.

    Raises:
      ConfigError: if `training.start` is no run with slow branches.
      ValueError, OSError, RuntimeError: if its parameters cannot be read, or a decision does not fit into the context.
    """
    config, streams = run.config, run.splits.train
    if not config.pathway.own_fields:
        return streams
    _check_start(config.training.start)
    writer = Writer(run.student(untrained_params(run)), config.training.batch)
    read = (only_own_fields(stream, config.pathway, config.training.seed) for stream in streams)
    chosen = [stream for stream in read if stream.steps]
    context, limit = config.packing.context, config.writing.field_tokens
    thought = write_fields(writer, chosen, context=context, limit=limit)
    fields = {(stream.id, step.event): step.rationale for stream in thought for step in stream.steps}
    return tuple(attach_fields(stream, fields) for stream in streams)


def _check_start(start: str) -> None:
    if not is_run(start):
        raise ConfigError(f"training.start: found {start}, expected the workdir of a run, whose student writes them")
    if not Workdir(epath.Path(start)).load_config().pathway.slow:
        raise ConfigError(
            f"training.start: found {start}, a run with pathway.slow = 0, expected one with slow branches: its student "
            "writes the fields"
        )


def train_run(
    config: RunConfig,
    workdir: Workdir,
    *,
    report: bool = True,
    profile: int | None = None,
    to_evaluate: bool = False,
) -> tuple[Run, Params]:
    """Trains a run to its last step from its newest checkpoint, if any; returns it with its parameters after that step.

    Adapters are merged into them.

    `report` prints the start-up report and a progress bar; `profile` is the step at which a trace of a few steps
    begins, written to `profile/` in the workdir; `to_evaluate` refuses before the first step what evaluation would
    refuse after it.

    Raises:
      ValueError, OSError, RuntimeError: with a message of one line; nothing is written if the config or the data source
        cannot be used.
    """
    run = resolve(config, workdir)
    if distributed.is_first():
        workdir.expect_own(run.config)  # before fields are written or a step is compiled
    job = plan(run, with_own_fields(run))
    if to_evaluate:
        check_evaluable(run)
    Profile(workdir.profile, profile, 0, job.shape.training.steps)  # raises for a step that the run does not have
    facts = {**run.facts(), **describe(job), **startup(job)} if report else {}
    if report and to_evaluate and not has_labels(run):
        facts["labels"] = "none on calibration and test streams: the run ends after training and scoring"
    with only_training(workdir.path) if distributed.is_first() else contextlib.nullcontext():
        if distributed.is_first():
            _claim(run)
            for name, fact in facts.items():
                print(f"{name:12} {visible(without_credentials(fact))}")
        distributed.wait("claimed")
        return run, run.with_adapters.plain(train(job, progress=report, profile=profile))


def has_labels(run: Run) -> bool:
    """Whether any calibration or test step has a label; without one, a run ends after training and scoring."""
    steps = (step for stream in (*run.splits.calibration, *run.splits.test) for step in stream.steps)
    return any(step.y_need is not None or any(one.y_accept is not None for one in step.candidates) for step in steps)


def check_evaluable(run: Run) -> None:
    """Checks the calibration and test streams as scoring and calibration will, without a student.

    Labels are checked only where there are any (`has_labels`).

    Raises:
      ValueError: naming the split, and the stream or label: a decision that does not fit into the context, calibration
        labels of a single class, or a test split without a judged step.
    """

    def rows(split: str) -> Iterator[dict[str, Any]]:
        try:
            for row in unscored(
                run.template,
                getattr(run.splits, split),
                split=split,
                fold=run.config.data.fold,
                context=run.config.packing.context,
            ):
                yield row | _need_target(run)
        except ValueError as error:
            raise ValueError(f"split {split!r}: {error}") from error

    try:
        scores = Scores.from_rows(itertools.chain(rows("calibration"), rows("test")))
        if has_labels(run):
            protocol.check_labels(scores, run.config.calibration)
    except ScoresError as error:
        raise ValueError(
            f"data: {error.column}: {error.problem}" if error.column else f"data: {error.problem}"
        ) from None


def score_run(
    run: Run,
    params: Params,
    splits: tuple[str, ...] = ("calibration", "test"),
    *,
    batch: int = 0,
    passes: Passes | None = None,
    written: dict[str, list[Stream]] | None = None,
) -> Scores:
    """The raw signals of every decision of some splits.

    `batch` is the number of streams per forward pass; 0 uses the training batch size. `passes` is what the student does
    beside the fast pass; None is all that it was trained for (`passes_of`). `written` gets the streams of each split
    with what it wrote, if it writes responses.
    """
    chosen = passes_of(run) if passes is None else passes
    need_target, student = _need_target(run), run.student(params)

    def rows() -> Iterator[dict[str, Any]]:
        for split in splits:
            scored = score_passes(
                student,
                getattr(run.splits, split),
                chosen,
                split=split,
                fold=run.config.data.fold,
                context=run.config.packing.context,
                batch=batch or run.config.training.batch,
            )
            if written is not None and scored.written:
                written[split] = scored.written
            yield from ({**row, **need_target} for row in scored.rows)

    return Scores.from_rows(rows())


def _need_target(run: Run) -> dict[str, str]:
    """The column that says what p_need estimates, where it is not the unconditional need."""
    target = run.config.loss.need_target
    return {} if target == "marginal" else {"need_target": target}


def passes_of(run: Run) -> Passes:
    """What the student of a trained run can do: what its training streams and its pathway taught it."""
    offers = (offer for stream in run.splits.train for step in stream.steps for offer in step.candidates)
    return Passes(
        slow=run.trains_slow,
        responses=run.config.loss.response > 0 and any(offer.response is not None for offer in offers),
        writing=run.config.writing,
    )


def evaluate_run(run: Run, *, texts: bool = True, base: bool = False) -> int | None:
    """Scores the calibration and test splits, fits their calibration, measures every policy and writes the report.

    Where the checkpoint of the trained result is damaged, an older one is evaluated and `NOT_TRAINED` returned: the
    first line and the title of every table say so, and an evaluation that the folder has already stays as it is.
    `texts` lets the report show the texts of events; `base` scores the student before training too, for a section of
    its own in the tables. Where no calibration and no test step has a label, nothing is fitted: scores and written
    texts are kept, and the commands that label them are printed.

    Raises:
      ValueError, OSError: before anything is written, for a workdir without a checkpoint or with invalid metrics.
    """
    workdir = run.files
    step, params, damaged = restore_trained(run.config, workdir)
    checkpoint = checkpoint_in_words(run.config, step, damaged)
    print(f"checkpoint: {checkpoint}")
    made = as_facts(provenance())
    written: dict[str, list[Stream]] = {}
    scores = score_run(run, params, written=written)
    kept = _encoded(written)
    if not has_labels(run):
        _keep_unlabelled(workdir.path, scores, kept, keep_existing=bool(damaged))
        return NOT_TRAINED if damaged else None
    evaluation = evaluate_into(
        workdir.path,
        scores,
        run.config.decision,
        facts={"command": made.pop("command"), "checkpoint": checkpoint, **run.facts(), **made},
        keep_scores=True,
        beside=kept,
        metrics_path=workdir.metrics,
        streams=run.splits.test if texts else (),
        population=f"step {step}, not the trained result" if damaged else "",
        calibrator=run.config.calibration,
        base=score_run(run, untrained_params(run), passes=Passes()) if base else None,
        keep_existing=bool(damaged),
    )
    for line in too_sure(evaluation.signals):
        print(line)
    return NOT_TRAINED if damaged else None


def too_sure(signals: Sequence[SignalRow]) -> Iterator[str]:
    """Yields a line for each signal of a student whose temperature is above `LARGE_TEMPERATURE`."""
    for row in signals:
        if row.temperature is not None and row.temperature > LARGE_TEMPERATURE:
            yield (
                f"p_{row.signal}, {row.thinking}: T = {row.temperature:.1f}, above {LARGE_TEMPERATURE:g}: the student "
                "is far surer than it is right: it learned few labels by heart, or hardly anything; validation streams "
                "(data.validation, training.keep_best) show which"
            )


def _encoded(written: Mapping[str, Sequence[Stream]]) -> dict[str, bytes]:
    """The files of what a student wrote on the streams of each split, by name."""
    return {f"written_{split}.jsonl": encode_streams(streams) for split, streams in written.items()}


def _keep_unlabelled(
    folder: epath.Path, scores: Scores, written: Mapping[str, bytes], *, keep_existing: bool = False
) -> None:
    """Writes scores, and what the student wrote, of a run without labels; prints what labels and calibrates them."""
    contents = {"scores.parquet": encode_scores("scores.parquet", scores), **written}
    if not (keep_existing and (folder / "scores.parquet").exists()):
        write_files({folder / name: content for name, content in contents.items()})
    streams = folder / "written_*.jsonl" if written else "FILES"
    print(
        f"no calibration and no test step has a label; {folder} has {', '.join(contents)}; next:\n"
        f"  python -m prism_jax judge --streams='{streams}' --scores={folder / 'scores.parquet'} --scores_out=JUDGED "
        "--votes=VOTES --config=PANEL\n"
        "  python -m prism_jax evaluate --scores=JUDGED --workdir=EVALUATION\n"
        f"  python -m prism_jax export --model={folder} --calibration=EVALUATION/calibration.json --workdir=MODEL"
    )


def train_and_evaluate(
    config: RunConfig, workdir: Workdir, *, report: bool = True, profile: int | None = None, texts: bool = True
) -> None:
    """Trains a run as `train_run` does, then evaluates it; with several processes, prints how to evaluate it.

    Where no calibration and no test step has a label, the evaluation is a scoring (`evaluate_run`).
    """
    run, _ = train_run(config, workdir, report=report, profile=profile, to_evaluate=True)
    if jax.process_count() == 1:
        evaluate_run(run, texts=texts)
    elif distributed.is_first():
        line = f"python -m prism_jax evaluate --workdir={workdir}" + ("" if texts else " --notexts")
        print(f"trained; `{line}` calibrates and evaluates, in one process")


UNTRAINED = "student without training"


def evaluate_untrained(config: RunConfig, workdir: Workdir, *, texts: bool = True) -> None:
    """Scores, calibrates and evaluates the student of a config as it is before training.

    The folder, which may not hold a trained run, gets the run's config, tokenizer and fingerprints, so that training of
    the same config may begin in it. `texts` lets the report show the texts of events.

    Raises:
      ValueError, OSError, RuntimeError: in one line; nothing is written if the config, the data source or the weights
        cannot be used, or if the folder holds checkpoints or a run of another config.
    """
    if workdir.checkpoints.exists():
        raise ConfigError(
            f"{workdir.checkpoints}: found a trained run, expected a folder without one; "
            f"`python -m prism_jax evaluate --workdir={workdir} --base` adds the student before training to its tables"
        )
    run = resolve(config, workdir)
    check_evaluable(run)
    labelled, written = has_labels(run), dict[str, list[Stream]]()
    passes = Passes(responses=not labelled, writing=run.config.writing)  # without labels, its texts will be judged
    scores = score_run(run, untrained_params(run), passes=passes, written=written)
    start = run.config.training.start or f"random, seed {run.config.training.seed}"
    made = as_facts(provenance())
    with only_training(workdir.path):
        _claim(run)
        if not labelled:
            return _keep_unlabelled(workdir.path, scores, _encoded(written))
        evaluate_into(
            workdir.path,
            scores,
            run.config.decision,
            facts={"command": made.pop("command"), "parameters": f"without training: {start}", **run.facts(), **made},
            keep_scores=True,
            streams=run.splits.test if texts else (),
            population=UNTRAINED,
            calibrator=run.config.calibration,
        )


def _claim(run: Run) -> None:
    """Writes the files that make a folder the run's; the config is the first."""
    workdir = run.files
    workdir.claim(run.config)
    run.template.tokenizer.save(workdir.tokenizer)
    write_json(workdir.fingerprints, run.fingerprints)
    write_json(workdir.provenance, provenance())


def evaluate_workdir(path: epath.PathLike, *, texts: bool = True, base: bool = False) -> int | None:
    """Evaluates the run in a folder again, as `evaluate_run` does.

    ValueError or OSError, in one line, for a folder that holds no run, or a run whose source cannot be read.
    """
    if is_probe(path):
        raise ValueError(
            f"{path}: found the workdir of a probe, expected that of a student; --scores={path}/scores.parquet with "
            "another --workdir evaluates its scores"
        )
    return evaluate_run(reopen_run(Workdir(path)), texts=texts, base=base)
