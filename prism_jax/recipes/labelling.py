"""Labels a file of streams by a teacher: what `python -m prism_jax.label` does."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from etils import epath

from prism_jax.remote import jobs
from prism_jax.remote.clients import opened
from prism_jax.remote.structured import Reply, ask_for
from prism_jax.runtime.files import check_folder_of, read_lines, temporary_beside
from prism_jax.streams import Stream
from prism_jax.streams.jsonl import StreamError, iterate_streams, write_streams
from prism_jax.teacher.config import TeacherConfig
from prism_jax.teacher.labelling import Labelled, Row, label_stream


class Summary(NamedTuple):
    """What labelling came to."""

    streams: int
    steps: int  # number of questions, one per step and pass
    missing: dict[str, int]  # number of questions without a valid answer, by problem
    lines: tuple[str, ...]  # what was sent, received and paid, for the terminal


class _Labeller:
    """Labels streams one after another, and counts."""

    def __init__(self, config: TeacherConfig):
        self.config, self.streams, self.steps = config, 0, 0
        self.missing: dict[str, int] = {}

    def label(self, streams: Iterator[Stream], total: int | None, *, dry_run: bool) -> Iterator[Labelled]:
        """Yields every stream with its teacher's answers, in order; sends nothing in a dry run."""
        config = self.config
        with opened(config.remote, {"endpoint": config.endpoint}, dry_run=dry_run) as clients:

            async def ask(messages: Any, kind: type[Any]) -> Reply[Any]:
                return await ask_for(clients.by_name["endpoint"], messages, kind, config.labelling.retries)

            work = functools.partial(label_stream, ask=ask, prompt=config.prompt, config=config.labelling)
            at_once = config.endpoint.concurrency
            for labelled in jobs.run(streams, work, at_once=at_once, total=total, label="streams", tally=clients.tally):
                self._count(labelled)
                yield labelled
            self.lines = clients.tally.lines()

    def _count(self, labelled: Labelled) -> None:
        self.streams += 1
        self.steps += len(labelled.rows)
        for row in labelled.rows:
            if row.problem is not None:
                self.missing[row.problem] = self.missing.get(row.problem, 0) + 1

    def summary(self) -> Summary:
        """The counts so far."""
        return Summary(self.streams, self.steps, self.missing, self.lines)


def label_file(config: TeacherConfig, source: epath.Path, output: epath.Path, rows: epath.Path) -> Summary:
    """Labels every stream of a file, and writes the streams and a row per question (`teacher.labelling.Row`).

    The rows appear when all streams are labelled, and then the streams; older files are replaced. Every answer is in
    the cache as soon as it arrives, so a call after an interruption goes quickly over what was answered before.

    Raises:
      ValueError, OSError, RuntimeError: in one line; nothing is written.
    """
    for path in (output, rows):
        check_folder_of(path)
    labeller, partial = _Labeller(config), temporary_beside(rows)
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: partial.unlink(missing_ok=True))
        file = stack.enter_context(partial.open("w"))

        def streams() -> Iterator[Stream]:
            answered = labeller.label(iterate_streams(source), _count_lines(source), dry_run=False)
            for labelled in answered:
                file.writelines(f"{_encode(row)}\n" for row in labelled.rows)
                yield labelled.stream
            file.close()
            partial.replace(rows)

        write_streams(output, streams())
    return labeller.summary()


def estimate(config: TeacherConfig, source: epath.Path) -> Summary:
    """What labelling a file would send and cost, without sending anything."""
    labeller = _Labeller(config)
    for _ in labeller.label(iterate_streams(source), _count_lines(source), dry_run=True):
        pass
    return labeller.summary()


def _count_lines(path: epath.Path) -> int:
    """The number of lines of a file, for the progress bar."""
    return sum(1 for _ in read_lines(path, StreamError, "streams"))


def _encode(row: Row) -> str:
    return json.dumps(row._asdict(), ensure_ascii=False, allow_nan=False)
