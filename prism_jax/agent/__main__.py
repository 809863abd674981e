"""Decides on live streams: `python -m prism_jax.agent --model=DIR --input=FILE|- [--records=FILE]`.

DIR is what `prism_jax.export` wrote; --expect_digest=SHA256 says which export it must be (docs/export.md). Each line of
the input is an event or the outcome of an offer; each event leads to one decision record, on standard output or in FILE
(docs/agent.md). A restart with the same input and FILE resumes where the records end. With --replay=RECORDS, decisions
are computed again from a log, without a model.
"""

from __future__ import annotations

from absl import flags

from prism_jax.agent.serving import define_asking_flags, replay_records, serve
from prism_jax.decision.operating_point import SLOW_TRIGGERS
from prism_jax.decision.policies import DEPLOYABLE
from prism_jax.runtime import command, digests, distributed
from prism_jax.runtime.command import refuse_empty


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("model", None, "Directory of an exported model, or workdir of a trained run.")
    flags.DEFINE_string("input", None, "File of JSON lines with events and outcomes; - is standard input.")
    flags.DEFINE_string("records", None, "File to append decision records to; by default they go to standard output.")
    flags.DEFINE_string("replay", None, "File of decision records to decide on again, without a model.")
    flags.DEFINE_string("calibration", None, "With --replay: calibration.json to apply.")
    for name in ("c_fa", "c_fn", "margin", "fixed_threshold", "price"):
        flags.DEFINE_float(name, None, f"{name} of the operating point, instead of the exported one.")
    flags.DEFINE_enum("policy", None, DEPLOYABLE, "Policy, instead of the exported one.")
    flags.DEFINE_enum("trigger", None, SLOW_TRIGGERS, "What triggers the slow pass, instead of the exported trigger.")
    for kind, what in (("offers", "Interruption"), ("thoughts", "Slow")):
        flags.DEFINE_integer(f"most_{kind}", None, f"{what} budget of a stream: most {kind} in a window.")
        flags.DEFINE_float(f"{kind}_window", 3600.0, f"Window of the budget of {kind}, in seconds.")
    flags.DEFINE_multi_string("critical_text", [], "Text of an event that always leads to an offer.")
    flags.DEFINE_multi_string("critical_pattern", [], "Regular expression for the whole text of such an event.")
    flags.DEFINE_float("explore", None, "Probability of the other decision near the boundary; by default off.")
    flags.DEFINE_float("explore_loss", 0.1, "Largest expected loss of such a decision, in the unit of the costs.")
    flags.DEFINE_integer("seed", 0, "Seed of the exploration.")
    flags.DEFINE_string("people", None, "Store of what is known of people; it is made where it is missing.")
    flags.DEFINE_string(
        "population", None, "Parameters of the person layer, for a new store (`prism_jax person --fit_population`)."
    )
    flags.DEFINE_bool("optimism", True, "Count doubt about a person in favour of an offer where silence is cheap.")
    flags.DEFINE_bool("recalibrate", False, "Let everybody's answers move the map to personal probabilities.")
    flags.DEFINE_float("alarm", 0.05, "Probability that an alarm ever rings without reason; 0 watches nobody.")
    flags.DEFINE_bool("redact", True, "Cut personal data and secrets from the texts of records.")
    flags.DEFINE_bool("keep_texts", False, "Keep the events' texts in the records.")
    flags.DEFINE_bool("skip_bad", False, "Report and skip bad lines instead of stopping at the first.")
    flags.DEFINE_integer("batch", 256, "Most lines to decide on together.", lower_bound=1)
    flags.DEFINE_integer("context", None, "Most tokens up to the end of one decision.")
    flags.DEFINE_integer("memory", None, "Bytes for the trunks of live streams.")
    flags.DEFINE_float("keep", None, "Largest share of the context in use after old events of a stream were dropped.")
    define_asking_flags()
    flags.DEFINE_string("gate", None, "With --engine or --decisions: gate.json with maps, costs and policy.")
    flags.DEFINE_bool("jitter", None, "Print what cache and slot move at the engine, and decide on nothing.")
    distributed.define_cache_flag()
    digests.define_flag("--model")
    refuse_empty("model", "input", "records", "replay", "calibration", "people", "population", "engine", "decisions")
    flags.DEFINE_enum("dtype", None, ["float32", "bfloat16"], "Dtype of the parameters.")


def main() -> None:
    """Runs what the flags say."""
    options = flags.FLAGS.flag_values_dict()
    (serve if options["replay"] is None else replay_records)(options)


if __name__ == "__main__":
    define_flags()
    command.start(main)
