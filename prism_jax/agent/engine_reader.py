"""A reader whose slots an inference engine computes: llama.cpp's server, vLLM or SGLang (`engine_routes`).

It keeps the trunks of live streams as token ids, by the same rules as the live reader, and sends whole prompts: the
trunk first, so that the engine's cache of prefixes has it, then a slot's own tokens.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Mapping, Sequence, Set
from typing import Any

import numpy as np

from prism_jax.agent.asking import TURNS, AskingReader, NoAnswerError, in_brief
from prism_jax.agent.engine_routes import ROUTES, EngineError, Route, Served, SlotReading
from prism_jax.agent.live import check_room
from prism_jax.agent.reader import FastReading, Item
from prism_jax.remote.connections import JsonEndpoint
from prism_jax.remote.endpoints import EndpointConfig
from prism_jax.remote.failures import EndpointError, RejectedError, TransientError
from prism_jax.remote.jobs import all_of
from prism_jax.streams import Candidate
from prism_jax.student.prompting.template import Template
from prism_jax.student.trunks import Trunks

FAR = 1.0
"""Log-odds of a sample prompt that differ by more are those of another model; quantised weights differ by less."""
_NO_ANSWER = (TransientError, RejectedError, EndpointError)


class EngineReader(AskingReader):
    """Reads streams by an engine; satisfies `prism_jax.agent.reader.Reader`."""

    def __init__(
        self,
        route: Route,
        template: Template,
        *,
        context: int = 2048,
        keep: float = 0.5,
        written: int = 0,
        deadline: float = 10.0,
        sample: Sequence[Mapping[str, Any]] = (),
        report: Callable[[str], None] = print,
    ) -> None:
        """Asks nothing yet.

        A prompt has at most `context` tokens, of which `written` stay free, as the live reader of the same student
        keeps them free for what it may write (`prism_jax.agent.live.most_written`); after old events were dropped, at
        most a share `keep` of them, in (0, 1], is in use. An event's answer may take `deadline` seconds. `sample` is
        that of `Exported`, and `report` prints what `warm_up` found.
        """
        if not 0 < keep <= 1:
            raise ValueError(f"keep: found {keep}, expected a number in (0, 1]")
        super().__init__(deadline)
        self._route, self._template, self._context, self._written = route, template, context, written
        self._sample, self._report = sample, report
        self._trunks = Trunks(context, keep, pages=1)  # the pages are the engine's
        self._slots = Slots(0)
        self._known = -1  # number of breaks when the engine was last recognised
        self._served = ""  # what it said then that it serves
        self._name: str | None = None  # the name in its answers
        self._recognising = asyncio.Lock()
        self._prompts = self._tokens = 0
        self._cached: int | None = 0

    @property
    def sent(self) -> str:
        """What was sent so far, in words."""
        cached = "it does not say how many were cached" if self._cached is None else f"{self._cached:,} cached"
        return f"engine: {self._prompts:,} prompts of {self._tokens:,} tokens, {cached}"

    def follow(self, items: Sequence[Item]) -> None:
        """Appends events; see `Reader.follow`. Asks nothing."""
        new = []
        for stream, event, candidates in items:
            ids = self._template.event(event, self._before(stream, event))
            reserve = sum(map(len, self._branch(candidates))) + self._written
            check_room(self._context, self._template, stream, len(ids), reserve)
            new.append((ids, reserve))
        for (stream, event, _), (ids, reserve) in zip(items, new, strict=True):
            if stream not in self._trunks:
                self._trunks.open(stream, self._template.system())
            self._trunks.append(stream, ids, reserve)
            self._newest[stream] = event

    def forget(self, stream: str) -> None:
        """Drops a stream; see `Reader.forget`."""
        if stream in self._trunks:
            self._trunks.close(stream)
        self._newest.pop(stream, None)
        self._slots.forget(stream)

    def history(self, stream: str) -> str:
        """SHA-256 of the token ids of a stream's trunk, as little-endian 32-bit integers."""
        return hashlib.sha256(np.array(self._trunks[stream].ids, "<i4").tobytes()).hexdigest()

    def warm_up(self) -> None:
        """Compares what the engine serves with the exported model.

        Raises:
          EngineError: for another vocabulary, template or model, or a context that is too short; or no answer.
        """
        self._report(self._waited(self._recognise()))

    def jitter(self, rounds: int = 3) -> str:
        """What cache, slot and other prompts beside it move the log-odds of the sample prompts, in words.

        Raises:
          EngineError: if there are no sample prompts, or no answer.
        """
        if not self._sample:
            raise EngineError("--jitter: found no sample prompts in prism.json, expected a directory that has them")
        return self._waited(self._jitter(rounds))

    def _waited(self, work: Coroutine[Any, Any, str]) -> str:
        try:
            return self._run(work)
        except _NO_ANSWER as error:
            raise EngineError(f"--engine: {self._route.address}: {error}") from error

    async def _answer(self, stream: str, candidates: Sequence[Candidate]) -> FastReading:
        trunk, (head, *leaves) = self._trunks[stream].ids, self._branch(candidates)
        found: list[SlotReading] = []
        tokens, slot = 0, self._slots.take(stream)
        try:
            async with asyncio.timeout(self._deadline):
                for own in (head, *([*head, *leaf] for leaf in leaves)):  # in turn, so that each finds the trunk cached
                    tokens += len(trunk) + len(own)
                    found.append(await self._ask([*trunk, *own], slot))
                names = {one.model for one in found}
                async with self._recognising:
                    if self._route.breaks != self._known or names != {self._name}:  # another server may have answered
                        await self._recognise(names)
        except (TimeoutError, EngineError, *_NO_ANSWER) as error:
            late = isinstance(error, TimeoutError)
            why = f"within {self._deadline:g} s" if late else f"({in_brief(error)})"
            hopeless = f"--engine: {self._route.address}: {error}" if isinstance(error, EndpointError) else ""
            raise NoAnswerError(f"the engine gave no answer {why}", tokens, late=late, hopeless=hopeless) from None
        finally:
            self._slots.give(slot)
        return FastReading(found[0].z, tuple(one.z for one in found[1:]), tokens)

    async def _ask(self, prompt: Sequence[int], slot: int, *, fresh: bool = False) -> SlotReading:
        self._prompts += 1
        self._tokens += len(prompt)
        reading = await self._route.read(prompt, self._template.yes, self._template.no, slot, fresh=fresh)
        self._cached = None if self._cached is None or reading.cached is None else self._cached + reading.cached
        return reading

    async def _recognise(self, names: Set[str | None] = frozenset()) -> str:
        """Raises EngineError unless the engine serves the exported model; says in words what was compared.

        `names` are those in answers that are believed if it does.
        """
        served = await self._route.served()
        self._check_sizes(served)
        for before, now in ((self._served, served.model), *((self._name, name) for name in names)):
            if not self._sample and before and now != before:
                raise EngineError(
                    f"sample: found {now} served, expected {before} as before: prism.json has no sample that would "
                    "tell whether its weights are the same"
                )
        for name, value in self._template.describe().items():
            if isinstance(value, Mapping) and "text" in value:
                expected = value["ids"] if "ids" in value else [value["id"]]
                found = await self._route.tokens(value["text"])
                if found != expected:
                    raise EngineError(
                        f"slots.{name}: found the ids {found!r:.200} for {value['text']!r} in {served.model}, expected "
                        f"{expected}: the engine serves a model with another tokenizer"
                    )
        readings = await all_of(self._ask(one["ids"], 0) for one in self._sample)
        away = [abs(found.z - one["log_odds"]) for found, one in zip(readings, self._sample, strict=True)]
        if max(away, default=0.0) > FAR:
            raise EngineError(
                f"sample: found log-odds up to {max(away):.3g} away from the export's, expected at most {FAR:g}: "
                f"{served.model} is another model"
            )
        if len(names := names | {one.model for one in readings}) > 1:
            raise EngineError(
                f"model: found answers of {', '.join(sorted(map(str, names))[:3])}, expected one name: the engine was "
                "exchanged meanwhile, or several answer at its address"
            )
        if self._slots.total != served.slots:
            self._slots, self._turns = Slots(served.slots), asyncio.Semaphore(served.slots or TURNS)
        self._known, self._served, self._name = self._route.breaks, served.model, next(iter(names), None)
        words = f"engine: {served.model}, the same ids of the template"
        if not away:
            return f"{words}; prism.json has no sample, so its weights were not compared"
        return f"{words}, log-odds of {len(away)} sample prompts up to {max(away):.2g} away from the export's"

    def _check_sizes(self, served: Served) -> None:
        template, most = self._template, served.context
        if most is not None and self._context + self._route.beside > most:
            raise EngineError(
                f"--context: found {self._context}, expected at most {most - self._route.beside}: {served.model} takes "
                f"{most} tokens, {self._route.beside} of them beside a prompt"
            )
        largest = max(template.yes, template.no, *template.system(), *template.head())
        if served.vocabulary is not None and largest >= served.vocabulary:
            raise EngineError(
                f"slots: found a vocabulary of {served.vocabulary} tokens in {served.model}, expected one with the id "
                f"{largest}"
            )

    async def _jitter(self, rounds: int) -> str:
        slots = max(self._slots.total, 1)
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

    def _branch(self, candidates: Sequence[Candidate]) -> list[list[int]]:
        """The head, and the leaf of each candidate."""
        return [self._template.head(), *map(self._template.leaf, candidates)]


