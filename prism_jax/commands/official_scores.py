r"""ProactiveBench's own scores of traces, with the published script's quirks and without them.

    python -m prism_jax official_scores --traces=DIR/eval/traces_new \
      --splits=DIR/dataset/test_data/splits.json --published=DIR/eval/results

DIR has the layout of the repository thunlp/ProactiveAgent. --published checks the published scores: the counts that
give their decimals, and whether the traces can have led to them. For scores, name one judge: --votes and --judges
(verdicts of `prism_jax judge` on the streams that --streams_out writes), --judged_by (verdicts in the files themselves)
or --labels (people's votes, where a proposal is one that they were shown). See docs/proactivebench.md.

    python -m prism_jax official_scores --records=records.jsonl --out=eval/traces_new/NAME [--streams=FILE]

This writes an agent's records as such traces, which the official scripts read too. --streams names the streams that the
agent was given, for the texts of their events; without it, the agent must have run with --keep_texts. An offer of a
listed candidate is its text, another one what the response proposes.
"""

from __future__ import annotations

from typing import get_args

from absl import flags

from prism_jax.judges.judging import JudgesConfig
from prism_jax.proactivebench.scoring import score_official
from prism_jax.proactivebench.traces import export_traces
from prism_jax.report.table import print_all
from prism_jax.runtime import command
from prism_jax.runtime.command import refuse_empty
from prism_jax.streams.proactivebench import Need

OF_TRACES = (
    *("splits", "published", "votes", "judges", "prompt", "most_events", "judged_by", "labels", "need", "data_dir"),
    "streams_out",
)
"""Flags that go with --traces only."""


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_string("traces", None, "Folder of traces, or of one such folder per model.")
    flags.DEFINE_string("splits", None, "File splits.json with the streams of each category; by default all streams.")
    flags.DEFINE_string("published", None, "Folder of published scores, MODEL.csv, to check.")
    flags.DEFINE_string("votes", None, "File of verdicts that prism_jax judge wrote.")
    flags.DEFINE_list("judges", [], "Whose verdicts of --votes count; the majority of several.")
    flags.DEFINE_string("prompt", None, "Which prompt's verdicts count, where --votes has several: ours, or official.")
    flags.DEFINE_integer("most_events", JudgesConfig.most_events, "The judges' setting of that name.", lower_bound=1)
    flags.DEFINE_string("judged_by", None, "Name of the judge whose verdicts the trace files hold.")
    flags.DEFINE_string("labels", None, "Folder with ProactiveBench's repository; people's votes are the verdicts.")
    flags.DEFINE_enum("need", "strict", get_args(Need), "Definition of need, for people's verdicts on silence.")
    flags.DEFINE_string("data_dir", None, "Folder in which prepared data is cached; ~/tensorflow_datasets if unset.")
    flags.DEFINE_string("streams_out", None, "Folder for streams that prism_jax judge can read, MODEL.jsonl.")
    flags.DEFINE_string("records", None, "File of decision records of an agent, to write as traces.")
    flags.DEFINE_string("streams", None, "With --records: file of the streams that the agent was given.")
    flags.DEFINE_string(
        "out", None, "Folder for the scores as CSV, in the published format; with --records, for the traces."
    )
    flags.mark_flags_as_mutual_exclusive(["traces", "records"], required=True)
    names = (
        "traces",
        "records",
        "streams",
        "splits",
        "published",
        "votes",
        "prompt",
        "judged_by",
        "labels",
        "data_dir",
    )
    refuse_empty(*names, "streams_out", "out")


def main() -> None:
    """Checks published scores and scores traces, or writes records as traces."""
    options = flags.FLAGS
    refused = OF_TRACES if options.traces is None else ("streams",)
    for name in refused:
        if options[name].present:
            other, needed = ("records", "traces") if options.traces is None else ("traces", "records")
            raise ValueError(f"--{name}: found it with --{other}, expected it with --{needed} only")
    if options.records is None:
        print_all(score_official(options.flag_values_dict()))
        return
    if options.out is None:
        raise ValueError("--out: found none, expected the folder of the traces, with --records")
    traces = export_traces(options.records, options.out, options.streams)
    events = [event for trace in traces.values() for event in trace]
    offers = sum(bool(event.answer) for event in events)
    print(f"{options.out}: {len(traces)} streams, {len(events)} events, {offers} offers")


if __name__ == "__main__":
    define_flags()
    command.start(main)
