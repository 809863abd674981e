"""SHA-256 of files: a list of them beside the files that it covers, and whether files are still those that it lists.

`digests.json` in a folder maps each file's path to its digest. The list finds damage. Whoever changes a file on purpose
can change the list too, which only the list's own digest finds, kept where they cannot write.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from absl import flags
from etils import epath

from prism_jax.runtime.files import JsonError, encode_json, on_disk, open_regular, parse_json, read_bounded, write_bytes

NAME = "digests.json"
EXPORT = "`python -m prism_jax export`"
"""What writes the lists that `check_folder` reads."""
_BLOCK = 1 << 22
_DIGITS = 64

T = TypeVar("T")


class DigestError(ValueError):
    """A folder whose files are not those of its list; the message names the file, what was found and expected."""


class FolderCheck(NamedTuple):
    """What was compared; as text, one line that says so."""

    files: int
    size: int  # their bytes
    seconds: float
    sha256: str  # digest of the list itself

    def __str__(self) -> str:
        size = f"{self.size / 2**20:.1f} MiB"
        return f"compared {self.files} files ({size}) with {NAME} in {self.seconds:.2f} s; its SHA-256: {self.sha256}"


def define_flag(what: str) -> None:
    """Defines --expect_digest of a main that loads an export; `what` says where it stands, such as "--model"."""
    flags.DEFINE_string(
        "expect_digest", None, f"SHA-256 of the {NAME} of the export in {what}, as `export` printed it."
    )
    flags.register_validator(
        "expect_digest", lambda value: value is None or is_sha256(value.lower()), "expected 64 hexadecimal digits"
    )


def is_sha256(text: object) -> bool:
    """Whether a value is 64 hexadecimal digits, the letters among them small."""
    return isinstance(text, str) and len(text) == _DIGITS and set(text) <= set("0123456789abcdef")


def sha256(*paths: epath.PathLike) -> str:
    """The SHA-256 of a file, or of several files one after another, as 64 hexadecimal digits.

    Raises DigestError for anything but regular files.
    """
    digest = hashlib.sha256()
    for path in paths:
        with open_regular(path, DigestError) as file:
            while block := file.read(_BLOCK):
                digest.update(block)  # releases the interpreter's lock
    return digest.hexdigest()


def weights_sha256(path: epath.PathLike) -> str:
    """The SHA-256 of a GGUF file, or of a directory's safetensors: `cat DIR/*.safetensors | sha256sum`.

    The files of a directory are read one after another in the order of their names. FileNotFoundError without any.
    """
    place = epath.Path(path)
    files = sorted(place.glob("*.safetensors")) if place.is_dir() else [place]
    if not files or not files[0].exists():
        raise FileNotFoundError(f"{place}: found no weights, expected a GGUF file or safetensors")
    return sha256(*files)


def write_digests(folder: epath.Path, but: Iterable[str] = ()) -> str:
    """Lists the digests of all files but some in a folder that is otherwise complete; returns the list's SHA-256."""
    names = sorted(set(files_in(folder)) - {NAME, *but})
    digests = map_in_threads(lambda name: sha256(folder / name), names)
    content = encode_json(dict(zip(names, digests, strict=True)))
    write_bytes(folder / NAME, content)
    return hashlib.sha256(content).hexdigest()


def read_digests(folder: epath.Path) -> dict[str, str] | None:
    """The digests of a folder's files by their paths; None if there is no list.

    Raises JsonError if the list is not written as `write_digests` writes it: no byte of it may change without notice.
    """
    path = folder / NAME
    if not path.exists():
        return None
    data = read_bounded(path)
    digests = parse_json(data, str(path))
    if not isinstance(digests, dict):
        raise JsonError(f"{path}: found no object, expected one of file names and digests")
    for name, digest in digests.items():
        if not is_sha256(digest):
            raise JsonError(f"{path}: {name}: found {digest!r:.80}, expected a digest")
        if name.startswith("/") or ".." in name.split("/"):
            raise JsonError(f"{path}: found {name!r:.80}, expected the name of a file in the folder")
    if encode_json(digests) != data:
        raise JsonError(f"{path}: found other bytes than its entries are written with, expected a whole list")
    return digests


