"""Moves state: what the file agent has written into a store, and the records of a store into one file."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from etils import epath

from prism_jax.agent.lines import LineError, parse_line
from prism_jax.agent.personal import prediction_from
from prism_jax.agent.records import OfferOutcome, encode, offer_id
from prism_jax.agent.records_file import RecordsError, parse_record
from prism_jax.agent.state.partition import Partition, StateError
from prism_jax.agent.state.reading import all_records
from prism_jax.agent.state.store import StateStore
from prism_jax.agent.steps import Observation
from prism_jax.people.store import Person
from prism_jax.runtime.files import read_lines, temporary_beside

ANSWERED = ("p_need", "p_accept", "threshold", "reason", "candidate", "response")
"""What an answer and a record have both."""
BATCH = 1000
"""Records of a transaction, and of a row group."""
_COLUMNS = pa.schema(
    [
        ("kind", pa.string()),
        ("stream", pa.string()),
        ("person", pa.string()),
        ("event", pa.int64()),
        ("offer", pa.string()),
        ("time", pa.float64()),
        ("record", pa.string()),
    ]
)


class Moved(NamedTuple):
    """What was moved."""

    streams: int
    records: int
    people: int
    waiting: int  # events of the input that were not decided on yet


def import_files(
    store: StateStore, records: epath.PathLike, events: epath.PathLike, people: Sequence[Person] = ()
) -> Moved:
    """Takes what `python -m prism_jax.agent` has written into a store that has no streams yet.

    `records` is the file of `--records`, and `events` what the agent has read as `--input`, without lines that it had
    refused: with the records alone nobody could read a stream again. `people` are those of the file of `--people`,
    whose population is the store's. This process has every partition of the store.

    Raises:
      StateError: for a store that has streams.
      ValueError: naming the line, for records and events that are not of one agent. The store then has streams that are
        to be deleted with it.
    """
    for _, partition in store.made():
        if partition.rows("SELECT 1 FROM streams LIMIT 1"):
            raise StateError(f"{store.folder}: found streams, expected a store that has none yet")
    read = _events(events)
    made: Counter[str] = Counter()
    persons: dict[str, str | None] = {}
    count = 0
    batch: list[tuple[Observation | OfferOutcome, dict[str, Any]]] = []
    for number, line in read_lines(records, RecordsError, "records of an agent"):
        record = parse_record(line, f"{records}:{number}")
        if record["kind"] == "outcome":
            batch.append((OfferOutcome(*(record[name] for name in OfferOutcome._fields)), record))
        else:
            stream = record["stream"]
            place, item = next(read, ("the end", None))
            if item is None or (item.stream, item.event.time) != (stream, record["time"]):
                raise StateError(
                    f"{records}:{number}: found event {record['event']} of stream {stream!r:.80}, expected that of "
                    f"{place} of the input: they are not of one agent"
                )
            persons.setdefault(stream, item.person)
            made[stream] += 1
            batch.append((item._replace(person=persons[stream]), record))
        count += 1
        if len(batch) == BATCH:
            _write(store, batch, persons)
            batch = []
    _write(store, batch, persons)
    for person in people:
        partition = store.of(person.name)
        with partition.transaction():
            partition.people.add(person)
    return Moved(len(made), count, len(people), sum(1 for _ in read))


def export_records(folder: epath.PathLike, path: epath.PathLike, **conditions: Any) -> int:
    """Writes the records of all partitions into one file, and returns how many: JSON lines, or Parquet by its name.

    Those of a stream are in their order; `conditions` are those of `read_log`. The file is there when it is whole.
    """
    path = epath.Path(path)
    partial, count = temporary_beside(path), 0
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            if path.suffix == ".parquet":
                with pq.ParquetWriter(file, _COLUMNS, compression="zstd") as writer:
                    records = all_records(folder, **conditions)
                    while rows := list(itertools.islice(records, BATCH)):
                        writer.write_table(pa.Table.from_pylist([_row(record) for record in rows], _COLUMNS))
                        count += len(rows)
            else:
                for record in all_records(folder, **conditions):
                    file.write(encode(record))
                    count += 1
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return count


def _events(path: epath.PathLike) -> Iterator[tuple[str, Observation]]:
    """The events of an input, each with its place."""
    for number, line in read_lines(path, LineError, "lines of an agent's input"):
        place = f"{path}:{number}"
        item = parse_line(line, place)
        if isinstance(item, Observation):
            yield place, item


def _write(
    store: StateStore, batch: list[tuple[Observation | OfferOutcome, dict[str, Any]]], persons: dict[str, str | None]
) -> None:
    """Adds records to their partitions."""
    now, parts = time.time(), dict[int, list[tuple[Observation | OfferOutcome, dict[str, Any]]]]()
    for item, record in batch:
        person = persons.get(item.stream)
        parts.setdefault(store.number_of(item.stream if person is None else person), []).append((item, record))
    for stream in {item.stream for item, _ in batch}:
        if (person := persons.get(stream)) is not None:
            partition = store.of(stream)
            if partition.claimed(stream) is None:
                with partition.transaction():
                    partition.claim(stream, person)
    for number, own in parts.items():
        partition = store.partition(number)
        with partition.transaction():
            for item, record in own:
                _add(partition, item, record, persons.get(item.stream), now)


def _add(
    partition: Partition, item: Observation | OfferOutcome, record: dict[str, Any], person: str | None, now: float
) -> None:
    stream = partition.open_stream(item.stream, person, "events")
    watched = partition.people.watched
    if isinstance(item, OfferOutcome):
        partition.answer(stream, item, now)
        if person is not None and watched.get(person) == item.offer:
            del watched[person]
        return
    answer = {name: record.get(name) for name in ("stream", "time", *ANSWERED)}
    answer |= {"id": offer_id(record["stream"], record["event"]), "person": person, "speak": record["spoke"]}
    partition.append(stream, item, record, answer, now)
    if person is not None and prediction_from(record) is not None:
        watched.setdefault(person, record["offer"])


def _row(record: dict[str, Any]) -> dict[str, Any]:
    person = record.get("person")
    own = {name: record.get(name) for name in ("kind", "stream", "event", "offer", "time")}
    return {**own, "person": None if person is None else person["name"], "record": json.dumps(record)}
