"""Whose a stream is. The partition of its name says it, so that a stream is found without its person being named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prism_jax.agent.ledger import RefusedError
from prism_jax.agent.state.owned_file import StaleError
from prism_jax.agent.state.schema import StateError
from prism_jax.agent.state.store import StateStore


class StoredClaims:
    """Claims of a store that one process has as a whole. A claim of which nothing came binds nobody."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    def person(self, stream: str, stated: str | None) -> str | None:
        """Whose a stream is: of a new one, as stated. RefusedError where it is another's."""
        known = self.claimed(stream)
        if known is not None and self._store.of(known[0] or stream).stream(stream) is None:
            known = None
        return _agreed(stream, stated, known)

    def claim(self, streams: Iterable[tuple[str, str | None]]) -> None:
        """Notes whose new streams are, before anything comes of them. Errors as of `Partition`."""
        numbers: dict[int, dict[str, str]] = {}
        for name, person in streams:
            if person is not None:
                numbers.setdefault(self._store.number_of(name), {})[name] = person
        for number, new in numbers.items():
            self._write(number, new)

    def claimed(self, stream: str) -> tuple[str | None] | None:
        """Whose a stream is by the partition of its name, whether or not anything came of it; None is nobody's."""
        partition = self._store.of(stream)
        known = partition.claimed(stream)
        if known is None and (own := partition.stream(stream)) is not None and own.person is None:
            known = (None,)
        return known

    def change(self, stream: str, known: tuple[str | None] | None, person: str | None) -> bool:
        """Claims a stream for somebody or nobody, where `claimed` still says what was known; otherwise False."""
        if self.claimed(stream) != known:
            return False
        self._write(self._store.number_of(stream), {stream: person})
        return True

    def _write(self, number: int, new: Mapping[str, str | None]) -> None:
        partition = self._store.partition(number)
        missing = [name for name, person in new.items() if partition.claimed(name) != (person,)]
        if missing:
            try:
                with partition.transaction():
                    for name in missing:
                        partition.claim(name, new[name])
            except StaleError:
                self._store.let_go(number)
                raise


class UnclaimedError(StateError):
    """A new stream that was not claimed before, by which nothing has changed."""


class SettledClaims:
    """Claims that were settled before a request came here, where the partition of its name may be another process's.

    `persons` says by stream whose it is, and `new` which streams were claimed for these requests.
    """

    def __init__(self) -> None:
        self.persons: dict[str, str | None] = {}
        self.new: frozenset[str] = frozenset()

    def person(self, stream: str, stated: str | None) -> str | None:
        """See `StoredClaims.person`."""
        return _agreed(stream, stated, (self.persons[stream],))

    def claim(self, streams: Iterable[tuple[str, str | None]]) -> None:
        """Raises UnclaimedError for a stream that is not new by what was settled."""
        if any(stream not in self.new for stream, _ in streams):
            raise UnclaimedError("a stream: found none that is claimed, expected one")


def other_person(stream: str) -> RefusedError:
    """What is said to who names another person with a stream."""
    return RefusedError(f"stream {stream!r}: person: found another person than before, expected one per stream")


def _agreed(stream: str, stated: str | None, known: tuple[str | None] | None) -> str | None:
    if known is None:
        return stated
    if stated is not None and stated != known[0]:
        raise other_person(stream)
    return known[0]
