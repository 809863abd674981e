"""Calibrates and evaluates, without training: a trained run, a student before training, or scores of any agent.

    python -m prism_jax evaluate --workdir=RUN [--base]
    python -m prism_jax evaluate --config=FILE --workdir=DIR [--expect_digest=SHA256]
    python -m prism_jax evaluate --scores=FILES --workdir=DIR [--c_fa=1 --c_fn=2 --margin=0.1 --policy=dynamic]
        [--trigger=value --price=1e-4] [--calibrator=penalised | --calibration=FILE]
        [--runner=local|ray --workers=N --skip_bad]
    python -m prism_jax evaluate --scores=LOGS --columns=person=NAME,accepted=NAME[,time=NAME,score=NAME] --workdir=DIR
        [--c_fa=1 --c_fn=2] [--context=NAME,NAME] [--weighted] [--scores_out=FILE [--keep_names]] [--shown_only]
        [--target='NAME>=59'] [--runner=local|ray --workers=N --skip_bad]

The first reads the run's config.json, tokenizer.json and checkpoint, and writes scores.parquet, calibration.json,
evaluation.json, gate.json (for `prism_jax.Gate.load`) and report.html beside them; --base adds the student before
training to the tables. The second does the same for the student of a config straight from its weights
(`training.start`, or random ones). The third reads FILES (docs/scores.md), needs no model and loads no Flax; it writes
the last four into DIR. The fourth reads a log of answers to offers with columns of any name (docs/acceptance_logs.md),
CSV or Parquet, and can write it as a scores file; without --columns it shows what there is, guesses the roles, and says
the command to type. All print the tables.
"""

from __future__ import annotations

from typing import Any

from absl import flags
from etils import epath
from ml_collections import config_flags

from prism_jax.decision.calibration import CALIBRATORS, OF_SCORES
from prism_jax.decision.operating_point import SLOW_TRIGGERS, OperatingPoint
from prism_jax.decision.policies import DEPLOYABLE
from prism_jax.evaluation.answers import written_times
from prism_jax.runs.running import OF_FILES, Running
from prism_jax.runtime import command, digests
from prism_jax.runtime.command import check_together, refuse_empty

POINT = {
    "c_fa": "C_FA, the cost of an offer that is not accepted.",
    "c_fn": "C_FN, the cost of silence where help was needed and would have been accepted.",
    "margin": "The slow margin around the threshold, a probability.",
    "trigger": "What triggers the slow pass: the margin, or its value, which needs slow signals and tokens_slow; auto "
    "is value wherever that can be.",
    "price": "The price of one slow token in the unit of the costs, for the trigger value.",
    "policy": "The rule that decides.",
    "fixed_threshold": "The threshold of the policy fixed.",
}
TOGETHER = (
    "columns without scores: the log there",
    f"shown_only calibrator calibration {' '.join(OF_FILES)} without scores: it with a scores file",
    "time_format target scores_out keep_names context weighted seed without columns: both, of a log",
    f"calibrator calibration {' '.join([*POINT][2:])} with columns: it with a scores file only",
    "texts with columns: it with a run",
    "keep_names without scores_out: both: no other file names people",
    "weighted with shown_only: one of them: no weights are used of shown offers alone",
)


