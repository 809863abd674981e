"""The lock of a folder: one training, say, at a time. The kernel drops it when the process ends, even by kill -9."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pathlib
import socket
from collections.abc import Iterator

from absl import logging
from etils import epath

from prism_jax.runtime.files import on_disk

NAME = "training.lock"


def only_training(workdir: epath.Path) -> contextlib.AbstractContextManager[None]:
    """Holds the lock of a workdir in which one training may run at a time, as `only_one` does."""
    return only_one(workdir, "training")


@contextlib.contextmanager
def only_one(workdir: epath.Path, what: str, name: str | None = None, *, wait: bool = False) -> Iterator[None]:
    """Holds the lock of a folder while the block runs; creates the folder, and removes it again if it stays empty.

    The lock is `flock` on a file, by default with the name of what is done, such as `training.lock`. It names the
    process and the host that hold it, and holds between hosts if their shared file system has such locks. Where there
    are none, a warning says so; a bucket such as gs:// has no lock and gives no warning.

    Raises:
      RuntimeError: if another process does the same and we do not `wait` for it; names its host and process.
    """
    if not on_disk(workdir):
        yield
        return
    made = not workdir.exists()
    workdir.mkdir(parents=True, exist_ok=True)
    path = workdir / (name or f"{what}.lock")
    file = _locked(path, what, wait)
    try:
        yield
    finally:
        if file is not None:
            path.unlink(missing_ok=True)  # while it is still locked, so that nobody else's file is removed
            os.close(file)
        if made:
            with contextlib.suppress(OSError):
                pathlib.Path(workdir).rmdir()  # fails if anything is in it


def _locked(path: epath.Path, what: str, wait: bool) -> int | None:
    """Opens and locks the file, and writes the owner into it; None if the file system has no locks."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if not _is(file, path):  # the previous owner removed it between opening and locking
                os.close(file)
                continue
            os.ftruncate(file, 0)
            os.write(file, f"process {os.getpid()} on host {socket.gethostname()}".encode())
            return file
        except BlockingIOError:
            owner = os.pread(file, 400, 0).decode("utf-8", "replace") or "a process that has just started"
            os.close(file)
            raise RuntimeError(f"{path.parent}: found a {what} of {owner} in it, expected none") from None
        except OSError as error:
            os.close(file)
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            logging.warning("%s: found no locks on this file system, expected only one %s in it", path.parent, what)
            return None


def _is(file: int, path: epath.Path) -> bool:
    """Whether an open file is still the one at the path."""
    try:
        return os.path.samestat(os.fstat(file), pathlib.Path(path).stat())
    except FileNotFoundError:
        return False
