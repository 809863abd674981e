"""What a person's page says: decisions, previews and what was learnt, in words that need no knowledge of the gate."""

from __future__ import annotations

import datetime
import itertools
import json
import math
import zoneinfo
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from prism_jax.agent.state.preferences import LEVELS, Preferences, Preview, is_zone
from prism_jax.agent.state.reading import Logged
from prism_jax.decision.arrays import sigmoid
from prism_jax.decision.person import Population, predict
from prism_jax.people.store import Person

LEVEL_NAMES = dict(zip(LEVELS, ("Much less", "Less", "As set up", "More", "Much more"), strict=True))
MOST_SHOWN = 300
"""Longest text that is shown, in characters."""
FOLDED = 4
"""Silences in a row that are shown folded."""
NEWEST = 8
"""Offers and runs of silences of a day that are shown; earlier ones are folded."""
_SAID = {
    "accepted": "You found it useful.",
    "dismissed": "You did not find it useful.",
    "ignored": "You did not answer.",
}
_QUIET = {
    "snoozed": "You had snoozed it.",
    "muted": "You had muted it.",
    "quiet hours": "It was within your quiet hours.",
    "busy": "You seemed to be busy.",
}


class Row(NamedTuple):
    """A decision as it is shown."""

    number: int  # of its record, by which an answer to it names it
    when: str
    iso: str
    spoke: bool
    text: str
    stream: str
    reason: str
    outcome: str | None  # in words; None where there is none yet


class Mark(NamedTuple):
    """A decision on the line of the day."""

    x: str  # how far the day had gone, in per cent
    spoke: bool


class Day(NamedTuple):
    """The decisions of a day, the newest first; silences in a row stand together."""

    offers: int
    silences: int
    groups: Sequence[Sequence[Row]]
    is_whole: bool  # whether all of them are here
    watched: int  # how many the host made while the gate watched
    would: int  # in how many of these the gate would have offered something
    marks: Sequence[Mark]
    hours: Sequence[tuple[int, str]]  # of the line of the day, each with how far the day had gone then, in per cent


def day_of(found: Sequence[Logged], begin: float, zone: datetime.tzinfo, most: int) -> Day:
    """What is shown of the records of a day, of which at most so many were read."""
    records = [one.record for one in found]
    outcomes = {(one["stream"], one["offer"]): one["outcome"] for one in records if one["kind"] == "outcome"}
    would = [one["shadow"]["would_speak"] for one in records if "shadow" in one]
    rows, marks = [], []
    for _, number, record, answer, written in reversed(found):
        if record["kind"] != "decision":
            continue
        when = datetime.datetime.fromtimestamp(written, zone)
        outcome = outcomes.get((record["stream"], record["offer"]))
        said = None if outcome is None else _SAID.get(outcome, "You answered.")
        stream = bounded(record["stream"], 60)
        iso = when.isoformat(timespec="seconds")
        row = Row(number, f"{when:%H:%M}", iso, record["spoke"], _text(record, answer), stream, reason(record), said)
        rows.append(row)
        marks.append(Mark(f"{min(100.0, (written - begin) / 864.0):.2f}", row.spoke))
    groups: list[list[Row]] = []
    for spoke, run in itertools.groupby(rows, key=lambda row: row.spoke):
        own = list(run)
        groups += [own] if not spoke and len(own) >= FOLDED else [[row] for row in own]
    offers = sum(row.spoke for row in rows)
    first = datetime.datetime.fromtimestamp(begin, zone)
    hours = [(25 * i, f"{first + i * datetime.timedelta(hours=6):%H:%M}") for i in range(5)]
    silences, is_whole = len(rows) - offers, len(found) < most
    return Day(offers, silences, groups, is_whole, len(would), sum(would), marks, hours)


def bounded(text: str, most: int = MOST_SHOWN) -> str:
    """The beginning of a text, on one line."""
    start = " ".join(text[: 4 * most].split())
    return start if len(start) <= most and len(text) <= 4 * most else f"{start[:most].rstrip()}…"


def reason(record: Mapping[str, Any]) -> str:
    """Why the gate decided as it did, for a person who never heard of one."""
    p, threshold = record["p_accept"], record["threshold"]
    if "shadow" in record:
        would = record["shadow"]["would_speak"]
        did = "done the same" if would == record["spoke"] else "made an offer" if would else "kept quiet"
        return f"By the app itself; the assistant would have {did}."
    if record["critical"]:
        return "It is on the list of urgent things, which always come through."
    if record.get("quiet") is not None:
        return _QUIET[record["quiet"]]
    if record.get("unanswered") is not None or p is None:
        return "The assistant could not judge this one, and so said nothing."
    if record["explored"]:
        return f"Left to chance, to learn what helps you: it was a close call{_put(p, threshold)}."
    policy = record["policy"]["name"]
    if policy in ("always", "never"):
        return f"Whoever set it up wants it to {'offer everything' if policy == 'always' else 'stay silent'}."
    if threshold is None:
        return "No offer would have been worth it: help hardly seemed needed."
    if not record["spoke"] and p >= threshold:
        return "There had been enough offers for the time being."
    mine, needed = percents(p, threshold)
    if record["spoke"]:
        return f"{mine} likely to be welcome; {needed} was enough."
    return f"{mine} likely to be welcome; it takes {needed}."


