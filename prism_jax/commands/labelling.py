"""Asks a teacher about streams, or reads the texts of answers, and writes labelled streams."""

from __future__ import annotations

import collections
import contextlib
import functools
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from etils import epath

from prism_jax.labelling.teacher.labelling import LabelledStream, QuestionRow, TeacherConfig, label_stream
from prism_jax.labelling.teacher.text_calibrator import read_text_calibrator
from prism_jax.remote import jobs
from prism_jax.remote.jobs import open_clients
from prism_jax.remote.structured import Reply, ask_for
from prism_jax.runtime.files import check_folder_of, parse_json, read_lines, temporary_beside, writing
from prism_jax.streams import Stream
from prism_jax.streams.jsonl import StreamError, iterate_streams, read_streams, write_streams


def fill_file(source: epath.PathLike, text_calibrator: epath.PathLike, output: epath.PathLike) -> tuple[str, ...]:
    """Fills in the probabilities that texts tell, writes the streams atomically, and says in lines what they have.

    Raises ValueError or OSError in one line, naming the place; nothing is written.
    """
    calibrator = read_text_calibrator(text_calibrator)
    streams = calibrator.fill(read_streams(source))
    write_streams(output, streams)
    steps = [step for stream in streams for step in stream.steps]
    offers = [offer for step in steps for offer in step.candidates]
    need = sum(step.teacher_need is not None for step in steps)
    accept = sum(offer.teacher_accept is not None for offer in offers)
    return (
        f"{len(streams):,} streams, {len(steps):,} steps: p_need at {need:,} steps, p_accept of {accept:,} offers",
        f"written: {output}",
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
