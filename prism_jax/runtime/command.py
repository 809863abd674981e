"""How every main starts: it parses absl flags and reports every error in one line instead of a traceback."""

from __future__ import annotations

import ast
import ctypes
import difflib
import errno
import gc
import itertools
import os
import pathlib
import platform
import re
import shutil
import signal
import sys
import textwrap
import traceback
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import app, flags, logging

from prism_jax.runtime.shown_text import visible, without_credentials


def refuse_empty(*names: str) -> None:
    """Makes an empty value of these defined flags an error, because an empty path would be the current folder."""
    for name in names:
        flags.register_validator(
            name,
            lambda value: (
                value is None or all(part.strip() for part in ([value] if isinstance(value, str) else value or [""]))
            ),
            f"--{name}: found an empty value, expected a path (. is the current folder)",
        )


def is_given(name: str, options: Mapping[str, Any] | None = None) -> bool:
    """Whether a flag says something: in `options` a value, and among the defined flags one that was typed.

    What is on by default says something where it was turned off.
    """
    if options is not None:
        return _says(options[name])
    flag = flags.FLAGS[name]
    return not flag.using_default_value and (_says(flag.value) or _says(flag.default))


def _says(value: Any) -> bool:
    return value is not None and value is not False and value != []


def check_together(*rules: str, options: Mapping[str, Any] | None = None) -> None:
    """Raises ValueError for flags that exclude or need each other, one rule after another.

    A rule is `A B with C D: EXPECTED`, which refuses A and B beside C or D, or `A B without C D: EXPECTED`, which
    refuses them where there is neither; these are names. `options` has values by names; without it, the defined flags
    are asked.
    """
    for rule in rules:
        names, how, others, expected = re.fullmatch("(.*?) (with|without) (.*?): (.*)", rule).groups()  # type: ignore[union-attr]
        beside = [other for other in others.split() if is_given(other, options)]
        named = [name for name in names.split() if is_given(name, options)]
        if named and bool(beside) == (how == "with"):
            found = " and ".join(f"--{other}" for other in beside or others.split())
            raise ValueError(f"--{named[0]}: found it {how} {found}, expected {expected}")


CONFIG = "config"
"""The flag of every main that names a config file, and the prefix of the flags that override its settings."""

EXPECTED = "the result of prism_jax.runtime.dataclass_config.to_config_dict"


def explain(error: BaseException, argv: Sequence[str], defaults: str = "") -> str:
    """Describes why parsing `argv`, the program and its arguments, raised `error`: in absl or in a config file.

    `defaults` is that of `start`.
    """
    message = _unquoted(str(error))
    path = _config_file(argv)
    if path is not None and CONFIG in flags.FLAGS and not pathlib.Path(path).exists():
        return _no_such(path)
    if path is not None and "no attribute 'get_config'" in message:
        return f"{path}: found no get_config, expected a function get_config() that returns the config"
    if path is not None and f"--{CONFIG} must have a value other than None" in message:
        return f"{path}: get_config() returned None, expected {EXPECTED}"
    if missing := re.findall(r"Flag (--\w+) must have a value other than None", message):
        found, expected = ("no value", "one") if len(missing) == 1 else ("no values", "them")
        return f"{', '.join(dict.fromkeys(missing))}: found {found}, expected {expected} (see --help)"
    if path is not None and (place := _place(error, message, path)):
        kind = "" if isinstance(error, ValueError | flags.Error) else f"{type(error).__name__}: "
        return f"{place}: {kind}{message.strip().splitlines()[-1]}"
    if isinstance(error, flags.UnrecognizedFlagError) and (
        hint := _setting(error.flagname, config_value(argv) or defaults)
    ):
        return f"{message.partition('. Did you mean')[0]}; did you mean {hint}?"
    overrides = (re.match(rf"--?{CONFIG}\.([^=\s]+)", argument) for argument in argv[1:])
    for name in (match[1] for match in overrides if match):  # such as training.steps
        if problem := _unknown(name, argv):
            return problem
        if path is None and CONFIG in flags.FLAGS:
            expected = "expected the config file whose setting it changes"
            return f"--{CONFIG}.{name}: found it without --{CONFIG}=FILE, {expected}"
    if message.startswith("flags "):  # a rule for several flags, behind all their values, of which one may be a config
        return re.split(r": (?=--|expected )", message)[-1]
    return message if isinstance(error, flags.Error) else f"flags: {message}"