class Slots:
    """Which stream's keys and values are in which slot of an engine; at most `total` are taken at once.

    With a total of 0 the engine has no numbered slots, and every stream takes slot 0.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._of: dict[str, int] = {}  # idle longest first
        self._taken: set[int] = set()

    def take(self, stream: str) -> int:
        """The slot of a stream: its own, an empty one, or that of the stream that was idle longest."""
        if not self.total:
            return 0
        slot = self._of.pop(stream, None)
        if slot is None:
            used = set(self._of.values())
            empty = (number for number in range(self.total) if number not in used | self._taken)
            slot = next(empty, None)
        if slot is None:
            idle = (name for name, number in self._of.items() if number not in self._taken)
            # None is idle where the engine was exchanged for one with fewer slots: two streams then share one.
            slot = self._of.pop(next(idle, next(iter(self._of))))
        self._of[stream] = slot
        self._taken.add(slot)
        return slot

    def give(self, slot: int) -> None:
        """Ends the use of a slot, whose content stays."""
        self._taken.discard(slot)

    def forget(self, stream: str) -> None:
        """Forgets a stream."""
        self._of.pop(stream, None)


def engine_of(text: str, *, key: str = "", deadline: float = 10.0) -> Route:
    """The engine that `--engine=NAME:URL` names; ValueError for anything else."""
    name, _, url = text.partition(":")
    if name not in ROUTES or not url:
        raise ValueError(f"--engine: found {text!r:.80}, expected NAME:URL with NAME one of {', '.join(ROUTES)}")
    try:
        endpoint = EndpointConfig(
            name, url.rstrip("/").removesuffix("/v1"), key=key, timeout=deadline, patience=deadline / 2, backoff=0.1
        )
        return ROUTES[name](JsonEndpoint(endpoint))
    except ValueError as error:
        raise ValueError(f"--engine: {error}") from error
