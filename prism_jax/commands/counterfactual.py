"""What another gate would have cost, from a log of the gate that ran.

    python -m prism_jax counterfactual --records=records.jsonl --c_fa=1 --c_fn=4
    python -m prism_jax counterfactual --scores=scores.parquet --target=COLUMN [--workers=N --runner=ray]
    python -m prism_jax counterfactual --log=log.csv
        --columns=person=who,accepted=took,logged=shown,propensity=e,score=p --c_fn=4 [--shown_only]

The target policy is the gate at the given costs, or a column with its probability of an offer. The log must give the
probability with which each offer was made. What it cannot tell is an error that says why (docs/counterfactual.md).
Scores tables of many rows are read part by part; records and logs with --columns are read as a whole.
"""

from __future__ import annotations

from absl import flags

from prism_jax.decision.off_policy import EstimateSettings
from prism_jax.evaluation.answers import written_times
from prism_jax.runs.running import OF_FILES, Running
from prism_jax.runtime import command
from prism_jax.runtime.command import check_together, refuse_empty


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("records", None, "Decision records of `agent`: a file, a folder or a glob.")
    flags.DEFINE_string("scores", None, "Scores with logged, propensity and y_accept: a file, a folder or a glob.")
    flags.DEFINE_string("log", None, "Acceptance log, .csv or .parquet, with --columns.")
    flags.DEFINE_list(
        "columns", [], "Of a log (--log, or --scores): person=COLUMN,accepted=..,logged=..,propensity=..[,score=..]."
    )
    written_times.define_flag()
    flags.DEFINE_bool("shown_only", False, "Of a log without propensities: leave out the offers that were not made.")
    flags.DEFINE_string(
        "target",
        None,
        "Target policy: a column with its probability of an offer, or, of a log, a condition such as 'confidence>=59'; "
        "default: the gate.",
    )
    flags.DEFINE_string("calibration", None, "calibration.json that calibrates the signals of records and scores.")
    flags.DEFINE_float("c_fa", EstimateSettings.c_fa, "C_FA of the target gate and of the costs.", 1e-6)
    flags.DEFINE_float("c_fn", EstimateSettings.c_fn, "C_FN of the target gate and of the costs.", 1e-6)
    flags.DEFINE_float("most_uncovered", EstimateSettings.most_uncovered, "Share of offers that may be unknown.", 0, 1)
    flags.DEFINE_float("least_effective", EstimateSettings.least_effective, "Smallest effective number of offers.", 0)
    flags.DEFINE_float(
        "least_changes", EstimateSettings.least_changes, "The same of offers that tell the policies apart.", 0
    )
    flags.DEFINE_string("workdir", None, "Folder for the tables as CSV, Markdown and LaTeX.")
    Running.define_flags()
    refuse_empty("records", "scores", "log", "target", "calibration", "workdir")
    flags.mark_flags_as_mutual_exclusive(["records", "scores", "log"], required=True)


def main() -> None:
    """Runs what the flags say."""
    options = flags.FLAGS
    settings = EstimateSettings(
        options.c_fa, options.c_fn, options.most_uncovered, options.least_effective, least_changes=options.least_changes
    )
    log = options.log or (options.scores if options.columns else None)
    check_together(
        "columns with records: a log as --log or --scores",
        "time_format shown_only without log columns: a log, as --scores with its columns",
        "calibration with log columns: it with records or a scores table: a log's score is taken as it is",
        f"{' '.join(OF_FILES)} with log columns records: it with a scores table: others are read as a whole",
    )
    from prism_jax.evaluation.answers.columns import parse_columns  # what reads files takes more than the flags
    from prism_jax.runs import counterfactual

    signals = {"target": options.target, "calibration": options.calibration}
    if log:
        columns = parse_columns(options.columns, options.time_format, options.target)
        decisions = counterfactual.of_log(log, columns, settings, shown_only=options.shown_only)
    elif options.records:
        decisions = counterfactual.of_scores(options.records, settings, records=True, **signals)
    else:
        running = Running.of_flags()
        return counterfactual.estimate_scores(options.scores, settings, out=options.workdir, running=running, **signals)
    counterfactual.write_tables(counterfactual.estimate_decisions(decisions, settings), settings, options.workdir)


if __name__ == "__main__":
    define_flags()
    command.start(main)
