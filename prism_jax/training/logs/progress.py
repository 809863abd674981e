"""The logs of every step: metrics.jsonl, which is byte-reproducible, timings.jsonl, TensorBoard and a progress bar.

With several processes, only the first one writes, but all of them check that their values are finite. A resumed run
truncates the logs of one JSON object per line to the step of its checkpoint and appends to them.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import tqdm
from absl import logging
from etils import epath

from prism_jax.runtime.files import JsonError, named, on_disk, parse_json, read_lines, write_bytes
from prism_jax.runtime.shown_text import bar_seconds
from prism_jax.student.model_config import StudentConfig
from prism_jax.training.compiled.cards import peak
from prism_jax.training.logs.flops import Work, flops
from prism_jax.training.optimization.step import StepShape
from prism_jax.training.workdir import Workdir


class Board:
    """The `tensorboard/` folder of a run; every OSError names it."""

    def __init__(self, folder: epath.Path, step: int):
        """Opens a new file in the folder. For steps after `step`, TensorBoard shows only the content of this file."""
        from tensorboardX.event_file_writer import EventsWriter  # imports torch if it is installed, which takes seconds
        from tensorboardX.proto import event_pb2, summary_pb2

        self._folder, self._event, self._summary = folder, event_pb2.Event, summary_pb2.Summary
        folder.mkdir(parents=True, exist_ok=True)
        self._local = folder if on_disk(folder) else epath.Path(tempfile.mkdtemp(prefix="tensorboard"))
        self._file = EventsWriter(str(self._local / "events"))
        started = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._write(event_pb2.Event(wall_time=time.time(), step=step + 1, session_log=started))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Adds the values of a step."""
        shown = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(self._event(wall_time=time.time(), step=step, summary=self._summary(value=shown)))

    def flush(self) -> None:
        """Makes sure that everything written so far can be read."""
        with named(self._folder):
            self._file.flush()
            self._put()

    def close(self) -> None:
        """Flushes and closes the file."""
        with named(self._folder):
            self._file.close()
            self._put()
            if self._local != self._folder:
                self._local.rmtree()

    def _put(self) -> None:
        """Copies the events to the folder if it is in a bucket, where the writer of TensorBoard cannot append."""
        if self._local != self._folder:
            for file in self._local.iterdir():
                (self._folder / file.name).write_bytes(file.read_bytes())

    def _write(self, event: object) -> None:
        with named(self._folder):
            self._file.write_event(event)


SHOWN = ("loss", "need", "accept", "burden", "response")


class TrainingError(RuntimeError):
    """Training cannot continue; the message names the step, the term of the loss and the streams of the batch."""


@dataclasses.dataclass(frozen=True)
class Rates:
    """Turns the work and the duration of a step into rates."""

    student: StudentConfig  # architecture whose arithmetic is counted
    peak: float | None  # peak FLOP/s of all devices together; None if it or the arithmetic of a step is unknown

    @classmethod
    def of_step(cls, shape: StepShape) -> Rates:
        """Rates of a step. Utilisation is known only in bfloat16 and where the whole student trains."""
        device_peak = peak(shape.mesh.devices.flat[0].device_kind)
        whole = not shape.training.frozen and not shape.slots.model.lora.rank
        known = device_peak is not None and shape.student.dtype == "bfloat16" and whole
        return cls(shape.student, device_peak * shape.mesh.size if device_peak is not None and known else None)

    def of(self, done: Work, seconds: float) -> dict[str, float]:
        """Tokens and labels per second and, if the peak is known, model FLOPs utilisation."""
        # Every process has the same number of rows; each is assumed to have the same number of tokens.
        share = jax.process_count() / max(seconds, 1e-9)
        rates = {"tokens_per_second": done.tokens * share, "labels_per_second": done.labels * share}
        if self.peak:
            rates["mfu"] = flops(self.student, done) * share / self.peak
        return rates


