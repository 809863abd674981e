"""Checks of flags that several mains share."""

from __future__ import annotations

from absl import flags


def refuse_empty(*names: str) -> None:
    """Makes an empty value of these defined flags an error, because an empty path would be the current folder."""
    for name in names:
        flags.register_validator(
            name,
            lambda value: value is None or bool(value.strip()),
            f"--{name}: found an empty value, expected a path (. is the current folder)",
        )
