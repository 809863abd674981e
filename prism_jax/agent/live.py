"""The live reader: events, slow pass and responses of many streams, in batches against their cached trunks.

It reads the same tokens in the same order as evaluation does. A stream that outgrows its context loses its oldest
events: with `keep` = 1 as few as must go, as in evaluation; with a smaller share, far cheaper, several at once.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import Float

from prism_jax.agent.reader import AskedReading, FastReading, Item, Response, ThinkRequest, Thought
from prism_jax.streams import Candidate, Event
from prism_jax.student import engine
from prism_jax.student.branches import Branch, bucket
from prism_jax.student.constrained import DeviceAutomaton, Span, room
from prism_jax.student.prompting.template import Template, WritingConfig
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.scoring.grammar import JSON_STRING, LINE, Grammar, over_tokens
from prism_jax.student.scoring.responses import response_spans, response_text
from prism_jax.student.scoring.slow import field_spans, fields_of
from prism_jax.student.scoring.student import Student

if TYPE_CHECKING:
    from prism_jax.probe.states import Reader as StatesReader

_OFFERS = 64  # tokens of a step's offers for which programs are compiled in advance, beside those of the fields

_TOGETHER = 7  # offers of a step for which programs are compiled in advance


@dataclasses.dataclass(frozen=True)
class LiveConfig:
    """How live streams are read."""

    context: int = 2048  # maximum number of tokens up to the end of one decision, with all that may be written for it
    # size of the pool of keys and values in bytes; streams beyond it are parked and read again on demand
    memory: int = 1 << 30
    # largest share of the context that is used after old events were dropped; 1 drops only what must go
    keep: float = 0.5
    batches: tuple[int, ...] = (1, 16)  # numbers of streams that are read together; each compiles programs of its own
    # Most new tokens of a stream in one pass that programs are compiled for in advance. Longer events are read in
    # pieces; offers that together are longer, or more than seven of them, compile a program when they first occur.
    longest: int = 256
    offers: int = 0  # tokens of the context that stay free for the offers of every event, even if its own are shorter


class _LiveStreams:
    """Streams whose trunks an engine keeps."""

    _engine: engine.Engine

    def __init__(self, template: Template) -> None:
        self._template = template
        self._newest: dict[str, Event] = {}

    def forget(self, stream: str) -> None:
        """Drops a stream; see `Reader.forget`."""
        if stream in self._engine:
            self._engine.close(stream)
        self._newest.pop(stream, None)

    @property
    def programs(self) -> int:
        """Number of programs that were compiled so far; see `Reader.programs`."""
        return len(self._engine.programs)

    def _opened(
        self,
        items: Sequence[Item],
        branch_of: Callable[[Sequence[int], Sequence[Candidate]], Branch],
        reserve_of: Callable[[Branch], int],
    ) -> list[engine.ReadRequest]:
        """What to read of each item's stream, which is now open; ValueError for an event that does not fit.

        `branch_of` makes a branch of the head and the offers, and `reserve_of` says how many tokens stay free for it.
        """
        head, readings = self._template.head(), []
        for stream, event, candidates in items:
            ids = self._template.event(event, self._newest.get(stream))
            branch = branch_of(head, candidates)
            reserve = reserve_of(branch)
            readings.append(engine.ReadRequest(stream, ids, [branch], reserve))
            # Before the next is tokenised: of texts that are too long, one at a time is held.
            check_room(self._engine.budget, self._template, stream, len(ids), reserve)
        for reading in readings:
            if reading.stream not in self._engine:
                self._engine.open(reading.stream, self._template.system())
        return readings


class Live(_LiveStreams):
    """Reads and writes on live streams; satisfies `prism_jax.agent.reader.AsksAgain`."""

    def __init__(
        self,
        student: Student,
        *,
        has_slow_pass: bool,
        writes_responses: bool = True,
        writing: WritingConfig | None = None,
        config: LiveConfig | None = None,
    ):
        """Allocates the pool; ValueError for a setting out of range, or a context or pool that is too small."""
        config, writing = config or LiveConfig(), writing or WritingConfig()
        self.has_slow_pass, self.writes_responses = has_slow_pass, writes_responses
        template = student.template
        super().__init__(template)
        self._model, self._offers = student.model, config.offers
        self._fields = field_spans(template, writing.field_tokens)
        self._values = response_spans(template, writing.response_tokens)
        texts = [*([self._fields] if has_slow_pass else []), *([self._values] if writes_responses else [])]
        self._written = most_written(template, writing, has_slow_pass, writes_responses)
        least = len(template.system()) + self._written
        if config.context <= least:
            raise ValueError(
                f"context: found {config.context}, expected more than the {least} tokens of the system message and of "
                "all that may be written"
            )
        # A slow branch holds the fields, and offers of which some length is foreseen.
        longest = max(config.longest, bucket(_most_tokens(self._fields) + _OFFERS) if has_slow_pass else 0)
        self._engine = engine.Engine(
            student.model,
            student.params,
            (template.yes, template.no),
            room=max(map(room, texts), default=0),
            budget=config.context,
            memory=config.memory,
            keep=config.keep,
            batches=config.batches,
            longest=longest,
        )
        self._automata: dict[str, DeviceAutomaton] = {}
        self._making = threading.Lock()

    def observe(self, items: Sequence[Item]) -> list[FastReading]:
        """Reads events and the slots after them; see `Reader.observe`."""
        readings = self._opened(items, self._branch, self._reserve)
        logits = self._engine.read(readings)
        self._newest |= {stream: event for stream, event, _ in items}
        results = []
        for reading, [rows] in zip(readings, logits, strict=True):
            z = _log_odds(rows)
            results.append(FastReading(z[0], tuple(z[1:]), len(reading.event) + len(reading.branches[0].ids)))
        return results

    def follow(self, items: Sequence[Item]) -> None:
        """Appends each event, which is read with the next one that is decided on; see `Reader.follow`."""
        self._engine.append(self._opened(items, self._branch, self._reserve))
        self._newest |= {stream: event for stream, event, _ in items}

    def ask(self, items: Sequence[ThinkRequest]) -> list[AskedReading]:
        """Reads the slots of offers after the newest events; see `AsksAgain.ask`.

        They are read a few at once, since programs for these numbers alone are compiled in advance.
        """
        head, parts = self._template.head(), []
        for item in items:
            starts = range(0, len(item.candidates), _TOGETHER)
            branches = [self._branch(head, item.candidates[start : start + _TOGETHER]) for start in starts]
            trunk = len(self._engine.tokens(item.stream))
            longest, room = max(len(branch.ids) for branch in branches), self._engine.budget - trunk - self._written
            if room < longest:
                raise ValueError(
                    f"stream {item.stream!r}: found offers of {longest} tokens, expected at most {room}: the "
                    f"context of {self._engine.budget} also holds {trunk} tokens of events and {self._written} of what "
                    "may be written"
                )
            parts.append(branches)
        before = [self._engine.read_of(item.stream) for item in items]
        z: list[list[float]] = [[] for _ in items]
        for turn in range(max(map(len, parts), default=0)):
            asked = [number for number, branches in enumerate(parts) if turn < len(branches)]
            readings = [engine.ReadRequest(items[number].stream, (), [parts[number][turn]]) for number in asked]
            for number, [rows] in zip(asked, self._engine.read(readings), strict=True):
                z[number] += _log_odds(rows)[1 if turn else 0 :]  # each part has the need slot, too
        answers = []
        for item, branches, found, read in zip(items, parts, z, before, strict=True):
            trunk, new = len(self._engine.tokens(item.stream)), self._engine.read_of(item.stream) - read
            tokens = trunk + sum(len(branch.ids) for branch in branches)
            answers.append(AskedReading(found[0], tuple(found[1:]), tokens, trunk - new, new))
        return answers

    def think(self, items: Sequence[ThinkRequest]) -> list[Thought]:
        """Writes the fields and reads the slots after them; see `Reader.think`."""
        opening = self._template.opening()
        written = self._engine.write([(item.stream, opening) for item in items], self._fields, self._automaton(LINE))
        decode = self._template.tokenizer.decode
        fields = [fields_of([decode(ids) for ids in texts]) for texts in written]
        heads = [self._slow_head(own) for own in fields]
        branches = [self._branch(head, item.candidates) for head, item in zip(heads, items, strict=True)]
        readings = [engine.ReadRequest(item.stream, (), [branch]) for item, branch in zip(items, branches, strict=True)]
        thoughts = []
        for [rows], own in zip(self._engine.read(readings), fields, strict=True):
            z, tokens = _log_odds(rows), sum(len(field.text) for field in self._template.slow(own))
            thoughts.append(Thought(z[0], tuple(z[1:]), own, tokens))
        return thoughts

    def respond(self, items: Sequence[tuple[str, Candidate, Mapping[str, str] | None]]) -> list[Response]:
        """Writes responses under the locked schema; see `Reader.respond`."""
        fast = self._template.head()
        heads = [fast if fields is None else self._slow_head(fields) for _, _, fields in items]
        rows = [
            (stream, [*head, *self._template.leaf(offer)])
            for (stream, offer, _), head in zip(items, heads, strict=True)
        ]
        decode, responses = self._template.tokenizer.decode, []
        for values in self._engine.write(rows, self._values, self._automaton(JSON_STRING)):
            text = response_text([decode(ids) for ids in values])
            responses.append(Response(text, sum(map(len, values))))
        return responses

    def history(self, stream: str) -> str:
        """SHA-256 of the token ids of a stream's trunk, as little-endian 32-bit integers."""
        return hashlib.sha256(np.array(self._engine.tokens(stream), "<i4").tobytes()).hexdigest()

    def warm_up(self, *, writes: bool = True) -> None:
        """Starts to compile every program that a decision needs, or its reading alone; see `Reader.warm_up`."""
        self._engine.compile_behind(self._any_automaton() if writes else None)

    def compile_all(self) -> None:
        """Compiles every program that a decision needs, so that none is compiled later."""
        automaton = self._any_automaton()
        self._engine.warm_up(None if automaton is None else automaton())

    def _any_automaton(self) -> Callable[[], DeviceAutomaton] | None:
        """What makes an automaton, all of which lead to the same programs; None for a model that writes nothing."""
        grammar = LINE if self.has_slow_pass else JSON_STRING if self.writes_responses else None
        return None if grammar is None else functools.partial(self._automaton, grammar)

    def _branch(self, head: Sequence[int], candidates: Sequence[Candidate]) -> Branch:
        return Branch(tuple(head), tuple(tuple(self._template.leaf(offer)) for offer in candidates))

    def _reserve(self, branch: Branch) -> int:
        return max(len(branch.ids), self._offers) + self._written

    def _slow_head(self, fields: Mapping[str, str]) -> list[int]:
        parts = [token for field in self._template.slow(fields) for token in (*field.name, *field.text)]
        return [*self._template.opening(), *parts, *self._template.need()]

    def _automaton(self, grammar: Grammar) -> DeviceAutomaton:
        """The automaton of a grammar, built when it is first needed: silence needs none."""
        with self._making:  # which the thread that compiles may do at the same time
            if grammar.name not in self._automata:
                own = over_tokens(grammar, self._template.tokenizer, self._model.config.vocab_size)
                self._automata[grammar.name] = DeviceAutomaton(own)
            return self._automata[grammar.name]


