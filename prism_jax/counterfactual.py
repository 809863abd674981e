"""What another gate would have cost, from a log of the gate that ran: `python -m prism_jax.counterfactual --log=FILE`.

    python -m prism_jax.counterfactual --records=records.jsonl --c_fa=1 --c_fn=4
    python -m prism_jax.counterfactual --scores=scores.parquet --target=COLUMN
    python -m prism_jax.counterfactual --log=log.csv
        --columns=person=who,accepted=took,logged=shown,propensity=e,score=p --c_fn=4

The target policy is the gate at the given costs, or a column with its probability of an offer. The log must give the
probability with which each offer was made. What it cannot tell is an error that says why (docs/counterfactual.md).
"""

from __future__ import annotations

from absl import flags

from prism_jax.recipes import counterfactual
from prism_jax.recipes.counterfactual import Settings
from prism_jax.runtime import command
from prism_jax.runtime.flag_checks import refuse_empty


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("records", None, "Decision records of prism_jax.agent.")
    flags.DEFINE_string("scores", None, "Scores table with logged, propensity and y_accept.")
    flags.DEFINE_string("log", None, "Acceptance log, .csv or .parquet, with --columns.")
    flags.DEFINE_list("columns", [], "For --log: person=COLUMN,accepted=..,logged=..,propensity=..[,score=..].")
    flags.DEFINE_string("target", None, "Column with the target policy's probability of an offer; default: the gate.")
    flags.DEFINE_string("calibration", None, "calibration.json that calibrates the signals of records and scores.")
    flags.DEFINE_float("c_fa", Settings.c_fa, "C_FA of the target gate and of the costs.", 1e-6)
    flags.DEFINE_float("c_fn", Settings.c_fn, "C_FN of the target gate and of the costs.", 1e-6)
    flags.DEFINE_float("most_uncovered", Settings.most_uncovered, "Share of offers that may be unknown.", 0, 1)
    flags.DEFINE_float("least_effective", Settings.least_effective, "Smallest effective number of offers.", 0)
    flags.DEFINE_string("out", None, "Folder for the tables as CSV, Markdown and LaTeX.")
    refuse_empty("records", "scores", "log", "target", "calibration", "out")
    flags.mark_flags_as_mutual_exclusive(["records", "scores", "log"], required=True)


def main() -> None:
    """Runs what the flags say."""
    given = flags.FLAGS
    settings = Settings(given.c_fa, given.c_fn, given.most_uncovered, given.least_effective)
    if given.log and given.calibration:
        raise ValueError(
            "--calibration: found it with --log, expected it with --records or --scores: a log's score is "
            "taken as it is"
        )
    if given.columns and not given.log:
        raise ValueError("--columns: found it without --log, expected the acceptance log there")
    if given.log:
        decisions = counterfactual.of_log(given.log, given.columns, settings, target=given.target)
    else:
        decisions = counterfactual.of_scores(
            given.records or given.scores,
            settings,
            target=given.target,
            calibration=given.calibration,
            records=bool(given.records),
        )
    counterfactual.run(decisions, settings, given.out)


if __name__ == "__main__":
    define_flags()
    command.start(main)
