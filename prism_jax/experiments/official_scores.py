r"""ProactiveBench's own scores of traces, with the published script's quirks and without them.

    python -m prism_jax.experiments official_scores --traces=DIR/eval/traces_new \
      --splits=DIR/dataset/test_data/splits.json --published=DIR/eval/results

DIR has the layout of the repository thunlp/ProactiveAgent. --published checks the published scores: the counts that
give their decimals, and whether the traces can have led to them. For scores, name one judge: --votes and --judges
(verdicts of `prism_jax.judge` on the streams that --streams_out writes), --judged_by (verdicts in the files themselves)
or --labels (people's votes, where a proposal is one that they were shown). See docs/official_scores.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from absl import flags

from prism_jax.judges.config import JudgesConfig
from prism_jax.recipes.official_scores import score_official
from prism_jax.report.table import Table
from prism_jax.runtime import command
from prism_jax.runtime.flag_checks import refuse_empty
from prism_jax.streams.proactivebench import Need


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_string("traces", None, "Folder of traces, or of one such folder per model.")
    flags.DEFINE_string("splits", None, "File splits.json with the streams of each category; by default all streams.")
    flags.DEFINE_string("published", None, "Folder of published scores, MODEL.csv, to check.")
    flags.DEFINE_string("votes", None, "File of verdicts that prism_jax.judge wrote.")
    flags.DEFINE_list("judges", [], "Whose verdicts of --votes count; the majority of several.")
    flags.DEFINE_integer("most_events", JudgesConfig.most_events, "The judges' setting of that name.", lower_bound=1)
    flags.DEFINE_string("judged_by", None, "Name of the judge whose verdicts the trace files hold.")
    flags.DEFINE_string("labels", None, "Folder with ProactiveBench's repository; people's votes are the verdicts.")
    flags.DEFINE_enum("need", "strict", get_args(Need), "Definition of need, for people's verdicts on silence.")
    flags.DEFINE_string("data_dir", None, "Folder in which prepared data is cached; ~/tensorflow_datasets if unset.")
    flags.DEFINE_string("streams_out", None, "Folder for streams that prism_jax.judge can read, MODEL.jsonl.")
    flags.DEFINE_string("out", None, "Folder for the scores as CSV, in the published format.")
    flags.mark_flags_as_required(["traces"])
    refuse_empty("traces", "splits", "published", "votes", "judged_by", "labels", "data_dir", "streams_out", "out")


def main() -> Iterable[Table]:
    """Checks published scores, and scores traces."""
    return score_official(flags.FLAGS.flag_values_dict())


if __name__ == "__main__":
    command.moved("experiments official_scores")