def most_written(template: Template, writing: WritingConfig, has_slow_pass: bool, writes_responses: bool) -> int:
    """Most tokens that may be written for one decision, for which a stream's context keeps room."""
    fields = field_spans(template, writing.field_tokens) if has_slow_pass else ()
    values = response_spans(template, writing.response_tokens) if writes_responses else ()
    return sum(_most_tokens(spans) for spans in (fields, values) if spans)


def check_room(context: int, template: Template, stream: str, event: int, reserve: int) -> None:
    """Checks that an event of so many tokens fits into the context with the system message and a decision's tokens."""
    most = context - len(template.system()) - reserve
    if event > most:
        raise ValueError(
            f"stream {stream!r}: found an event of {event} tokens, expected at most {max(most, 0)}: the context of "
            f"{context} also holds the system message, and {reserve} tokens of offers and of what may be written"
        )


def _most_tokens(spans: Sequence[Span]) -> int:
    """Largest number of tokens of a text, its forced ones included."""
    return sum(len(span.forced) + span.limit for span in spans) + 1


def _log_odds(rows: Float[np.ndarray, "P 2"]) -> list[float]:
    z = rows.astype(np.float64)
    return (z[:, 0] - z[:, 1]).tolist()


class LiveStates(_LiveStreams):
    """Reads the states of offers on many live streams, event by event, as `prism_jax.probe.states` reads whole ones.

    Blocks above the highest that is read are not there.
    """

    def __init__(self, reader: StatesReader, config: LiveConfig):
        """Allocates the pool; ValueError for a setting out of range, or a context or pool that is too small."""
        super().__init__(reader.template)
        self._count, lowest = len(reader.blocks), reader.blocks[-1]
        self._engine = engine.Engine(
            Qwen3(dataclasses.replace(reader.model.config, num_layers=lowest)),
            {**reader.params, "layers": jax.tree.map(lambda leaf: leaf[:lowest], reader.params["layers"])},
            (),
            budget=config.context,
            memory=config.memory,
            keep=config.keep,
            batches=config.batches,
            longest=config.longest,
            at=reader.blocks,
        )
        written = self._template.describe()
        self._before, self._after = (len(written[name]["ids"]) for name in ("offer", "accept"))

    def observe(self, items: Sequence[Item]) -> list[tuple[Float[np.ndarray, "offers width"], int]]:
        """Appends each event to its stream's trunk, and reads the offers after it: their states, and how many tokens.

        The states are those that `prism_jax.probe.states.Reader.read` gives. `items` are (stream, event, offers) of
        distinct streams; a stream is opened when it first occurs.

        Raises:
          ValueError: naming the stream, for an event that does not fit into the context; no trunk has then changed.
        """
        readings = self._opened(items, self._branch, lambda branch: len(branch.ids))
        results = self._engine.read(readings)
        self._newest |= {stream: event for stream, event, _ in items}
        return [
            (self._of_offers(states, reading.branches[0].leaves), len(reading.event) + len(reading.branches[0].ids))
            for reading, [states] in zip(readings, results, strict=True)
        ]

    def warm_up(self) -> None:
        """Starts to compile every program that an event needs."""
        self._engine.compile_behind()

    def _branch(self, head: Sequence[int], offers: Sequence[Candidate]) -> Branch:
        leaves = tuple(tuple(self._template.leaf(offer)) for offer in offers)
        return Branch(tuple(head), leaves, self._places(len(head), leaves))

    def _own(self, leaf: Sequence[int]) -> range:
        """Where in its leaf the tokens of an offer's own text are."""
        return range(self._before, len(leaf) - self._after)

    def _places(self, first: int, leaves: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Of every leaf the tokens of the offer's own text, and the answer slot."""
        places: list[int] = []
        for leaf in leaves:
            places += [first + place for place in (*self._own(leaf), len(leaf) - 1)]
            first += len(leaf)
        return tuple(places)

    def _of_offers(
        self, states: Float[np.ndarray, "places width"], leaves: Sequence[Sequence[int]]
    ) -> Float[np.ndarray, "offers columns"]:
        """At each block the mean over the offer's tokens, then its answer slot."""
        stops = np.cumsum([len(self._own(leaf)) + 1 for leaf in leaves])
        rows = []
        for part in np.split(states, stops[:-1]):
            mean = part[:-1].sum(0) / max(len(part) - 1, 1)
            pairs = zip(np.split(mean, self._count), np.split(part[-1], self._count), strict=True)
            rows.append(np.concatenate([half for pair in pairs for half in pair]))
        return np.stack(rows)
