"""What the importers share: texts that mean nothing, answers as responses, and offers as the candidates of a step."""

from __future__ import annotations

import hashlib
import json
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

from prism_jax.runtime.files import check_text
from prism_jax.streams import RESPONSE_KEYS, Candidate
from prism_jax.streams.jsonl import StreamError
from prism_jax.streams.traces import says_null


def answer_text(value: Any, place: str) -> str | None:
    """Returns a text of an answer without spaces around it; None where it means that there is none."""
    if not isinstance(value, str | None):
        raise StreamError(f"{place}: found {reprlib.repr(value)}, expected text or null")
    if value is None or says_null(value):
        return None
    check_text(value, place, StreamError)
    return value.strip()


def response_of(texts: Mapping[str, str | None]) -> str | None:
    """Returns an answer as JSON text with the student's keys of a response; None unless it has a text for each."""
    values = {key: texts.get(key) for key in RESPONSE_KEYS}
    return None if None in values.values() else json.dumps(values, ensure_ascii=False)


def candidates_of(stream: str, event: int, answers: Iterable[Mapping[str, str | None]]) -> tuple[Candidate, ...]:
    """Returns the distinct offers of a step's answers, with their responses; the constant one where all are silent.

    Their order depends only on texts, and so tells nothing about who offered. Answers are texts by their names in
    `RESPONSE_KEYS`, missing or None where there is none.
    """

    def place(answer: Mapping[str, str | None]) -> bytes:
        content = json.dumps([stream, event, *(answer.get(key) for key in RESPONSE_KEYS)])
        return hashlib.sha256(content.encode()).digest()

    offers: dict[str, str | None] = {}
    for answer in sorted(answers, key=place):
        if (offer := answer.get(RESPONSE_KEYS[2])) is not None:
            offers[offer] = offers.get(offer) or response_of(answer)
    return tuple(Candidate(text=offer, response=response) for offer, response in offers.items()) or (Candidate(),)
