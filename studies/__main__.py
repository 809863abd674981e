"""Studies of our own, by name.

    python -m studies NAME [--flags] [--workdir=DIR]
    python -m studies NAME --help             # the flags of a study
    python -m prism_jax experiments --list    # what each shows, needs, and how long it takes
    python -m studies.audit_tables FILE.csv   # audits printed tables, and says by its exit status what it found

Each prints its tables, and writes them into DIR as CSV, Markdown and LaTeX.
"""

from __future__ import annotations

import sys

from prism_jax.experiments import by_name
from prism_jax.runtime import command
from studies.registry import STUDIES


def refuse(arguments: list[str]) -> None:
    """Says which names there are."""
    audit = "; `python -m studies.audit_tables` audits printed tables"
    raise ValueError(f"study: found {arguments[0]!r}, expected one of {', '.join(STUDIES)}{audit}")


def start(argv: list[str]) -> None:
    """Starts the study that the first argument names, with the flags that it has."""
    name = next((argument for argument in argv[1:] if argument in STUDIES), None)
    if name is None:
        command.start(refuse, arguments=f"one of {', '.join(STUDIES)}")
        return
    by_name.start(f"studies.{name}", STUDIES[name])


if __name__ == "__main__":
    start(sys.argv)
