"""One-line messages for flags and config files that cannot be used: the place, what was found, what was expected."""

from __future__ import annotations

import ast
import itertools
import os
import pathlib
import re
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from absl import flags

CONFIG = "config"
"""The flag of every main that names a config file, and the prefix of the flags that override its settings."""

EXPECTED = "the result of prism_jax.runtime.config.to_config_dict"


def explain(error: BaseException, argv: Sequence[str]) -> str:
    """Describes why parsing `argv`, the program and its arguments, raised `error`: in absl or in a config file."""
    said = _unquoted(str(error))
    path = _config_file(argv)
    if path is not None and "no attribute 'get_config'" in said:
        return f"{path}: found no get_config, expected a function get_config() that returns the config"
    if path is not None and f"--{CONFIG} must have a value other than None" in said:
        return f"{path}: get_config() returned None, expected {EXPECTED}"
    if missing := re.findall(r"Flag (--\w+) must have a value other than None", said):
        found, expected = ("no value", "one") if len(missing) == 1 else ("no values", "them")
        return f"{', '.join(dict.fromkeys(missing))}: found {found}, expected {expected} (see --help)"
    if path is not None and (place := _place(error, said, path)):
        kind = "" if isinstance(error, ValueError | flags.Error) else f"{type(error).__name__}: "
        return f"{place}: {kind}{said.strip().splitlines()[-1]}"
    if isinstance(error, KeyError | AttributeError | TypeError):
        words = re.match(r"\"?'(\w+)'(?:\s*Did you mean \"(\w+)\")?", said) or re.search(r"\.(\w+)()", said)
        for name in _overrides(argv):
            if words and words[1] in name.split(".")[1:]:
                hint = f"; did you mean {words[2]!r}?" if words[2] else ""
                return f"--{name}: found no setting {words[1]!r} in the config{hint}"
    return said if isinstance(error, flags.Error) else f"flags: {said}"


def check_config(argv: Sequence[str]) -> str | None:
    """What is wrong with the config file of `argv`, which was parsed without an error; None if nothing is."""
    path = _config_file(argv)
    if path is None or CONFIG not in flags.FLAGS:
        return None
    if not pathlib.Path(path).exists():
        return f"--{CONFIG}: {path}: no such file, expected a config file such as those in configs/"
    config: Any = flags.FLAGS[CONFIG].value
    if not hasattr(config, "items"):
        return f"{path}: get_config() returned {config!r:.80}, expected {EXPECTED}"
    return None


def missing_library(error: ImportError, argv: Sequence[str]) -> str | None:
    """The message where a path of `argv` is in a bucket and the library for it is missing; None for other errors."""
    bucket = next((argument for argument in argv[1:] if "gs://" in argument), None)
    if bucket is None or "gcsfs" not in str(error):
        return None
    return f"{bucket}: found no library gcsfs, expected it for paths in a bucket: pip install 'prism_jax[gcs]'"


def _unquoted(said: str) -> str:
    """A message without the quotes and escapes of `repr`, which KeyError puts around its own."""
    try:
        value = ast.literal_eval(said)
    except (ValueError, SyntaxError):
        return said
    return value if isinstance(value, str) and " " in value else said


def _config_file(argv: Sequence[str]) -> str | None:
    """The path after the last --config, without the argument for `get_config` that may follow a colon."""
    path = None
    for argument, following in itertools.pairwise([*argv, ""]):
        if match := re.fullmatch(rf"--?{CONFIG}(?:=(.*))?", argument, re.DOTALL):
            path = (match[1] if match[1] is not None else following).split(":", 1)[0]
    return path


def _overrides(argv: Sequence[str]) -> Iterator[str]:
    """The names of the flags that override settings, such as `config.training.steps`."""
    for argument in argv[1:]:
        if match := re.match(rf"--?({CONFIG}\.[\w.]+)", argument):
            yield match[1]


def _place(error: BaseException, said: str, path: str) -> str | None:
    """FILE:LINE of the config file's own line that raised, or None if no line of it did."""
    own = os.path.realpath(path)
    if isinstance(error, SyntaxError) and error.filename and os.path.realpath(error.filename) == own:
        return f"{path}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if _same(frame.filename, own)]
    lines += [int(line) for name, line in re.findall(r'File "(.*?)", line (\d+)', said) if _same(name, own)]
    return f"{path}:{lines[-1]}" if lines else None


def _same(name: str, own: str) -> bool:
    return os.path.realpath(name) == own
