"""Converts event times of published data, in ProactiveBench's two formats or in ISO 8601, to seconds."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence

_EPOCH = re.compile(r"\d{1,12}(?:\.\d+)?", re.ASCII)
_DAY = re.compile(r"Day ([1-9]\d{0,5}), (1[0-2]|0?[1-9]):([0-5]\d) (AM|PM)", re.ASCII)


def to_seconds(times: Sequence[str]) -> tuple[float, ...]:
    """Converts the event times of one stream to seconds since the epoch, or since Day 1, 00:00.

    All have one format: decimal epoch seconds ("1717338232.283") or days with a 12-hour clock ("Day 1, 11:00 PM"), of
    which 12:00 AM is midnight and 12:00 PM is noon. Raises ValueError starting with `[INDEX].time`, for a time in
    neither format, or when a stream mixes the two.
    """
    readings = [_read(time) for time in times]
    for i, (time, (clock, _)) in enumerate(zip(times, readings, strict=True)):
        if clock is None:
            raise ValueError(f"[{i}].time: found {time!r:.80}, expected epoch seconds or a time like 'Day 1, 11:00 PM'")
        if clock != readings[0][0]:
            first = f"{times[0]!r:.80}"
            raise ValueError(f"[{i}].time: found {time!r:.80}, expected the clock of the stream's first time, {first}")
    return tuple(seconds for _, seconds in readings)


def _read(time: str) -> tuple[str | None, float]:
    """The format of `time` ("epoch" or "day"; None where it has neither) and its value in seconds."""
    if _EPOCH.fullmatch(time):
        return "epoch", float(time)
    match = _DAY.fullmatch(time)
    if match is None:
        return None, 0.0
    day, hour, minute, half = match.groups()
    hours = int(hour) % 12 + (12 if half == "PM" else 0)
    return "day", 86_400.0 * (int(day) - 1) + 3_600.0 * hours + 60.0 * int(minute)


def iso_seconds(times: Sequence[str]) -> tuple[float, ...]:
    """Converts dates and times in ISO 8601 to seconds since the epoch; without a time zone, they are of UTC.

    Raises ValueError starting with `[INDEX].time`, for another time, or one with a zone among some without.
    """
    dates = []
    for i, time in enumerate(times):
        try:
            dates.append(datetime.datetime.fromisoformat(time))
        except ValueError:
            raise ValueError(f"[{i}].time: found {time!r:.80}, expected a date and time in ISO 8601") from None
        if (dates[i].tzinfo is None) != (dates[0].tzinfo is None):
            raise ValueError(f"[{i}].time: found {time!r:.80}, expected times with a time zone, or all without one")
    return tuple(date.replace(tzinfo=date.tzinfo or datetime.UTC).timestamp() for date in dates)
