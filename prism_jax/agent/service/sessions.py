"""Signing in to the person's page: from a link that works once to a session, which every page and form of it names.

The store has hashes alone. The text of a link or session names the tenant and the partition beside its secret, so that
the one file that knows it is found.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import urllib.parse
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, NamedTuple

import fastapi
from etils import epath
from fastapi.responses import Response

from prism_jax.agent.service import browser
from prism_jax.agent.service.agents import DECIDE, Visit, partition_of, unknown
from prism_jax.agent.service.door import Door
from prism_jax.agent.service.http import ApiError
from prism_jax.agent.service.person_view import zone_of
from prism_jax.agent.state.durable import DurableAgent
from prism_jax.agent.state.partition import Partition
from prism_jax.agent.state.places import readable

LINK, SESSION = "link", "session"
LASTS = {LINK: 15 * 60.0, SESSION: 30 * 86400.0}
"""Seconds after which each ends."""
ENDED = "This link has ended", "A link works once, for 15 minutes. Ask for another one where you got this one."
Ask = Callable[[fastapi.Request, str, Any], Awaitable[Any]]
_TEXT = re.compile(r"([a-z0-9][a-z0-9_-]{0,63})\.([0-9]{1,4})\.[A-Za-z0-9_-]{43}")
_OWNER = "SELECT person FROM signins WHERE hash = ? AND kind = ? AND until > ? AND until <= ?"
"""What would last far longer than any does was made by a clock that was ahead, and has ended."""


class Key(NamedTuple):
    """What a link or a cookie says."""

    text: str  # whole, with its secret of 256 bits
    tenant: str
    partition: int

    @property
    def hash(self) -> bytes:
        """What the store knows of it."""
        return hashlib.sha256(self.text.encode("ascii")).digest()

    @property
    def form_token(self) -> str:
        """What each form of the session sends along, which no other page can know."""
        return hmac.new(self.text.encode("ascii"), b"form", hashlib.sha256).hexdigest()

    def made(self, form_token: str) -> bool:
        """Whether a form is one of the session's."""
        return hmac.compare_digest(self.form_token.encode(), form_token.encode("utf-8", "surrogatepass"))


def new_key(tenant: str, partition: int) -> Key:
    """A key that nobody can guess."""
    return Key(f"{tenant}.{partition}.{secrets.token_urlsafe(32)}", tenant, partition)


def read_key(text: str, tenants: Collection[str]) -> Key | None:
    """The key of a text from outside; None for what is none, or of no such tenant."""
    found = _TEXT.fullmatch(text)
    return Key(text, found[1], int(found[2])) if found and found[1] in tenants else None


def _issue(partition: Partition, key: Key, kind: str, person: str, now: float) -> float:
    """Keeps a new key, in a transaction of the caller; returns when it ends, in seconds since 1970."""
    until = now + LASTS[kind]
    partition.rows("DELETE FROM signins WHERE until <= ?", (now,))
    partition.rows("INSERT INTO signins VALUES (?, ?, ?, ?)", (key.hash, person, kind, until))
    return until


def _end(partition: Partition, key: Key) -> None:
    """Ends a key, in a transaction of the caller."""
    partition.rows("DELETE FROM signins WHERE hash = ?", (key.hash,))


def _end_all(partition: Partition, person: str) -> int:
    """Ends every key of a person, in a transaction of the caller; returns how many there were."""
    ((count,),) = partition.rows("SELECT count(*) FROM signins WHERE person = ?", (person,))
    partition.rows("DELETE FROM signins WHERE person = ?", (person,))
    return int(count)


def _owner(ask: Callable[[str, Any], list[tuple[Any, ...]]], key: Key, kind: str, now: float) -> str | None:
    """Whose a key is; None where it has ended, or never was."""
    rows = ask(_OWNER, (key.hash, kind, now, now + 2 * LASTS[kind]))
    return rows[0][0] if rows else None


class Session(NamedTuple):
    """Who asks, by a session or a link."""

    key: Key
    person: str


