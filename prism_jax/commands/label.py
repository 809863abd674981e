"""Labels streams by a teacher, or imports answers, or an agent's records (docs/distillation.md).

    python -m prism_jax label --config=configs/teacher.py --streams=IN --out=OUT [--workers=16] [--dry_run]
    python -m prism_jax label --recorded=DIR --out=OUT [--text_calibrator=FILE]
    python -m prism_jax label --sharegpt=FILE --out=OUT [--text_calibrator=FILE]
    python -m prism_jax label --streams=IN --text_calibrator=FILE --out=OUT
    python -m prism_jax label --records=FILE --out=OUT
    python -m prism_jax label --source=CHECKOUT --agent_data=[DOMAIN=]FILE --workdir=FOLDER [--calibration_share=0.1]
    python -m prism_jax label --agent --config=configs/teacher.py --source=CHECKOUT [--streams=IN] --workdir=FOLDER

IN and OUT have one stream per line (JSONL). The first asks a teacher about the streams of IN and writes what it would
propose at each step, its probabilities, fields of the slow pass and, where it would speak, responses. Offers that IN
lists are dropped; --config.prompt.offers=given has them judged instead. --dry_run says what labelling would cost. The
others ask nobody: they read what models answered elsewhere, and --text_calibrator fills in the probabilities that its
texts tell. --records turns an agent's records into streams to train on (docs/agent.md), with texts where the agent ran
with --keep_texts. --agent_data writes streams of ProactiveBench's own files into a folder: train.jsonl and
calibration.jsonl from its training data in chat form, test.jsonl from its test events, all without answers, and
human.jsonl with people's votes. --agent prompts the config's endpoint as ProactiveBench's agent, and writes its answers
as a folder of traces, such as eval/traces_new/NAME (docs/proactivebench.md). Nothing is cut from what it sends then,
personal data included.
"""

from __future__ import annotations

import dataclasses

from absl import flags
from etils import epath
from ml_collections import config_flags

from prism_jax.runtime import command
from prism_jax.runtime.command import refuse_empty
from prism_jax.runtime.dataclass_config import from_config_dict
from prism_jax.runtime.files import check_outputs

SOURCES = {
    "streams": "Streams to label, one per line (JSONL).",
    "recorded": "Folder of recorded answers, MODEL/STREAM.json, as ProactiveBench's eval/traces_new has them.",
    "sharegpt": "File of conversations with answers, as LLaMA-Factory trains on them (JSON or JSONL).",
}


def define_flags() -> None:
    """Defines the flags."""
    config_flags.DEFINE_config_file("config", None, "A file of configs/; --config.x.y=value overrides a setting.")
    for name, meaning in SOURCES.items():
        flags.DEFINE_string(name, None, meaning)
    flags.DEFINE_string("records", None, "Decision records of an agent.")
    flags.DEFINE_bool("agent", False, "Prompt the endpoint as ProactiveBench's agent, and write traces.")
    flags.DEFINE_string(
        "source",
        None,
        "Checkout of ProactiveBench: with --agent its prompt and, without --streams, its streams; else its own files.",
    )
    flags.DEFINE_multi_string(
        "agent_data", [], "With --source: training data in chat form, FILE or DOMAIN=FILE; may be repeated."
    )
    flags.DEFINE_float("calibration_share", 0.1, "With --agent_data: share of its streams that calibrate.", 0.0, 1.0)
    flags.DEFINE_string("text_calibrator", None, "File of a text calibrator that fills in missing probabilities.")
    flags.DEFINE_string("out", None, "File of labelled streams to write.")
    flags.DEFINE_string("workdir", None, "In its place, with --agent and --agent_data: folder to write.")
    flags.DEFINE_string("rows_out", None, "File of questions and answers to write; by default beside the output.")
    flags.DEFINE_integer("workers", None, "Most requests under way at once, instead of the config's number.", 1)
    flags.DEFINE_bool("dry_run", False, "Send nothing, and say how much would be sent and what it would cost.")
    refuse_empty(*SOURCES, "records", "source", "text_calibrator", "out", "workdir", "rows_out")
    flags.mark_flags_as_mutual_exclusive([*SOURCES, "records"])


