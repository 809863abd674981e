"""Runs statistics over the parts of scores files, in one process, in several, or on a Ray cluster.

The parts, and the order in which their states are merged, follow from the files alone, so the result is the same to
the byte however many workers there are. Every few seconds, what is merged so far is written into the folder of the
results; a run that was killed goes on from there.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import hashlib
import importlib.metadata
import io
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow.parquet as pq
from absl import logging
from etils import epath
from tqdm import tqdm

from prism_jax.evaluation.merged.planning import OutOfOrderError
from prism_jax.evaluation.merged.states import State, Statistic, decode, encode, merge
from prism_jax.runs.running import RunnerName, Running, usable_cpus
from prism_jax.runs.workers import connect_ray, end_with_parent
from prism_jax.runtime.command import keep_freed_memory
from prism_jax.runtime.files import named, open_regular, write_bytes
from prism_jax.scores import Scores, ScoresError, located
from prism_jax.scores.agreement import PROPENSITIES
from prism_jax.scores.files import holds_records
from prism_jax.scores.joining import check_columns
from prism_jax.scores.parts import Part, as_parquet, columns_of, gather, parts_of, read_part

T = TypeVar("T")
_AHEAD = 2
"""Parts that are handed out beyond the number of workers, so that none waits for the merging."""
_SECONDS = 5.0
"""How often what is merged so far is written, at most; and once it is complete."""
_KEPT = ".unfinished"
"""Folder of what is merged so far, in that of the results."""


class Work(NamedTuple):
    """What a worker does with a part."""

    statistic: Statistic
    read: Callable[[Any], Iterator[Any]]  # the rows of a part


def state_of(part: Any, work: Work) -> State:
    """The state of one part.

    Raises:
      ScoresError: naming file, row and column.
    """
    state = work.statistic.init()
    for rows in work.read(part):
        state = work.statistic.add(state, rows)
    return state


def _scores(part: Part, checked: bool, shown_only: bool) -> Iterator[Scores]:
    """The rows of a part of scores files, which are checked unless known to be valid."""
    for rows in read_part(part, checked=checked):
        taken = _shown(rows) if shown_only else rows
        if taken is not None:
            yield taken


def _shown(rows: Scores) -> Scores | None:
    if rows.logged is None:
        raise ScoresError("found no such column, expected it with --shown_only", "logged")
    shown = rows.logged == 1
    return rows.take(shown) if shown.any() else None


@dataclasses.dataclass(frozen=True)
class _OfShown:
    """A statistic of the rows of offers that were made, which also finds what is wrong with all rows together."""

    statistic: Statistic

    def init(self) -> State:
        return {"of": self.statistic.init(), "silent": 0, "recorded": 0, "unknown": 0}

    def add(self, state: State, rows: Scores) -> State:
        shown, made = _shown(rows), np.asarray(rows.logged)
        recorded = np.zeros(len(rows), bool) if rows.propensity is None else ~np.isnan(rows.propensity)
        counts = {"silent": made == 0, "recorded": recorded, "unknown": (made == 1) & ~recorded}
        of = state["of"] if shown is None else self.statistic.add(state["of"], shown)
        return {"of": of} | {name: state[name] + np.count_nonzero(count) for name, count in counts.items()}

    @staticmethod
    def checked(state: State) -> State:
        """The state of the statistic; ScoresError where only some rows have a propensity."""
        if state["silent"] and state["recorded"] and state["unknown"]:
            raise ScoresError(f"found null on {state['unknown']} rows, expected {PROPENSITIES}", "propensity")
        return state["of"]


class Sharded:
    """Runs statistics over files, as `merged.running.evaluate` takes it.

    Args:
      paths: Scores files, .parquet or .jsonl, all with the same columns.
      folder: Folder of the results, in which unfinished states are kept.
      runner: `local` processes, or `ray`, tasks on the Ray cluster that this process can reach (else of its own).
      workers: Number of processes, or of tasks at once; 1 is this process.
      skip_bad: Whether files that cannot be read are left out; `left_out` names them.
      shown_only: Whether rows of offers that were not made are left out.
      extra: Columns that are read although the schema does not know them.
      settings: Words that say what else the result depends on; unfinished states of other settings are not used.

    Raises:
      ScoresError: naming a file that cannot be read, without `skip_bad`, or if none can.
    """

    def __init__(
        self,
        paths: Sequence[str],
        folder: Path,
        *,
        runner: RunnerName = "local",
        workers: int = 1,
        skip_bad: bool = False,
        shown_only: bool = False,
        extra: tuple[str, ...] = (),
        settings: str = "",
    ):
        self.paths, self.folder, self.kept = list(paths), folder, folder / _KEPT
        self.runner, self.workers = runner, workers
        self.skip_bad, self.shown_only, self.extra = skip_bad, shown_only, extra
        self.left_out: dict[str, str] = {}
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None
        self._works = 0
        is_main = threading.current_thread() is threading.main_thread()
        self._exits = is_main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        self.parts: list[Any] = []
        self._sources: dict[str, str] = {}  # the file that was given, by that of the parts
        if self._exits:
            signal.signal(signal.SIGTERM, _exit)
        self.scratch = Path(tempfile.mkdtemp(prefix="prism_jax_"))
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        self._digest = self._digest_of(settings)

    def _open(self) -> None:
        """Finds the parts of the files."""
        columns = {}
        for number, path in enumerate(self.paths):
            try:
                readable = path
                if path.endswith(".jsonl"):
                    readable = as_parquet(path, self.scratch, f"lines-{number:05d}", self.extra)
                self._sources[readable] = path
                self.parts += parts_of(readable, self.extra)
                columns[path] = columns_of(readable)
            except ScoresError as error:
                if not self.skip_bad:
                    raise
                logging.warning("left out: %s", error)
                self.left_out[path] = str(error)
        if not self.parts:
            number = len(self.paths)
            raise ScoresError(f"found no file that can be read among {number}, expected some", place=self.paths[0])
        check_columns(columns)

    @property
    def rows(self) -> int:
        """Number of rows of all parts, as they stand in the files."""
        return sum(part.rows for part in self.parts)

    def close(self) -> None:
        """Ends the workers and removes temporary files; unfinished states are kept."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        shutil.rmtree(self.scratch, ignore_errors=True)
        if self._exits:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def finish(self) -> None:
        """Removes what was kept for going on, once the results are written."""
        shutil.rmtree(self.folder / _KEPT, ignore_errors=True)

    def all_of(self, compute: Callable[[Sharded], T]) -> T:
        """What `compute` gives with this runner, which is closed then; rows in no order are put together first.

        Where the input is refused, by any ValueError, nothing is kept: the same call would be refused again.

        Raises:
          ScoresError: naming file, row and column.
        """
        try:
            try:
                return compute(self)
            except OutOfOrderError:
                self.gather()
                return compute(self)
        except ValueError:
            self.finish()
            raise
        finally:
            self.close()

    def gather(self) -> None:
        """Puts the rows of each stream together, in temporary files, where they are in no order."""
        logging.info("scores: the rows of some stream are not together; sorting all rows by stream first")
        self.parts, self.kept = gather(self.parts, self.scratch / "gathered"), self.kept / "gathered"

    def __call__(self, name: str, statistic: Statistic) -> State:
        """The state of a statistic over all rows; `name` is that of its progress and of its unfinished states.

        Raises:
          ScoresError: naming file, row and column.
        """
        while True:
            try:
                return self._run(name, statistic)
            except ScoresError as error:
                given = self._in_given_files(error)
                if not (self.skip_bad and name == "scan" and error.place in self._sources):
                    raise given from None
                self._leave_out(error.place, given)

    def _in_given_files(self, error: ScoresError) -> ScoresError:
        """The error with the place in the files that were given, not in a temporary one."""
        if error.place in self._sources:
            anywhere = ScoresError(error.problem, error.column, error.row)
            return located(anywhere, self._sources[error.place])
        if not error.place.startswith(str(self.scratch)):
            return error
        number, first = len(self.paths), self.paths[0]
        place = first if number == 1 else f"{number} files, {first} and others"
        return ScoresError(error.problem, error.column, place=place)

    def _run(self, name: str, statistic: Statistic) -> State:
        work = self._work(name, statistic)
        place = self.kept / f"{name}.npz"
        done, state = self._unfinished(place)
        place.parent.mkdir(parents=True, exist_ok=True)  # before the work, which would be lost where it cannot be made
        kept_at = time.monotonic()
        with tqdm(total=len(self.parts), initial=done, desc=name, unit="part", disable=None) as bar:
            for part_state in self._states(self.parts[done:], work):
                state = part_state if state is None else merge(state, part_state)
                done += 1
                bar.update()
                if done == len(self.parts) or time.monotonic() - kept_at > _SECONDS:
                    self._keep(place, done, state)
                    kept_at = time.monotonic()
        return work.statistic.checked(state) if isinstance(work.statistic, _OfShown) else state

    def _work(self, name: str, statistic: Statistic) -> Work:
        """What is done with a part by the statistic of this name; the first one checks all rows."""
        if name == "scan":
            read = functools.partial(_scores, checked=False, shown_only=False)
            return Work(_OfShown(statistic) if self.shown_only else statistic, read)
        return Work(statistic, functools.partial(_scores, checked=True, shown_only=self.shown_only))

    def _states(self, parts: Sequence[Any], work: Work) -> Iterator[State]:
        """The states of parts, in their order."""
        if self.runner == "ray":
            return _on_ray(parts, work, self.workers)
        if self.workers == 1 or len(parts) < 2:
            return (state_of(part, work) for part in parts)
        return self._in_processes(parts, work)

    def _in_processes(self, parts: Sequence[Any], work: Work) -> Iterator[State]:
        """The states of parts in their order, from processes that are started once."""
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = concurrent.futures.ProcessPoolExecutor(self.workers, context, _begin)
        self._works += 1  # workers keep what they have read of a file, so each statistic has its own
        pool, file = self._pool, self.scratch / f"work-{self._works:05d}.pickle"
        file.write_bytes(pickle.dumps(work))  # once, and not with every part
        try:
            yield from _in_order(
                lambda part: pool.submit(_worker, part, str(file)), lambda of: _taken(of.result()), parts, self.workers
            )
        except BrokenProcessPool as error:
            raise RuntimeError(
                "--workers: found that one of the processes died, perhaps for want of memory; what was merged is kept, "
                "and the same command resumes, also with fewer --workers"
            ) from error

    def _keep(self, place: Path, done: int, state: State) -> None:
        """Writes what is merged so far; the last state of a statistic lets a later one go on at once."""
        buffer = io.BytesIO()
        arrays: dict[str, Any] = encode({"digest": self._digest, "done": done, "state": state})
        np.savez(buffer, **arrays)
        place.parent.mkdir(parents=True, exist_ok=True)  # another run into the folder may have removed it
        write_bytes(place, buffer.getvalue())

    def _unfinished(self, place: Path) -> tuple[int, State | None]:
        """The number of parts that are merged already, and their state."""
        if not place.exists():
            return 0, None
        try:
            with open_regular(place) as file, zipfile.ZipFile(file) as packed:
                if any(item.file_size > item.compress_size for item in packed.infolist()):
                    raise ValueError("compressed, which none of ours is, and perhaps without end")
                file.seek(0)
                with np.load(file, allow_pickle=False) as arrays:
                    kept = decode(dict(arrays))
            if kept["digest"] == self._digest and 0 <= kept["done"] <= len(self.parts):
                return kept["done"], kept["state"]
        except Exception as error:  # it only saves time, whatever is wrong with it
            logging.warning("%s: found no state that can be read (%r); starting anew", place, error)
        return 0, None

    def _digest_of(self, settings: str) -> str:
        """What unfinished states must agree with: the files, how they are read, and the settings."""
        stats = {path: Path(path).stat() for path in self.paths if path not in self.left_out}
        files = [(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()]
        version = importlib.metadata.version("prism_jax")  # another one may have other states
        rows = [part.rows for part in self.parts]  # another division has other parts
        content = json.dumps([files, rows, self.shown_only, self.extra, settings, version])
        return hashlib.sha256(content.encode()).hexdigest()

    def _leave_out(self, path: str, error: ScoresError) -> None:
        """Goes on without the file of some parts; raises `error` if nothing is left."""
        logging.warning("left out: %s", error)
        self.left_out[self._sources[path]] = str(error)
        self.parts = [part for part in self.parts if part.path != path]
        if not self.parts:
            raise error
        self._digest += hashlib.sha256(self._sources[path].encode()).hexdigest()


def _exit(number: int, _: object) -> None:
    """Ends this process by way of `Sharded.close`; a second signal ends it at once."""
    signal.signal(number, signal.SIG_DFL)
    sys.exit(128 + number)


_loaded: dict[str, Work] = {}


def _begin() -> None:
    """Begins a worker process, which reuses the memory of a part for the next."""
    keep_freed_memory()
    end_with_parent()


def _worker(part: Any, file: str) -> Path:
    """A file with the state of a part, since a pool would wait without end for the rest of a long result.

    A worker that is killed has sent a path whole or not at all.
    """
    if file not in _loaded:
        _loaded.clear()
        _loaded[file] = pickle.loads(Path(file).read_bytes())  # written by the process that started this one
    state = state_of(part, _loaded[file])
    folder = Path(file).parent
    with named(folder), tempfile.NamedTemporaryFile(dir=folder, suffix=".state", delete=False) as kept:
        pickle.dump(state, kept, pickle.HIGHEST_PROTOCOL)
    return Path(kept.name)


def _taken(file: Path) -> State:
    """The state in a file that a worker wrote, which is removed."""
    with file.open("rb") as kept:
        state: State = pickle.load(kept)
    file.unlink()
    return state


def _on_ray(parts: Sequence[Any], work: Work, workers: int) -> Iterator[State]:
    """The states of parts in their order, from Ray tasks."""
    ray = connect_ray(num_cpus=None if os.environ.get("RAY_ADDRESS") else workers)
    shared, task = ray.put(work), ray.remote(num_cpus=1)(state_of)
    try:
        yield from _in_order(lambda part: task.remote(part, shared), ray.get, parts, workers)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None


def _in_order(
    submit: Callable[[Any], Any], result: Callable[[Any], State], parts: Sequence[Any], workers: int
) -> Iterator[State]:
    """Results in the order of the parts, with a bounded number of parts handed out."""
    waiting: list[Any] = []
    for part in parts:
        if len(waiting) == workers + _AHEAD:
            yield result(waiting.pop(0))
        waiting.append(submit(part))
    while waiting:
        yield result(waiting.pop(0))


def count_rows(paths: Sequence[str]) -> int:
    """Rows of Parquet files, lines of CSV, and about those of JSONL by the size; 0 for one that cannot be read."""
    return sum(_rows(path) for path in paths)


_LINE_BYTES = 300


def _rows(path: str) -> int:
    try:
        if path.endswith(".jsonl"):
            return Path(path).stat().st_size // _LINE_BYTES
        with open_regular(path) as file:
            if path.endswith(".csv"):  # the first line names the columns
                return max(0, sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b"")) - 1)
            return pq.read_metadata(file).num_rows
    except (OSError, ValueError):
        return 0


def held_in_memory(paths: Sequence[str], running: Running) -> bool:
    """Whether all rows of some files are held in memory: there are few, or they are decision records."""
    if running.runner != "local":
        return False
    return running.are_few(count_rows(paths)) or any(map(holds_records, paths))


def open_sharded(paths: Sequence[str], folder: epath.PathLike, running: Running, **options: Any) -> Sharded:
    """What runs statistics over parts of some files, and keeps their states in a folder."""
    own: dict[str, Any] = {"runner": running.runner, "skip_bad": running.skip_bad, **options}
    return Sharded(paths, Path(folder), workers=running.workers or usable_cpus(), **own)
