"""What the student reads: one trunk of events, and at each decision a branch with the two slots.

    trunk     system message, then one user message per event, as the model's own chat template renders them
    head      opens the assistant's turn with thinking off, and ends in the NEED slot
    leaf      names the candidate, or the constant "an offer", and ends in the ACCEPT slot
    response  what the assistant says if the gate opens, and the end of the turn

A slow branch is the same, but for the fields that its head writes between the opened turn and the need slot: what
follows from silence, what from an offer, on what evidence, at what risk. One line each, their names always written by
the template, so that they cost no choice.

At a slot the next-token logits of the two answer tokens are read; no answer is ever written, so the text at a slot
carries no label. Each part is encoded by itself and the ids are joined: nothing is rendered first and encoded after.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from prism_jax.prompting.tokenizer import Tokenizer
from prism_jax.streams import Candidate, Event, Stream

NEED = "Needed:"
OFFER = "\nOffer:"
CONSTANT_OFFER = " an offer"
ACCEPT = "\nAccepted:"
RESPONSE = "\n"
YES, NO = " yes", " no"
SLOW_FIELDS = {
    "if_silent": "If silent:",
    "if_offered": "If offered:",
    "evidence": "Evidence:",
    "risk": "Risk:",
}
"""The slow pass's fields, in the order they are written, with what the template writes before each."""
LINE_END = "\n"


class Field(NamedTuple):
    """One field of the slow pass as token ids: its name, which is given, and its text, which is written."""

    name: list[int]
    text: list[int]


@dataclasses.dataclass(frozen=True)
class PromptConfig:
    """What the prompt says around the events.

    Attributes:
      system: The system message.
      vocab_size: Ids of the BPE vocabulary trained on the training split, where no tokenizer is given.
      tokenizer: Path of a `tokenizer.json`, its directory, or a GGUF file; empty trains one.
    """

    system: str = "Watch the user and judge whether to offer help."
    vocab_size: int = 1024
    tokenizer: str = ""


def event_text(event: Event, before: Event | None) -> tuple[str, str]:
    """An event as two untrusted parts: what happened, and the time since the event before it, from a minute on."""
    seconds = 0.0 if before is None else event.time - before.time
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return event.text, f" (+{seconds / size:.0f}{unit})"
    return event.text, ""


def field_text(text: str) -> str:
    """A slow field's text as it is written: one line, with a space before it."""
    return f" {' '.join(text.split())}"


