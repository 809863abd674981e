"""Checkpoints of three steps, and what is said of them."""

import logging
import shutil

import pytest
import saved_checkpoints
from absl import logging as absl_logging
from etils import epath


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A workdir with checkpoints of steps 2, 4 and 6, of which the last is the best."""
    folder = tmp_path_factory.mktemp("whole")
    saved_checkpoints.save(folder, {2: 0.9, 4: 0.8, 6: 0.7})
    return folder


@pytest.fixture
def copy(whole, tmp_path):
    return epath.Path(shutil.copytree(whole, tmp_path / "run"))


@pytest.fixture
def warnings(caplog, monkeypatch):
    """The messages that absl logs at the level of a warning or above."""
    monkeypatch.setattr(absl_logging.get_absl_logger(), "propagate", True)

    def messages():
        found = [record for record in caplog.records if record.name == "absl" and record.levelno >= logging.WARNING]
        return [record.getMessage() for record in found]

    return messages