def _unknown(name: str, argv: Sequence[str]) -> str | None:
    """What is wrong with an override of a setting that the config file does not have, and what it could mean."""
    try:
        config = flags.FLAGS[CONFIG].parser.parse(config_value(argv) or "")
        leaves = [*_leaves(config)]
    except Exception:  # the file is a program, and what is wrong with it is another problem
        return None
    section: Any = config
    for part in name.split("."):
        key = part.partition("[")[0]  # an item of a list has its index behind the name
        keys = [*section] if hasattr(section, "items") else []
        if key not in keys:
            break
        section = section[key]
    else:
        return None
    if elsewhere := _named(name, leaves):
        hint = f"; did you mean {elsewhere}?"
    elif near := difflib.get_close_matches(key, keys, n=1):
        hint = f"; did you mean {near[0]!r}?"
    else:
        hint = f", expected one of {', '.join(keys)}" if keys else ""
    return f"--{CONFIG}.{name}: found no setting {part!r} in the config{hint}"


def _setting(name: str, config: str) -> str:
    """The flags of the settings of a config file that a flag without their sections may mean; empty without any."""
    try:
        return _named(name, _leaves(flags.FLAGS[CONFIG].parser.parse(config)))
    except Exception:  # as above
        return ""


def _named(name: str, leaves: Iterable[str]) -> str:
    """The flags of the settings that end as a name does."""
    return " or ".join(f"--{CONFIG}.{leaf}" for leaf in leaves if leaf.rpartition(".")[2] == name.rpartition(".")[2])


def _leaves(section: Any, place: str = "") -> Iterator[str]:
    """Yields the names of all settings of a config, such as training.steps."""
    for key in section:
        if hasattr(section[key], "items"):
            yield from _leaves(section[key], f"{place}{key}.")
        else:
            yield f"{place}{key}"


def check_config(argv: Sequence[str]) -> str | None:
    """What is wrong with the config file of `argv`, which was parsed without an error; None if nothing is."""
    path = _config_file(argv)
    if path is None or CONFIG not in flags.FLAGS:
        return None
    if not pathlib.Path(path).exists():
        return _no_such(path)
    config: Any = flags.FLAGS[CONFIG].value
    if not hasattr(config, "items"):
        return f"{path}: get_config() returned {config!r:.80}, expected {EXPECTED}"
    return None


def _no_such(path: str) -> str:
    expected = "expected a config file such as those in configs/ of a checkout; pip installs none"
    return f"--{CONFIG}: {path}: no such file, {expected}"


def missing_library(error: ImportError, argv: Sequence[str]) -> str | None:
    """The message where a path of `argv` is in a bucket and the library for it is missing; None for other errors."""
    bucket = next((argument for argument in argv[1:] if "gs://" in argument), None)
    if bucket is None or "gcsfs" not in str(error):
        return None
    return f"{bucket}: found no library gcsfs, expected it for paths in a bucket: pip install 'prism_jax[gcs]'"


def _unquoted(message: str) -> str:
    """A message without the quotes and escapes of `repr`, which KeyError puts around its own."""
    try:
        value = ast.literal_eval(message)
    except (ValueError, SyntaxError):
        return message
    return value if isinstance(value, str) and " " in value else message


def _config_file(argv: Sequence[str]) -> str | None:
    """The path after the last --config, without the argument for `get_config` that may follow a colon."""
    value = config_value(argv)
    return None if value is None else value.split(":", 1)[0]


def config_value(argv: Sequence[str]) -> str | None:
    """What stands after the last --config."""
    value = None
    for argument, following in itertools.pairwise([*argv, ""]):
        if match := re.fullmatch(rf"--?{CONFIG}(?:=(.*))?", argument, re.DOTALL):
            value = match[1] if match[1] is not None else following
    return value


