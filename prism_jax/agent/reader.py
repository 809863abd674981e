"""What the agent asks of a language model: to read events and slots, to think, to respond.

`Agent` stands on this interface alone, so tests give it a reader without a model, and replay one that reads a log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from prism_jax.streams import Candidate, Event

Item = tuple[str, Event, tuple[Candidate, ...]]
"""A stream, its next event, and the offers that could be made after it."""


class ThinkRequest(NamedTuple):
    """A stream to think about, at its newest event."""

    stream: str
    candidates: tuple[Candidate, ...]  # at least one; a `Candidate` whose text is None is the constant "an offer"


class FastReading(NamedTuple):
    """The fast pass's slots after one event."""

    z_need: float  # raw log-odds z_yes - z_no at the need slot
    z_accept: tuple[float, ...]  # raw log-odds at the accept slot, one per candidate
    tokens: int  # number of tokens that were read


class AskedReading(NamedTuple):
    """The fast pass's slots for offers that were asked about after a stream's newest event."""

    z_need: float  # raw log-odds z_yes - z_no at the need slot
    z_accept: tuple[float, ...]  # raw log-odds at the accept slot, one per candidate
    tokens: int  # number of tokens that the slots were read after: the stream's, and those of the offers
    cached: int  # how many of them were read before and kept
    kept: int  # how many of them are kept now and were not before


class Unanswered(NamedTuple):
    """Why nobody knows the slots after an event, which has entered its stream all the same."""

    reason: str  # in words, without texts of the stream
    tokens: int = 0  # number of tokens that were read or paid for


class Thought(NamedTuple):
    """The slow pass's slots, after the fields that it wrote."""

    z_need: float  # raw log-odds z_yes - z_no at the need slot
    z_accept: tuple[float, ...]  # raw log-odds at the accept slot, one per candidate
    fields: Mapping[str, str]  # the written text by the name of its field
    tokens: int  # number of tokens that were written


class Response(NamedTuple):
    """What the assistant says with an offer."""

    text: str  # JSON of the response's locked schema
    tokens: int  # number of tokens that were written


@runtime_checkable
class Reader(Protocol):
    """Reads streams with a language model; one growing trunk per stream."""

    has_slow_pass: bool  # whether `think` may be called: not for a student that was trained without slow branches
    writes_responses: bool  # whether `respond` may be called: not for a student that was trained without responses

    @property
    def programs(self) -> int:
        """Number of programs that were compiled so far, or taken from the cache."""

    def observe(self, items: Sequence[Item]) -> Sequence[FastReading | Unanswered]:
        """Appends each event to its stream's trunk, and reads the slots after it; one reading per item, in their order.

        `items` are of distinct streams; a stream is opened when it first occurs. A reader that asks elsewhere can be
        left without an answer; the agent is then silent.

        Raises:
          ValueError: naming the stream, for an event that cannot be read; no trunk has then changed.
        """

    def follow(self, items: Sequence[Item]) -> None:
        """Appends each event as `observe` does, where nobody needs the slots: it was decided on before a restart."""

    def think(self, items: Sequence[ThinkRequest]) -> list[Thought]:
        """Runs the slow pass on the present trunk of distinct streams; one thought per item, in their order."""

    def respond(self, items: Sequence[tuple[str, Candidate, Mapping[str, str] | None]]) -> list[Response]:
        """Writes the response to each offer, in their order.

        `items` are (stream, offer, fields) of distinct streams; fields None responds on the fast branch.
        """

    def forget(self, stream: str) -> None:
        """Drops a stream and all that was read of it; one that was never opened is none."""

    def history(self, stream: str) -> str:
        """Hash, in hexadecimal, of what was read of a stream: the ids of the tokens in its trunk."""

    def warm_up(self) -> None:
        """Starts a thread that compiles the programs that the other methods run, which do not wait for it."""


class FastOnly(Reader):
    """A reader without a slow pass, which writes nothing. `no_more` says so where it is asked for a `{}`."""

    has_slow_pass = False
    writes_responses = False
    programs = 0
    no_more: str

    def warm_up(self) -> None:
        """Compiles nothing."""

    def think(self, items: Sequence[ThinkRequest]) -> list[Thought]:
        """Raises ValueError."""
        raise ValueError(self.no_more.format("slow pass"))

    def respond(self, items: Sequence[tuple[str, Candidate, Mapping[str, str] | None]]) -> list[Response]:
        """Raises ValueError."""
        raise ValueError(self.no_more.format("responses"))


@runtime_checkable
class AsksAgain(Reader, Protocol):
    """A reader whose streams stay as they are when their slots are read."""

    def warm_up(self, *, writes: bool = True) -> None:
        """As `Reader.warm_up`; without `writes`, for `observe`, `follow` and `ask` alone."""

    def ask(self, items: Sequence[ThinkRequest]) -> list[AskedReading]:
        """Reads the slots of offers after the newest event of distinct streams; they leave no trace.

        Raises:
          ValueError: naming the stream, for offers that do not fit into the context; nothing has then changed.
        """
