"""What the student reads: one trunk of events, and at each decision a branch with the two slots.

    trunk     system message, then one user message per event, as the model's own chat template renders them
    head      opens the assistant's turn with thinking off, and ends in the NEED slot
    leaf      names the candidate, or the constant "an offer", and ends in the ACCEPT slot
    response  what the assistant says if the gate opens, and the end of the turn

At a slot the next-token logits of the two answer tokens are read; no answer is ever written, so the text at a slot
carries no label. Each part is encoded by itself and the ids are joined: nothing is rendered first and encoded after.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from prism_jax.prompting.tokenizer import Tokenizer
from prism_jax.streams import Candidate, Event, Stream

NEED = "Needed:"
OFFER = "\nOffer:"
CONSTANT_OFFER = " an offer"
ACCEPT = "\nAccepted:"
RESPONSE = "\n"
YES, NO = " yes", " no"


@dataclasses.dataclass(frozen=True)
class PromptConfig:
    """What the prompt says around the events.

    Attributes:
      system: The system message.
      vocabulary_size: Ids of the BPE vocabulary trained on the training split, where no tokenizer is given.
      tokenizer: Path of a `tokenizer.json`, its directory, or a GGUF file; empty trains one.
    """

    system: str = "Watch the user and judge whether to offer help."
    vocabulary_size: int = 1024
    tokenizer: str = ""


def event_text(event: Event, before: Event | None) -> tuple[str, str]:
    """An event as two untrusted parts: what happened, and the time since the event before it, from a minute on."""
    seconds = 0.0 if before is None else event.time - before.time
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return event.text, f" (+{seconds / size:.0f}{unit})"
    return event.text, ""


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
        self._system = [start, *tokenizer.encode("system\n"), *tokenizer.encode(config.system), *self._end]
        opening = [start, *tokenizer.encode("assistant\n")]
        if tokenizer.thinks:
            blank = tokenizer.encode("\n\n")
            opening += [tokenizer.special("<think>"), *blank, tokenizer.special("</think>"), *blank]
        self._need = tokenizer.encode(NEED)
        self._head = [*opening, *self._need]
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
        """A branch's head; its last token is the need slot."""
        return list(self._head)

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
            "yes": {"text": YES, "id": self.yes},
            "no": {"text": NO, "id": self.no},
        }


def corpus(streams: list[Stream], config: PromptConfig) -> Iterator[str]:
    """Everything the template says and reads on these streams: what a vocabulary is trained on."""
    for stream in streams:
        yield from ("system\n", config.system)
        for before, event in zip((None, *stream.events), stream.events, strict=False):
            yield from ("user\n", *event_text(event, before))
        for step in stream.steps:
            yield from ("assistant\n", "\n\n", NEED, YES, NO)
            for candidate in step.candidates:
                yield from (OFFER, CONSTANT_OFFER if candidate.text is None else f" {candidate.text}", ACCEPT, YES, NO)
                if candidate.response is not None:
                    yield from (RESPONSE, candidate.response)


def make_tokenizer(streams: list[Stream], config: PromptConfig) -> Tokenizer:
    """The tokenizer that the config names, or one trained on `streams` (the training split)."""
    if config.tokenizer:
        return Tokenizer.load(config.tokenizer)
    return Tokenizer.train(corpus(streams, config), config.vocabulary_size)
