"""From the body of a request to what the agents are asked, or the error that its sender gets."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import urllib.parse
from collections.abc import Sequence
from typing import Annotated, Any

import fastapi

from prism_jax.agent.lines import EVENT, OUTCOME, LineError, Moment, parse_item
from prism_jax.agent.records import OfferOutcome
from prism_jax.agent.service.http import ApiError
from prism_jax.agent.state.durable import Events
from prism_jax.agent.stated_reader import stated_event
from prism_jax.agent.steps import MOST_NAME, Observation
from prism_jax.runtime.files import JsonError, parse_json
from prism_jax.runtime.written import tidy

MOST_KEY = 255
"""Longest Idempotency-Key, in characters."""
LENIENT = "handling=lenient"
"""The header `Prefer` (RFC 7240) of who wants the first answer to a key, even where the body is another one now."""


def json_of(body: bytes) -> Any:
    """The value of a body; ApiError 422 for what is no strict JSON."""
    try:
        return parse_json(body, "body", JsonError)
    except ValueError as error:
        raise ApiError(422, str(error)) from None


def _item_of(value: Any, place: str, kind: Any) -> Any:
    """What a value is, in the shape of a `kind`; ApiError 422 names what is wrong with it."""
    try:
        return parse_item(value, place, kind)
    except LineError as error:
        raise ApiError(422, str(error)) from None


def outcome_of(value: Any) -> OfferOutcome:
    """What became of an offer, as in the agent's lines."""
    item: OfferOutcome = _item_of(value, "body", OUTCOME)
    return item


def _observation_of(value: Any, place: str, kind: Any) -> Observation:
    """The event of an object; ApiError 422 also for a person whose name has another spelling.

    Tables and logs read two spellings of a name as one person, and here they would be two; a host with accounts that
    differ in nothing else must not show one the page of the other, so that neither name is taken for the other's.
    """
    item: Observation = _item_of(value, place, kind)
    if item.person is not None and tidy(item.person) != item.person:
        words = "found blanks at its ends, unseen characters, or letters that are not in NFC, expected a name without"
        raise ApiError(422, f"{place}: person: {words}")
    return item


def event_of(value: Any, stream: str, place: str) -> Observation:
    """The event of an object, of the stream in the path."""
    if isinstance(value, dict):
        if "stream" in value:
            raise ApiError(422, f"{place}: stream: found it in an event, expected the stream in the path")
        value = {**value, "stream": stream}
    return _observation_of(value, place, EVENT)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Stated(Moment):
    """The keys of a request to `/v1/decide`."""

    p_need: Any
    p_accept: tuple[Any, ...]  # of each candidate

    def observation(self) -> Observation:
        seen = self.observed(stated_event(self.time, self.p_need, self.p_accept))
        if len(self.p_accept) != len(seen.candidates):
            raise ValueError(f"p_accept: found {len(self.p_accept)} numbers, expected {len(seen.candidates)}")
        return seen


_STATED = Annotated[_Stated, _Stated.observation]


def stated_of(value: Any) -> Observation:
    """The event of a request to `/v1/decide`, whose text states the caller's numbers."""
    if isinstance(value, dict) and not isinstance(value.get("p_accept", []), list):
        value = {**value, "p_accept": [value["p_accept"]]}
    return _observation_of(value, "body", _STATED)


def events_of(items: Sequence[Observation], request: fastapi.Request, body: bytes) -> Events:
    """A request with its key, and a hash of what it says."""
    key = request.headers.get("idempotency-key")
    if key is not None and not 1 <= len(key) <= MOST_KEY:
        raise ApiError(422, f"Idempotency-Key: found {len(key)} characters, expected 1 to {MOST_KEY}")
    path = urllib.parse.unquote(request.scope["path"])
    digest = hashlib.sha256(path.encode() + b"\0" + body).digest()
    wishes = [wish.strip() for wish in request.headers.get("prefer", "").lower().split(",")]
    named = None if key is None else f"{items[0].stream}\0{key}"
    return Events(tuple(items), named, digest, LENIENT in wishes)


def check_finite(**values: float | None) -> None:
    """Raises ApiError 422, naming it, for a number that is none or infinite."""
    for name, value in values.items():
        if value is not None and not math.isfinite(value):
            raise ApiError(422, f"{name}: found {value}, expected a finite number of seconds", param=name)


async def check_address(request: fastapi.Request) -> None:
    """Raises ApiError 422 for a name that nobody can have, or a parameter that the route does not know."""
    for place, name in request.path_params.items():
        if not name.strip() or len(name) > MOST_NAME:
            raise ApiError(422, f"{place}: found {len(name)} characters, expected 1 to {MOST_NAME}, not all blank")
    names = [parameter.alias for parameter in request.scope["route"].dependant.query_params]
    given = [name for name, _ in request.query_params.multi_items()]
    for name in given:
        if name not in names or given.count(name) > 1:
            what = "it twice" if name in names else "an unknown parameter"
            expected = f"one of {', '.join(names)}" if names else "none"
            raise ApiError(422, f"{name!r:.40}: found {what}, expected {expected}")


CHECKED = [fastapi.Depends(check_address)]
"""The dependencies of a route whose address is checked."""
