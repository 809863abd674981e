"""How every main starts: it parses absl flags and reports bad input in one line instead of a traceback."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import app, flags, logging

from prism_jax.runtime.config import ConfigError


def start(main: Callable[[], Any], renamed: Mapping[str, str] | None = None) -> None:
    """Parses flags and runs `main`; bad input ends in one line on stderr and exit status 1.

    With --verbosity=1 the traceback is shown as well.

    Args:
      main: Function to run.
      renamed: Maps old dotted config keys to their current names; a flag that overrides an old one is an error.
    """

    def wrapped(argv: Sequence[str]) -> int:
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)  # the libraries in use log every file that they touch
        if len(argv) > 1:
            return _fail(f"found argument {argv[1]!r}, expected flags only (see --help)")
        sys.unraisablehook = _log_unraisable
        try:
            main()
        except (ValueError, OSError, RuntimeError) as error:
            logging.debug("traceback of the error below", exc_info=True)
            return _fail(str(error))
        return 0

    def parse(argv: list[str]) -> list[str]:
        for argument in argv[1:]:
            override = re.match(r"--?\w+\.([\w.]+)", argument)
            if override and override[1] in (renamed or {}):
                sys.exit(_fail(f"flags: {override[0]}: renamed to {(renamed or {})[override[1]]}"))
        try:
            return flags.FLAGS(argv)
        except flags.Error as error:
            sys.exit(_fail(str(error)))
        except (AttributeError, KeyError, TypeError, ValueError, ConfigError) as error:
            sys.exit(_fail(f"flags: {error}"))

    app.run(wrapped, flags_parser=parse)


def _log_unraisable(lost: sys.UnraisableHookArgs) -> None:
    """Logs exceptions that no caller can catch: when one read fails, the others raise on a closed event loop."""
    logging.debug("lost: %s", lost.exc_value, exc_info=lost.exc_value)


def _fail(message: str) -> int:
    sys.stderr.write(f"error: {' '.join(message.split())}\n")
    return 1
