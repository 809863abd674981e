"""Audits printed tables of results: `python -m prism_jax.audit FILE.csv [FILE.csv ...] --n=233`.

Checks whether rates agree with each other, whether counts of N decisions exist that print as each row, and what follows
between rows and tables (docs/audit.md). The exit status is 0 if nothing was found, 1 if something was, and 2 for an
input that cannot be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from absl import flags

from prism_jax.published.feasible import MOST_STEPS
from prism_jax.published.reading import FalseAlarm
from prism_jax.recipes.auditing import audit_files
from prism_jax.runtime import command
from prism_jax.runtime.flag_checks import refuse_empty


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_multi_integer("n", [], "Number of decisions; may be repeated.", lower_bound=1, upper_bound=MOST_STEPS)
    flags.DEFINE_integer("decimals", None, "Decimals of all numbers; by default those printed.", 0, 20)
    choices = get_args(FalseAlarm)
    flags.DEFINE_enum("false_alarm", choices[0], choices, "Meaning of false alarm: FP/(TP+FP), or FP/(FP+TN).")
    flags.DEFINE_bool("same_labels", False, "The rows of a table were scored on the same steps with the same labels.")
    flags.DEFINE_string("out", None, "Folder for the tables as CSV, Markdown and LaTeX.")
    refuse_empty("out")


def main(paths: Sequence[str]) -> int:
    """Audits the files."""
    options = flags.FLAGS
    findings = audit_files(
        paths,
        steps=options.n,
        decimals=options.decimals,
        false_alarm=options.false_alarm,
        same_labels=options.same_labels,
        out=options.out,
    )
    return 1 if findings else 0


if __name__ == "__main__":
    define_flags()
    command.start(main, arguments="FILE.csv", trouble=2)