class Sessions:
    """Who has signed in, and the routes that begin and end that."""

    def __init__(self, door: Door, tenants: Collection[str], ask: Ask, clock: Callable[[], float]) -> None:
        """Of the tenants behind a door; `ask` puts something to the agents of the tenant in a request's state."""
        self._door, self._tenants, self._ask, self._clock = door, tenants, ask, clock

    async def link(self, person: str, request: fastapi.Request) -> dict[str, Any]:
        """Makes a link for a person of the caller's tenant."""
        tenant = request.state.tenant

        def call(agents: Mapping[str, DurableAgent]) -> tuple[Key, float] | None:
            agent, partition = agents[DECIDE], partition_of(agents, person)
            if partition is None:
                return None
            key = new_key(tenant, agent.store.number_of(person))
            with partition.transaction():
                return key, _issue(partition, key, LINK, person, agent.now())

        made = await self._ask(request, DECIDE, Visit(call, alone=person))
        if made is None:
            raise unknown()
        key, until = made
        return {"url": f"{request.base_url}me/link?{urllib.parse.urlencode({'key': key.text})}", "expires": until}

    async def show_link(self, request: fastapi.Request) -> Response:
        """Shows the button of a link, which a mail scanner that reads the page does not press."""
        link = await self._signed(request.query_params.get("key", ""), LINK)
        if link is None:
            return browser.message(410, *ENDED)
        return browser.render("link.html.jinja", key=link.key.text)

    async def use_link(self, request: fastapi.Request) -> Response:
        """Uses a link up, and begins a session."""
        fields = await browser.fields_of(request)
        link = await self._signed(fields.get("key", ""), LINK)
        if link is None:
            return browser.message(410, *ENDED)
        session = new_key(link.key.tenant, link.key.partition)

        def begin(partition: Partition, now: float) -> None:
            _end(partition, link.key)
            _issue(partition, session, SESSION, link.person, now)

        request.state.tenant = link.key.tenant
        if not await self._changed(request, link, LINK, begin):
            return browser.message(410, *ENDED)
        answer = browser.to("/me")
        keeping: dict[str, Any] = {
            "max_age": int(LASTS[SESSION]),
            "secure": request.url.scheme == "https",
            "samesite": "strict",
        }
        answer.set_cookie(_cookie(request), session.text, httponly=True, **keeping)
        if zone_of(fields.get("zone")) is not None:
            answer.set_cookie("zone", fields["zone"], **keeping)
        return answer

    async def unlink(self, person: str, request: fastapi.Request) -> dict[str, Any]:
        """Ends every link and session of a person of the caller's tenant."""

        def call(agents: Mapping[str, DurableAgent]) -> int:
            partition = partition_of(agents, person)
            if partition is None:
                return 0
            with partition.transaction():
                return _end_all(partition, person)

        return {"ended": await self._ask(request, DECIDE, Visit(call, alone=person))}

    async def sign_out_everywhere(self, request: fastapi.Request) -> Response:
        """Ends every link and session of the person."""
        session, _ = await self.posted(request)
        await self.change(request, session, lambda partition: _end_all(partition, session.person))
        return self.ended(request, "You are signed out everywhere", "To come back, ask for another link.")

    async def sign_out(self, request: fastapi.Request) -> Response:
        """Ends the session."""
        session, _ = await self.posted(request)
        await self.change(request, session, lambda partition: _end(partition, session.key))
        return self.ended(request, "You are signed out", "To come back, ask for another link.")

    def ended(self, request: fastapi.Request, title: str, words: str) -> Response:
        """A page after which the browser knows no session."""
        answer = browser.message(200, title, words)
        answer.delete_cookie(_cookie(request), secure=request.url.scheme == "https", httponly=True, samesite="strict")
        return answer

    async def session(self, request: fastapi.Request) -> Session:
        """Who asks; ApiError 401 for nobody."""
        session = await self._signed(_cookie_in(request), SESSION)
        if session is None:
            raise ApiError(401, "no session")
        request.state.tenant = session.key.tenant
        return session

    async def posted(self, request: fastapi.Request) -> tuple[Session, Mapping[str, str]]:
        """Who asks for a change, and its fields; ApiError 403 where the person's own page did not ask."""
        fields = await browser.fields_of(request)
        session = await self.session(request)
        if not session.key.made(fields.get("form_token", "")):
            raise ApiError(403, "form token: found another one, expected that of the session")
        return session, fields

    async def change(self, request: fastapi.Request, session: Session, change: Callable[[Partition], object]) -> None:
        """Changes the person's partition in one transaction, unless the session has ended meanwhile."""
        if not await self._changed(request, session, SESSION, lambda partition, _: change(partition)):
            raise ApiError(401, "no session")

    async def _changed(
        self, request: fastapi.Request, signed: Session, kind: str, change: Callable[[Partition, float], object]
    ) -> bool:
        """Changes a person's partition, given the time; False where the link or session has ended meanwhile."""

        def call(agents: Mapping[str, DurableAgent]) -> bool:
            partition, now = agents[DECIDE].store.partition(signed.key.partition), agents[DECIDE].now()
            with partition.transaction():
                lasts = _owner(partition.rows, signed.key, kind, now) is not None
                if lasts:
                    change(partition, now)
            return lasts

        return bool(await self._ask(request, DECIDE, Visit(call, alone=signed.person)))

    async def _signed(self, text: str, kind: str) -> Session | None:
        key, now = read_key(text, self._tenants), self._clock()
        if key is None:
            return None

        def owner(folder: epath.Path) -> str | None:
            return next((_owner(ask, key, kind, now) for _, ask in readable(folder, numbers=(key.partition,))), None)

        person = await self._door.read(key.tenant, key.partition, owner)
        return None if person is None else Session(key, person)


def _cookie(request: fastapi.Request) -> str:
    """The cookie's name; browsers let no other host set it over https, by its prefix."""
    return "__Host-prism-me" if request.url.scheme == "https" else "prism-me"


def _cookie_in(request: fastapi.Request) -> str:
    """The cookie's value; empty where it is not there once.

    Another host could set one whose name begins with what only some programs take for a blank, so nothing but the
    blanks of the header's form is cut from names.
    """
    pairs = [part.strip(" \t").partition("=") for line in request.headers.getlist("cookie") for part in line.split(";")]
    found = [value for name, _, value in pairs if name == _cookie(request)]
    return found[0] if len(found) == 1 else ""
