"""The trunks of many live streams: their token ids, and the pages of one pool that hold their keys and values.

A stream whose trunk would exceed the budget drops its oldest events, but never the system part or the new event, until
at most a share `keep` of the budget is used; the rest is read again. When the pool has no free page, the stream that
was idle longest is parked: its pages are freed, and its tokens are read again when it is needed.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from prism_jax.student.pages import PAGE, Pages


@dataclasses.dataclass
class Trunk:
    """One stream."""

    events: list[tuple[int, ...]]  # token ids of the system part and of each event, oldest first
    pages: list[int] = dataclasses.field(default_factory=list)  # its pages of the pool; none while it is parked
    length: int = 0  # number of tokens in the pool
    read: int = 0  # number of tokens that were ever put there

    @property
    def ids(self) -> list[int]:
        """The token ids of all events."""
        return [token for event in self.events for token in event]

    @property
    def tokens(self) -> int:
        """Number of token ids."""
        return sum(map(len, self.events))

    @property
    def unread(self) -> list[int]:
        """The token ids that are not in the pool."""
        return list(itertools.islice(itertools.chain.from_iterable(self.events), self.length, None))


class Trunks:
    """The open streams, and which of them are in the pool.

    `budget` is the maximum number of tokens of a trunk. `keep` is the largest share of it that is used after old events
    were dropped; 1 drops only what must go.
    """

    def __init__(self, budget: int, keep: float, pages: int):
        """Opens no stream yet; the pool has `pages` pages, which hold at least one full trunk."""
        self.budget, self.keep = budget, keep
        self._pages = Pages(pages)
        self._trunks: collections.OrderedDict[str, Trunk] = collections.OrderedDict()  # idle longest first

    def __contains__(self, stream: str) -> bool:
        return stream in self._trunks

    def __len__(self) -> int:
        return len(self._trunks)

    def __getitem__(self, stream: str) -> Trunk:
        """The trunk of a stream; raises ValueError when it is not open."""
        if stream not in self._trunks:
            raise ValueError(f"stream: found {stream!r}, expected one of the {len(self._trunks)} open streams")
        return self._trunks[stream]

    @property
    def resident(self) -> int:
        """Number of streams whose trunk is in the pool."""
        return sum(trunk.length > 0 for trunk in self._trunks.values())

    def open(self, stream: str, system: Sequence[int]) -> None:
        """Opens a stream; raises ValueError when it is open already, or the system part exceeds the budget."""
        if stream in self._trunks:
            raise ValueError(f"stream: found {stream!r} open already, expected a new one")
        if len(system) > self.budget:
            raise ValueError(f"system: found {len(system)} tokens, expected at most the budget of {self.budget}")
        self._trunks[stream] = Trunk([tuple(system)])

    def close(self, stream: str) -> None:
        """Forgets a stream and frees its pages."""
        self._pages.give(self[stream].pages)
        del self._trunks[stream]

    def append(self, stream: str, event: Sequence[int], reserve: int) -> None:
        """Adds an event to a trunk, and drops the oldest ones if it would exceed the budget less `reserve` tokens."""
        trunk = self[stream]
        system, *events = trunk.events
        total = trunk.tokens + len(event) + reserve
        if total > self.budget:
            dropped = 0
            while dropped < len(events) and total > (self.keep * self.budget if self.keep < 1 else self.budget):
                total -= len(events[dropped])
                dropped += 1
            trunk.events = [system, *events[dropped:]]
            self._park(trunk)
        trunk.events.append(tuple(event))

    def groups(self, streams: Sequence[tuple[str, int]], most: int) -> Iterator[list[str]]:
        """Cuts a list of streams, each with the number of tokens that will be added to it, into batches.

        A batch has at most `most` streams, whose trunks then fit into the pool together.
        """
        group: list[str] = []
        pages = 0
        for stream, more in streams:
            needed = -(-min(self[stream].tokens + more, self.budget) // PAGE)
            if group and (len(group) == most or pages + needed > self._pages.total):
                yield group
                group, pages = [], 0
            group.append(stream)
            pages += needed
        if group:
            yield group

    def hold(self, group: Sequence[str]) -> list[Trunk]:
        """Gives every trunk of a group its pages, and parks other streams where none are free; returns the trunks."""
        for stream in group:
            self._trunks.move_to_end(stream)
        needed = {stream: -(-self[stream].tokens // PAGE) - len(self[stream].pages) for stream in group}
        missing = sum(needed.values()) - len(self._pages)
        for idle in [name for name, trunk in self._trunks.items() if trunk.pages and name not in needed]:
            if missing <= 0:
                break
            missing -= len(self._trunks[idle].pages)
            self._park(self._trunks[idle])
        for stream, count in needed.items():
            self[stream].pages += self._pages.take(count)
        return [self[stream] for stream in group]

    def _park(self, trunk: Trunk) -> None:
        self._pages.give(trunk.pages)
        trunk.pages, trunk.length = [], 0
