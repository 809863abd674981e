"""SHA-256 of every file of a checkpoint: written before the checkpoint is complete, compared before it is read.

`digests.json` in the folder of a checkpoint maps each file's path to its digest. Orbax's own `_CHECKPOINT_METADATA` and
`commit_success.txt` are not in it: Orbax writes them last, and no value of the state comes from them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
from etils import epath
from jax.experimental import multihost_utils

from prism_jax.runtime.files import JsonError, read_object, write_json

NAME = "digests.json"
_WRITTEN_LAST = ("_CHECKPOINT_METADATA", "commit_success.txt", NAME)
_BLOCK = 1 << 22
_THREADS = 4


def sha256(*paths: epath.Path) -> str:
    """The SHA-256 of a file, or of several files one after another, as 64 hexadecimal digits.

    Raises:
      OSError: if a file cannot be read.
    """
    found = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                found.update(block)  # releases the interpreter's lock
    return found.hexdigest()


def write_digests(folder: epath.Path) -> None:
    """Writes the digests of all files in the folder of a checkpoint that is otherwise complete.

    Raises:
      OSError: if a file cannot be read or written.
    """
    names = sorted(name for name in _files(folder) if name not in _WRITTEN_LAST)
    with ThreadPoolExecutor(_THREADS) as threads:
        found = threads.map(lambda name: sha256(folder / name), names)
        write_json(folder / NAME, dict(zip(names, found, strict=True)))


def read_digests(folder: epath.Path) -> dict[str, str] | None:
    """The digests of a checkpoint's files by their paths; None if an older version wrote the checkpoint.

    Raises:
      JsonError: if the file holds anything else.
    """
    if not (folder / NAME).exists():
        return None
    digests = read_object(folder / NAME, "prism_jax.train")
    for name, digest in digests.items():
        if not isinstance(digest, str):
            raise JsonError(f"{folder / NAME}: {name}: found {digest!r}, expected a digest")
    return digests


def first_difference(folder: epath.Path, digests: Mapping[str, str]) -> str | None:
    """Names the first file that is missing or does not match its digest; None if all match.

    With several processes each of them reads a share of the files, and all return the same. All must call this.

    Args:
      folder: Folder of the checkpoint.
      digests: Expected digest of each file.
    """
    names = sorted(digests)
    share = range(jax.process_index(), len(names), jax.process_count())

    def differs(i: int) -> bool:
        path = folder / names[i]
        return not path.is_file() or sha256(path) != digests[names[i]]

    with ThreadPoolExecutor(_THREADS) as threads:
        wrong = [i for i, found in zip(share, threads.map(differs, share), strict=True) if found]
    first = np.array(min(wrong, default=len(names)))
    if jax.process_count() > 1:
        first = multihost_utils.process_allgather(first).min()
    return None if first == len(names) else names[int(first)]


def _files(folder: epath.Path, prefix: str = "") -> Iterator[str]:
    for path in folder.iterdir():
        if path.is_dir():
            yield from _files(path, f"{prefix}{path.name}/")
        else:
            yield prefix + path.name