def _place(error: BaseException, message: str, path: str) -> str | None:
    """FILE:LINE of the config file's own line that raised, or None if no line of it did."""
    config_path = os.path.realpath(path)
    if isinstance(error, SyntaxError) and error.filename and os.path.realpath(error.filename) == config_path:
        return f"{path}:{error.lineno}"
    frames = [(frame.filename, str(frame.lineno)) for frame in traceback.extract_tb(error.__traceback__)]
    frames += re.findall(r'File "(.*?)", line (\d+)', message)
    lines = [line for name, line in frames if os.path.realpath(name) == config_path]
    return f"{path}:{lines[-1]}" if lines else None


MOST_EXPLAINED = 40
"""Most flags to which --help gives a line each; of more, those that other commands share are only named."""


def help_screen(doc: str, own: Sequence[flags.Flag[Any]], shared: Sequence[flags.Flag[Any]]) -> str:
    """One screen of help: a main's docstring, whose example comes first, and a line for each flag.

    A line is as wide as the terminal, or 120 characters where there is none.
    """
    title, *paragraphs = doc.strip().split("\n\n")
    if paragraphs and paragraphs[0].startswith("    "):
        title, paragraphs = paragraphs[0], [title, *paragraphs[1:]]
    width = shutil.get_terminal_size((120, 24)).columns
    named: list[str] = []
    if len(own) + len(shared) > MOST_EXPLAINED:
        text = f"Further flags: {' '.join(f'--{flag.name}' for flag in shared)}"
        shared, named = (), ["", *textwrap.wrap(text, width, break_on_hyphens=False)]
    rows = []
    for flag in (*own, *shared):
        default = "" if flag.boolean or flag.default in (None, [], "") else f"={flag.default_as_str}".replace("'", "")
        what = (flag.help or "").partition(";\n    repeat")[0]
        rows.append((f"  --{'[no]' * (flag.default is True)}{flag.name}{default}", what))
    longest = min(max((len(name) for name, _ in rows), default=0), 28)
    lines = [
        f"{name:{longest}s}  {textwrap.shorten(what, max(width - max(longest, len(name)) - 2, 20), placeholder=' …')}"
        for name, what in rows
    ]
    about = "\n\n".join((title, *paragraphs))
    return "\n".join([about, "", *lines, *named, "", "--helpfull explains all flags in full."])


def say(line: str) -> None:
    """Writes a line to stderr at once."""
    print(line, file=sys.stderr, flush=True)


# Constants of malloc.h, each with its number and our value: never return the free end of the heap to the system, never
# map a block outside the heap, and use one heap for all threads, because any other heap cannot hold large blocks.
_SETTINGS = {"M_TRIM_THRESHOLD": (-1, -1), "M_MMAP_MAX": (-4, 0), "M_ARENA_MAX": (-8, 1)}


