"""What every reader of a source returns."""

from __future__ import annotations

import collections
import dataclasses

from prism_jax.streams.types import Stream


@dataclasses.dataclass(frozen=True)
class Published:
    """The content of a source."""

    streams: list[Stream]  # at least one, sorted by id, with distinct ids
    # the publisher's split of a stream, by its id: `train` or `test`; streams of no split are missing
    split: dict[str, str] = dataclasses.field(default_factory=dict)
    # how many rows or answers of the source are in no stream, by the reason
    dropped: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
