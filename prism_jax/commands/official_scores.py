r"""ProactiveBench's own scores of traces, with the published script's quirks and without them.

    python -m prism_jax official_scores --traces=DIR/eval/traces_new \
      --splits=DIR/dataset/test_data/splits.json --published=DIR/eval/results

DIR has the layout of the repository thunlp/ProactiveAgent. --published checks the published scores: the counts that
give their decimals, and whether the traces can have led to them. For scores, name one judge: --votes and --judges
(verdicts of `judge` on DIR/streams of --workdir=DIR), --judged_by (verdicts in the files themselves) or --labels
(people's votes, where a proposal is one that they were shown). See docs/proactivebench.md.

    python -m prism_jax official_scores --records=records.jsonl --workdir=eval/traces_new/NAME [--streams=FILE]

This writes an agent's records as such traces, which the official scripts read too. --streams names the streams that the
agent was given, for the texts of their events; without it, the agent must have run with --keep_texts. An offer of a
listed candidate is its text, another one what the response proposes. With --taught=FILE in place of --records, streams
that `label` wrote become the traces of what their teacher did.

    python -m prism_jax official_scores --written=FILES --scores=FILES --calibration=DIR/calibration.json --workdir=NEW

This writes what the policy of an evaluation in DIR did on streams that were scored: the texts that the student wrote
where it speaks.
"""

from __future__ import annotations

from typing import get_args

from absl import flags

from prism_jax.labelling.judges.prompts import MOST_EVENTS
from prism_jax.runtime import command
from prism_jax.runtime.command import check_together, refuse_empty
from prism_jax.streams.proactivebench_source import Need

SOURCES: dict[str, tuple[str, ...]] = {
    "traces": (
        *("splits", "published", "votes", "judges", "prompt", "most_events", "judged_by", "labels", "need", "data_dir"),
    ),
    "records": ("streams",),
    "taught": (),
    "written": ("scores", "calibration"),
}
"""The flags of which each run has one, and those that go with each only."""


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_string("traces", None, "Folder of traces, or of one such folder per model.")
    flags.DEFINE_string("splits", None, "File splits.json with the streams of each category; by default all streams.")
    flags.DEFINE_string("published", None, "Folder of published scores, MODEL.csv, to check.")
    flags.DEFINE_string("votes", None, "File of verdicts that `judge` wrote.")
    flags.DEFINE_list("judges", [], "Whose verdicts of --votes count; the majority of several.")
    flags.DEFINE_string("prompt", None, "Which prompt's verdicts count, where --votes has several: ours, or official.")
    flags.DEFINE_integer("most_events", MOST_EVENTS, "The judges' setting of that name.", lower_bound=1)
    flags.DEFINE_string("judged_by", None, "Name of the judge whose verdicts the trace files hold.")
    flags.DEFINE_string("labels", None, "Folder with ProactiveBench's repository; people's votes are the verdicts.")
    flags.DEFINE_enum("need", "strict", get_args(Need), "Definition of need, for people's verdicts on silence.")
    flags.DEFINE_string("data_dir", None, "Folder in which prepared data is cached; ~/tensorflow_datasets if unset.")
    flags.DEFINE_string("records", None, "File of decision records of an agent, to write as traces.")
    flags.DEFINE_string("taught", None, "File of streams that a teacher labelled, to write what it did as traces.")
    flags.DEFINE_string("streams", None, "With --records: file of the streams that the agent was given.")
    flags.DEFINE_string("written", None, "Streams with what a student wrote, to write as traces: file, folder or glob.")
    flags.DEFINE_string("scores", None, "With --written: their scores, a file, a folder or a glob.")
    flags.DEFINE_string("calibration", None, "With --written: calibration.json of the evaluation whose policy decides.")
    flags.DEFINE_string(
        "workdir", None, "Folder for the traces; with --traces for scores/MODEL.csv and streams/MODEL.jsonl."
    )
    flags.mark_flags_as_mutual_exclusive(list(SOURCES), required=True)
    refuse_empty(*SOURCES, "streams", "splits", "published", "votes", "prompt", "judged_by", "labels", "data_dir")
    refuse_empty("workdir", "scores", "calibration")


def main() -> None:
    """Checks published scores and scores traces, or writes what an agent, a teacher or a student did as traces."""
    options = flags.FLAGS
    source = next(name for name in SOURCES if options[name].value is not None)
    check_together(
        *(
            f"{' '.join(names)} with {source}: it with --{of} only"
            for of, names in SOURCES.items()
            if names and of != source
        )
    )
    # Neither help nor a refused flag needs what reads files.
    from prism_jax.proactivebench.scoring import score_official
    from prism_jax.proactivebench.traces import export_taught, export_traces, export_written
    from prism_jax.report.table import print_all
    from prism_jax.streams.traces import fixed_turn

    if source == "traces":
        tables = score_official(options.flag_values_dict())
        if options.workdir:
            print(f"{options.workdir}/streams: streams for python -m prism_jax judge")
        if tables:
            print_all(tables)
        return
    if options.workdir is None:
        raise ValueError(f"--workdir: found none, expected the folder of the traces, with --{source}")
    if source == "taught":
        traces = export_taught(options.taught, options.workdir)
    elif source == "written":
        check_together("written without scores: their scores", "written without calibration: the policy that decides")
        traces = export_written(options.written, options.scores, options.calibration, options.workdir)
    else:
        traces = export_traces(options.records, options.workdir, options.streams)
    events = [event for trace in traces.values() for event in trace]
    offers = sum(bool(fixed_turn(event).proposals) for event in events)
    print(f"{options.workdir}: {len(traces)} streams, {len(events)} events, {offers} offers")


if __name__ == "__main__":
    define_flags()
    command.start(main)