def percents(first: float, second: float) -> tuple[str, str]:
    """Two probabilities in per cent, with as many digits as tell them apart."""
    for digits in (0, 1, 2, 4):
        texts = f"{100 * first:.{digits}f} %", f"{100 * second:.{digits}f} %"
        if texts[0] != texts[1] or first == second:
            break
    return texts


def sentence(found: Preview) -> str:
    """What a level would have done in the last week."""
    if not found.decisions:
        return "There was nothing to decide on in the last 7 days."
    if not found.fewer and not found.more:
        return f"Nothing would have changed: {_count(found.offers, 'offer')} with the present settings."
    parts = []
    if found.fewer:
        lost = f", {found.lost} that you accepted lost" if found.lost else ", none that you accepted lost"
        parts.append(f"{found.fewer} fewer {'offer' if found.fewer == 1 else 'offers'}{lost}")
    if found.more:
        about = round(found.expected)
        taken = (
            f"about {about} of which you would have accepted" if about else "hardly any that you would have accepted"
        )
        parts.append(f"{found.more} more {'offer' if found.more == 1 else 'offers'}, {taken}")
    return f"{'; '.join(parts)}."


class Learnt(NamedTuple):
    """What was learnt of a person."""

    words: str
    percent: int  # of offers of which everybody accepts half, how many this person is expected to accept
    low: int  # ends of an interval that has the person's rate with a probability of 90 %
    high: int
    answers: int
    alarm: bool  # whether the person's answers have disagreed with what was predicted of them


def learnt(person: Person, population: Population) -> Learnt:
    """What was learnt of a person, beside everybody else."""
    mean, spread = person.belief.mean, 1.645 * math.sqrt(person.belief.variance)
    percent = round(100 * float(sigmoid(float(predict(person.belief, 0.0, population._replace(bias=0.0))))))
    low, high = (round(100 * float(sigmoid(mean + side * spread))) for side in (-1, 1))
    if not person.answers:
        words = "Nothing was learnt of you yet: you are taken to be like everybody else."
    elif abs(percent - 50) <= 3:
        words = "You accept offers about as often as others do."
    else:
        much = "much " if abs(percent - 50) > 15 else "somewhat "
        words = f"You accept offers {much}{'more' if percent > 50 else 'less'} often than others do."
    return Learnt(words, percent, low, high, person.answers, person.rang)


def moment(seconds: float, zone: datetime.tzinfo, now: float) -> str:
    """A time that is to come, or was, as a person says it."""
    when, today = (datetime.datetime.fromtimestamp(one, zone) for one in (seconds, now))
    days = (when.date() - today.date()).days
    if days == 0:
        return f"{when:%H:%M}"
    if days == 1:
        return f"tomorrow {when:%H:%M}"
    return f"{when:%a} {when.day} {when:%b}{'' if when.year == today.year else f' {when.year}'}, {when:%H:%M}"


def quiet_now(preferences: Preferences, zone: datetime.tzinfo, now: float) -> str | None:
    """Why there are no offers now, and until when; None where there may be some."""
    silence = preferences.silence
    if silence is not None and now < silence.until:
        return f"{silence.reason.capitalize()} until {moment(silence.until, zone, now)}"
    hours = preferences.hours
    return f"Quiet hours until {hours.end}" if hours is not None and hours.cover(now) else None


def zone_of(name: str | None) -> zoneinfo.ZoneInfo | None:
    """The time zone of a name from outside; None where there is none."""
    return zoneinfo.ZoneInfo(name) if name and len(name) <= 64 and is_zone(name) else None


def _text(record: Mapping[str, Any], answer: Mapping[str, Any] | None) -> str:
    """What was offered, or what was looked at in silence, as far as the records have it."""
    source = record if answer is None else answer
    if isinstance(source["candidate"], str):
        return bounded(source["candidate"])
    if record["spoke"]:
        try:
            tree = json.loads(source["response"] or "null")
        except (ValueError, RecursionError):
            tree = None
        texts = [value for value in tree.values() if isinstance(value, str)] if isinstance(tree, dict) else []
        return bounded(texts[0]) if texts else "An offer"
    return bounded(record["text"]) if isinstance(record.get("text"), str) else ""


def _put(p: float, threshold: float | None) -> str:
    return "" if threshold is None else " ({} against {})".format(*percents(p, threshold))


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"
