"""How every main starts: it parses absl flags and reports every error in one line instead of a traceback."""

from __future__ import annotations

import re
import shlex
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from absl import app, flags, logging

from prism_jax.runtime import flag_errors
from prism_jax.runtime.redaction import without_credentials
from prism_jax.runtime.shown_text import visible


def start(
    main: Callable[..., Any],
    renamed: Mapping[str, str] | None = None,
    *,
    arguments: str = "",
    trouble: int = 1,
) -> None:
    """Parses flags and runs `main`; every error ends in one line on stderr and exit status `trouble`.

    With --verbosity=1 the traceback is shown as well. An exception that no check foresaw is named with its class.
    Ctrl-C ends with exit status 130, where `main` does not handle it itself.

    Args:
      main: Runs the program. An integer that it returns is the exit status.
      renamed: Maps old dotted config keys to their current names; a flag that overrides an old one is an error.
      arguments: What the arguments beside the flags are, such as "FILE.csv"; `main` is called with the list of them,
        and their absence is an error. By default such an argument is an error.
      trouble: Exit status of errors, for a main whose status 1 has another meaning.
    """

    def wrapped(argv: Sequence[str]) -> int:
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)  # the libraries in use log every file that they touch
        if arguments and len(argv) < 2:
            return _fail(f"found no argument, expected {arguments} (see --help)", trouble)
        if not arguments and len(argv) > 1:
            return _fail(f"found argument {argv[1]!r}, expected flags only (see --help)", trouble)
        sys.unraisablehook = _log_unraisable
        try:
            status = main(list(argv[1:])) if arguments else main()
        except KeyboardInterrupt:
            return _fail("interrupted", 130)
        except Exception as error:  # the last resort: a user needs a line, a developer asks for the traceback
            logging.debug("traceback of the error below", exc_info=True)
            return _fail(_in_words(error), trouble)
        return status if isinstance(status, int) else 0

    def parse(argv: list[str]) -> list[str]:
        for argument in argv[1:]:
            override = re.match(r"--?\w+\.([\w.]+)", argument)
            if override and override[1] in (renamed or {}):
                sys.exit(_fail(f"flags: {override[0]}: renamed to {(renamed or {})[override[1]]}", trouble))
        try:
            rest = flags.FLAGS(argv)
        except Exception as error:  # a config file is a program, which may raise anything
            if any(re.fullmatch(r"--?(verbosity=|v=?)1", argument) for argument in argv[1:]):
                traceback.print_exception(error)
            sys.exit(_fail(flag_errors.explain(error, argv), trouble))
        if wrong := flag_errors.check_config(argv):
            sys.exit(_fail(wrong, trouble))
        return rest

    app.run(wrapped, flags_parser=parse)


def moved(name: str) -> NoReturn:
    """Ends a module that was a command once with the line to type now.

    Args:
      name: The command's new name below the package, such as "experiments thinking".
    """
    line = shlex.join(["python", "-m", *f"prism_jax.{name}".split(), *sys.argv[1:]])
    sys.exit(_fail(f"this command has another name: {line}", 2))


def _log_unraisable(lost: sys.UnraisableHookArgs) -> None:
    """Logs exceptions that no caller can catch: when one read fails, the others raise on a closed event loop."""
    logging.debug("lost: %s", lost.exc_value, exc_info=lost.exc_value)


def _in_words(error: Exception) -> str:
    """The message of an expected error; an unexpected one is named with its class and its line."""
    if isinstance(error, ValueError | OSError | RuntimeError) and str(error):
        return str(error)
    if isinstance(error, ImportError) and (said := flag_errors.missing_library(error, sys.argv)):
        return said
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename and frame.filename != __file__]
    place = f" in {own[-1].filename}:{own[-1].lineno}" if own else ""
    return f"unexpected {type(error).__name__}{place}: {error} (--verbosity=1 shows the traceback)"


def _fail(message: str, status: int = 1) -> int:
    sys.stderr.write(f"error: {visible(without_credentials(' '.join(message.split())))}\n")
    return status
