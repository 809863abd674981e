"""Writing of TensorBoard events without a background thread, which would block forever on a full disk."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping

from etils import epath

from prism_jax.runtime.files import on_disk
from prism_jax.training.logs.lines import named


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