def define_flags() -> None:
    """Defines the flags; those of an operating point have its own defaults."""
    flags.DEFINE_string(
        "workdir",
        None,
        "Folder of a run; with --scores, the folder to write to. Only to look at a log, none is needed.",
    )
    refuse_empty("workdir")
    config_flags.DEFINE_config_file("config", None, "Config of a student to evaluate without training.")
    digests.define_flag("training.start of --config")
    flags.DEFINE_bool("base", False, "With a run: also evaluate its student before training, in a section of its own.")
    flags.DEFINE_string(
        "scores", None, "Scores to evaluate instead of a run: a file, .parquet or .jsonl, a folder of them, or a glob."
    )
    Running.define_flags()
    flags.DEFINE_bool(
        "shown_only",
        False,
        "With --scores: leave out the offers that were not made, and say so; of a log "
        "with --columns, logged=COLUMN says which.",
    )
    flags.DEFINE_enum(
        "calibrator",
        None,
        CALIBRATORS,
        f"With --scores: the map that recalibrates every signal, by default {OF_SCORES}; a run's config names its own.",
    )
    flags.DEFINE_string("calibration", None, "With --scores: calibration.json to apply instead of fitting one.")
    flags.DEFINE_list(
        "columns",
        None,
        "With --scores: FILES are a log of answers, .csv or .parquet, and these its columns: person=NAME,accepted=NAME"
        "[,time=NAME,score=NAME,answered=NAME,logged=NAME,propensity=NAME,group=NAME].",
    )
    written_times.define_flag()
    flags.DEFINE_list(
        "context", [], "With --columns: those known at the moment of the offer: numbers, flags or categories."
    )
    flags.DEFINE_bool(
        "weighted",
        False,
        "With --columns: weigh answers by clipped inverse propensities, in fits and measures; needs propensity=COLUMN.",
    )
    flags.DEFINE_string(
        "target", None, "With --columns: a policy to compare, such as 'confidence>=59', or a column of probabilities."
    )
    flags.DEFINE_integer("seed", 0, "With --columns: seed of the folds and of the resampling.", lower_bound=0)
    flags.DEFINE_string("scores_out", None, "With --columns: scores file to write, .parquet or .jsonl.")
    flags.DEFINE_bool("keep_names", False, "With --scores_out: keep people's names; by default they are numbered.")
    refuse_empty("scores", "calibration", "scores_out", "target")
    flags.DEFINE_bool("texts", True, "Whether a run's report.html may show events' texts; --notexts leaves them out.")
    for name in sorted(POINT.keys() - {"policy", "trigger"}):
        flags.DEFINE_float(name, getattr(OperatingPoint, name), POINT[name])
    flags.DEFINE_enum("policy", OperatingPoint.policy, DEPLOYABLE, POINT["policy"])
    flags.DEFINE_enum("trigger", OperatingPoint.trigger, SLOW_TRIGGERS, POINT["trigger"])
    flags.register_multi_flags_validator(
        ["config", "expect_digest"],
        lambda values: values["expect_digest"] is None or values["config"] is not None,
        "expected --expect_digest with --config only, whose training.start names an export",
    )
    flags.register_multi_flags_validator(
        ["scores", "config", "base"],
        lambda values: (values["scores"] is not None) + (values["config"] is not None) + values["base"] < 2,
        "expected at most one of --scores, --config and --base",
    )
    flags.register_multi_flags_validator(
        ["scores", *POINT],
        lambda values: values["scores"] is not None or not any(flags.FLAGS[name].present for name in POINT),
        f"expected {', '.join(f'--{name}' for name in POINT)} with --scores only; a run's config.json says its own",
    )


def main() -> int | None:
    """Does what the flags say. The exit status is 3 where the trained checkpoint is damaged and an older one read."""
    options: dict[str, Any] = flags.FLAGS.flag_values_dict()
    check_together(*TOGETHER)
    if options["columns"] is not None:
        _evaluate_log(options)
        return None
    if options["scores"] is not None:
        command.collect_seldom()
        command.keep_freed_memory()
        # Neither help nor a refused flag needs what reads files.
        from prism_jax.runs.scores_files import evaluate_scores
        from prism_jax.scores.joining import find_log

        point = OperatingPoint(**{name: options[name] for name in POINT})
        if (log := find_log(options["scores"])) is not None:
            from prism_jax.report.answers.looking import refuse_log

            given = [f"--{name}={options[name]:g}" for name in ("c_fa", "c_fn") if flags.FLAGS[name].present]
            refuse_log(log, options["scores"], [f"--workdir={options['workdir'] or 'out'}", *given])
        evaluate_scores(
            options["scores"],
            epath.Path(_workdir(options)),
            point,
            shown_only=options["shown_only"],
            calibrator=options["calibrator"],
            calibration=options["calibration"],
            running=Running.of_flags(),
        )
        return None
    workdir = _workdir(options)
    from prism_jax.runtime.dataclass_config import from_config_dict
    from prism_jax.training.run_config import RunConfig
    from prism_jax.training.workdir import Workdir

    if options["config"] is None:
        Workdir(workdir).expect_run()
    # What follows loads a language model and all that it needs.
    from prism_jax.runs import pipeline

    if options["config"] is None:
        return pipeline.evaluate_workdir(workdir, texts=options["texts"], base=options["base"])
    config = from_config_dict(RunConfig, options["config"])
    if options["expect_digest"] is not None:
        digests.check_export(config.training.start, options["expect_digest"])
    pipeline.evaluate_untrained(config, Workdir(workdir), texts=options["texts"])
    return None


def _workdir(options: dict[str, Any]) -> str:
    if options["workdir"] is None:
        raise ValueError("--workdir: found no value, expected a folder for the results (see --help)")
    return options["workdir"]


def _evaluate_log(options: dict[str, Any]) -> None:
    command.collect_seldom()
    command.keep_freed_memory()
    from prism_jax.evaluation.answers.columns import parse_columns
    from prism_jax.evaluation.answers.findings import Question
    from prism_jax.runs.answers import evaluate_log

    point = OperatingPoint(c_fa=options["c_fa"], c_fn=options["c_fn"])
    evaluate_log(
        options["scores"],
        parse_columns(options["columns"], options["time_format"], options["target"]),
        _workdir(options),
        Question(point.c_fa, point.c_fn, options["context"], options["weighted"], options["seed"]),
        shown_only=options["shown_only"],
        scores_out=options["scores_out"],
        keep_names=options["keep_names"],
        running=Running.of_flags(),
    )


if __name__ == "__main__":
    define_flags()
    command.start(main)
