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

import collections
import contextlib
import dataclasses
import functools
import json
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from absl import flags
from etils import epath
from ml_collections import config_flags

from prism_jax.remote import jobs
from prism_jax.remote.jobs import open_clients
from prism_jax.remote.structured import Reply, ask_for
from prism_jax.runtime import command
from prism_jax.runtime.command import refuse_empty
from prism_jax.runtime.dataclass_config import from_config_dict
from prism_jax.runtime.files import check_folder_of, check_outputs, parse_json, read_lines, temporary_beside, writing
from prism_jax.streams import Stream
from prism_jax.streams.jsonl import StreamError, iterate_streams, read_streams, write_streams
from prism_jax.teacher.labelling import LabelledStream, QuestionRow, TeacherConfig, label_stream
from prism_jax.teacher.recorded import read_recorded
from prism_jax.teacher.sharegpt import read_sharegpt
from prism_jax.teacher.text_calibrator import read_text_calibrator

Layout = Literal["streams", "recorded", "sharegpt"]
"""Layout of the answers, as the flags call it."""
_READERS = {"streams": read_streams, "recorded": read_recorded, "sharegpt": read_sharegpt}


class ImportCounts(NamedTuple):
    """What was written."""

    streams: int
    steps: int
    offers: int  # number of offers with a text
    responses: int  # number of offers with a response
    need: int  # number of steps with a probability of need
    accept: int  # number of offers with a probability of acceptance

    def lines(self) -> tuple[str, ...]:
        """The numbers in words, for the terminal."""
        return (
            f"{self.streams:,} streams, {self.steps:,} steps, {self.offers:,} offers, {self.responses:,} responses",
            f"p_need at {self.need:,} steps, p_accept of {self.accept:,} offers",
        )


def import_streams(
    layout: Layout, source: epath.PathLike, output: epath.PathLike, text_calibrator: epath.PathLike | None = None
) -> ImportCounts:
    """Reads answers, fills in the probabilities that their texts tell, and writes streams atomically.

    The source is a file, or for `recorded` a folder. Without a text calibrator, missing probabilities stay missing.
    Raises ValueError or OSError in one line, naming the place; nothing is written.
    """
    calibrator = None if text_calibrator is None else read_text_calibrator(text_calibrator)
    streams = _READERS[layout](source)
    if calibrator is not None:
        streams = calibrator.fill(streams)
    write_streams(output, streams)
    return _count(streams)


def _count(streams: list[Stream]) -> ImportCounts:
    steps = [step for stream in streams for step in stream.steps]
    offers = [offer for step in steps for offer in step.candidates]
    return ImportCounts(
        streams=len(streams),
        steps=len(steps),
        offers=sum(offer.text is not None for offer in offers),
        responses=sum(offer.response is not None for offer in offers),
        need=sum(step.teacher_need is not None for step in steps),
        accept=sum(offer.teacher_accept is not None for offer in offers),
    )


class Summary(NamedTuple):
    """What labelling came to."""

    streams: int
    steps: int  # number of questions, one per step and pass
    listed: int  # number of offers with a text in the source: dropped, or kept with prompt.offers = given
    missing: collections.Counter[str]  # number of questions without a valid answer, by problem
    lines: tuple[str, ...]  # what was sent, received and paid, for the terminal


