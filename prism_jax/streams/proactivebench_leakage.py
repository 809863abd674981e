"""How far ProactiveBench's own split of its reward data leaks: which test rows share a step with training rows."""

from __future__ import annotations

from typing import NamedTuple

from etils import epath

from prism_jax.streams.proactivebench_source import REWARD_FILES, read_rows


class Leakage(NamedTuple):
    """Counts of rows in the official test file."""

    rows: int
    same_stream: int  # rows whose stream, known by its first event, has rows in the training file
    same_step: int  # rows whose whole history of events is that of a training row
    same_need: int  # rows of `same_step` whose step's need label a training row states
    same_row: int  # rows with the same history and the same offer, or silence, as a training row


def measure_leakage(source: epath.PathLike) -> Leakage:
    """Compares the official test file with the training file, in a folder of the repository."""
    train, test = (list(read_rows(epath.Path(source), name)) for name in REWARD_FILES)
    streams = {row.events[0] for row in train}
    steps = {row.events: row.help_needed for row in train}
    rows = {(row.events, row.offer) for row in train}
    return Leakage(
        rows=len(test),
        same_stream=sum(row.events[0] in streams for row in test),
        same_step=sum(row.events in steps for row in test),
        same_need=sum(steps.get(row.events) == row.help_needed for row in test),
        same_row=sum((row.events, row.offer) in rows for row in test),
    )
