"""What a seeded fault is."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Fault:
    """One fault: `old`, which occurs exactly once in the file, becomes `new`."""

    name: str
    path: str  # inside prism_jax
    old: str
    new: str
    why: str  # what goes wrong for a user
    tests: tuple[str, ...]  # files below tests/ that probably notice it, the likeliest first
    vital: bool = False