class Log:
    """The logs of one run. Use it as a context manager: leaving the context closes the logs."""

    def __init__(self, workdir: Workdir, names: Sequence[str], shape: StepShape, start: int, progress: bool):
        """Opens the logs and truncates them to `start`, the number of steps completed before this process started.

        `names` holds the names of the streams in each row, for messages.
        """
        self._names, self._rates = names, Rates.of_step(shape)
        self._writes = jax.process_index() == 0
        self._bar = tqdm.tqdm(
            total=shape.training.steps,
            initial=start,
            unit="step",
            mininterval=bar_seconds(),
            disable=not (progress and self._writes),
            dynamic_ncols=True,
        )
        self._clock = time.monotonic()
        if not self._writes:
            return
        self._metrics = StepLog(workdir.metrics, start)
        if self._metrics.reached > start:
            # The run was killed after its newest checkpoint, or its last checkpoint was deleted.
            logging.warning(
                "%s: found steps up to %d, resuming from step %d, %s",
                workdir.metrics,
                self._metrics.reached,
                start,
                "the newest checkpoint's" if start else "since there is no checkpoint",
            )
        self._timings = StepLog(workdir.timings, start)
        self._board = Board(workdir.tensorboard, start)
        self._clock = time.monotonic()

    def write(self, step: int, rows: np.ndarray, metrics: Mapping[str, Any], done: Work) -> None:
        """Logs one step, whose batch holds the rows with these indices; negative for padding.

        TrainingError if a value is not finite; OSError names the file or folder that cannot be written.
        """
        values = {name: float(value) for name, value in metrics.items()}
        self._check(step, rows, values)
        if not self._writes:
            return
        self._metrics.write({"step": step, **values})
        now = time.monotonic()
        seconds, self._clock = now - self._clock, now
        rates = self._rates.of(done, seconds)
        self._timings.write({"step": step, "seconds": seconds, **rates})
        self._board.write(step, {**values, **rates})
        shown = {name: f"{values[name]:.3f}" for name in SHOWN}
        shown |= {"tokens/s": f"{rates['tokens_per_second']:,.0f}", "labels/s": f"{rates['labels_per_second']:,.1f}"}
        if "mfu" in rates:
            shown["MFU"] = f"{rates['mfu']:.0%}"
        self._bar.set_postfix(shown, refresh=False)
        self._bar.update()

    def _check(self, step: int, rows: np.ndarray, values: dict[str, float]) -> None:
        validation = [name for name in values if name.startswith("validation")]
        terms = [name for name in (*SHOWN[1:], "loss", "gradient_norm", *validation) if not math.isfinite(values[name])]
        if terms:
            names = ", ".join(self._names[row] for row in rows.tolist() if row >= 0)
            raise TrainingError(
                f"step {step}: found {terms[0]} = {values[terms[0]]}, expected finite numbers; the batch holds streams "
                f"{names}"
            )

    def flush(self) -> None:
        """Makes sure that everything logged so far can be read."""
        if self._writes:
            self._metrics.flush()
            self._timings.flush()
            self._board.flush()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._bar.close()
        for log in (self._metrics, self._timings, self._board) if self._writes else ():
            try:
                log.close()
            except OSError:
                if kind is None:  # otherwise the error that ended training is more informative
                    raise


class StepLog:
    """A log that is open for writing; every OSError names it."""

    def __init__(self, path: epath.Path, step: int):
        """Opens or creates the file, and truncates it, as `truncate_lines` does, whose result is `reached`."""
        self.reached = truncate_lines(path, step)
        self._path = path
        self._file = path.open("a") if on_disk(path) else _Whole(path)

    def write(self, values: Mapping[str, Any]) -> None:
        """Adds a line with these values."""
        with named(self._path):
            self._file.write(json.dumps(values) + "\n")

    def flush(self) -> None:
        """Makes sure that everything logged so far can be read."""
        with named(self._path):
            self._file.flush()

    def close(self) -> None:
        """Flushes and closes the file."""
        with named(self._path):
            self._file.close()


class _Whole(io.StringIO):
    """A text that is written to its path as a whole at every flush, for buckets, which cannot append."""

    def __init__(self, path: epath.Path):
        super().__init__()
        self._path = path
        self.write(path.read_text() if path.exists() else "")

    def flush(self) -> None:
        self._path.write_text(self.getvalue())

    def close(self) -> None:
        self.flush()
        super().close()


def truncate_lines(path: epath.Path, step: int) -> int:
    """Removes the lines of a log about steps after `step`, which a resumed run will write again.

    Returns the last step in the log before truncation; `step` if the log had no later one. ValueError names the file
    and line that is not an object with a "step".
    """
    if not path.exists():
        return step
    kept, reached = [], step
    complete = True
    for number, line in read_lines(path):
        if not line.endswith(b"\n"):
            complete = False
            break  # incomplete after a crash, so newer than any checkpoint
        line_step = _step(line, path, number)
        reached = max(reached, line_step)
        if line_step <= step:
            kept.append(line)
    if not complete or reached > step:
        write_bytes(path, b"".join(kept))
    return reached


def _step(line: bytes, path: epath.Path, number: int) -> int:
    """The step of a line."""
    fix = "move the file away to continue without its lines"
    try:
        value = parse_json(line, f"{path}, line {number}")
    except JsonError as error:
        raise ValueError(f"{error}; {fix}") from error
    step = value.get("step") if isinstance(value, dict) else None
    if not isinstance(step, int):
        raise ValueError(f'{path}, line {number}: found {line[:40]!r}, expected an object with a "step"; {fix}')
    return step
