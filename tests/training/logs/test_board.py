import pathlib
import struct
import sys

import pytest
from etils import epath

from prism_jax.training.logs.progress import Board


@pytest.fixture(autouse=True)
def without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # TensorBoardX loads it where it can, which takes seconds


def events(folder):
    """Reads records in TensorFlow's format: length, checksum of the length, data, checksum of the data."""
    from tensorboardX.proto.event_pb2 import Event

    (file,) = pathlib.Path(folder).iterdir()
    assert ".out.tfevents." in file.name  # TensorBoard looks for this
    data, found = file.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        found.append(Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    return found


def test_events_can_be_read_at_once_and_purge_later_steps_of_an_earlier_run(tmp_path):
    board = Board(epath.Path(tmp_path / "board"), 4)
    board.write(5, {"loss": 0.5, "need": 0.25})
    board.flush()
    version, start, step = events(tmp_path / "board")
    started = start.session_log
    assert version.file_version == "brain.Event:2"
    assert (started.status, start.step) == (started.START, 5)
    assert (step.step, {value.tag: value.simple_value for value in step.summary.value}) == (
        5,
        {"loss": 0.5, "need": 0.25},
    )
    board.close()


def test_a_full_disk_is_an_error_and_does_not_block(tmp_path, monkeypatch):
    board = Board(epath.Path(tmp_path), 0)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(board._file, "write_event", full)
    for step in range(1, 50):
        with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}'$"):
            board.write(step, {"loss": 0.5})
