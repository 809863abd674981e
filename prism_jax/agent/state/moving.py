"""Moves state: what agents of earlier versions have written into a store, and the records of a store into one file."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from etils import epath

from prism_jax.agent.lines import InputLines, Where, parse_line
from prism_jax.agent.personal import prediction_from
from prism_jax.agent.records import OfferOutcome, encode, offer_id
from prism_jax.agent.records_file import RecordsError, parse_record
from prism_jax.agent.state.kept import StoredClaims
from prism_jax.agent.state.partition import Partition, StateError, item_at, item_of
from prism_jax.agent.state.reading import all_records
from prism_jax.agent.state.store import StateStore
from prism_jax.agent.steps import Observation
from prism_jax.people.exports import StoreContent
from prism_jax.runtime.files import read_lines, temporary_beside

ANSWERED = ("p_need", "p_accept", "threshold", "reason", "candidate", "response")
"""What an answer and a record have both."""
BATCH = 1000
"""Records of a transaction, and of a row group."""


class Moved(NamedTuple):
    """What was moved."""

    streams: int
    records: int
    waiting: int  # events of the input that were not decided on yet


def import_records(store: StateStore, records: epath.PathLike, events: str, *, keep_texts: bool = False) -> Moved:
    """Takes the records that an agent of an earlier version has written to a file, into a store without streams.

    `events` is what the agent has read as `--input`, without lines that it had refused: with the records alone nobody
    could read a stream again. The store has the texts where they are to be kept, and otherwise reads them there. This
    process has every partition of the store.

    Raises:
      StateError: for a store that has streams.
      ValueError: naming the line, for records and events that are not of one agent. Nothing has then changed.
    """
    for _, partition in store.made():
        if partition.rows("SELECT 1 FROM streams LIMIT 1"):
            raise StateError(
                f"{store.folder}: found streams, expected a store that has none yet: name another --state, or where "
                "they are of an import that did not end, delete this folder first"
            )
    _read_both(records, events, lambda batch, persons: None)  # so that nothing is written of files that do not match
    moved, where = _read_both(records, events, lambda batch, persons: _write(store, batch, persons, keep_texts))
    partition = store.partition(0)
    with partition.transaction():
        partition.people.note_records(records)
        if where is not None:
            partition.note_input(where)
    return moved


def _read_both(
    records: epath.PathLike, events: str, write: Callable[[Sequence[_Read], dict[str, str | None]], None]
) -> tuple[Moved, Where | None]:
    """Reads records beside the input that led to them, and how far; `write` takes them in batches, with whose each is.

    Errors as of `import_records`.
    """
    made: Counter[str] = Counter()
    persons: dict[str, str | None] = {}
    count = 0
    batch: list[_Read] = []
    with open(events, "rb") as file:  # noqa: PTH123  for its descriptor
        read = _Input(InputLines(file.fileno(), events, os.path.realpath(events)))
        for number, line in read_lines(records, RecordsError, "records of an agent"):
            place = f"{records}:{number}"
            if not line.endswith(b"\n"):  # cut where the agent was killed
                if not count:
                    raise RecordsError(f"{place}: found no line that ends, expected the records of an agent")
                break
            record = parse_record(line, place)
            item, where = read.next_of(record, place)
            if isinstance(item, Observation):
                persons.setdefault(item.stream, item.person)
                made[item.stream] += 1
                item = item._replace(person=persons[item.stream])
            batch.append(_Read(item, record, line, where))
            count += 1
            if len(batch) == BATCH:
                write(batch, persons)
                batch = []
        write(batch, persons)
        return Moved(len(made), count, read.left()), read.where


def import_people(store: StateStore, content: StoreContent, records: epath.PathLike | None = None) -> int:
    """Takes the people of a store in a file, of an earlier version, or of an export; returns how many.

    Answers to offers in the file of `records` are those to the store's own. Errors are those of `PeopleStore.restore`.
    """
    runs = dict(content.records)
    run = None if records is None else runs.get(os.path.realpath(records))
    for number in range(store.partitions):
        own = [person for person in content.people if store.number_of(person.name) == number]
        part = dataclasses.replace(content, people=tuple(own))
        if number:
            part = dataclasses.replace(part, forgotten=None, recalibration=None, records=())
        if own or number == 0:
            partition = store.partition(number)
            with partition.transaction():
                partition.people.restore(part, run)
    return len(content.people)


def export_records(folder: epath.PathLike, path: epath.PathLike, **conditions: Any) -> int:
    """Writes the records of all partitions into one file, and returns how many: JSON lines, or Parquet by its name.

    Those of a stream are in their order; `conditions` are those of `read_log`. The file is there when it is whole.
    """
    path = epath.Path(path)
    partial, count = temporary_beside(path), 0
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            if path.suffix == ".parquet":
                import pyarrow as pa  # which no other job on a state needs
                import pyarrow.parquet as pq

                texts = {name: pa.string() for name in ("kind", "stream", "person", "event", "offer", "time", "record")}
                columns = pa.schema(texts | {"event": pa.int64(), "time": pa.float64()})
                with pq.ParquetWriter(file, columns, compression="zstd") as writer:
                    records = all_records(folder, **conditions)
                    while rows := list(itertools.islice(records, BATCH)):
                        writer.write_table(pa.Table.from_pylist([_row(record) for record in rows], columns))
                        count += len(rows)
            else:
                for record in all_records(folder, **conditions):
                    file.write(encode(record))
                    count += 1
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return count


class _Read(NamedTuple):
    """A record with its line, and the line of the input that led to it."""

    item: Observation | OfferOutcome
    record: dict[str, Any]
    line: bytes
    where: Where | None


class _Input:
    """The lines that an agent has read; `where` is behind the last one that led to a record."""

    def __init__(self, lines: InputLines) -> None:
        self._items = self._read(lines)
        self.where: Where | None = None

    def next_of(self, record: Mapping[str, Any], place: str) -> tuple[Observation | OfferOutcome, Where | None]:
        """The line that led to a record; StateError where another one stands there."""
        expected = "none behind the end"
        for at, item, where in self._items:
            if isinstance(item, OfferOutcome):
                if record["kind"] == "decision" or (item.stream, item.offer) != (record["stream"], record["offer"]):
                    continue  # an outcome that was refused
                self.where = where
                return OfferOutcome(*(record[name] for name in OfferOutcome._fields)), where
            if record["kind"] == "decision" and (item.stream, item.event.time) == (record["stream"], record["time"]):
                self.where = where
                return item, where
            expected = f"that of {at}"
            break
        what = f"event {record['event']}" if record["kind"] == "decision" else "an outcome"
        raise StateError(
            f"{place}: found {what} of stream {record['stream']!r:.80}, expected {expected} of the input: they are not "
            "of one agent"
        )

    def left(self) -> int:
        """How many events there are behind."""
        return sum(isinstance(item, Observation) for _, item, _ in self._items)

    @staticmethod
    def _read(lines: InputLines) -> Iterator[tuple[str, Observation | OfferOutcome, Where | None]]:
        while batch := lines.batch(BATCH):
            for number, line in batch:
                place = f"{lines.place}:{number}"
                yield place, parse_line(line, place), lines.where(line)


def _write(store: StateStore, batch: Sequence[_Read], persons: dict[str, str | None], keep_texts: bool) -> None:
    """Adds records to their partitions."""
    now, parts = time.time(), dict[int, list[_Read]]()
    for one in batch:
        person = persons.get(one.item.stream)
        parts.setdefault(store.number_of(one.item.stream if person is None else person), []).append(one)
    StoredClaims(store).claim((stream, persons.get(stream)) for stream in {one.item.stream for one in batch})
    for number, own in parts.items():
        partition = store.partition(number)
        with partition.transaction():
            for one in own:
                _add(partition, one, persons.get(one.item.stream), now, keep_texts)


def _add(partition: Partition, one: _Read, person: str | None, now: float, keep_texts: bool) -> None:
    item, record = one.item, one.record
    stream = partition.open_stream(item.stream, person, "events")
    if isinstance(item, OfferOutcome):
        partition.answer(stream, item, now)
        if person is not None and partition.people.waits_for(person) == item.offer:
            partition.people.wait_no_more(person)
        return
    answer = {name: record.get(name) for name in ("stream", "time", *ANSWERED)}
    answer |= {"id": offer_id(record["stream"], record["event"]), "person": person, "speak": record["spoke"]}
    kept = item_of(item) if keep_texts else item_at(item, one.where)
    partition.append(stream, kept, record, one.line, answer, now)
    if person is not None and prediction_from(record) is not None:
        partition.people.wait_for(person, record["offer"])


def _row(record: dict[str, Any]) -> dict[str, Any]:
    person = record.get("person")
    own = {name: record.get(name) for name in ("kind", "stream", "event", "offer", "time")}
    return {**own, "person": None if person is None else person["name"], "record": json.dumps(record)}