def check(options: flags.FlagValues) -> None:
    """Raises ValueError for flags that do not belong together."""
    if options.agent:
        if options.config is None or (options.streams is None and options.source is None):
            raise ValueError("--agent: expected it with --config, the endpoint to prompt, and --source or --streams")
        for name in ("recorded", "sharegpt", "records", "text_calibrator", "agent_data"):
            if options[name].value:
                raise ValueError(f"--{name}: found it with --agent, expected --source or --streams")
        return
    if (options.source is None) != (not options.agent_data):
        raise ValueError("--source: expected it with --agent, or with --agent_data, the training data of the checkout")
    if options.agent_data:
        for name in (*SOURCES, "records", "config", "text_calibrator", "rows_out", "workers", "dry_run"):
            if options[name].present:
                raise ValueError(f"--{name}: found it with --agent_data, expected --source alone")
        return
    if all(options[name].value is None for name in (*SOURCES, "records")):
        raise ValueError(f"flags: found no source, expected one of --{', --'.join((*SOURCES, 'records'))}, or --agent")
    if options.records is not None:
        for name in ("config", "text_calibrator", "rows_out", "workers", "dry_run"):
            if options[name].value:
                raise ValueError(f"--{name}: found it with --records, expected it with other sources only")
        return
    import_flag = next((name for name in SOURCES if name != "streams" and options[name].value is not None), None)
    if import_flag and options.config is not None:
        raise ValueError(
            f"--config: found it with --{import_flag}, expected --streams: import first, then label the file"
        )
    if not import_flag and (options.config is None) == (options.text_calibrator is None):
        raise ValueError("--streams: expected it with either --config, the teacher to ask, or --text_calibrator")
    for name in ("rows_out", "workers", "dry_run"):
        if options.config is None and options[name].value:
            raise ValueError(f"--{name}: found it without --config, expected a teacher to ask")


def _check_paths(options: flags.FlagValues) -> None:
    """Raises ValueError unless the one flag that says where results go is there, and for a file written over."""
    of_folders = options.agent or bool(options.agent_data)
    needed, other = ("workdir", "out") if of_folders else ("out", "workdir")
    if options[needed].value is None:
        raise ValueError(f"--{needed}: found no value, expected {'a folder' if of_folders else 'a file'} to write")
    if options[other].value is not None:
        raise ValueError(f"--{other}: found it beside --{needed}, expected --{needed} alone here")
    rows = _rows_of(options) if options.config is not None else None
    inputs = {name: options[name].value for name in (*SOURCES, "records", "text_calibrator")}
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
    if options.agent_data and not options.agent:
        from prism_jax.proactivebench.checkout import write_checkout  # reads votes with tensorflow_datasets

        files: dict[str, list[str]] = {}
        for text in options.agent_data:
            domain, named, path = text.partition("=")
            files.setdefault(domain if named else "unknown", []).append(path if named else text)
        print("\n".join(write_checkout(options.source, files, options.workdir, options.calibration_share)))
        return
    if options.records is not None:
        from prism_jax.agent.records_streams import streams_from_records  # labelling needs no agent

        print(streams_from_records(options.records, options.out))
        return
    # Neither help nor a refused flag needs what asks or reads answers.
    from prism_jax.commands.labelling import estimate, import_streams, label_file
    from prism_jax.teacher.labelling import TeacherConfig

    if options.config is None:
        (layout,) = (name for name in SOURCES if options[name].value is not None)
        imported = import_streams(layout, options[layout].value, options.out, options.text_calibrator)
        print("\n".join((*imported.lines(), f"written: {options.out}")))
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
    command.start(main)
