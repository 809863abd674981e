"""Reads the official ProactiveBench repository from a folder and assembles its judged rows into whole streams.

The reward data (`dataset/reward_data/{train,test}_data.jsonl`) has one row per judgement: the events so far, and either
an offer or silence with the votes on it. It does not name streams, and its own split leaks: the step of every test row
is in the training file too. Therefore both files are read as one. Rows that share their first event form one stream,
and the longest history among them gives the stream's events. A stream that overlaps with a file of `dataset/test_data`
gets that file's name as its id.

Both files are sorted by kind of label, so that an offer's place in them tells its label. The offers of a step are
therefore shuffled by a hash of their content, which does not depend on the order of the rows either.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from etils import epath

from prism_jax.runtime.digests import sha256
from prism_jax.runtime.files import parse_json, read_bounded, read_lines
from prism_jax.runtime.schema import Loose, Words, decode, read_json, some
from prism_jax.streams.jsonl import StreamError
from prism_jax.streams.times import to_seconds

Need = Literal["strict", "majority", "any_valid"]
"""Definitions of need (`prism_jax.streams.proactivebench`)."""
REWARD_FILES = ("dataset/reward_data/train_data.jsonl", "dataset/reward_data/test_data.jsonl")
STREAM_FOLDER = "dataset/test_data"
LAYOUT = (
    f"the layout of the repository thunlp/ProactiveAgent ({', '.join(REWARD_FILES)} and the folder {STREAM_FOLDER})"
)
DOMAINS = {"code": "coding"}  # any other prefix of a file's name is itself the domain


@dataclasses.dataclass(frozen=True)
class _Event(Loose):
    event: Words  # what a user did, in every file of the repository


@dataclasses.dataclass(frozen=True)
class Moment(_Event):
    """What a user did, and when."""

    time: Words


@dataclasses.dataclass(frozen=True)
class _Row(Loose):
    obs: Annotated[tuple[Moment, ...], some]
    pred_task: Words | None
    valid: bool
    help_needed: bool
    annotation: Annotated[tuple[bool, ...], some]


@dataclasses.dataclass(frozen=True)
class _Step(Loose):
    observation: _Event


@dataclasses.dataclass(frozen=True)
class Observed(Loose):
    """A step of a stream's file."""

    observation: Moment


_STEPS = Annotated[tuple[_Step, ...], "a list of steps"]
ORDER_SEED = 0
"""Seed of the order of a step's offers."""

Events = tuple[tuple[str, str], ...]  # (time, text) of each event, as in the source


@dataclasses.dataclass(frozen=True)
class Judgement:
    """One judgement."""

    place: str  # FILE:LINE, for messages
    events: Events  # everything the user had done up to this step
    offer: str | None  # the judged offer; None where silence was judged
    valid: bool  # majority verdict on the offer or on silence
    help_needed: bool  # whether at least one offer of this step was ticked by every annotator
    votes: tuple[bool, ...]  # true: would accept the offer or, where silence was judged, ticked no offer


def read_source(source: epath.PathLike) -> list[dict[str, Any]]:
    """Reads all judged streams of a folder, as examples of the dataset `ProactiveBench`, sorted by id.

    The folder has the layout of the repository and any number of streams.

    Raises:
      FileNotFoundError: naming the folder or file that is missing.
      StreamError: naming file, line and field, for a malformed row, a row that fits no stream, or labels that
        contradict each other.
    """
    source = epath.Path(source)
    files = _stream_files(source)
    streams: dict[tuple[str, str], list[Judgement]] = collections.defaultdict(list)
    for row in _judgements(source):
        streams[row.events[0]].append(row)
    records: dict[str, dict[str, Any]] = {}
    places: dict[str, str] = {}
    for rows in streams.values():
        record = _stream(rows, files)
        name, place = record["id"], rows[0].place
        if name in records:
            raise StreamError(f"{place}: obs: found a second stream that matches {name} (first {places[name]})")
        records[name], places[name] = record, place
    return [records[name] for name in sorted(records)]


def digest(source: epath.PathLike) -> str:
    """SHA-256 of the names and bytes of every file that `read_source` reads; it changes when the data changes."""
    source = epath.Path(source)
    total = hashlib.sha256()
    for path in [source / name for name in REWARD_FILES] + _stream_paths(source):
        content = sha256(_existing(path))
        total.update(f"{path.name} {content}\n".encode())
    return total.hexdigest()


def _existing(path: epath.Path) -> epath.Path:
    if not path.exists():
        raise FileNotFoundError(f"{path}: not found, expected {LAYOUT}")
    return path


def _stream_paths(source: epath.Path) -> list[epath.Path]:
    folder = _existing(_existing(source) / STREAM_FOLDER)
    return sorted(path for path in folder.iterdir() if path.suffix == ".json" and path.name != "splits.json")


def _stream_files(source: epath.Path) -> dict[str, list[str]]:
    """Maps the stem of each stream file to the texts of its events."""
    files = {}
    for path in _stream_paths(source):
        value = parse_json(read_bounded(path, StreamError), str(path), StreamError)
        steps = decode(_STEPS, value, str(path), StreamError)
        files[path.stem] = [step.observation.event for step in steps]
    return files


def read_judgements(source: epath.Path, name: str) -> Iterator[Judgement]:
    """Yields the rows of one of `REWARD_FILES`; raises StreamError naming file, line and field of a malformed one."""
    path = _existing(source / name)
    for number, line in read_lines(path, StreamError, "JSON lines"):
        place = f"{path}:{number}"
        row: _Row = decode(_Row, read_json(line, place, StreamError), place, StreamError)
        yield Judgement(
            place=place,
            events=tuple((moment.time, moment.event) for moment in row.obs),
            offer=row.pred_task,
            valid=row.valid,
            help_needed=row.help_needed,
            votes=row.annotation,
        )


