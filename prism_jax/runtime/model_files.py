"""Access to the files of a model directory: only files inside it are read, and no pickles."""

from __future__ import annotations

import os
import pathlib
from typing import Any

from prism_jax.runtime.files import check_regular, parse_json, read_bounded

# Reading a pickle can run any code that its author put there.
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")


def refuse_pickle(path: pathlib.Path) -> None:
    """Raises ValueError, naming the file, if the name of a file is that of a pickle."""
    if path.suffix.lower() in _PICKLES:
        raise ValueError(
            f"{path}: found a pickle file, expected safetensors or GGUF: a pickle runs code when it is read"
        )


def model_directory(path: pathlib.Path) -> pathlib.Path:
    """Returns the path of an existing directory; refuses anything else, and a pickle by its name."""
    refuse_pickle(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such directory, expected a Hugging Face model directory")
    if not path.is_dir():
        raise NotADirectoryError(f"{path}: found a file, expected a Hugging Face model directory")
    return path


def inside(directory: pathlib.Path, name: str) -> pathlib.Path:
    """The path of the file `name` in a directory.

    Raises:
      FileNotFoundError: when there is no such file.
      ValueError: when the name or a symlink leads out of the directory, or it is no regular file, or a pickle. A
        snapshot in the cache of Hugging Face's hub may link to the blobs of its own model.
    """
    path = directory / name
    refuse_pickle(path)
    target, home = (pathlib.Path(os.path.realpath(place)) for place in (path, directory))  # links may run in a circle
    homes = [home]
    if home.parent.name == "snapshots" and home.parent.parent.name.startswith("models--"):
        homes.append(home.parent.parent / "blobs")
    if not any(target.is_relative_to(folder) for folder in homes):
        how = "a symlink" if path.is_symlink() else "a path"
        raise ValueError(
            f"{path}: found {how} out of the directory (to {target}), expected a file inside {home}; copy it there"
        )
    check_regular(path, ValueError, "one in a Hugging Face model directory")
    return path


def read_json(directory: pathlib.Path, name: str) -> Any:
    """Reads a JSON file of a directory.

    Raises OSError or ValueError when the file cannot be read, is outside of the directory, is larger than
    `prism_jax.runtime.files.MOST_LINE_BYTES`, is not valid JSON, or names a key twice in one object.
    """
    path = inside(directory, name)
    return parse_json(read_bounded(path), str(path))
