"""Makes streams of what others have published or recorded, and says what it left out (docs/field.md).

    python -m prism_jax import --list
    python -m prism_jax import --from=contextagent --source=DIR --out=streams.jsonl [--medium=unlabelled|true|false]
    python -m prism_jax import --from=contextagent --source=DIR --workdir=FOLDER [--calibration_share=0.1]
    python -m prism_jax import --from=records --source=records.jsonl --out=streams.jsonl
    python -m prism_jax import --from=proactivebench --source=DIR --agent_data=[DOMAIN=]FILE --workdir=FOLDER

--list says what each source is, the layout that is read, licence and address. Nothing is downloaded: --source is a
folder or file of yours. --out has one stream per line (JSONL), to label, train, score or judge. In its place, --workdir
gets a file for each part of the publisher's split: train.jsonl, calibration.jsonl, which is a share of the training
part, test.jsonl, and other.jsonl for streams of no part. With --agent_data, the official training data in chat form,
these are ProactiveBench's own training data and test events, all without answers, and human.jsonl has people's votes.
"""

from __future__ import annotations

import collections

from absl import flags
from etils import epath

from prism_jax.runtime import command
from prism_jax.runtime.command import check_together, refuse_empty
from prism_jax.runtime.files import check_absent, check_folder_of, write_files
from prism_jax.streams import Stream
from prism_jax.streams.jsonl import encode_streams
from prism_jax.streams.published import table
from prism_jax.streams.published.content import Published
from prism_jax.streams.splits import Splits, with_validation
from prism_jax.streams.summary import summarise


def _records(source: epath.PathLike) -> Published:
    from prism_jax.agent.records_streams import published_records  # other sources need no agent

    return published_records(source)


SOURCES = table.SOURCES | {
    "records": table.Source(
        "Decision records of an agent of yours, with what people answered",
        "a file of records (docs/agent.md), with texts where the agent ran with --keep_texts",
        "yours",
        "docs/agent.md",
        _records,
    )
}
"""Those of `table.SOURCES`, and one's own."""


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_bool("list", False, "List the sources, and import nothing.")
    flags.DEFINE_enum("from", None, [*SOURCES], "Name of the source.")
    flags.DEFINE_string("source", None, "Folder or file of the source, in its publisher's layout.")
    flags.DEFINE_enum("medium", None, ["unlabelled", "true", "false"], "contextagent: what the label medium becomes.")
    flags.DEFINE_multi_string(
        "agent_data", [], "proactivebench: training data in chat form, FILE or DOMAIN=FILE; may be repeated."
    )
    flags.DEFINE_string("out", None, "File of streams to write, which must not exist.")
    flags.DEFINE_string("workdir", None, "In its place, folder to write a file for each part of a split.")
    flags.DEFINE_float("calibration_share", 0.1, "With --workdir: share of training streams that calibrate.", 0.0, 1.0)
    refuse_empty("source", "out", "workdir")


def check(options: flags.FlagValues) -> None:
    """Raises ValueError for flags that are missing, or do not belong together."""
    for flag, expected in (("from", "a source (--list shows them)"), ("source", "the folder or file of the source")):
        if options[flag].value is None:
            raise ValueError(f"--{flag}: found no value, expected {expected}")
    name = options["from"].value
    if (options.out is None) == (options.workdir is None):
        raise ValueError("--out: expected either a file to write, or --workdir with a folder")
    if options.medium is not None and name != "contextagent":
        raise ValueError(f"--medium: found it with --from={name}, expected it with contextagent only")
    if options.agent_data and (name != "proactivebench" or options.workdir is None):
        raise ValueError("--agent_data: expected it with --from=proactivebench and --workdir only")
    check_together("calibration_share without workdir: a folder for the parts")


def parts_of(published: Published, calibration_share: float) -> dict[str, list[Stream]]:
    """The streams by the part of the publisher's split; a share of the training streams is `calibration`."""
    if not published.split:
        raise ValueError("--workdir: found no split in this source, expected --out, a file for all of its streams")
    parts: dict[str, list[Stream]] = {}
    for stream in published.streams:
        parts.setdefault(published.split.get(stream.id, "other"), []).append(stream)
    if "train" in parts:
        splits = with_validation(Splits(tuple(parts["train"]), (), ()), calibration_share)
        parts |= {"train": [*splits.train], "calibration": [*splits.validation]}
    return parts


def _read(options: flags.FlagValues) -> tuple[dict[str, list[Stream]], collections.Counter[str]]:
    """The streams by the part of a split, of which there is one without a name for --out, and what was left out."""
    if options.agent_data:
        from prism_jax.proactivebench.checkout import streams_of  # reads votes with tensorflow_datasets

        files: dict[str, list[str]] = {}
        for text in options.agent_data:
            domain, named, path = text.partition("=")
            files.setdefault(domain if named else "unknown", []).append(path if named else text)
        return streams_of(options.source, files, options.calibration_share)
    settings = {} if options.medium is None else {"medium": options.medium}
    published = SOURCES[str(options["from"].value)].read(options.source, **settings)
    parts = parts_of(published, options.calibration_share) if options.workdir else {"": published.streams}
    return parts, published.dropped


def main() -> None:
    """Runs what the flags say."""
    options = flags.FLAGS
    if options.list:
        print("\n".join(f"{name}: {source}" for name, source in SOURCES.items()))
        return
    check(options)
    if options.out is not None:
        check_absent(options.out)
        check_folder_of(options.out)
    parts, dropped = _read(options)
    if options.workdir is not None:
        epath.Path(options.workdir).mkdir(parents=True, exist_ok=True)
    files = {options.out or epath.Path(options.workdir) / f"{part}.jsonl": kept for part, kept in parts.items() if kept}
    write_files({path: encode_streams(streams) for path, streams in files.items()})
    for path, streams in files.items():
        *domains, total = summarise(streams).items()
        offers = [offer for stream in streams for step in stream.steps for offer in step.candidates]
        texts, responses = (sum(getattr(offer, of) is not None for offer in offers) for of in ("text", "response"))
        print(f"{path}: {total[1]}; {texts:,} offers with a text, {responses:,} responses; domains:", *dict(domains))
    for reason, count in dropped.most_common():
        print(f"left out {count:,}: {reason}")
    if not dropped:
        print("left out: nothing")


if __name__ == "__main__":
    define_flags()
    command.start(main)
