"""Scores many streams into a folder of Parquet shards: resumable, in flat memory, the same bytes however it is run.

The folder holds `score.json`, which says of what the scores are, and a table of scores per shard of streams; of a
student that writes responses, also the streams of each shard with what it wrote. A file appears at once, complete, and
depends on nothing but its streams, the model and the settings. A shard whose files are not as they were written, by
the digests in `score.json`, is made anew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from absl import logging
from etils import epath
from tqdm import tqdm

from prism_jax.runtime.digests import sha256
from prism_jax.runtime.files import read_object, write_json
from prism_jax.runtime.lock import only_one
from prism_jax.runtime.shown_text import bar_seconds
from prism_jax.scores import Scores, ScoresError, read_scores, write_scores
from prism_jax.streams import Stream
from prism_jax.streams.jsonl import StreamError, iterate_streams, write_streams
from prism_jax.streams.shards import Shard, Shards, ShardSettings, cut, read_shard
from prism_jax.student.prompting.packing import AXES, Packed
from prism_jax.student.scoring.fast import Offers
from prism_jax.student.scoring.passes import Passes, score_passes
from prism_jax.student.scoring.student import Student
from prism_jax.student.scoring.writing import Writer

NAME = "score.json"
FOLD = 0
"""What stands in the column `fold`."""
_PACKED = ".packed"
"""Folder of what is packed when everything is checked, until it is scored."""
SOURCE = "`python -m prism_jax score`"
_PACKAGES = ("prism_jax", "jax", "jaxlib", "numpy", "pyarrow", "tokenizers")
"""What may change a score or its bytes."""
_OF_SLOW_PASS = ("p_need_slow", "p_accept_slow", "tokens_slow", "fields_correct")


class ShardScorer:
    """Scores shards into a folder with a student that is loaded; a shard that the folder has already stays."""

    def __init__(
        self, student: Student, passes: Passes, settings: ShardSettings, need_target: str, folder: epath.PathLike
    ) -> None:
        self.student, self.passes, self.settings, self.folder = student, passes, settings, epath.Path(folder)
        self._writer = Writer(student, settings.batch) if passes.slow or passes.responses else None
        # Every shard has the same columns, whatever its streams hold.
        self._first: dict[str, Any] = dict.fromkeys(_OF_SLOW_PASS) if passes.slow else {}
        self._last = {} if need_target == "marginal" else {"need_target": need_target}

    def __call__(self, shard: Shard) -> None:
        """Writes the files of a shard, the scores last; errors are those of `read_shard` and `score_passes`."""
        settings, (path, *texts) = self.settings, _paths(self.folder, shard, self.passes.responses)
        if path.exists():
            return
        packed = [offers for piece in shard.pieces for offers in _unpacked(*piece.kept)]
        scored = score_passes(
            self.student,
            [] if self._writer is None else read_shard(shard),
            self.passes,
            split=settings.split,
            fold=FOLD,
            context=settings.context,
            batch=settings.batch,
            rounded=True,
            writer=self._writer,
            packed=packed,
        )
        scores = Scores.from_rows({**self._first, **row, **self._last} for row in scored.rows)
        for place in texts:
            write_streams(place, scored.written)
        write_scores(path, scores)


def score_many(
    folder: epath.Path,
    files: Sequence[str],
    model: Mapping[str, Any],
    settings: ShardSettings,
    pack: Callable[[Stream], Sequence[Offers]],
    work: Callable[[Sequence[Shard]], Iterator[Shard]],
    *,
    texts: bool = False,
    skip_bad: bool = False,
) -> Shards:
    """Scores every stream with steps of some files exactly once, and returns what the files hold.

    Args:
      folder: Folder of the scores; one that was left unfinished is completed.
      files: Paths, in the order of the shards.
      model: What identifies the model, as JSON values.
      settings: How it is scored.
      pack: Packs a stream; raises ValueError for one that cannot be scored.
      work: Scores shards and yields each when it is done, such as a function of `workers` with a `ShardScorer`. The
        folder is not claimed until it has returned.
      texts: Whether a shard has a file with what the student wrote, too.
      skip_bad: Whether a damaged file is left out as a whole.

    Raises:
      StreamError: naming file and line, before anything is scored, for files that cannot be used.
      ValueError: naming the key, for a folder that holds the scores of another model, other streams or settings.
      RuntimeError: if another process scores into the folder.
    """
    with only_one(folder, "scoring"), _emptied(folder / _PACKED) as kept:
        # Every stream is checked before any is scored, and packed for that.
        with _bar("checking") as bar:
            keep = functools.partial(_keep, kept)
            shards = cut(files, settings.shard, pack, keep, skip_bad=skip_bad, on_stream=bar.update)
        facts = _facts(model, settings, shards)
        written = _check_claim(folder, facts)
        # What is finished is kept.
        finished = [_finished(_paths(folder, shard, texts), shard, written) for shard in shards.shards]
        missing = [shard for shard, own in zip(shards.shards, finished, strict=True) if own is None]
        facts["files"] = {name: digest for own in finished for name, digest in (own or {}).items()}
        working = work(missing) if missing else iter(())
        _claim(folder, facts, missing)
        done = shards.streams - sum(shard.streams for shard in missing)
        with _bar("streams", shards.streams, done) as bar:
            for shard in working:
                facts["files"] |= {path.name: sha256(path) for path in _paths(folder, shard, texts)}
                write_json(folder / NAME, facts | {"complete": False})
                bar.update(shard.streams)
        write_json(folder / NAME, facts | {"files": dict(sorted(facts["files"].items())), "complete": True})
    return shards


def _paths(folder: epath.Path, shard: Shard, texts: bool) -> list[epath.Path]:
    """The files of a shard: its scores, and what the student wrote."""
    names = ("scores-{:05d}.parquet", "written-{:05d}.jsonl")
    return [folder / name.format(shard.number) for name in names[: 1 + texts]]


@contextlib.contextmanager
def _emptied(folder: epath.Path) -> Iterator[epath.Path]:
    """A new folder, which goes afterwards; one that an earlier run left goes before."""
    if folder.exists():
        folder.rmtree()
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        folder.rmtree(missing_ok=True)


def _keep(folder: epath.Path, packed: Sequence[Offers]) -> tuple[str, str]:
    """Writes what was packed of consecutive streams; returns the path and the SHA-256 of the file."""
    arrays: dict[str, Any] = {}
    for name in AXES:
        columns = [getattr(offers.row, name) for offers in packed]
        arrays |= {name: np.concatenate(columns), f"{name} ends": np.cumsum([len(column) for column in columns])}
    known = [list(packed[0].columns[0]), *([list(one.values()) for one in offers.columns] for offers in packed)]
    np.savez(file := io.BytesIO(), known=np.frombuffer(json.dumps(known).encode(), np.uint8), **arrays)
    data = len(file.getvalue()).to_bytes(8, "little") + pa.compress(file.getvalue(), "zstd", asbytes=True)
    digest = hashlib.sha256(data).hexdigest()
    (path := folder / digest).write_bytes(data)
    return str(path), digest


def _unpacked(path: str, digest: str) -> Iterator[Offers]:
    """What `_keep` wrote; ValueError where the file is another one."""
    data = epath.Path(path).read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise ValueError(f"{path}: found other bytes than were written, expected that nothing else writes there")
    with np.load(io.BytesIO(pa.decompress(data[8:], int.from_bytes(data[:8], "little"), "zstd"))) as arrays:
        names, *known = json.loads(arrays["known"].tobytes())
        columns = {name: (arrays[name], [0, *arrays[f"{name} ends"].tolist()]) for name in AXES}
    for number, offers in enumerate(known):
        of_row = {name: column[ends[number] : ends[number + 1]] for name, (column, ends) in columns.items()}
        row = Packed(**of_row, row=np.int32(0))
        yield Offers(row, [dict(zip(names, values, strict=True)) for values in offers])


def _bar(label: str, total: int | None = None, done: int = 0) -> tqdm:
    return tqdm(total=total, initial=done, desc=label, unit=" streams", mininterval=bar_seconds())


def _facts(model: Mapping[str, Any], settings: ShardSettings, shards: Shards) -> dict[str, Any]:
    """What score.json says; nothing in it depends on when, where or by how many workers the scores were made."""
    return {
        "format": 1,
        "model": dict(model),
        "settings": dataclasses.asdict(settings),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "inputs": [file._asdict() for file in shards.files],
        "left_out": list(shards.left_out),
        "streams": shards.streams,
        "decisions": shards.decisions,
        "shards": len(shards.shards),
    }


def _finished(paths: Sequence[epath.Path], shard: Shard, written: Mapping[str, str]) -> dict[str, str] | None:
    """The digests of the files of a shard by name; None where one is missing, or is not as it was written.

    A warning names the latter. One that a killed run had no time to note has to hold the streams of the shard.
    """
    if not all(path.exists() for path in paths):
        return None
    found = {path.name: sha256(path) for path in paths}
    for path in paths:
        if path.name in written:
            problem = "" if written[path.name] == found[path.name] else f"{path}: found other bytes than were written"
        else:
            problem = _other_streams(path, shard)
        if problem:
            logging.warning("%s; it is scored anew", problem)
            return None
    return found


def _other_streams(path: epath.Path, shard: Shard) -> str:
    """What is wrong with a file, in words, unless it holds the streams of a shard."""
    try:
        is_table = path.suffix == ".parquet"
        ids = read_scores(path).stream.tolist() if is_table else [stream.id for stream in iterate_streams(path)]
    except (ScoresError, StreamError) as error:
        return str(error)
    same = list(dict.fromkeys(ids)) == [stream.id for stream in read_shard(shard)]
    return "" if same else f"{path}: found other streams than the {shard.streams} of its shard"


def _check_claim(folder: epath.Path, facts: Mapping[str, Any]) -> dict[str, str]:
    """Checks that score.json, if there is one, says the same, and returns the digests of files in it.

    One of a run that made no shard may say anything.
    """
    path, shards = folder / NAME, sorted(map(str, folder.glob("scores-*")))
    if path.exists():
        said = read_object(path, SOURCE, ValueError)
        if not shards and said.get("complete") is False:
            return {}
        saved, current = dict(_flat(_identity(said))), dict(_flat(_identity(facts)))
        for key in [*current, *(key for key in saved if key not in current)]:
            if key not in saved or key not in current or saved[key] != current[key]:
                old, new = (f"{one[key]!r:.200}" if key in one else "nothing" for one in (saved, current))
                raise ValueError(
                    f"{path}: {key}: found {old}, expected {new}: the folder holds scores of another model, of other "
                    "streams, settings or versions; choose another --workdir"
                )
        return said["files"] if isinstance(said.get("files"), dict) else {}
    if shards:
        raise ValueError(f"{shards[0]}: found scores without {NAME}, expected an empty or a new folder as --workdir")
    return {}


def _identity(said: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the scores: of the inputs the contents and their order, and not how their paths are spelled."""
    same = {key: value for key, value in said.items() if key not in ("complete", "left_out", "files")}
    inputs = said.get("inputs")
    if isinstance(inputs, list):
        same["inputs"] = [{**file, "path": ""} if isinstance(file, Mapping) else file for file in inputs]
    return same


def _claim(folder: epath.Path, facts: Mapping[str, Any], missing: Sequence[Shard]) -> None:
    """Says that shards are missing; removes them where they are damaged, and what an earlier run left half-written."""
    for shard in missing:  # before its digest goes from score.json, so that no later run takes it for a good one
        for path in _paths(folder, shard, texts=True):
            path.unlink(missing_ok=True)
    if missing:
        write_json(folder / NAME, {**facts, "complete": False})
    for pattern in (".scores-*.partial", ".written-*.partial", f".{NAME}.*.partial"):
        for partial in folder.glob(pattern):
            partial.unlink(missing_ok=True)


def _flat(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of JSON values, by their places."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{place}.{key}" if place else key)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _flat(item, f"{place}[{number}]")
    else:
        yield place, value
