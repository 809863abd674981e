"""A part of a reader's streams, whose names nobody else can have."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence

from prism_jax.agent.reader import FastReading, Item, Reader, Response, ThinkRequest, Thought, Unanswered
from prism_jax.streams import Candidate


class Namespace:
    """A reader for one of several agents that share it; satisfies `prism_jax.agent.reader.Reader`."""

    def __init__(self, reader: Reader, name: str) -> None:
        """Gives the streams names that begin with `name`, which has no slash."""
        self._reader, self._name = reader, name
        self.has_slow_pass, self.writes_responses = reader.has_slow_pass, reader.writes_responses

    def observe(self, items: Sequence[Item]) -> Sequence[FastReading | Unanswered]:
        """See `Reader.observe`."""
        with self._unnamed():
            return self._reader.observe([(self._of(stream), event, offers) for stream, event, offers in items])

    def follow(self, items: Sequence[Item]) -> None:
        """See `Reader.follow`."""
        with self._unnamed():
            self._reader.follow([(self._of(stream), event, offers) for stream, event, offers in items])

    def think(self, items: Sequence[ThinkRequest]) -> list[Thought]:
        """See `Reader.think`."""
        return self._reader.think([item._replace(stream=self._of(item.stream)) for item in items])

    def respond(self, items: Sequence[tuple[str, Candidate, Mapping[str, str] | None]]) -> list[Response]:
        """See `Reader.respond`."""
        return self._reader.respond([(self._of(stream), offer, fields) for stream, offer, fields in items])

    def forget(self, stream: str) -> None:
        """See `Reader.forget`."""
        self._reader.forget(self._of(stream))

    def history(self, stream: str) -> str:
        """See `Reader.history`."""
        return self._reader.history(self._of(stream))

    @property
    def programs(self) -> int:
        """See `Reader.programs`."""
        return self._reader.programs

    def warm_up(self) -> None:
        """See `Reader.warm_up`."""
        self._reader.warm_up()

    @contextlib.contextmanager
    def _unnamed(self) -> Iterator[None]:
        """Takes the name out of what the reader says of a stream."""
        try:
            yield
        except ValueError as error:
            # A name with an apostrophe stands between double quotes.
            raise ValueError(re.sub(f"(['\"]){self._name}/", r"\1", str(error), count=1)) from error

    def _of(self, stream: str) -> str:
        return f"{self._name}/{stream}"
