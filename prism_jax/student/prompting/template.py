"""The student's prompt: one trunk of events, and for each decision a branch with the two slots.

    trunk     system message, then one user message per event, as the model's own chat template renders them
    head      opens the assistant's turn with thinking off; its last token is the NEED slot
    leaf      names the candidate, or the constant "an offer"; its last token is the ACCEPT slot
    response  the assistant's text if the gate opens, and the end of the turn

In a slow branch the head also contains the slow pass's fields, between the opening of the turn and the need slot: the
consequences of silence and of an offer, the evidence and the risk. Each field is one line. The template writes the
names of the fields, so the model generates only their texts.

At a slot, the next-token logits of the two answer tokens are read. No answer is written to the text, so the text at a
slot never contains a label. Each part is encoded separately and the ids are concatenated; the text is never rendered as
a whole and then encoded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from prism_jax.runtime.dataclass_config import check_at_least
from prism_jax.streams import RESPONSE_KEYS, Candidate, Event, Stream
from prism_jax.streams.fenced import event_text
from prism_jax.streams.types import CONSTANT_OFFER, SLOW_FIELDS
from prism_jax.student.prompting.tokenizer import Tokenizer

NEED = "Needed:"
OFFER = "\nOffer:"
ACCEPT = "\nAccepted:"
RESPONSE = "\n"
YES, NO = " yes", " no"
LINE_END = "\n"


class Field(NamedTuple):
    """One field of the slow pass as token ids: its name, from the template, and its text, from the model."""

    name: list[int]
    text: list[int]


@dataclasses.dataclass(frozen=True)
class PromptConfig:
    """The system message and the tokenizer."""

    system: str = "Watch the user and judge whether to offer help."  # text of the system message
    vocab_size: int = 1024  # number of ids of the BPE vocabulary that is trained where no tokenizer is given
    # path of a `tokenizer.json`, its directory, or a GGUF file; empty trains one on the training split
    tokenizer: str = ""


@dataclasses.dataclass(frozen=True)
class WritingConfig:
    """How much the student may write."""

    field_tokens: int = 32  # maximum number of tokens of each field of the slow pass
    response_tokens: int = 48  # maximum number of tokens of each value of a response
    # whether an evaluation that writes responses reads the accept slot once more, after the written proposal
    reread: bool = False

    def __post_init__(self) -> None:
        check_at_least(self, 1, "field_tokens", "response_tokens")


def field_text(text: str) -> str:
    """The text of a slow field as the template writes it: one line, with a space before it."""
    return f" {' '.join(text.split())}"


class Template:
    """The prompt template for one tokenizer; the methods return token ids.

    `yes` is the id of the answer that help is needed or that the offer is accepted, `no` that of the opposite answer.
    """

    def __init__(self, tokenizer: Tokenizer, config: PromptConfig):
        self.tokenizer = tokenizer
        self.config = config
        self.yes, self.no = tokenizer.only(YES), tokenizer.only(NO)
        start, end = tokenizer.special("<|im_start|>"), tokenizer.special("<|im_end|>")
        newline = tokenizer.encode(LINE_END)
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
        """The system message, with which the trunk begins."""
        return list(self._system)

    def event(self, event: Event, before: Event | None) -> list[int]:
        """The user message of one event; `before` is the event before it, None for the first."""
        what, when = event_text(event, before)
        return [*self._user, *self.tokenizer.encode(what), *self.tokenizer.encode(when), *self._end]

    def head(self) -> list[int]:
        """The head of a fast branch; its last token is the need slot."""
        return [*self._opening, *self._need]

    def opening(self) -> list[int]:
        """The opening of the assistant's turn: the start of the head of a slow branch, before its fields."""
        return list(self._opening)

    def need(self) -> list[int]:
        """The end of the head of a slow branch, after its fields; its last token is the need slot."""
        return list(self._need)

    def slow(self, rationale: Mapping[str, str]) -> list[Field]:
        """The fields of a slow branch, in the order of `SLOW_FIELDS`; each text ends with a line break.

        The rationale maps field names to untrusted texts, whose line breaks become spaces. Raises ValueError for a
        missing or unknown field.
        """
        if rationale.keys() != SLOW_FIELDS.keys():
            found, expected = (", ".join(names) or "none" for names in (rationale, SLOW_FIELDS))
            raise ValueError(f"rationale: found the fields {found}, expected {expected}")
        encode = self.tokenizer.encode
        return [
            Field(encode(name), [*encode(field_text(rationale[key])), *self._line_end])
            for key, name in SLOW_FIELDS.items()
        ]

    def field_names(self) -> list[list[int]]:
        """What the template writes before each field's text: the line break after the field before, and the name."""
        names = [self.tokenizer.encode(name) for name in SLOW_FIELDS.values()]
        return [names[0], *([*self._line_end, *name] for name in names[1:])]

    def leaf(self, candidate: Candidate) -> list[int]:
        """The leaf of one candidate; its last token is the accept slot."""
        offer = self._constant if candidate.text is None else self.tokenizer.encode(f" {candidate.text}")
        return [*self._offer, *offer, *self._accept]

    def response(self, text: str) -> tuple[list[int], list[int]]:
        """The tokens before a response, and the tokens to train on: the response and the end of the turn."""
        return list(self._response), [*self.tokenizer.encode(text), self._turn_end]

    def response_keys(self) -> list[list[int]]:
        """What the template writes before each value of a response: the quote after the value before, and the key."""
        first, *rest = (f'"{key}": "' for key in RESPONSE_KEYS)
        encode = self.tokenizer.encode
        return [[*self._response, *encode("{" + first)], *(encode('", ' + key) for key in rest)]

    def describe(self) -> dict[str, Any]:
        """Everything needed to read the slots without this code, as plain data: each text with its token ids."""

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
    """All texts that the template encodes for these streams, including those of slow branches if `slow`."""
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
    """Loads the tokenizer that the config names, or trains one on the texts of `streams` (the training split)."""
    if config.tokenizer:
        return Tokenizer.load(config.tokenizer)
    return Tokenizer.train(corpus(streams, config, slow=slow), config.vocab_size)
