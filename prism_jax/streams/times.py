"""The two clocks of ProactiveBench's event times, as seconds."""

from __future__ import annotations

import re
from collections.abc import Sequence

_EPOCH = re.compile(r"\d{1,12}(?:\.\d+)?", re.ASCII)
_DAY = re.compile(r"Day ([1-9]\d{0,5}), (1[0-2]|0?[1-9]):([0-5]\d) (AM|PM)", re.ASCII)


def to_seconds(times: Sequence[str]) -> tuple[float, ...]:
    """The event times of one stream in seconds, all read from one clock.

    Args:
      times: All epoch seconds in decimals ("1717338232.283"), or all days with a 12-hour clock ("Day 1, 11:00 PM").

    Returns:
      Seconds since the epoch, or since Day 1, 00:00 (12:00 AM is midnight, 12:00 PM is noon).

    Raises:
      ValueError: starting with `[INDEX].time`, for a time that neither clock reads, or for a change of clock.
    """
    readings = [_read(time) for time in times]
    for i, (time, (clock, _)) in enumerate(zip(times, readings, strict=True)):
        if clock is None:
            raise ValueError(f"[{i}].time: found {time!r}, expected epoch seconds or a time like 'Day 1, 11:00 PM'")
        if clock != readings[0][0]:
            raise ValueError(f"[{i}].time: found {time!r}, expected the clock of the stream's first time, {times[0]!r}")
    return tuple(seconds for _, seconds in readings)


def _read(time: str) -> tuple[str | None, float]:
    """The clock that `time` is read from (None where there is none) and its seconds."""
    if _EPOCH.fullmatch(time):
        return "epoch", float(time)
    match = _DAY.fullmatch(time)
    if match is None:
        return None, 0.0
    day, hour, minute, half = match.groups()
    hours = int(hour) % 12 + (12 if half == "PM" else 0)
    return "day", 86_400.0 * (int(day) - 1) + 3_600.0 * hours + 60.0 * int(minute)
