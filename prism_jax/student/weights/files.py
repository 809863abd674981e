"""Which files of a model directory may be read: those inside it, and no pickles."""

from __future__ import annotations

import json
import pathlib
from typing import Any

# Reading a pickle runs whatever program its author put there.
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")


def refuse_pickle(path: pathlib.Path) -> None:
    """Refuses a pickle by its name.

    Raises:
      ValueError: naming the file.
    """
    if path.suffix.lower() in _PICKLES:
        raise ValueError(
            f"{path}: found a pickle file, expected safetensors or GGUF: a pickle runs code when it is read"
        )


def model_directory(path: pathlib.Path) -> pathlib.Path:
    """The directory, if it is one.

    Raises:
      FileNotFoundError, NotADirectoryError, ValueError: when it doesn't exist, is no directory, or is a pickle file.
    """
    refuse_pickle(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such directory, expected a Hugging Face model directory")
    if not path.is_dir():
        raise NotADirectoryError(f"{path}: found a file, expected a Hugging Face model directory")
    return path


def inside(directory: pathlib.Path, name: str) -> pathlib.Path:
    """The file `name` of a directory.

    Raises:
      FileNotFoundError: when it doesn't exist.
      ValueError: when the name or a symlink leads out of the directory, or it is a pickle.
    """
    path = directory / name
    refuse_pickle(path)
    target, home = path.resolve(), directory.resolve()
    if not target.is_relative_to(home):
        how = "a symlink" if path.is_symlink() else "a path"
        raise ValueError(
            f"{path}: found {how} out of the directory (to {target}), expected a file inside {home}; copy it there"
        )
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file, expected one in a Hugging Face model directory")
    return path


def read_json(directory: pathlib.Path, name: str) -> Any:
    """The content of a JSON file of a directory.

    Raises:
      OSError, ValueError: when it can't be read, leads out of the directory, or is no JSON.
    """
    path = inside(directory, name)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise ValueError(f"{path}: found no valid JSON ({error}), expected a JSON object") from None