def keep_freed_memory() -> bool:
    """Makes glibc keep freed memory until the process ends (mallopt(3)); returns False with another C library.

    The temporaries of a training step are one block, of gigabytes for a real model on CPU, and those of an evaluation
    many of megabytes. Without these settings, they would be returned to the system after every use and allocated again,
    zeroed page by page. Call this before JAX starts its threads, because a thread that already has a heap of its own
    keeps it.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all([mallopt(setting, value) for setting, value in _SETTINGS.values()])


def collect_seldom() -> None:
    """Searches for garbage once in 100,000 new objects, as modules leave none: once in 700 takes a tenth of a start."""
    gc.set_threshold(100_000)


def start(
    main: Callable[..., Any],
    *,
    arguments: str = "",
    trouble: int = 1,
    defaults: str = "",
    moved: Mapping[str, str] = types.MappingProxyType({}),
) -> None:
    """Parses flags and runs `main`; every error ends in one line on stderr and exit status `trouble`.

    With --verbosity=1 the traceback is shown as well. An exception that no check foresaw is named with its class.
    Ctrl-C ends with exit status 130, where `main` does not handle it itself.

    Args:
      main: Runs the program. An integer that it returns is the exit status.
      arguments: What the arguments beside the flags are, such as "FILE.csv"; `main` is called with the list of them,
        and their absence is an error. By default such an argument is an error.
      trouble: Exit status of errors, for a main whose status 1 has another meaning.
      defaults: A config file with all defaults, which --list_settings reads where no other is named.
      moved: What to type after `python -m prism_jax` in place of flags that this command had, by their names.
    """

    def wrapped(argv: Sequence[str]) -> int:
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)  # the libraries in use log every file that they touch
        if arguments and len(argv) < 2:
            return _fail(f"found no argument, expected {arguments} (see --help)", trouble)
        if not arguments and len(argv) > 1:
            return _fail(f"found argument {argv[1]!r}, expected flags only (see --help)", trouble)
        sys.unraisablehook, warnings.formatwarning = _log_unraisable, _in_one_line
        try:
            status = main(list(argv[1:])) if arguments else main()
        except KeyboardInterrupt:
            return _fail("interrupted", 130)
        except Exception as error:  # the last resort: a user needs a line, a developer asks for the traceback
            logging.debug("traceback of the error below", exc_info=True)
            return _fail(_in_words(error), trouble)
        return status if isinstance(status, int) else 0

    def parse(argv: list[str]) -> list[str]:
        if any(re.fullmatch("-h|-[?]|--?help(short)?", argument) for argument in argv[1:]):
            of_modules = flags.FLAGS.flags_by_module_dict()
            shared = [
                flag for name in of_modules if name.startswith(("prism_jax.", "studies.")) for flag in of_modules[name]
            ]
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as `head` may end before the help
            print(help_screen(sys.modules["__main__"].__doc__ or "", of_modules.get(argv[0], []), shared))
            sys.exit(0)
        if "--list_settings" in argv and config_value(argv) is None:
            argv.insert(1, f"--{CONFIG}={defaults}")
        try:
            rest = flags.FLAGS(argv)
        except SystemExit as end:  # --helpfull ends so, with status 1, or a config file with its own
            sys.exit(0 if any(re.fullmatch(r"--?help\w*", argument) for argument in argv[1:]) else end.code)
        except Exception as error:  # a config file is a program, which may raise anything
            if any(re.fullmatch(r"--?(verbosity=|v=?)1", argument) for argument in argv[1:]):
                traceback.print_exception(error)
            name = error.flagname if isinstance(error, flags.UnrecognizedFlagError) else ""
            pointer = f"--{name}: found it here, expected `python -m prism_jax {moved[name]}`" if name in moved else ""
            sys.exit(_fail(pointer or explain(error, argv, defaults), trouble))
        if problem := check_config(argv):
            sys.exit(_fail(problem, trouble))
        return rest

    app.run(wrapped, flags_parser=parse)


def _in_one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning of ours without its place in the code, which tells a user nothing; others as Python shows them."""
    if category.__module__.startswith("prism_jax."):
        return f"warning: {' '.join(str(message).split())}\n"
    return _PYTHONS(message, category, filename, lineno, line)


_PYTHONS = warnings.formatwarning


def _log_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Logs exceptions that no caller can catch: when one read fails, the others raise on a closed event loop."""
    logging.debug("lost: %s", unraisable.exc_value, exc_info=unraisable.exc_value)


_OF_PATHS = (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM)


def _in_words(error: Exception) -> str:
    """The message of an expected error; an unexpected one is named with its class and its line."""
    if isinstance(error, OSError) and error.errno is not None and isinstance(error.filename2 or error.filename, str):
        path = pathlib.Path(error.filename2 or error.filename)
        if path.is_symlink() and not path.exists():
            return f"{path}: found a link to {path.readlink()}, where nothing is, expected a new path or what is there"
        expected = ", expected a path that can be used" if error.errno in _OF_PATHS else ""
        return f"{path}: found that the system refuses it ({error.strerror}){expected}"
    if isinstance(error, ValueError | OSError | RuntimeError) and str(error):
        return str(error)
    if isinstance(error, ImportError) and (message := missing_library(error, sys.argv)):
        return message
    frames = traceback.extract_tb(error.__traceback__)
    our_frames = [frame for frame in frames if "site-packages" not in frame.filename and frame.filename != __file__]
    place = f" in {our_frames[-1].filename}:{our_frames[-1].lineno}" if our_frames else ""
    return f"unexpected {type(error).__name__}{place}: {error} (--verbosity=1 shows the traceback)"


def _fail(message: str, status: int = 1) -> int:
    sys.stderr.write(f"error: {visible(without_credentials(' '.join(message.split())))}\n")
    return status
