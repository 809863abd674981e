"""Labels streams by a teacher, or imports answers that exist already (docs/distillation.md).

    python -m prism_jax.label --config=configs/teacher.py --streams=IN --out=OUT [--dry_run]
    python -m prism_jax.label --recorded=DIR --out=OUT [--text_calibrator=FILE]
    python -m prism_jax.label --sharegpt=FILE --out=OUT [--text_calibrator=FILE]
    python -m prism_jax.label --streams=IN --text_calibrator=FILE --out=OUT

IN and OUT have one stream per line (JSONL). The first asks a teacher about the streams of IN and writes its
probabilities, fields of the slow pass and responses; --dry_run says what that would cost. The others ask nobody: they
read what models answered elsewhere, and --text_calibrator fills in the probabilities that its texts tell.
"""

from __future__ import annotations

from absl import flags
from etils import epath
from ml_collections import config_flags

from prism_jax.recipes import importing, labelling
from prism_jax.runtime import command
from prism_jax.runtime.config import from_config_dict
from prism_jax.runtime.flag_checks import refuse_empty
from prism_jax.teacher.config import TeacherConfig

SOURCES: dict[importing.Layout, str] = {
    "streams": "Streams to label, one per line (JSONL).",
    "recorded": "Folder of recorded answers, MODEL/STREAM.json, as ProactiveBench's eval/traces_new has them.",
    "sharegpt": "File of conversations with answers, as LLaMA-Factory trains on them (JSON or JSONL).",
}


def define_flags() -> None:
    """Defines the flags."""
    config_flags.DEFINE_config_file("config", None, "A file of configs/; --config.x.y=value overrides a setting.")
    for name, meaning in SOURCES.items():
        flags.DEFINE_string(name, None, meaning)
    flags.DEFINE_string("text_calibrator", None, "File of a text calibrator that fills in missing probabilities.")
    flags.DEFINE_string("out", None, "File of labelled streams to write.", required=True)
    flags.DEFINE_string("rows", None, "File of questions and answers to write; by default beside the output.")
    flags.DEFINE_bool("dry_run", False, "Send nothing, and say how much would be sent and what it would cost.")
    refuse_empty(*SOURCES, "text_calibrator", "out", "rows")
    flags.mark_flags_as_mutual_exclusive([*SOURCES], required=True)


def check(given: flags.FlagValues) -> None:
    """Raises ValueError for flags that do not belong together."""
    imported = next((name for name in SOURCES if name != "streams" and given[name].value is not None), None)
    if imported and given.config is not None:
        raise ValueError(f"--config: found it with --{imported}, expected --streams: import first, then label the file")
    if not imported and (given.config is None) == (given.text_calibrator is None):
        raise ValueError("--streams: expected it with either --config, the teacher to ask, or --text_calibrator")
    for name in ("rows", "dry_run"):
        if given.config is None and given[name].value:
            raise ValueError(f"--{name}: found it without --config, expected a teacher to ask")


def main() -> None:
    """Runs what the flags say."""
    options = flags.FLAGS
    check(options)
    if options.config is None:
        (layout,) = (name for name in SOURCES if options[name].value is not None)
        imported = importing.import_streams(layout, options[layout].value, options.out, options.text_calibrator)
        print("\n".join((*imported.lines(), f"written: {options.out}")))
        return
    config, output = from_config_dict(TeacherConfig, options.config), epath.Path(options.out)
    if options.dry_run:
        done = labelling.estimate(config, epath.Path(options.streams))
    else:
        rows = epath.Path(options.rows or output.with_suffix(".rows.jsonl"))
        done = labelling.label_file(config, epath.Path(options.streams), output, rows)
        print(f"labelled {done.streams:,} streams, {done.steps:,} questions: {output}; answers: {rows}")
        for problem, count in sorted(done.missing.items(), key=lambda item: -item[1])[:5]:
            print(f"  missing {count:,}: {problem}")
    print("\n".join(done.lines))


if __name__ == "__main__":
    define_flags()
    command.start(main)
