"""How scores files are read and evaluated, as flags say it: a command's help needs nothing that reads them."""

from __future__ import annotations

import dataclasses
import os
from typing import Literal

from absl import flags

RunnerName = Literal["local", "ray"]
RUNNERS: tuple[RunnerName, ...] = ("local", "ray")
MOST_EXACT_ROWS = 2_000_000
"""Up to so many rows a table is evaluated exactly, in memory unless on a cluster; more are evaluated part by part."""

OF_FILES = ("runner", "workers", "skip_bad")
"""Flags that say how files are read and evaluated."""


@dataclasses.dataclass(frozen=True)
class Running:
    """How scores files are read and evaluated.

    Attributes:
      runner: `local` processes, or `ray`.
      workers: Number of processes or tasks; None is one for each processor.
      skip_bad: Whether files that cannot be read are left out, and said so.
      most: Up to so many rows everything is exact; None is `MOST_EXACT_ROWS`.
    """

    runner: RunnerName = "local"
    workers: int | None = None
    skip_bad: bool = False
    most: int | None = None

    @staticmethod
    def define_flags() -> None:
        """Defines the flags of `OF_FILES`."""
        flags.DEFINE_enum(
            "runner", "local", RUNNERS, "With --scores: what reads parts, processes here or a Ray cluster."
        )
        flags.DEFINE_integer(
            "workers",
            None,
            f"With --scores of more than {MOST_EXACT_ROWS:,} rows, which are read part by part: how many parts at "
            "once; by default all processors.",
            lower_bound=1,
        )
        flags.DEFINE_bool("skip_bad", False, "With --scores: leave out files that cannot be read, and say which.")

    @classmethod
    def of_flags(cls) -> Running:
        """What the flags say."""
        return cls(**{name: getattr(flags.FLAGS, name) for name in OF_FILES})

    def are_few(self, rows: int) -> bool:
        """Whether so many rows are evaluated exactly."""
        return rows <= (MOST_EXACT_ROWS if self.most is None else self.most)


def usable_cpus() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
