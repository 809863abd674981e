"""ActivityWatch's export of one's own machine: the windows of a host as streams of events, without labels.

The export is {"buckets": {ID: {type, hostname, events: [{timestamp, duration, data}]}}}; the buckets of a host are
merged by time. An event is a window (`currentwindow`) that another application or title takes the place of. A tab
(`web.tab.current`) adds its address, without query and fragment, to a window that shows its title meanwhile; a private
one adds none. Times at which the keyboard was left (`afkstatus`) are cut out. A stream is a stretch of work without a
pause of `PAUSE`, in whatever time zone; every event has a step.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import itertools
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from etils import epath

from prism_jax.runtime.files import parse_json, read_bounded
from prism_jax.runtime.schema import Loose, decode
from prism_jax.streams.jsonl import StreamError
from prism_jax.streams.published.content import Published
from prism_jax.streams.times import iso_seconds
from prism_jax.streams.types import Event, Step, Stream

PAUSE = 900.0
"""Seconds without work that end a stream."""
SHORTEST = 2.0
"""Seconds that a window must be shown: shorter ones are passed on the way to another."""
MOST_BYTES = 2**31
"""Largest export."""
WINDOW, TAB, PRESENCE = "currentwindow", "web.tab.current", "afkstatus"
LAYOUT = f"a file aw-buckets-export.json (/api/0/export of the server), with a bucket of type {WINDOW}"


@dataclasses.dataclass(frozen=True)
class _Logged(Loose):
    timestamp: str
    data: Mapping[str, Any]
    duration: float = 0.0


@dataclasses.dataclass(frozen=True)
class _Bucket(Loose):
    type: str
    events: tuple[_Logged, ...]
    hostname: str = "unknown"


@dataclasses.dataclass(frozen=True)
class _Export(Loose):
    buckets: Mapping[str, _Bucket]


class Span(NamedTuple):
    """What was the case from one time to another, in seconds since the epoch."""

    start: float
    end: float
    data: Mapping[str, Any]


def read_activitywatch(source: epath.PathLike) -> Published:
    """Reads an export; a stream's id is the host and the time of its first event.

    Raises FileNotFoundError or StreamError naming file, bucket, event and key, for another layout or no window at all.
    """
    value = parse_json(read_bounded(source, StreamError, MOST_BYTES, LAYOUT), str(source), StreamError)
    export: _Export = decode(_Export, value, str(source), StreamError)
    hosts: dict[str, dict[str, list[Span]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    dropped = collections.Counter[str]()
    for name, bucket in export.buckets.items():
        if bucket.type not in (WINDOW, TAB, PRESENCE):
            dropped[f"events of buckets of type {bucket.type}"] += len(bucket.events)
            continue
        try:
            starts = iso_seconds([event.timestamp for event in bucket.events])
        except ValueError as error:
            raise StreamError(f"{source}: buckets.{name}.events{error}") from error
        for start, event in zip(starts, bucket.events, strict=True):
            hosts[bucket.hostname][bucket.type].append(Span(start, start + event.duration, event.data))
    try:
        streams = [stream for host, spans in hosts.items() for stream in _streams(host, spans, dropped)]
    except ValueError as error:
        raise StreamError(f"{source}: {error}") from error
    if not streams:
        raise StreamError(f"{source}: found no window that was used, expected {LAYOUT}")
    return Published(sorted(streams, key=lambda stream: stream.id), dropped=dropped)


def _streams(host: str, spans: Mapping[str, list[Span]], dropped: collections.Counter[str]) -> Iterator[Stream]:
    """The stretches of work on one host."""
    windows, tabs, away = (sorted(spans[kind], key=lambda span: span.start) for kind in (WINDOW, TAB, PRESENCE))
    shown = collections.deque(tab for tab in tabs if not tab.data.get("incognito"))
    pauses = collections.deque(span for span in away if span.data.get("status") == "afk")
    happened: list[tuple[float, float, str]] = []
    for window in windows:
        for others in (shown, pauses):
            while others and others[0].end <= window.start:
                others.popleft()
        text = _text(window, shown)
        pieces = [(start, end, text) for start, end, _ in _present(window, pauses) if end - start >= SHORTEST]
        if not text or not pieces:
            dropped[f"windows without a name, shown for less than {SHORTEST:g} s, or while the keyboard was left"] += 1
        else:
            happened += pieces
    stretch: list[Event] = []
    last = 0.0
    for start, end, text in sorted(happened):
        if stretch and start - last >= PAUSE:
            yield _stream(host, stretch)
            stretch = []
        if not stretch or stretch[-1].text != text:
            stretch.append(Event(time=start, text=text))
        last = max(last, end)
    if stretch:
        yield _stream(host, stretch)


def _present(window: Span, pauses: Iterable[Span]) -> Iterator[Span]:
    """The parts of a window's time in which the keyboard was used."""
    start = window.start
    for pause in itertools.takewhile(lambda pause: pause.start < window.end, pauses):
        yield window._replace(start=start, end=pause.start)
        start = max(start, pause.end)
    yield window._replace(start=start)


def _text(window: Span, tabs: Iterable[Span]) -> str:
    """Application and title, with the address of a tab whose title it shows; empty where neither has a word."""
    app, title = (str(window.data.get(key) or "").strip() for key in ("app", "title"))
    text = ": ".join(filter(None, (app, title)))
    for tab in itertools.takewhile(lambda tab: tab.start < window.end, tabs):
        shown = str(tab.data.get("title") or "").strip()
        if shown and shown in title:
            with contextlib.suppress(ValueError):  # an address that is none
                parts = urllib.parse.urlsplit(str(tab.data.get("url") or ""))
                return f"{text} ({parts.hostname or ''}{parts.path})"
    return text


def _stream(host: str, events: list[Event]) -> Stream:
    first = datetime.datetime.fromtimestamp(events[0].time, datetime.UTC).isoformat(timespec="seconds")
    steps = tuple(Step(event=index) for index in range(len(events)))
    return Stream(id=f"{host}:{first}", events=tuple(events), steps=steps, domain="computer", persona=host)
