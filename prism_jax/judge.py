"""Judges streams: `python -m prism_jax.judge --config=configs/judges_paper.py --streams=IN --votes=VOTES --out=OUT`.

Every judge of the config says of each proposal, and of silence, whether the user would accept it now. VOTES holds each
verdict with its provenance, OUT the streams with the majority's labels (docs/judges.md). Started again, it asks
only what was not answered. With --human, --against or --baseline it also prints how far judges, panels and people
agree.
"""

from __future__ import annotations

from absl import flags
from ml_collections import config_flags

from prism_jax.judges.config import JudgesConfig
from prism_jax.recipes.judging import judge
from prism_jax.runtime import command
from prism_jax.runtime.config import from_config_dict
from prism_jax.runtime.flag_checks import refuse_empty


def define_flags() -> None:
    """Defines the flags."""
    config_flags.DEFINE_config_file("config", None, "A file of configs/; --config.x.y=value overrides a setting.")
    flags.DEFINE_string("streams", None, "Streams to judge, as JSON lines.")
    flags.DEFINE_string("votes", None, "File of verdicts to write; with --noask, to read.")
    flags.DEFINE_string("out", None, "File to write the labelled streams to.")
    flags.DEFINE_bool("ask", True, "Ask the judges; --noask only uses the verdicts that VOTES holds.")
    flags.DEFINE_bool("dry_run", False, "Estimate requests, tokens and cost; send and write nothing.")
    flags.DEFINE_string("human", None, "Streams with people's votes, to compare the judges with.")
    flags.DEFINE_multi_string("against", [], "Verdicts of another panel, to compare with; may be repeated.")
    flags.DEFINE_string("baseline", None, "Streams of another system on the same steps, to compare --streams with.")
    flags.DEFINE_float("c_fa", 1.0, "Cost of a rejected proposal, in the table of corrected numbers.")
    flags.DEFINE_float("c_fn", 2.0, "Cost of a rejected silence, in the table of corrected numbers.")
    flags.DEFINE_integer("resamples", 10_000, "Bootstrap resamples of streams.", lower_bound=1)
    refuse_empty("streams", "votes", "out", "human", "baseline")
    flags.mark_flags_as_required(["config", "streams", "votes"])


def main() -> None:
    """Runs what the flags say."""
    options = flags.FLAGS
    judge(from_config_dict(JudgesConfig, options.config), options.flag_values_dict())


if __name__ == "__main__":
    define_flags()
    command.start(main)
