"""The agent's input: JSON lines with events and outcomes, checked strictly, read without waiting for more than one.

Messages describe what was found and do not quote it: texts may hold what nobody should read in a log.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import select
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from prism_jax.agent.records import OfferOutcome
from prism_jax.agent.steps import AN_OFFER, MOST_CANDIDATES, MOST_NAME, Observation
from prism_jax.runtime.files import MOST_LINE_BYTES
from prism_jax.runtime.schema import decode, read_json
from prism_jax.streams import Candidate, Event

_BLOCK = 1 << 20


class LineError(ValueError):
    """A line that is neither an event nor an outcome; the message names line and key, what was found and expected."""


def parse_line(line: bytes, place: str) -> Observation | OfferOutcome:
    """Reads one line: an event, or the outcome of an offer. Messages start with `place`, such as `FILE:LINE`.

    Raises:
      LineError: for anything else: broken JSON, an unknown or repeated key, a text that UTF-8 cannot encode, a number
        that is not finite, the text "null" where null itself was meant.
    """
    item: Observation | OfferOutcome = parse_item(read_json(line, place, LineError), place)
    return item


def parse_item(value: Any, place: str, kind: Any = None) -> Any:
    """Reads the object of a line, or of a request, whose `kind` is known; see `parse_line`, but for broken JSON."""
    is_outcome = isinstance(value, dict) and ("outcome" in value or "offer" in value)
    return decode(kind or (OUTCOME if is_outcome else EVENT), value, place, LineError, _shown)


def _shown(value: Any) -> str:
    """A value in a message: its kind, and numbers themselves."""
    if isinstance(value, str):
        return f"text of {len(value)} characters"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else f"the number {value:.6g}"


def _text(text: str) -> str:
    if text.strip().lower() == "null":
        raise ValueError('found the text "null", expected words; a program that has none writes null itself')
    return text


def _name(name: str) -> str:
    if not _text(name).strip() or len(name) > MOST_NAME:
        raise ValueError(f"found {_shown(name)}, expected 1 to {MOST_NAME} characters, not all blank")
    return name


def _candidates(texts: tuple[str | None, ...]) -> tuple[Candidate, ...]:
    if not 1 <= len(texts) <= MOST_CANDIDATES:
        raise ValueError(f"candidates: found {len(texts)}, expected 1 to {MOST_CANDIDATES} texts (null is any offer)")
    candidates = []
    for i, text in enumerate(texts):
        if text in texts[:i]:
            raise ValueError(
                f"candidates[{i}]: found the text of candidates[{texts.index(text)}], expected another one"
            )
        try:
            candidates.append(Candidate(text=text and _text(text)))
        except ValueError as error:
            raise ValueError(f"candidates[{i}]: {error}") from error
    return tuple(candidates)


_Name = Annotated[str, _name]
_Seconds = Annotated[float, "a number of seconds"]
_Texts = Annotated[tuple[str | None, ...], "a list of texts (null is any offer)"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Moment:
    """The keys of an event, but for what happened."""

    stream: _Name
    time: _Seconds
    candidates: _Texts | None = None
    costs: Mapping[str, Any] | None = None
    domain: _Name = "unknown"
    person: _Name | None = None
    spoke: bool | None = None

    def observed(self, event: Event) -> Observation:
        """The moment at which this happened."""
        candidates = AN_OFFER if self.candidates is None else _candidates(self.candidates)
        return Observation(self.stream, event, candidates, self.costs, self.domain, self.person, self.spoke)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _EventLine(Moment):
    """The keys of an event."""

    text: Annotated[str, _text]

    def observation(self) -> Observation:
        return self.observed(Event(time=self.time, text=self.text))


@dataclasses.dataclass(frozen=True)
class _OutcomeLine:
    """The keys of an outcome."""

    stream: _Name
    offer: _Name
    outcome: _Name
    time: _Seconds
    needed: bool | None = None

    def offer_outcome(self) -> OfferOutcome:
        time = Event(time=self.time, text="outcome").time  # finite, and within the bounds of an event
        return OfferOutcome(self.stream, self.offer, self.outcome, time, self.needed)


EVENT = Annotated[_EventLine, _EventLine.observation]
OUTCOME = Annotated[_OutcomeLine, _OutcomeLine.offer_outcome]


class Where(NamedTuple):
    """Where a line stands in a file of input, and what the file has up to its end."""

    path: str
    begin: int  # in bytes
    end: int  # behind its line feed
    lines: int  # number of lines up to here
    digest: str  # SHA-256 of all bytes up to here


def observation_at(place: Mapping[str, Any], stream: str) -> Observation:
    """The event that stands at a place of an input; LineError, naming the file, where it cannot be read there."""
    path, begin, end = place["input"], place["begin"], place["end"]
    try:
        with open(path, "rb") as file:  # noqa: PTH123  beside os.open
            file.seek(begin)
            item = parse_line(file.read(end - begin), f"{path}, byte {begin}")
    except OSError as error:
        raise LineError(f"{path}: {error}; expected the input, from which stream {stream!r} is read again") from None
    if not isinstance(item, Observation):
        raise LineError(
            f"{path}, byte {begin}: found no event, expected the one that was decided on: the input changed"
        )
    return item


class InputLines:
    """Reads lines from a file, pipe or terminal, as many as are there and at least one.

    `last` is where the last line of a file stands that was asked for; None before the first, and without a file.
    """

    def __init__(self, descriptor: int, place: str = "input", path: str | None = None, after: Where | None = None):
        """Makes a reader of a file descriptor, which the caller closes; messages call it `place`.

        Of a file, whose `path` then is given, it begins behind the line that stands at `after`.

        Raises:
          LineError: for a file that no longer has what it had up to there.
        """
        self.place, self._path, self.last = place, path, after
        self._digest, self._end = hashlib.sha256(), 0
        self._descriptor = descriptor
        self._rest = bytearray()
        self._ready: list[bytes] = []
        self._number = self._lines = 0
        self._ended = self._too_long = False
        if after is not None:
            self._pass(after)

    def where(self, line: bytes) -> Where | None:
        """Where a line stands that `batch` has given, asked for each in their order; None where there is no file."""
        if self._path is None:
            return None
        begin, self._lines = self._end, self._lines + 1
        self._end += len(line) + 1
        self._digest.update(line + b"\n")
        self.last = Where(self._path, begin, self._end, self._lines, self._digest.hexdigest())
        return self.last

    def batch(self, most: int) -> list[tuple[int, bytes]]:
        """Waits for one line, and takes what else has arrived, up to `most` lines.

        Returns (line number from 1, line without its end); nothing at the end of the input.

        Raises:
          LineError: for a line of more than `MOST_LINE_BYTES`; no more than these are held.
        """
        here = [self._descriptor]
        while not self._ended and len(self._ready) < most and (not self._ready or select.select(here, [], [], 0)[0]):
            self._fill()
            if sum(map(len, self._ready)) > MOST_LINE_BYTES:  # that many are enough for one batch
                break
        taken, self._ready = self._ready[:most], self._ready[most:]
        if self._too_long and not taken:  # the lines before it come first
            raise LineError(
                f"{self.place}:{self._number + 1}: found more than {MOST_LINE_BYTES} bytes, expected a shorter line"
            )
        numbered = list(enumerate(taken, self._number + 1))
        self._number += len(taken)
        return numbered

    def _pass(self, after: Where) -> None:
        left = after.end
        while left and (block := os.read(self._descriptor, min(left, _BLOCK))):
            self._digest.update(block)
            left -= len(block)
        if left == 1:  # a last line without its end
            self._digest.update(b"\n")
        if left > 1 or self._digest.hexdigest() != after.digest:
            raise LineError(
                f"{self.place}: found other lines than the {after.lines} that were decided on, expected the same, and "
                "perhaps more behind them: the input changed; give another --state to decide on it anew"
            )
        self._end, self._number, self._lines = after.end, after.lines, after.lines

    def _fill(self) -> None:
        block = os.read(self._descriptor, _BLOCK)
        if not block:
            self._ended = True
            if self._rest:
                self._ready.append(bytes(self._rest))
            return
        self._rest += block
        end = self._rest.rfind(b"\n")
        if end >= 0:
            self._ready += bytes(self._rest[:end]).split(b"\n")
            del self._rest[: end + 1]
        if len(self._rest) > MOST_LINE_BYTES:
            self._ended = self._too_long = True
