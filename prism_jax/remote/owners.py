"""Which processes that share a cache are alive: each holds a locked file, and the kernel drops the lock at any end."""

from __future__ import annotations

import fcntl
import os
import pathlib
import uuid


class Owner:
    """This process among those that share the file at `path`."""

    def __init__(self, path: pathlib.Path) -> None:
        self.name = uuid.uuid4().hex
        self._folder = path.with_name(f"{path.name}.owners")
        self._folder.mkdir(exist_ok=True)
        self._file: int | None = os.open(self._folder / self.name, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def lives(self, name: str) -> bool:
        """Whether the process of that name still runs; removes what a dead one left."""
        path = self._folder / name
        try:
            file = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        path.unlink(missing_ok=True)
        return False

    def close(self) -> None:
        """Ends this process's part."""
        if self._file is not None:
            (self._folder / self.name).unlink(missing_ok=True)
            os.close(self._file)
            self._file = None
