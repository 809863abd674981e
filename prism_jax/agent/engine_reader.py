"""A reader whose slots an inference engine computes: llama.cpp's server, vLLM or SGLang (`engine_routes`).

It keeps the trunks of live streams as token ids, by the same rules as the live reader, and sends whole prompts: the
trunk first, so that the engine's cache of prefixes has it, then a slot's own tokens. Where the engine gives no answer
until a deadline, the event is `Unanswered`; the stream goes on.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from prism_jax.agent.engine_routes import ROUTES, EngineError, Route, Served, SlotReading
from prism_jax.agent.reader import FastReading, Item, Response, ThinkRequest, Thought, Unanswered
from prism_jax.prompting.template import Template
from prism_jax.remote.connections import JsonEndpoint
from prism_jax.remote.endpoints import EndpointConfig
from prism_jax.remote.failures import EndpointError, RejectedError, TransientError
from prism_jax.streams import Candidate, Event
from prism_jax.student.trunks import Trunks

FAR = 1.0
"""Log-odds of a sample prompt that differ by more are those of another model; quantised weights differ by less."""
NO_ANSWER = (EngineError, TransientError, RejectedError, EndpointError)


class Sent(NamedTuple):
    """What was sent to an engine."""

    prompts: int = 0
    tokens: int = 0  # of all prompts
    cached: int | None = 0  # of these tokens, how many the engine had cached; None where it does not say

    def __str__(self) -> str:
        cached = "it does not say how many were cached" if self.cached is None else f"{self.cached:,} cached"
        return f"engine: {self.prompts:,} prompts of {self.tokens:,} tokens, {cached}"


class EngineReader:
    """Reads streams by an engine; satisfies `prism_jax.agent.reader.Reader`.

    Attributes:
      sent: What was sent so far.
    """

    has_slow_pass = False
    writes_responses = False

    def __init__(
        self,
        route: Route,
        template: Template,
        *,
        context: int = 2048,
        keep: float = 0.5,
        deadline: float = 10.0,
        sample: Sequence[Mapping[str, Any]] = (),
        report: Callable[[str], None] = print,
    ) -> None:
        """Asks nothing yet.

        Args:
          route: The engine.
          template: Template and tokenizer of the model that it serves.
          context: Most tokens of a prompt.
          keep: Largest share of the context in use after old events were dropped, in (0, 1].
          deadline: Seconds after which an event without an answer is `Unanswered`.
          sample: Prompts with the log-odds that the exported student gave them (`Exported.sample`).
          report: Prints what `warm_up` found.
        """
        if not 0 < keep <= 1:
            raise ValueError(f"keep: found {keep}, expected a number in (0, 1]")
        self._route, self._template, self._context, self._deadline = route, template, context, deadline
        self._sample, self._report = sample, report
        self._trunks = Trunks(context, keep, pages=1)  # the pages are the engine's
        self._newest: dict[str, Event] = {}
        self._slots: dict[str, int] = {}  # of the streams that used them last, idle longest first
        self._served: Served | None = None
        self._runner = asyncio.Runner()
        self.sent = Sent()

    def observe(self, items: Sequence[Item]) -> list[FastReading | Unanswered]:
        """Appends events and asks for the slots after them; see `Reader.observe`."""
        self.follow(items)
        return self._runner.run(self._observe(items))

    def follow(self, items: Sequence[Item]) -> None:
        """Appends events; see `Reader.follow`. Asks nothing."""
        events = [self._template.event(event, self._before(stream, event)) for stream, event, _ in items]
        reserve = max((sum(map(len, self._branch(candidates))) for _, _, candidates in items), default=0) + 1
        most = self._context - len(self._template.system()) - reserve
        for (stream, _, _), ids in zip(items, events, strict=True):
            if len(ids) > most:
                raise ValueError(
                    f"stream {stream!r}: found an event of {len(ids)} tokens, expected at most {max(most, 0)}: the "
                    f"context of {self._context} also holds the system message, and {reserve} tokens of offers"
                )
        for (stream, event, _), ids in zip(items, events, strict=True):
            if stream not in self._trunks:
                self._trunks.open(stream, self._template.system())
            self._trunks.append(stream, ids, reserve)
            self._newest[stream] = event

    def think(self, items: Sequence[ThinkRequest]) -> list[Thought]:
        """An engine has no slow pass here."""
        _refuse("slow pass")

    def respond(self, items: Sequence[tuple[str, Candidate, Mapping[str, str] | None]]) -> list[Response]:
        """An engine writes no responses here."""
        _refuse("responses")

    def forget(self, stream: str) -> None:
        """Drops a stream; see `Reader.forget`."""
        self._trunks.close(stream)
        del self._newest[stream]
        self._slots.pop(stream, None)

    def history(self, stream: str) -> str:
        """SHA-256 of the token ids of a stream's trunk, as little-endian 32-bit integers."""
        return hashlib.sha256(np.array(self._trunks[stream].ids, "<i4").tobytes()).hexdigest()

    def warm_up(self) -> int:
        """Compares what the engine serves with the exported model; it compiles nothing.

        Raises:
          EngineError: for another vocabulary, template or model, or a context that is too short; or no answer.
        """
        try:
            self._served = self._runner.run(self._route.served())
            self._report(self._runner.run(self._compared(self._served)))
        except (TransientError, RejectedError, EndpointError) as error:
            raise EngineError(f"--engine: {error}") from error
        return 0

    def jitter(self, rounds: int = 3) -> str:
        """What cache, slot and other prompts beside it move the log-odds of the sample prompts, in words.

        Raises:
          EngineError: if there are no sample prompts, or no answer.
        """
        if not self._sample:
            raise EngineError("--jitter: found no sample prompts in prism.json, expected a directory that has them")
        try:
            return self._runner.run(self._jitter(rounds))
        except (TransientError, RejectedError, EndpointError) as error:
            raise EngineError(f"--engine: {error}") from error

    def close(self) -> None:
        """Closes the connections."""
        self._runner.close()

    async def _observe(self, items: Sequence[Item]) -> list[FastReading | Unanswered]:
        return await asyncio.gather(*(self._answer(stream, candidates) for stream, _, candidates in items))

    async def _answer(self, stream: str, candidates: Sequence[Candidate]) -> FastReading | Unanswered:
        """The slots after a stream's newest event: all of them, or none."""
        trunk, (head, *leaves) = self._trunks[stream].ids, self._branch(candidates)
        slot, found, tokens = self._slot(stream), [], 0
        try:
            async with asyncio.timeout(self._deadline):
                for own in (head, *([*head, *leaf] for leaf in leaves)):  # in turn, so that each finds the trunk cached
                    found.append(await self._ask([*trunk, *own], slot))
                    tokens += len(trunk) + len(own) - (found[-1].cached or 0)
        except TimeoutError:
            return Unanswered(f"the engine gave no answer within {self._deadline:g} s")
        except NO_ANSWER as error:
            return Unanswered(f"the engine gave no answer ({error})")
        return FastReading(found[0].z, tuple(one.z for one in found[1:]), tokens)

    async def _ask(self, prompt: Sequence[int], slot: int, *, fresh: bool = False) -> SlotReading:
        reading = await self._route.read(prompt, self._template.yes, self._template.no, slot, fresh=fresh)
        self.sent = Sent(
            self.sent.prompts + 1,
            self.sent.tokens + len(prompt),
            None if self.sent.cached is None or reading.cached is None else self.sent.cached + reading.cached,
        )
        return reading

    async def _compared(self, served: Served) -> str:
        """Raises EngineError unless the engine serves the exported model; says in words what was compared."""
        if served.context is not None and self._context > served.context:
            raise EngineError(
                f"--context: found {self._context}, expected at most the {served.context} tokens of {served.model} for "
                "one prompt"
            )
        template = self._template
        for name, part in (("yes", [template.yes]), ("no", [template.no]), ("system", template.system())):
            if served.vocabulary is not None and max(part) >= served.vocabulary:
                raise EngineError(
                    f"{name}: found a vocabulary of {served.vocabulary} tokens in {served.model}, expected one with id "
                    f"{max(part)}"
                )
        for name, value in template.describe().items():
            if isinstance(value, Mapping) and "text" in value:
                expected = value["ids"] if "ids" in value else [value["id"]]
                found = await self._route.tokens(value["text"])
                if found != expected:
                    raise EngineError(
                        f"slots.{name}: found the ids {found} for {value['text']!r} in {served.model}, expected "
                        f"{expected}: the engine serves a model with another tokenizer"
                    )
        words = f"engine: {served.model}, the same ids of the template"
        if not self._sample:
            return f"{words}; prism.json has no sample, so its weights were not compared"
        away = [abs((await self._ask(one["ids"], 0)).z - one["log_odds"]) for one in self._sample]
        if max(away) > FAR:
            raise EngineError(
                f"sample: found log-odds up to {max(away):.3g} away from the export's, expected at most {FAR:g}: "
                f"{served.model} is another model"
            )
        return f"{words}, log-odds of {len(away)} sample prompts up to {max(away):.2g} away from the export's"

    async def _jitter(self, rounds: int) -> str:
        slots = 1 if self._served is None else self._served.slots
        prompts = [list(one["ids"]) for one in self._sample]
        first = [(await self._ask(prompt, 0, fresh=True)).z for prompt in prompts]
        moved = dict.fromkeys(("again", "from the cache", "in other slots", "side by side"), 0.0)

        def note(name: str, found: Sequence[SlotReading]) -> None:
            moved[name] = max(moved[name], *(abs(one.z - z) for one, z in zip(found, first, strict=True)))

        for number in range(1, rounds + 1):
            note("again", [await self._ask(prompt, 0, fresh=True) for prompt in prompts])
            note("from the cache", [await self._ask(prompt, 0) for prompt in prompts])
            note("in other slots", [await self._ask(prompt, number % slots, fresh=True) for prompt in prompts])
            beside = (self._ask(prompt, place % slots) for place, prompt in enumerate(prompts))
            note("side by side", await asyncio.gather(*beside))
        return "log-odds moved by at most " + ", ".join(f"{value:.2g} {name}" for name, value in moved.items())

    def _before(self, stream: str, event: Event) -> Event | None:
        before = self._newest.get(stream)
        if before is not None and not event.time >= before.time:
            raise ValueError(
                f"stream {stream!r}: time: found {event.time}, expected at least {before.time}: events are in time "
                "order"
            )
        return before

    def _branch(self, candidates: Sequence[Candidate]) -> list[list[int]]:
        """The head, and the leaf of each candidate."""
        return [self._template.head(), *map(self._template.leaf, candidates)]

    def _slot(self, stream: str) -> int:
        """The slot of a stream: its own, a free one, or that of the stream that was idle longest."""
        total = 1 if self._served is None else self._served.slots
        used = self._slots.pop(stream, None)
        if used is None:
            free = (slot for slot in range(total) if slot not in self._slots.values())
            used = next(free, None)
        if used is None:
            used = self._slots.pop(next(iter(self._slots)))
        self._slots[stream] = used
        return used


def engine_of(text: str, *, key: str = "", deadline: float = 10.0) -> Route:
    """The engine that `--engine=NAME:URL` names; ValueError for anything else."""
    name, _, url = text.partition(":")
    if name not in ROUTES or not url:
        raise ValueError(f"--engine: found {text!r:.80}, expected NAME:URL with NAME one of {', '.join(ROUTES)}")
    try:
        endpoint = EndpointConfig(
            name, url.rstrip("/").removesuffix("/v1"), key=key, timeout=deadline, patience=deadline / 2, backoff=0.1
        )
    except ValueError as error:
        raise ValueError(f"--engine: {error}") from error
    return ROUTES[name](JsonEndpoint(endpoint))


def _refuse(what: str) -> NoReturn:
    raise ValueError(f"found an engine, which has no {what} here, expected a student")
