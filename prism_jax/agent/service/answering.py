"""Answers to requests that each bring their whole stream, read in batches, with what can be kept of streams kept.

An answer depends on the request alone. The events before the newest count as ones after which an offer without a text
could be made, as where an agent's events come without candidates. A reader that can be asked again keeps the streams
that were read last, by a hash of caller and events: a request that begins like one before reads what is new in it.
"""

from __future__ import annotations

import collections
import hashlib
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from prism_jax.agent.asking import AskingReader
from prism_jax.agent.exported import Exported
from prism_jax.agent.reader import AsksAgain, Item, Reader, ThinkRequest, Unanswered
from prism_jax.agent.service.form import Answered, Asked
from prism_jax.agent.service.http import ApiError
from prism_jax.agent.signals import probabilities, signals_of
from prism_jax.agent.steps import AN_OFFER
from prism_jax.decision.calibration import Map
from prism_jax.streams import Event

Q = TypeVar("Q")
A = TypeVar("A")

FAST = ("need_fast", "accept_fast")


class Answering:
    """Answers batches of requests; one thread at a time may call it."""

    def __init__(self, reader: Reader, exported: Exported, *, streams: int = 1024) -> None:
        """Makes it of a reader, which it owns, and the calibration of its model; `streams` is how many are kept."""
        self._reader = reader
        self._maps: dict[str, Map] = {name: exported.maps[name] for name in FAST}
        self._most, self._names = streams, itertools.count()
        self._kept: collections.OrderedDict[bytes, str] = collections.OrderedDict()  # idle longest first
        self._open: set[str] = set()  # streams of the batch at hand, which are not among the kept ones yet

    def answer(self, items: Sequence[Asked]) -> list[Answered | Exception]:
        """The answer to each request, in their order; ValueError where its texts do not fit into the context.

        ArithmeticError stands for one whose log-odds are no numbers.
        """
        try:
            if isinstance(self._reader, AsksAgain):
                return self._together(self._reader, items)
            return self._anew(items)
        finally:  # also where something fails that nobody foresaw
            for name in self._open:
                self._reader.forget(name)
            self._open.clear()

    def close(self) -> None:
        """Nothing is open."""

    def _together(self, reader: AsksAgain, items: Sequence[Asked]) -> list[Answered | Exception]:
        found: dict[int, Answered | Exception] = {}
        opened: dict[int, tuple[str, bytes]] = {}
        for number, item in enumerate(items):
            try:
                opened[number] = self._at_newest(reader, item)
            except ValueError as error:
                found[number] = _in_words(error)
        asked = {number: ThinkRequest(name, items[number].candidates) for number, (name, _) in opened.items()}
        answers = _each(reader.ask, asked)
        for number, (name, digest) in opened.items():
            self._keep(digest, name)
            answer = answers[number]
            found[number] = answer if isinstance(answer, ValueError) else self._calibrated(items[number], *answer)
        return [found[number] for number in range(len(items))]

    def _at_newest(self, reader: AsksAgain, item: Asked) -> tuple[str, bytes]:
        """The stream of a request, with all of its events appended, and their hash."""
        digests = list(
            itertools.accumulate(item.events, _follow, initial=hashlib.sha256(item.caller.encode()).digest())
        )
        name, known = "", 0
        for count in range(len(item.events), 0, -1):
            if digests[count] in self._kept:
                name, known = self._kept.pop(digests[count]), count
                break
        name = name or str(next(self._names))
        self._open.add(name)
        for number, event in enumerate(item.events[known:], known):
            try:
                reader.follow([(name, event, AN_OFFER)])
            except ValueError as error:
                raise ValueError(f"input[{number}]: {_in_words(error)}") from None
        return name, digests[-1]

    def _keep(self, digest: bytes, name: str) -> None:
        """Keeps a stream, and lets the one that was idle longest go where there are too many."""
        for old in [self._kept.pop(digest)] if digest in self._kept else []:  # two callers asked the same at once
            self._reader.forget(old)
        self._kept[digest] = name
        self._open.discard(name)
        while len(self._kept) > self._most:
            self._reader.forget(self._kept.popitem(last=False)[1])

    def _anew(self, items: Sequence[Asked]) -> list[Answered | Exception]:
        """The answers of a reader that cannot be asked again: of streams that are read and forgotten.

        It is asked about the newest events of all of them at once.
        """
        found: dict[int, Answered | Exception] = {}
        newest: dict[int, Item] = {}
        tokens = [0] * len(items)
        for number, item in enumerate(items):
            try:
                name, tokens[number] = self._before_newest(item)
                newest[number] = name, item.events[-1], item.candidates
            except ValueError as error:
                found[number] = error
        for number, reading in _each(self._reader.observe, newest).items():
            if isinstance(reading, ValueError):
                found[number] = ValueError(f"input[{len(items[number].events) - 1}]: {reading}")
                continue
            if isinstance(reading, Unanswered):
                found[number] = ApiError(503, f"the model gave no answer: {reading.reason}")
            else:
                read = tokens[number] + reading.tokens
                found[number] = self._calibrated(items[number], reading.z_need, reading.z_accept, read)
        return [found[number] for number in range(len(items))]

    def _before_newest(self, item: Asked) -> tuple[str, int]:
        """The stream of a request without its newest event, and how many tokens were read for it."""
        name, tokens = str(next(self._names)), 0
        self._open.add(name)
        for number, event in enumerate(item.events[:-1]):
            try:
                if isinstance(self._reader, AskingReader):
                    self._reader.follow([(name, event, AN_OFFER)])  # each answer would be a request
                else:
                    tokens += self._reader.observe([(name, event, AN_OFFER)])[0].tokens
            except ValueError as error:
                raise ValueError(f"input[{number}]: {_in_words(error)}") from None
        return name, tokens

    def _calibrated(
        self, item: Asked, z_need: float, z_accept: Sequence[float], tokens: int, cached: int = 0, kept: int = 0
    ) -> Answered | ArithmeticError:
        try:
            p_need, *p_accept = probabilities([z_need, *z_accept], "of a request")
        except ValueError as error:  # of the model, and not of the request
            return ArithmeticError(str(error))
        (signals,) = signals_of(self._maps, "fast", [p_need], [p_accept], ["unknown"])
        accept = dict(zip(item.candidates, signals.accept, strict=True))
        return Answered(signals.need, accept, tokens, cached, kept)


def _each(read: Callable[[list[Q]], Sequence[A]], asked: Mapping[int, Q]) -> dict[int, A | ValueError]:
    """What a reader says of all that is asked, by the number of the request; an error for one that does not fit."""
    try:
        return dict(zip(asked, read(list(asked.values())), strict=True)) if asked else {}
    except ValueError as error:
        if len(asked) == 1:
            return {number: _in_words(error) for number in asked}
    return {number: answer for pair in asked.items() for number, answer in _each(read, dict([pair])).items()}


def _follow(digest: bytes, event: Event) -> bytes:
    """The hash of a stream after one more event."""
    return hashlib.sha256(digest + json.dumps([event.time, event.text]).encode()).digest()


def _in_words(error: ValueError) -> ValueError:
    """A reader's error without the name of the stream, which the caller never gave."""
    return ValueError(re.sub(r"^stream '\d+': ", "", str(error)))
