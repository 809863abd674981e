"""Times as people write them: `2026-03-01 14:05`, `1.3.2026 14:05`, `3/1/2026 2:05 pm`, `Mar 1, 2026`."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable

from absl import flags

_DAY_FIRST, _MONTH_FIRST = "day/month", "month/day"
ORDERS = (_DAY_FIRST, _MONTH_FIRST)
"""How dates such as 3/4/2026 are read."""
COUNTS = ("seconds", "days")
"""What numbers such as 46082.5 count, days as spreadsheets do."""
TIME_FORMATS = (*ORDERS, *COUNTS)
"""What times may be, where they can be read in two ways."""
TIMES = (
    "seconds, or milli-, micro- or nanoseconds since 1970, or a time such as 2025-01-31T09:30:00Z, 31.1.2025 9:30 or "
    "1/31/2025 9:30 am"
)
"""What is read."""
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_NUMBERS = r"(?P<first>\d{1,2})(?P<mark>[/.-])(?P<second>\d{1,2})(?P=mark)(?P<year>\d{4}|\d\d)"
_YEAR_FIRST = r"(?P<year>\d{4})[/.-](?P<month>\d{1,2})[/.-](?P<day>\d{1,2})"
_DAY_NAME = r"(?P<day>\d{1,2})(?:st|nd|rd|th|\.)?[ -](?P<name>[a-z]{3,9})\.?,?[ -](?P<year>\d{4}|\d\d)"
_NAME_DAY = r"(?P<name>[a-z]{3,9})\.? (?P<day>\d{1,2})(?:st|nd|rd|th)?,? (?P<year>\d{4})"
_CLOCK = r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d)(?::(?P<second_>\d\d(?:[.,]\d{1,9})?))?)? ?(?:(?P<half>[ap])\.?m\.?)?"
_REST = rf"(?:(?:,? at |,? |t){_CLOCK} ?(?P<zone>z|utc|gmt|[+-]\d\d:?\d\d)?)?"
_WEEKDAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,? )?"
_FORMS = [re.compile(_WEEKDAY + date + _REST) for date in (_NUMBERS, _YEAR_FIRST, _DAY_NAME, _NAME_DAY)]


def define_flag() -> None:
    """Defines --time_format, for commands with --columns."""
    flags.DEFINE_enum(
        "time_format",
        None,
        TIME_FORMATS,
        "With --columns: how dates such as 3/4/2026 are read, or what times such as 46082.5 count.",
    )


class AmbiguousDateError(ValueError):
    """Dates of which nothing says whether the day or the month stands first; `row` is that of the first."""

    def __init__(self, row: int, first: int, second: int, year: str) -> None:
        readings = (f"{day} {_MONTHS[month - 1].title()}" for day, month in ((first, second), (second, first)))
        super().__init__(f"{first}/{second}/{year}, which is {' or '.join(readings)}")
        self.row = row


def order_of(texts: Iterable[str | None]) -> str | None:
    """One of `ORDERS`, by the dates with a number above 12; None of texts without dates of two such readings.

    AmbiguousDateError where there are such dates and none tells.
    """
    unclear = None
    for row, text in enumerate(texts):
        found = _FORMS[0].fullmatch(_plain(text or ""))
        if found is None or found["mark"] == ".":
            continue
        first, second = int(found["first"]), int(found["second"])
        if first > 12 or second > 12:
            return _DAY_FIRST if first > 12 else _MONTH_FIRST
        if unclear is None and first != second and min(first, second):
            unclear = AmbiguousDateError(row, first, second, found["year"])
    if unclear is not None:
        raise unclear
    return None


def moment_of(text: str, order: str | None) -> datetime.datetime:
    """The moment that a text names; ValueError for others.

    `order` is one of `ORDERS`; None where dates have dots, before which the day stands, or no two readings.
    """
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        found = next(filter(None, (form.fullmatch(_plain(text)) for form in _FORMS)), None)
    if found is None:
        raise ValueError("no form that is known")
    said = found.groupdict()
    if "first" in said:
        numbers = int(said["first"]), int(said["second"])
        day, month = numbers[::-1] if order == _MONTH_FIRST else numbers
    else:
        day, month = int(said["day"]), int(said["month"]) if "month" in said else _month(said["name"])
    year = int(said["year"]) + (2000 if len(said["year"]) == 2 else 0)
    moment = datetime.datetime(year, month, day)
    if said["hour"] is None:
        return moment
    hour = int(said["hour"])
    if said["half"] is not None:
        if not 1 <= hour <= 12:
            raise ValueError("an hour of no half day")
        hour = hour % 12 + 12 * (said["half"] == "p")
    elif said["minute"] is None:
        raise ValueError("an hour without minutes")
    second = float((said["second_"] or "0").replace(",", "."))
    moment = moment.replace(hour=hour, minute=int(said["minute"] or 0)) + datetime.timedelta(seconds=second)
    if said["zone"] is None:
        return moment
    zone = said["zone"] if said["zone"][0] in "+-" else "+00:00"
    return moment.replace(tzinfo=datetime.datetime.strptime(zone, "%z").tzinfo)


def _month(name: str) -> int:
    """The number of a month in English, in full or from three letters on; ValueError for others."""
    full = datetime.date(2000, _MONTHS.index(name[:3]) + 1, 1)
    if not f"{full:%B}".lower().startswith(name) and name != "sept":
        raise ValueError("no month")
    return full.month


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
