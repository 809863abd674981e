"""Writes the agent's records as traces in the layout of ProactiveBench, which the official scripts read.

    python -m prism_jax.experiments.export_traces --records=records.jsonl --out=eval/traces_new/NAME

--streams names the streams that the agent was given, for the texts of their events; without it, the agent must have run
with --keep_texts. An offer of a listed candidate is its text, another one what the response proposes.
"""

from __future__ import annotations

from absl import flags

from prism_jax.recipes.trace_export import export_traces
from prism_jax.runtime import command
from prism_jax.runtime.flag_checks import refuse_empty


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_string("records", None, "File of decision records that prism_jax.agent wrote.")
    flags.DEFINE_string("streams", None, "File of the streams that the agent was given.")
    flags.DEFINE_string("out", None, "Folder to create, with one file per stream.")
    flags.mark_flags_as_required(["records", "out"])
    refuse_empty("records", "streams", "out")


def main() -> None:
    """Writes the traces and says what they hold."""
    options = flags.FLAGS
    traces = export_traces(options.records, options.out, options.streams)
    events = [event for trace in traces.values() for event in trace]
    offers = sum(bool(event.answer) for event in events)
    print(f"{options.out}: {len(traces)} streams, {len(events)} events, {offers} offers")


if __name__ == "__main__":
    define_flags()
    command.start(main)
