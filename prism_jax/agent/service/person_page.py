"""The page of the person, `/me`: what was decided for them and why, and what they want of it.

A person sees themself alone: tenant, partition and person come from the session, never from what is typed. The page
works without its script, which only makes it nicer.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import datetime
import functools
import math
import zoneinfo
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeVar

import fastapi
from fastapi.responses import Response

from prism_jax.agent.records import OfferOutcome
from prism_jax.agent.service import browser
from prism_jax.agent.service import person_view as view
from prism_jax.agent.service.agents import DECIDE, EVENTS, Visit, forget, partition_of, unknown
from prism_jax.agent.service.door import Door
from prism_jax.agent.service.http import ApiError
from prism_jax.agent.service.person_data import exported, offer_of, span_of
from prism_jax.agent.service.sessions import Ask, Session, Sessions
from prism_jax.agent.state.durable import DurableAgent
from prism_jax.agent.state.partition import Partition
from prism_jax.agent.state.preferences import (
    LEVELS,
    Preferences,
    Preview,
    QuietHours,
    Silence,
    keep_preferences,
    preferences_of,
    preview,
)
from prism_jax.agent.state.reading import read_latest
from prism_jax.decision.person import Population
from prism_jax.people.store import Person

T = TypeVar("T")

DAY, WEEK = 86400.0, 7 * 86400.0
MOST_RECORDS = 500
"""Most records of a day that are shown, the newest."""
AT_ONCE, MOST_PREVIEWED, PREVIEWS = 2, 2000, 1000
"""Most previews of a tenant that are computed at once, most records of a person in each (a second per 1,000), and most
that are kept until something new comes."""
FORGET_WORD = "forget"
"""What somebody types to have everything deleted."""
DONE = {
    "level": "Saved. It counts from the next decision on.",
    "silence": "Done: no offers until then.",
    "hours": "Your quiet hours are saved.",
    "ended": "Ended. Offers may come again.",
    "outcome": "Thank you. It learns from that.",
    "reset": "What was learnt of you is forgotten.",
}
"""What the page says after each change, by the name in its address."""
_SILENCES = {
    "1h": ("snoozed", 3600.0),
    "4h": ("snoozed", 4 * 3600.0),
    "week": ("muted", WEEK),
    "month": ("muted", 30 * DAY),
}
_MORNING = datetime.time(8)


class Known(NamedTuple):
    """What the agents say of a person."""

    preferences: Preferences
    person: Person
    population: Population
    c_fa: float
    has_critical: bool  # whether any event always comes through


class PersonPage:
    """The routes of `/me`; `link` makes what leads there, and `unlink` ends it; `kept` is for the host."""

    def __init__(self, door: Door, tenants: Collection[str], ask: Ask, clock: Callable[[], float]) -> None:
        """Of the tenants behind a door; `ask` puts something to the agents of the tenant in a request's state."""
        self._sessions = Sessions(door, tenants, ask, clock)
        self._door, self._ask, self._clock = door, ask, clock
        self._turns = collections.defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(AT_ONCE))
        self._previews: dict[tuple[Any, ...], asyncio.Future[dict[int, Preview]]] = {}
        self.link, self.unlink = self._sessions.link, self._sessions.unlink

    def add_to(self, app: fastapi.FastAPI) -> None:
        """Adds the routes under `/me`."""
        pages: dict[tuple[str, str], browser.Page] = {
            ("GET", "/me"): self.show,
            ("GET", "/me/link"): self._sessions.show_link,
            ("POST", "/me/link"): self._sessions.use_link,
            ("POST", "/me/out"): self._sessions.sign_out,
            ("POST", "/me/out_everywhere"): self._sessions.sign_out_everywhere,
            ("POST", "/me/level"): self.set_level,
            ("POST", "/me/silence"): self.set_silence,
            ("POST", "/me/hours"): self.set_hours,
            ("POST", "/me/outcome"): self.judge,
            ("POST", "/me/reset"): self.reset,
            ("GET", "/me/export"): self.export,
            ("GET", "/me/forget"): self.ask_forget,
            ("POST", "/me/forget"): self.forget,
        }
        app.add_middleware(browser.Headers)
        for (method, path), page in pages.items():
            app.add_api_route(path, browser.answered(page), methods=[method], include_in_schema=False)
        for name in browser.ASSETS:
            app.add_api_route(f"/me/{name}", browser.asset(name), methods=["GET"], include_in_schema=False)

    # What is shown

    async def show(self, request: fastapi.Request, status: int = 200, error: str | None = None) -> Response:
        """The page."""
        session = await self._sessions.session(request)
        known: Known | None = await self._ask(request, DECIDE, _know(session.person))
        if known is None:
            raise ApiError(401, "no session")
        now, own = self._clock(), known.preferences
        zone = view.zone_of(request.cookies.get("zone"))
        if zone is None and own.hours is not None:
            zone = view.zone_of(own.hours.zone)
        since = now - DAY
        if zone is not None:
            today = datetime.datetime.fromtimestamp(now, zone).date()
            since = datetime.datetime.combine(today, datetime.time(), zone).timestamp()
        found = await self._read(session, read_latest, since, MOST_RECORDS)
        span = await self._read(session, span_of)
        levels = await self._preview(session, span.newest, known.c_fa, own.level)
        shown = zone or datetime.UTC
        hours = own.hours if own.hours is not None and now < own.hours.until else None
        last, there = (now + WEEK, shown) if hours is None else (hours.until - 1.0, zoneinfo.ZoneInfo(hours.zone))
        last_day = datetime.datetime.fromtimestamp(last, there).date()
        return browser.render(
            "page.html.jinja",
            status,
            error=error,
            done=DONE.get(request.query_params.get("done", "")),
            form_token=session.key.form_token,
            person=view.bounded(session.person, 60),
            zone=None if zone is None else zone.key,
            level=own.level,
            looked_at=levels[0].decisions,
            levels=[(level, view.LEVEL_NAMES[level], view.sentence(levels[level])) for level in LEVELS],
            silence=own.silence if own.silence is not None and now < own.silence.until else None,
            hours=hours,
            quiet=view.quiet_now(own, shown, now),
            until=lambda seconds: view.moment(seconds, shown, now),
            last_day=last_day.isoformat(),
            last_day_words=f"{last_day:%-d %B %Y}",
            zones=_zones(),
            chosen_zone=hours.zone if hours is not None else "UTC" if zone is None else zone.key,
            has_critical=known.has_critical,
            day=view.day_of(found, since, shown, MOST_RECORDS),
            newest=view.NEWEST,
            learnt=view.learnt(known.person, known.population),
            began=None if span.first is None else f"{datetime.datetime.fromtimestamp(span.first, shown):%-d %B %Y}",
        )

    async def export(self, request: fastapi.Request) -> Response:
        """Everything of the person, as a file of JSON."""
        session = await self._sessions.session(request)
        found = await self.kept(session.person, request)
        headers = {"content-disposition": 'attachment; filename="what-is-known-of-me.json"'}
        return Response(found, media_type="application/json", headers=headers)

    async def kept(self, person: str, request: fastapi.Request) -> bytes:
        """Everything of a person of the request's tenant, as JSON."""
        async with self._door.heavy[request.state.tenant]:
            known: Known | None = await self._ask(request, DECIDE, _know(person))
            if known is None:
                raise unknown()
            work = functools.partial(exported, person=person, preferences=known.preferences, known=known.person)
            return await self._door.read(request.state.tenant, person, work)

    # What is changed

    async def set_level(self, request: fastapi.Request) -> Response:
        """More or fewer offers."""
        session, fields = await self._sessions.posted(request)
        try:
            level = int(fields.get("level", ""))
            Preferences(level)
        except ValueError:
            return await self.show(request, 422, "Choose one of the five steps.")
        await self._prefer(request, session, level=level)
        return browser.to("/me?done=level#level")

    async def set_silence(self, request: fastapi.Request) -> Response:
        """No offers for a while, or an end of that."""
        session, fields = await self._sessions.posted(request)
        wanted, now = fields.get("for", ""), self._clock()
        if wanted == "end":
            await self._prefer(request, session, silence=None)
            return browser.to("/me?done=ended#quiet")
        if wanted == "morning":
            zone = view.zone_of(fields.get("zone")) or datetime.UTC
            day = datetime.datetime.fromtimestamp(now, zone).date() + datetime.timedelta(days=1)
            silence = Silence("snoozed", datetime.datetime.combine(day, _MORNING, zone).timestamp())
        elif wanted in _SILENCES:
            silence = Silence(_SILENCES[wanted][0], now + _SILENCES[wanted][1])
        else:
            return await self.show(request, 422, "Choose for how long there shall be no offers.")
        await self._prefer(request, session, silence=silence)
        return browser.to("/me?done=silence#quiet")

    async def set_hours(self, request: fastapi.Request) -> Response:
        """No offers between two times of every day, or an end of that."""
        session, fields = await self._sessions.posted(request)
        if "end_now" in fields:
            await self._prefer(request, session, hours=None)
            return browser.to("/me?done=ended#quiet")
        try:
            zone = view.zone_of(fields.get("zone"))
            last = datetime.date.fromisoformat(fields.get("last_day", ""))
            if zone is None or zone.key not in _zones():
                raise ValueError("zone: expected one")
            end = datetime.datetime.combine(last + datetime.timedelta(days=1), datetime.time(), zone).timestamp()
            hours = QuietHours(fields.get("begin", ""), fields.get("end", ""), zone.key, end)
            if end <= self._clock():
                raise ValueError("last day: expected one to come")
        except (ValueError, OverflowError):
            words = "Quiet hours need two different times such as 22:00, a time zone, and a last day that is to come."
            return await self.show(request, 422, words)
        await self._prefer(request, session, hours=hours)
        return browser.to("/me?done=hours#quiet")

    async def judge(self, request: fastapi.Request) -> Response:
        """Says whether an offer was useful; saying the same again changes nothing."""
        session, fields = await self._sessions.posted(request)
        outcome, number = fields.get("outcome"), fields.get("number", "")
        if outcome not in ("accepted", "dismissed") or not number.isascii() or not number.isdigit() or len(number) > 18:
            return await self.show(request, 422, "Choose whether an offer was useful.")
        offer = await self._read(session, offer_of, int(number))
        if offer is not None and offer.outcome is None:
            try:
                await self._ask(request, DECIDE, OfferOutcome(offer.stream, offer.offer, outcome, offer.time))
            except ApiError as problem:  # such as a second press of a button, which came first
                if problem.status not in (409, 422):
                    raise
            offer = await self._read(session, offer_of, int(number))
        if offer is None:
            return await self.show(request, 404, "There is no such offer.")
        if offer.outcome != outcome:
            words = "has been judged before" if offer.outcome else "can no longer be judged"
            return await self.show(request, 409, f"That offer {words}.")
        return browser.to("/me?done=outcome#today")

    async def reset(self, request: fastapi.Request) -> Response:
        """Forgets what was learnt of the person; their streams and records stay."""
        session, _ = await self._sessions.posted(request)

        key, person = session
        reset = Visit(lambda agents: agents[DECIDE].store.partition(key.partition).forget_learnt(person), alone=person)
        await self._ask(request, DECIDE, reset)
        return browser.to("/me?done=reset#known")

    async def ask_forget(self, request: fastapi.Request, status: int = 200, error: str | None = None) -> Response:
        """Asks whether everything shall be deleted."""
        session = await self._sessions.session(request)
        token = session.key.form_token
        return browser.render("forget.html.jinja", status, error=error, form_token=token, word=FORGET_WORD)

    async def forget(self, request: fastapi.Request) -> Response:
        """Deletes everything of the person, their session included."""
        session, fields = await self._sessions.posted(request)
        if fields.get("word", "").strip().lower() != FORGET_WORD:
            return await self.ask_forget(request, 422, f"Type the word {FORGET_WORD} to go on.")
        try:
            await self._ask(request, DECIDE, forget(session.person))
        except ApiError as error:
            if error.status != 503:
                raise
            words = (
                "It could not be ended now. Ask whoever runs this to end it, or try again if you are still signed in."
            )
            return browser.message(503, "The deletion has begun", words)
        words = "Nothing is known of you here any more."
        return self._sessions.ended(request, "Everything of yours is deleted", words)

    async def _read(self, session: Session, function: Callable[..., T], *values: Any, **options: Any) -> T:
        """What a function of the store's folder and the person reads."""
        person = session.person
        return await self._door.read(
            session.key.tenant, person, lambda place: function(place, person, *values, **options)
        )

    async def _preview(self, session: Session, newest: int | None, c_fa: float, level: int) -> dict[int, Preview]:
        """What each level would have done in the last week, to the hour, beside the present one."""
        since = 3600.0 * math.floor((self._clock() - WEEK) / 3600.0)
        key = session.key.tenant, session.key.partition, newest, since, c_fa, level
        if key not in self._previews:
            bounds = {"since": since, "c_fa": c_fa, "most": MOST_PREVIEWED}

            async def look() -> dict[int, Preview]:
                async with self._turns[session.key.tenant]:
                    return await self._read(session, preview, LEVELS, current=level, **bounds)

            if len(self._previews) >= PREVIEWS:
                del self._previews[next(iter(self._previews))]
            self._previews[key] = asyncio.ensure_future(look())  # for which all who ask the same wait
        try:
            return await asyncio.shield(self._previews[key])
        except Exception:
            self._previews.pop(key, None)
            raise

    async def _prefer(self, request: fastapi.Request, session: Session, **changes: Any) -> None:
        def change(partition: Partition) -> None:
            before = preferences_of(partition, session.person)
            keep_preferences(partition, session.person, dataclasses.replace(before, **changes))

        await self._sessions.change(request, session, change)


def _know(name: str) -> Visit:
    def call(agents: Mapping[str, DurableAgent]) -> Known | None:
        partition = partition_of(agents, name)
        if partition is None:
            return None
        settings = agents.get(EVENTS, agents[DECIDE]).settings
        critical = bool(settings.critical.texts or settings.critical.patterns)
        own, person = preferences_of(partition, name), partition.people.person(name)
        return Known(own, person, partition.people.population, settings.terms.point.c_fa, critical)

    return Visit(call, alone=name)


@functools.cache
def _zones() -> list[str]:
    """Time zones by their places."""
    return [
        "UTC",
        *sorted(zone for zone in zoneinfo.available_timezones() if "/" in zone and not zone.startswith("Etc/")),
    ]
