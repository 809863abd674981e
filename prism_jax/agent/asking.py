"""What readers that ask elsewhere have in common: turns, a deadline for each event, and silence where no answer comes.

A stream's event enters it before anything is asked, so that the next one is read after it whether there was an answer
or not. Requests run on a thread of their own, so that a reader can be used where another event loop runs.
"""

from __future__ import annotations

import abc
import asyncio
import re
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, Literal, TypeVar

from prism_jax.agent.reader import FastOnly, FastReading, Item, Unanswered
from prism_jax.streams import Candidate, Event

TURNS = 8
"""Most events that are asked about at once."""
T = TypeVar("T")


class NoAnswerError(Exception):
    """Why an event has no answer, in words without texts.

    `late` says that its deadline passed, and `hopeless`, where the server refuses every request, why, naming the flag.
    """

    def __init__(self, words: str, tokens: int = 0, *, late: bool = False, hopeless: str = "") -> None:
        super().__init__(words)
        self.words, self.tokens, self.late, self.hopeless = words, tokens, late, hopeless


class AskingReader(FastOnly, abc.ABC):
    """A reader that asks a server, by `_answer`.

    An event's deadline begins with its turn. Once one has passed, the other events of the same batch that have no turn
    yet are not asked about: a server that hangs costs a batch one deadline.
    """

    no_more = "found a model that is served elsewhere, which has no {} here, expected a student"
    mixed: tuple[str, ...] = ()
    """What there is to say where the answers name several models."""
    ends: Literal["never", "first", "always"] = "never"
    """Whether a server that refuses every request ends the reading by EndpointError, in place of silence: always, or
    only where it has answered nothing yet."""
    attempt = 0
    """Which asking of the same it is; where answers are kept, each has its own."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._newest: dict[str, Event] = {}
        self._late: str | None = None
        self._answered = False
        self._turns = asyncio.Semaphore(TURNS)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="asking", daemon=True)
        self._thread.start()

    @property
    @abc.abstractmethod
    def sent(self) -> str:
        """What was sent so far, in words."""

    @abc.abstractmethod
    async def _answer(self, stream: str, candidates: Sequence[Candidate]) -> FastReading:
        """The slots after a stream's newest event: all of them, or NoAnswerError."""

    def observe(self, items: Sequence[Item]) -> list[FastReading | Unanswered]:
        """Appends events and asks for the slots after them; see `Reader.observe`."""
        self.follow(items)
        try:
            return self._run(self._observe(items))
        except ValueError as error:  # which would say that nothing has changed
            raise RuntimeError(str(error)) from error

    def close(self) -> None:
        """Closes the connections, once what is under way has its answer or is past its deadline."""
        if self._loop.is_running():
            self._run(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _end(self) -> None:
        self._late = "the reader was closed"
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _observe(self, items: Sequence[Item]) -> list[FastReading | Unanswered]:
        from prism_jax.remote.jobs import all_of  # of the extra `remote`, which a command that asks nobody can lack

        self._late = None
        return await all_of(self._in_turn(stream, candidates) for stream, _, candidates in items)

    async def _in_turn(self, stream: str, candidates: Sequence[Candidate]) -> FastReading | Unanswered:
        async with self._turns:
            if self._late is not None:
                return Unanswered(self._late)
            try:
                reading = await self._answer(stream, candidates)
                self._answered = True
                return reading
            except NoAnswerError as error:
                ends = error.hopeless and (self.ends == "always" or (self.ends == "first" and not self._answered))
                if error.late or ends:
                    self._late = error.words
                if ends:
                    from prism_jax.remote.failures import EndpointError  # of the extra `remote`, as above

                    raise EndpointError(error.hopeless) from None
                return Unanswered(error.words, error.tokens)
            except BaseException:
                self._late = "another event of its batch ended in an error"
                raise

    def _before(self, stream: str, event: Event) -> Event | None:
        """The newest event of a stream so far; ValueError if the next is earlier."""
        before = self._newest.get(stream)
        if before is not None and not event.time >= before.time:
            raise ValueError(
                f"stream {stream!r}: time: found {event.time}, expected at least {before.time}: events are in time "
                "order"
            )
        return before


def in_brief(words: object) -> str:
    """A failure's words without what a server said, which may quote the texts that it was sent."""
    said = re.match(r"(?s)(.*?\bHTTP \d{3})\b", str(words))
    return said[1] if said else str(words)
