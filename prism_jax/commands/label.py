"""Labels streams by a teacher, or by the texts of answers (docs/distillation.md).

    python -m prism_jax label --config=configs/teacher.py --streams=IN --out=OUT [--workers=16] [--dry_run]
    python -m prism_jax label --streams=IN --text_calibrator=FILE --out=OUT
    python -m prism_jax label --agent --config=configs/teacher.py --source=CHECKOUT [--streams=IN] --workdir=FOLDER

IN and OUT have one stream per line (JSONL); `python -m prism_jax import` makes such a file of what others recorded. The
first asks a teacher about the streams of IN and writes what it would propose at each step, its probabilities, fields of
the slow pass and, where it would speak, responses. Offers that IN lists are dropped; --config.prompt.offers=given has
them judged instead. --dry_run says what labelling would cost. The second asks nobody: --text_calibrator fills in the
probabilities that the texts of answers tell. --agent prompts the config's endpoint as ProactiveBench's agent, and
writes its answers as a folder of traces, such as eval/traces_new/NAME (docs/proactivebench.md). Nothing is cut from
what it sends then, personal data included.
"""

from __future__ import annotations

import dataclasses

from absl import flags
from etils import epath
from ml_collections import config_flags

from prism_jax.runtime import command
from prism_jax.runtime.command import check_together, refuse_empty
from prism_jax.runtime.dataclass_config import from_config_dict
from prism_jax.runtime.files import check_outputs

MOVED = {
    **{name: f"import --from={name} --source" for name in ("recorded", "sharegpt", "records")},
    "agent_data": "import --from=proactivebench --source=CHECKOUT --agent_data",
}
"""What reads files of others, by its name among the flags of this command in earlier versions."""

_TOGETHER = (
    "text_calibrator with agent: --source or --streams",
    "source without agent: --streams (`import` makes them of a source)",
    "out with agent: --workdir, the folder of the traces",
    "workdir without agent: --out, the file to write",
    "rows_out workers dry_run without config: a teacher to ask",
)


def define_flags() -> None:
    """Defines the flags."""
    config_flags.DEFINE_config_file("config", None, "A file of configs/; --config.x.y=value overrides a setting.")
    flags.DEFINE_string("streams", None, "Streams to label, one per line (JSONL).")
    flags.DEFINE_bool("agent", False, "Prompt the endpoint as ProactiveBench's agent, and write traces.")
    flags.DEFINE_string(
        "source", None, "With --agent: checkout of ProactiveBench, for its prompt and, without --streams, its streams."
    )
    flags.DEFINE_string("text_calibrator", None, "File of a text calibrator that fills in missing probabilities.")
    flags.DEFINE_string("out", None, "File of labelled streams to write.")
    flags.DEFINE_string("workdir", None, "In its place, with --agent: folder to write.")
    flags.DEFINE_string("rows_out", None, "File of questions and answers to write; by default beside the output.")
    flags.DEFINE_integer("workers", None, "Most requests under way at once, instead of the config's number.", 1)
    flags.DEFINE_bool("dry_run", False, "Send nothing, and say how much would be sent and what it would cost.")
    refuse_empty("streams", "source", "text_calibrator", "out", "workdir", "rows_out")


def check(options: flags.FlagValues) -> None:
    """Raises ValueError for flags that do not belong together."""
    if options.agent and (options.config is None or (options.streams is None and options.source is None)):
        raise ValueError("--agent: expected it with --config, the endpoint to prompt, and --source or --streams")
    check_together(*_TOGETHER, options=options.flag_values_dict())
    if options.agent:
        return
    if options.streams is None:
        raise ValueError("--streams: found no value, expected streams to label, or --agent with --source")
    if (options.config is None) == (options.text_calibrator is None):
        raise ValueError("--streams: expected it with either --config, the teacher to ask, or --text_calibrator")


def _check_paths(options: flags.FlagValues) -> None:
    """Raises ValueError unless the one flag that says where results go is there, and for a file written over."""
    needed = "workdir" if options.agent else "out"
    if options[needed].value is None:
        raise ValueError(f"--{needed}: found no value, expected {'a folder' if options.agent else 'a file'} to write")
    rows = _rows_of(options) if options.config is not None else None
    inputs = {name: options[name].value for name in ("streams", "text_calibrator")}
    check_outputs({needed: options[needed].value, "rows_out": rows}, inputs)


def _rows_of(options: flags.FlagValues) -> epath.Path:
    out = epath.Path(options.workdir or options.out)
    beside = out.with_name(f"{out.name}.rows.jsonl") if options.agent else out.with_suffix(".rows.jsonl")
    return epath.Path(options.rows_out or beside)


def main() -> None:
    """Runs what the flags say."""
    options = flags.FLAGS
    check(options)
    _check_paths(options)
    # Neither help nor a refused flag needs what asks or reads answers.
    from prism_jax.commands.labelling import estimate, fill_file, label_file
    from prism_jax.labelling.teacher.labelling import TeacherConfig

    if options.config is None:
        print("\n".join(fill_file(options.streams, options.text_calibrator, options.out)))
        return
    config, output = from_config_dict(TeacherConfig, options.config), epath.Path(options.workdir or options.out)
    if options.workers is not None:
        config = dataclasses.replace(config, endpoint=dataclasses.replace(config.endpoint, concurrency=options.workers))
    check_outputs(
        {"workdir" if options.agent else "out": output, "rows_out": _rows_of(options)},
        {"config.remote.cache": config.remote.cache},
    )
    if options.agent:
        from prism_jax.proactivebench.prompted import prompt_agent  # labelling needs no agent

        source, streams, rows = options.source, options.streams, _rows_of(options)
        print("\n".join(prompt_agent(config, source, streams, output, rows, dry_run=options.dry_run)))
        return
    if options.dry_run:
        summary = estimate(config, epath.Path(options.streams))
    else:
        rows = _rows_of(options)
        summary = label_file(config, epath.Path(options.streams), output, rows)
        print(f"labelled {summary.streams:,} streams, {summary.steps:,} questions: {output}; answers: {rows}")
        for problem, count in summary.missing.most_common(5):
            print(f"  missing {count:,}: {problem}")
    print("\n".join(summary.lines))


if __name__ == "__main__":
    define_flags()
    command.start(main, moved=MOVED)
