"""One row of the official training data: a conversation of Time/Event turns and the assistant's answers.

The project that published ProactiveBench builds its training data as {"conversations": [turn, ...]} for LLaMA-Factory.
A turn is {"from", "value"} (sharegpt) or {"role", "content"}, and every user turn and every answer is JSON text. This
is assumed, and anything else refused:

- The user's turns are events {"Time", "Event"}: one, a list of them, or either under "Observation" or "Observations",
  with or without "Instructions". An entry of a list may be JSON text of an event.
- The assistant's turns are answers {"Purpose", "Thoughts", "Proactive Task", "Response"}, possibly in a code fence. An
  answer belongs to the newest event before it. Without the key "Proactive Task" a turn is no answer, but an error.
- A system turn may stand first, or in a field `system`; it is not kept. `tools` is ignored.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from prism_jax.runtime.files import parse_json
from prism_jax.runtime.schema import Object, Words, decode
from prism_jax.streams import RESPONSE_KEYS
from prism_jax.streams.jsonl import StreamError
from prism_jax.streams.published.answers import answer_text

ROLES = {
    **dict.fromkeys(("human", "user", "observation"), "user"),
    **dict.fromkeys(("gpt", "assistant", "function_call"), "assistant"),
    "system": "system",
}
"""What each name of a speaker means."""
OBSERVATIONS = ("Observations", "Observation")
_MOMENT = Object({"Time": Words, "Event": Words})
_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)\n\s*```", re.DOTALL)

Moment = tuple[str, str]
"""The time and the text of an event, as in the source."""


class AssistantAnswer(NamedTuple):
    """An answer of the assistant."""

    offer: str | None  # what it proposed; None is silence
    fields: tuple[tuple[str, str], ...]  # its texts by their names in `RESPONSE_KEYS`; those that mean none are missing


class Conversation(NamedTuple):
    """A row."""

    place: str  # FILE: row NUMBER, for messages
    events: tuple[Moment, ...]  # what the user did, in order
    replies: tuple[
        tuple[int, AssistantAnswer], ...
    ]  # the index of the newest event at the time of an answer, and the answer


def parse_conversation(row: Any, place: str) -> Conversation:
    """Checks one row: an object with `conversations` or `messages`, or the list of turns itself.

    Raises StreamError naming the row (by `place`, such as `FILE: row 3`) and the turn, for anything that the layout
    above does not allow.
    """
    turns = row
    if isinstance(row, dict):
        keys = [key for key in ("conversations", "messages") if key in row]
        if len(keys) != 1:
            raise StreamError(f"{place}: found the keys {', '.join(map(str, row)) or 'none'}, expected conversations")
        turns = row[keys[0]]
    if not isinstance(turns, list) or not turns:
        raise StreamError(f"{place}: found {reprlib.repr(turns)}, expected a list of turns")
    events: list[Moment] = []
    replies: list[tuple[int, AssistantAnswer]] = []
    for number, turn in enumerate(turns):
        turn_place = f"{place}, turn {number}"
        role, text = _turn(turn, turn_place)
        if role == "system" and number:
            raise StreamError(f"{turn_place}: found a system turn, expected one in the first place only")
        if role == "user":
            events += _moments(text, turn_place)
        elif role == "assistant":
            if not events:
                raise StreamError(f"{turn_place}: found an answer before any event, expected events first")
            replies.append((len(events) - 1, _reply(text, turn_place)))
    if not events:
        raise StreamError(f"{place}: found no event, expected some")
    return Conversation(place, tuple(events), tuple(replies))


def _turn(turn: Any, place: str) -> tuple[str, str]:
    """The role and the text of a turn in either layout."""
    if isinstance(turn, dict):
        for role_key, text_key in (("from", "value"), ("role", "content")):
            if role_key in turn and text_key in turn:
                role, text = turn[role_key], turn[text_key]
                if not isinstance(role, str) or role not in ROLES:
                    raise StreamError(
                        f"{place}: found {role_key} = {reprlib.repr(role)}, expected one of {', '.join(ROLES)}"
                    )
                if not isinstance(text, str):
                    raise StreamError(f"{place}.{text_key}: found {reprlib.repr(text)}, expected text")
                return ROLES[role], text
    raise StreamError(
        f"{place}: found {reprlib.repr(turn)}, expected an object with from and value, or role and content"
    )


def _moments(text: str, place: str) -> Iterator[Moment]:
    value = parse_json(text.encode("utf-8", "surrogatepass"), place, StreamError)
    if isinstance(value, dict) and not {"Time", "Event"} & value.keys():
        keys = [key for key in OBSERVATIONS if key in value]
        if len(keys) != 1:
            raise StreamError(f"{place}: found the keys {', '.join(value) or 'none'}, expected Time and Event")
        value = value[keys[0]]
    for entry in value if isinstance(value, list) else [value]:
        if isinstance(entry, str):
            entry = parse_json(entry.encode("utf-8", "surrogatepass"), place, StreamError)
        yield _moment(entry, place)


def _moment(entry: Any, place: str) -> Moment:
    if isinstance(entry, dict) and type(entry.get("Time")) in (int, float):  # seconds since the epoch
        entry = {**entry, "Time": str(entry["Time"])}
    moment = decode(_MOMENT, entry, place, StreamError)
    return moment["Time"], moment["Event"]


def _reply(turn: str, place: str) -> AssistantAnswer:
    fenced = _FENCE.search(turn)
    value = parse_json((fenced[1] if fenced else turn).encode("utf-8", "surrogatepass"), place, StreamError)
    task = RESPONSE_KEYS[2]
    if not isinstance(value, dict) or task not in value:
        raise StreamError(f"{place}: found {reprlib.repr(value)}, expected an answer with {task}")
    fields = {
        key: text for key in RESPONSE_KEYS if (text := answer_text(value.get(key), f"{place}: {key}")) is not None
    }
    return AssistantAnswer(fields.get(task), tuple(fields.items()))