class _Labeller:
    """Labels streams one after another, and counts."""

    def __init__(self, config: TeacherConfig):
        self.config, self.streams, self.steps, self.listed = config, 0, 0, 0
        self.missing: collections.Counter[str] = collections.Counter()

    def label(self, streams: Iterator[Stream], total: int | None, *, dry_run: bool) -> Iterator[LabelledStream]:
        """Yields every stream with its teacher's answers, in order; sends nothing in a dry run."""
        config = self.config
        with open_clients(config.remote, {"endpoint": config.endpoint}, dry_run=dry_run) as clients:

            async def ask(messages: Any, kind: type[Any]) -> Reply[Any]:
                return await ask_for(clients.by_name["endpoint"], messages, kind, config.labelling.retries)

            work = functools.partial(label_stream, ask=ask, prompt=config.prompt, config=config.labelling)
            at_once = config.endpoint.concurrency
            for labelled in jobs.work_through(
                streams, work, at_once=at_once, total=total, label="streams", tally=clients.tally
            ):
                self._count(labelled)
                yield labelled
            if not dry_run:
                clients.tally.check_answered(self.steps, self.missing)
            self.lines = clients.tally.lines()

    def _count(self, labelled: LabelledStream) -> None:
        self.streams += 1
        self.steps += len(labelled.rows)
        self.listed += labelled.listed
        self.missing.update(row.problem for row in labelled.rows if row.problem is not None)

    def summary(self) -> Summary:
        """The counts so far."""
        own = "dropped: the teacher proposes its own (--config.prompt.offers=given keeps them)"
        kept = "kept: the teacher judges them (prompt.offers = given)"
        said = f"listed offers: {self.listed:,} {own if self.config.prompt.offers == 'own' else kept}"
        lines = (said, *self.lines) if self.listed else self.lines
        return Summary(self.streams, self.steps, self.listed, self.missing, lines)


def label_file(config: TeacherConfig, source: epath.Path, output: epath.Path, rows: epath.Path) -> Summary:
    """Labels every stream of a file, and writes the streams and a row per question (`teacher.labelling.Row`).

    The rows appear when all streams are labelled, and then the streams; older files are replaced. Every answer is in
    the cache as soon as it arrives, so a call after an interruption goes quickly over what was answered before. Raises
    ValueError, OSError or RuntimeError in one line, the latter also where no answer was valid, or where older rows have
    answers to questions that have none now; nothing is written.
    """
    for path in (output, rows):
        check_folder_of(path)
    before = _answered(rows)
    labeller, partial = _Labeller(config), temporary_beside(rows)
    lost: list[QuestionRow] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(writing(output, rows))
        stack.callback(lambda: partial.unlink(missing_ok=True))
        file = stack.enter_context(partial.open("w"))

        def streams() -> Iterator[Stream]:
            labelled_streams = labeller.label(iterate_streams(source), _count_lines(source), dry_run=False)
            for labelled in labelled_streams:
                lost.extend(row for row in labelled.rows if row.problem is not None and row[:3] in before)
                file.writelines(f"{_encode(row)}\n" for row in labelled.rows)
                yield labelled.stream
            if lost:
                raise RuntimeError(
                    f"{rows}: found answers to {len(lost):,} questions that have none now ({lost[0].problem}), so it "
                    "stays as it was; expected another --out, or another config.remote.cache: it keeps invalid answers"
                )
            file.close()
            partial.replace(rows)

        write_streams(output, streams())
    return labeller.summary()


def _answered(rows: epath.Path) -> set[tuple[Any, ...]]:
    """Stream, event and pass of each question with a valid answer in a file of rows; none without the file."""
    lines = read_lines(rows) if rows.exists() else ()
    found = (parse_json(line, f"{rows}:{number}") for number, line in lines)
    return {
        tuple(map(row.get, QuestionRow._fields[:3]))
        for row in found
        if isinstance(row, dict) and not row.get("problem")
    }


def estimate(config: TeacherConfig, source: epath.Path) -> Summary:
    """What labelling a file would send and cost, without sending anything."""
    labeller = _Labeller(config)
    for _ in labeller.label(iterate_streams(source), _count_lines(source), dry_run=True):
        pass
    return labeller.summary()


def _count_lines(path: epath.Path) -> int:
    return sum(1 for _ in read_lines(path, StreamError, "streams"))


def _encode(row: QuestionRow) -> str:
    return json.dumps(row._asdict(), ensure_ascii=False, allow_nan=False)


SOURCES: dict[Layout, str] = {
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