def changed_files(folder: epath.Path, digests: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """The names of files that are missing, no files, not listed or without the digest of the list, in their order."""
    names = list(names)

    def differs(name: str) -> bool:
        try:
            return sha256(folder / name) != digests.get(name)
        except (FileNotFoundError, DigestError):
            return True

    return [name for name, changed in zip(names, map_in_threads(differs, names), strict=True) if changed]


def check_contents(
    folder: epath.Path, contents: Mapping[str, bytes], expected: str | None = None, source: str = EXPORT
) -> str:
    """Compares what was read of files of a directory that `source` wrote with its list, whose SHA-256 it returns.

    Raises:
      FileNotFoundError: if there is no list.
      ValueError: naming the first file that has changed or is not listed; or a list that is damaged, or another one
        than expected.
    """
    digests, list_digest = _listed(folder, expected, source)
    _refuse(
        folder, [name for name in contents if hashlib.sha256(contents[name]).hexdigest() != digests.get(name)], source
    )
    return list_digest


def check_folder(
    folder: epath.PathLike, expected: str | None = None, only: Collection[str] | None = None
) -> FolderCheck:
    """Compares every file of an exported directory, or `only` those that are read, with its list, several at a time.

    A file that the list lacks is refused too, since a reader might prefer it to one that is listed. Nothing reads
    hidden files and documents (`README.md`, `LICENSE`), which may be added. `expected` is the SHA-256 of the list; None
    believes the list.

    Raises:
      FileNotFoundError: if there is no list.
      ValueError: naming the file that is missing, has changed, or is not listed; or another list than expected.
    """
    folder, began = epath.Path(folder), time.perf_counter()
    digests, list_digest = _listed(folder, expected, EXPORT)
    for name in sorted(files_in(folder)):
        if name not in digests and name != NAME and not _harmless(name):
            raise DigestError(
                f"{folder / name}: found a file that {NAME} does not list, expected every file that is read to be "
                f"listed: remove it, or run {EXPORT} again"
            )
    read = [name for name in digests if only is None or name in only]
    _refuse(folder, changed_files(folder, digests, read), EXPORT)
    size = sum((folder / name).stat().length for name in read)
    return FolderCheck(len(read), size, time.perf_counter() - began, list_digest)


def check_export(path: epath.PathLike, expected: str | None = None) -> None:
    """Compares a model directory with its list where it is an export; of other weights, such as GGUF, there is none.

    With `expected`, the SHA-256 of the list, anything but an export is refused. The errors are those of `check_folder`.
    """
    folder = epath.Path(path)
    if str(path) and ((folder / NAME).exists() or (folder / "prism.json").exists()):
        check_folder(folder, expected)
    elif expected is not None:
        found = f"no {NAME} in {path}" if str(path) else "no weights"
        raise DigestError(f"--expect_digest: found {found}, expected a directory that {EXPORT} wrote")


def map_in_threads(compute: Callable[[str], T], names: Sequence[str]) -> list[T]:
    """Computes something for each name, as many at a time as there are processors."""
    with ThreadPoolExecutor(max(os.cpu_count() or 1, 1)) as pool:
        return list(pool.map(compute, names))


def files_in(folder: epath.Path, prefix: str = "") -> Iterator[str]:
    """Paths of all files of a folder, relative to it; a link to a folder is not followed."""
    for path in folder.iterdir():
        if path.is_dir() and not (on_disk(path) and pathlib.Path(path).is_symlink()):
            yield from files_in(path, f"{prefix}{path.name}/")
        else:
            yield prefix + path.name


def _listed(folder: epath.Path, expected: str | None, source: str) -> tuple[dict[str, str], str]:
    """The list of a directory that `source` wrote, and its SHA-256; errors as of `check_contents`."""
    digests = read_digests(folder)
    if digests is None:
        raise FileNotFoundError(f"{folder / NAME}: no such file, expected what {source} writes: run {source} again")
    list_digest = hashlib.sha256(encode_json(digests)).hexdigest()  # it has no other bytes than these
    if expected is not None and list_digest != expected.lower():
        raise DigestError(
            f"{folder / NAME}: found the SHA-256 {list_digest}, expected {expected.lower()}: another export"
        )
    return digests, list_digest


def _refuse(folder: epath.Path, changed: Sequence[str], source: str) -> None:
    if changed:
        raise DigestError(
            f"{folder / changed[0]}: found a missing, changed or unlisted file, expected what {NAME} lists: "
            f"run {source} again"
        )


def _harmless(name: str) -> bool:
    """Whether nothing reads a file of this name."""
    parts = name.split("/")
    return any(part.startswith(".") for part in parts) or parts[-1].endswith(".md") or parts[-1] == "LICENSE"