def _judgements(source: epath.Path) -> list[Judgement]:
    rows: dict[tuple[Any, ...], Judgement] = {}
    for name in REWARD_FILES:
        for row in read_judgements(source, name):
            rows.setdefault((row.events, row.offer, row.valid, row.help_needed, row.votes), row)
    if not rows:
        raise StreamError(f"{source}: found no rows in {' and '.join(REWARD_FILES)}, expected one per judgement")
    return list(rows.values())


def _stream(rows: Sequence[Judgement], files: Mapping[str, list[str]]) -> dict[str, Any]:
    """Assembles the rows that share their first event into one stream."""
    longest = max(rows, key=lambda row: len(row.events))
    for row in rows:
        for i, (event, expected) in enumerate(zip(row.events, longest.events, strict=False)):
            if event != expected:
                raise StreamError(f"{row.place}: obs[{i}]: found {event}, expected {expected} as in {longest.place}")
    try:
        to_seconds([time for time, _ in longest.events])
    except ValueError as error:
        raise StreamError(f"{longest.place}: obs{error}") from error
    name, domain = _identify(longest.events, files)
    steps, candidates = _steps(rows)
    return {
        "id": name,
        "domain": domain,
        "events": [{"time": time, "text": text} for time, text in longest.events],
        "steps": steps,
        "candidates": candidates,
    }


def _identify(events: Events, files: Mapping[str, list[str]]) -> tuple[str, str]:
    """Id and domain: from the file with the same first event or at least half of the events, else `synthetic_HASH`.

    Half suffices because texts differ a little between the versions of a stream.
    """
    best, shared, starts = "", 0, False
    for stem, texts in files.items():
        score = sum(text in texts for _, text in events), events[0][1] == texts[0] if texts else False
        if score > (shared, starts):
            best, (shared, starts) = stem, score
    if starts or 2 * shared >= len(events):
        prefix = best.split("_")[0]
        return best, DOMAINS.get(prefix, prefix)
    time, text = events[0]
    return f"synthetic_{hashlib.sha256(f'{time} {text}'.encode()).hexdigest()[:8]}", "synthetic"


def _steps(rows: Sequence[Judgement]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The tables of steps and of judged offers; rows with the same number of events form a step."""
    by_length: dict[int, list[Judgement]] = collections.defaultdict(list)
    for row in rows:
        by_length[len(row.events)].append(row)
    steps, candidates = [], []
    for length, judged in sorted(by_length.items()):
        offers = sorted((row for row in judged if row.offer is not None), key=_place_in_step)
        silence = _silence(judged)
        steps.append(
            {
                "event": length - 1,
                "need_strict": judged[0].help_needed,
                # A false vote on silence means that the annotator wanted an offer; without a row on silence none did.
                "need_majority": 2 * silence.count(False) > len(silence),
                "need_any_valid": any(row.valid for row in offers),
                "silence_votes": _ballot(silence),
            }
        )
        candidates += [
            {"step": len(steps) - 1, "text": row.offer, "valid": row.valid, "votes": _ballot(row.votes)}
            for row in offers
        ]
    return steps, candidates


def _place_in_step(row: Judgement) -> bytes:
    """A pseudo-random key for the order of a step's offers; distinct rows of a step have distinct keys."""
    content = json.dumps([ORDER_SEED, row.events, row.offer, row.valid, row.votes])
    return hashlib.sha256(content.encode()).digest()


def _silence(judged: Sequence[Judgement]) -> tuple[bool, ...]:
    """The votes on silence of one step, () where there are none; its rows must agree on whether help was needed."""
    first = judged[0]
    for row in judged:
        if row.help_needed != first.help_needed:
            raise StreamError(
                f"{row.place}: help_needed: found {row.help_needed}, expected {first.help_needed} as in {first.place}, "
                "a row of the same step"
            )
    silences = [row for row in judged if row.offer is None]
    if len(silences) > 1:
        raise StreamError(
            f"{silences[1].place}: pred_task: found another verdict on silence than in {silences[0].place}, "
            "expected one per step"
        )
    return silences[0].votes if silences else ()


def _ballot(votes: Sequence[bool]) -> str:
    """Encodes votes as a string of 1 (true) and 0 (false)."""
    return "".join("1" if vote else "0" for vote in votes)


class Leakage(NamedTuple):
    """Counts of rows in the official test file."""

    rows: int
    same_stream: int  # rows whose stream, known by its first event, has rows in the training file
    same_step: int  # rows whose whole history of events is that of a training row
    same_need: int  # rows of `same_step` whose step's need label a training row states
    same_row: int  # rows with the same history and the same offer, or silence, as a training row


def measure_leakage(source: epath.PathLike) -> Leakage:
    """Compares the official test file with the training file, in a folder of the repository."""
    train, test = (list(read_judgements(epath.Path(source), name)) for name in REWARD_FILES)
    streams = {row.events[0] for row in train}
    steps = {row.events: row.help_needed for row in train}
    rows = {(row.events, row.offer) for row in train}
    return Leakage(
        rows=len(test),
        same_stream=sum(row.events[0] in streams for row in test),
        same_step=sum(row.events in steps for row in test),
        same_need=sum(steps.get(row.events) == row.help_needed for row in test),
        same_row=sum((row.events, row.offer) in rows for row in test),
    )
