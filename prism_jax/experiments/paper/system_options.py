"""What the flags say of systems that are compared, and of intervals: a command's help needs nothing that reads them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from absl import flags

from prism_jax.labelling.judges.prompts import MOST_EVENTS
from prism_jax.runtime.command import check_together, refuse_empty

RESAMPLES = 2000
"""Bootstrap resamples of each interval, where no flag says another number."""


@dataclasses.dataclass(frozen=True)
class SystemOptions:
    """What the flags say of systems and their judges."""

    system: Sequence[str] = ()
    panel: Sequence[str] = ()
    human: Sequence[str] = ()
    against: str | None = None
    most_events: int = MOST_EVENTS

    @staticmethod
    def define_flags() -> None:
        """Defines a flag for each attribute."""
        flags.DEFINE_multi_string(
            "system", [], "NAME=PATH of a scores table, a folder of traces, or streams that were logged; repeated."
        )
        flags.DEFINE_multi_string(
            "panel", [], "With --system: NAME=VOTES of the judges of one panel; repeated, also for a panel's next file."
        )
        flags.DEFINE_list("human", [], "With --system: files of people's votes, with commas between them.")
        flags.DEFINE_string("against", None, "With --system: the name of the system that others are compared with.")
        flags.DEFINE_integer("most_events", MOST_EVENTS, "With --panel: most events in a question.", 1)
        refuse_empty("against")

    @classmethod
    def of_flags(cls) -> SystemOptions:
        """What the flags say; ValueError for one that has no use without --system."""
        check_together("panel human against most_events without system: --system=NAME=PATH with it")
        return cls(**{field.name: getattr(flags.FLAGS, field.name) for field in dataclasses.fields(cls)})

    @property
    def votes(self) -> list[str]:
        """The files of votes."""
        return [*itertools.chain.from_iterable(named("panel", self.panel).values()), *self.human]


def named(flag: str, values: Sequence[str]) -> dict[str, list[str]]:
    """The paths by name of NAME=PATH."""
    paths: dict[str, list[str]] = {}
    for value in values:
        name, equals, path = value.partition("=")
        if not (name.strip() and equals and path):
            raise ValueError(f"--{flag}: found {value!r}, expected NAME=PATH")
        paths.setdefault(name, []).append(path)
    return paths