class Template:
    """The template over one tokenizer; every method returns token ids.

    Attributes:
      yes: Id of the answer that help is needed, or the offer accepted.
      no: Id of the other answer.
    """

    def __init__(self, tokenizer: Tokenizer, config: PromptConfig):
        self.tokenizer = tokenizer
        self.config = config
        self.yes, self.no = tokenizer.only(YES), tokenizer.only(NO)
        start, end = tokenizer.special("<|im_start|>"), tokenizer.special("<|im_end|>")
        newline = tokenizer.encode("\n")
        self._user = [start, *tokenizer.encode("user\n")]
        self._end = [end, *newline]
        self._line_end = newline
        self._system = [start, *tokenizer.encode("system\n"), *tokenizer.encode(config.system), *self._end]
        opening = [start, *tokenizer.encode("assistant\n")]
        if tokenizer.thinks:
            blank = tokenizer.encode("\n\n")
            opening += [tokenizer.special("<think>"), *blank, tokenizer.special("</think>"), *blank]
        self._opening = opening
        self._need = tokenizer.encode(NEED)
        self._offer, self._accept = tokenizer.encode(OFFER), tokenizer.encode(ACCEPT)
        self._constant = tokenizer.encode(CONSTANT_OFFER)
        self._response, self._turn_end = tokenizer.encode(RESPONSE), end

    def system(self) -> list[int]:
        """The trunk's first part."""
        return list(self._system)

    def event(self, event: Event, before: Event | None) -> list[int]:
        """One event of the trunk; `before` is the event before it, None for the first."""
        what, when = event_text(event, before)
        return [*self._user, *self.tokenizer.encode(what), *self.tokenizer.encode(when), *self._end]

    def head(self) -> list[int]:
        """A fast branch's head; its last token is the need slot."""
        return [*self._opening, *self._need]

    def opening(self) -> list[int]:
        """What opens the assistant's turn: the start of a slow branch's head, which goes on with its fields."""
        return list(self._opening)

    def need(self) -> list[int]:
        """The end of a slow branch's head, after its fields; its last token is the need slot."""
        return list(self._need)

    def slow(self, rationale: Mapping[str, str]) -> list[Field]:
        """The fields of a slow branch, in the order they are written; a text ends with the end of its line.

        Args:
          rationale: Field name to text, untrusted; line breaks in it become spaces.

        Raises:
          ValueError: for a field that is missing or that the template doesn't know.
        """
        if rationale.keys() != SLOW_FIELDS.keys():
            found, expected = (", ".join(names) or "none" for names in (rationale, SLOW_FIELDS))
            raise ValueError(f"rationale: found the fields {found}, expected {expected}")
        encode = self.tokenizer.encode
        return [
            Field(encode(name), [*encode(field_text(rationale[key])), *self._line_end])
            for key, name in SLOW_FIELDS.items()
        ]

    def leaf(self, candidate: Candidate) -> list[int]:
        """A candidate of a branch; its last token is the accept slot."""
        offer = self._constant if candidate.text is None else self.tokenizer.encode(f" {candidate.text}")
        return [*self._offer, *offer, *self._accept]

    def response(self, text: str) -> tuple[list[int], list[int]]:
        """What precedes a response, and the response itself with the end of the turn: the tokens to train on."""
        return list(self._response), [*self.tokenizer.encode(text), self._turn_end]

    def describe(self) -> dict[str, Any]:
        """All that a reader of the slots needs, as plain data: texts beside the ids that they stand for here."""

        def part(text: str, ids: list[int]) -> dict[str, Any]:
            return {"text": text, "ids": ids}

        return {
            "system": self.config.system,
            "need": part(NEED, self._need),
            "offer": part(OFFER, self._offer),
            "constant_offer": part(CONSTANT_OFFER, self._constant),
            "accept": part(ACCEPT, self._accept),
            "response": part(RESPONSE, self._response),
            "slow": {key: part(name, self.tokenizer.encode(name)) for key, name in SLOW_FIELDS.items()},
            "yes": {"text": YES, "id": self.yes},
            "no": {"text": NO, "id": self.no},
        }


def corpus(streams: list[Stream], config: PromptConfig, *, slow: bool = False) -> Iterator[str]:
    """Everything the template says and reads on these streams, with `slow` also on slow branches."""
    for stream in streams:
        yield from ("system\n", config.system)
        for before, event in zip((None, *stream.events), stream.events, strict=False):
            yield from ("user\n", *event_text(event, before))
        for step in stream.steps:
            yield from ("assistant\n", "\n\n", NEED, YES, NO)
            if slow and step.rationale is not None:
                for key, text in step.rationale.items():
                    yield from (SLOW_FIELDS.get(key, ""), field_text(text))
            for candidate in step.candidates:
                yield from (OFFER, CONSTANT_OFFER if candidate.text is None else f" {candidate.text}", ACCEPT, YES, NO)
                if candidate.response is not None:
                    yield from (RESPONSE, candidate.response)


def make_tokenizer(streams: list[Stream], config: PromptConfig, *, slow: bool = False) -> Tokenizer:
    """The tokenizer that the config names, or one trained on what `streams` (the training split) make us read."""
    if config.tokenizer:
        return Tokenizer.load(config.tokenizer)
    return Tokenizer.train(corpus(streams, config, slow=slow), config.vocab_size)
