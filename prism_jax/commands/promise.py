"""Finds gates that keep promises for new people.

    python -m prism_jax promise --scores=FILE --promise="false_alarms<=0.05" [--promise="missed_help<=0.2"]
        [--promise_level=0.9] [--c_fa=1 --c_fn=2] [--policy=dynamic --policy=static] [--margin=0 --margin=0.1]
        [--test_share=0.3] [--calibration=FILE] [--shown_only] [--out=FILE.json] [--workers=N] [--runner=ray]
    python -m prism_jax promise --scores=LOG --columns=person=NAME,accepted=NAME,score=NAME --promise="dismissals<=20%"

Certified on the people (or streams) of the calibration split and measured on those of the test split; of scores
without splits, such as a log of answers, --test_share of the people are measured (docs/promises.md). Prints the
certified cost ratios, the one nearest to the stated costs, and the speak rate it leaves. Several policies or slow
margins are promised at once, and the one of lowest cost is named.
"""

from __future__ import annotations

from absl import flags

from prism_jax.decision.calibration import CALIBRATORS, OF_SCORES
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.policies import promised_policies
from prism_jax.evaluation.answers import written_times
from prism_jax.runs.running import MOST_EXACT_ROWS, RUNNERS, Running
from prism_jax.runtime import command
from prism_jax.runtime.command import refuse_empty


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string(
        "scores",
        None,
        "Scores with the splits calibration and test, or none: a file, .parquet or .jsonl, a folder or a glob.",
    )
    flags.DEFINE_list(
        "columns", None, "Of a log of answers, .csv or .parquet, as --scores: person=NAME,accepted=NAME,score=NAME…"
    )
    written_times.define_flag()
    flags.DEFINE_bool("shown_only", False, "Leave out the offers that were not made, and say so.")
    flags.DEFINE_multi_string("promise", None, "RISK<=LIMIT, also in percent; several are kept together.")
    flags.DEFINE_float("promise_level", 0.9, "Probability with which they hold.", 0.5, 0.9999)
    flags.DEFINE_float("c_fa", OperatingPoint.c_fa, "C_FA, the cost of an offer that is not accepted.")
    flags.DEFINE_float("c_fn", OperatingPoint.c_fn, "C_FN, the cost of missed help; the gate comes as near as allowed.")
    flags.DEFINE_multi_enum(
        "policy", [OperatingPoint.policy], promised_policies(), "The rule that decides; several are promised at once."
    )
    flags.DEFINE_multi_float(
        "margin", [0.0], "Slow margin of dynamic, which needs slow signals; several are promised at once.", 0.0, 1.0
    )
    flags.DEFINE_enum("calibrator", None, CALIBRATORS, f"The map of every signal, by default {OF_SCORES}.")
    flags.DEFINE_string("calibration", None, "calibration.json of other people, to apply instead of fitting one.")
    flags.DEFINE_float(
        "start",
        None,
        "Cost ratio at which the tests of false_discovery and dismissals begin, fixed beforehand; by default limit / "
        "(1 - limit), which suits false_discovery with the policy product only.",
        1e-6,
        1e6,
    )
    flags.DEFINE_float(
        "test_share",
        0.0,
        "Of scores without splits, or with --calibration: share of the (test) people to measure.",
        0.0,
        0.9,
    )
    flags.DEFINE_string("out", None, "JSON file for the result.")
    flags.DEFINE_enum("runner", "local", RUNNERS, "What reads parts, processes here or a Ray cluster.")
    flags.DEFINE_integer(
        "workers",
        None,
        f"Of more than {MOST_EXACT_ROWS:,} rows, which are read part by part, with maps of histograms of the "
        "signals: how many parts at once; by default all processors.",
        lower_bound=1,
    )
    flags.mark_flags_as_required(["scores", "promise"])
    refuse_empty("scores", "calibration", "out")


def main() -> None:
    """Certifies and prints."""
    from prism_jax.runs.promising import families_of, promise_scores  # more than the flags need

    options = flags.FLAGS
    promise_scores(
        options.scores,
        options.promise,
        OperatingPoint(c_fa=options.c_fa, c_fn=options.c_fn),
        level=options.promise_level,
        families=families_of(options.policy, options.margin),
        calibrator=options.calibrator,
        calibration=options.calibration,
        start=options.start,
        test_share=options.test_share,
        columns=options.columns,
        time_format=options.time_format,
        shown_only=options.shown_only,
        out=options.out,
        running=Running(options.runner, options.workers),
    )


if __name__ == "__main__":
    define_flags()
    command.start(main)
