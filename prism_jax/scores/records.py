"""A scores table from the decision records of an agent: one row per event and candidate (docs/agent.md).

Signals are the raw ones. Only the offer that was made has an answer; a silent step has none.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from prism_jax.scores.schema import ScoresError
from prism_jax.scores.table import Scores

TIMEOUT = 3600.0
"""Seconds after which an offer that was seen and not answered counts as not accepted."""
_ANSWERS = {"accepted": 1.0, "dismissed": 0.0, "ignored": 0.0}


def is_record(value: Mapping[str, Any]) -> bool:
    """Whether a line is a record of an agent, and not a row of a scores table."""
    return value.get("kind") in ("decision", "outcome") and "format" in value


def scores_of_records(lines: Iterable[Mapping[str, Any]]) -> Scores:
    """Builds a scores table from the lines of a records file, in the order of the file.

    An event whose reader gave no answer has no signals, and no row.

    The column `person` is there if some event names a person; a stream without one then counts as a person of its name.
    `y_accept` is 1 for an offer that was accepted, 0 for one that was dismissed or ignored. An offer without an outcome
    counts as 0 if it was seen and its time is over: the stream has an event within `TIMEOUT` seconds after the offer,
    and another one later than that. Otherwise nobody knows, and it is null. `y_need` is what an outcome says of it.
    Raises ScoresError naming the line (as a row from 0), for a record that cannot be read, an outcome of an offer that
    was not made, or a second outcome; and if there is no decision.
    """
    records = list(lines)
    rows, origin = [], []
    for line, values in rows_of_records(records):
        rows.append(values)
        origin.append(line)
    dropped = set()
    if all(row["need_target"] == "marginal" for row in rows):
        dropped.add("need_target")
    if all(row["person"] is None for row in rows):
        dropped.add("person")
    rows = [{name: value for name, value in row.items() if name not in dropped} for row in rows]
    for row in rows:
        if "person" in row and row["person"] is None:
            row["person"] = row["stream"]
    try:
        return Scores.from_rows(rows)
    except ScoresError as error:
        raise ScoresError(error.problem, error.column, None if error.row is None else origin[error.row]) from None


def rows_of_records(records: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (index of the record, row of the table) for every candidate of every decision, as `scores_of_records`."""
    times: dict[str, list[float]] = {}
    offers_made: set[str] = set()
    outcomes: dict[str, Mapping[str, Any]] = {}
    for line, record in enumerate(records):
        with _checked(line):
            if not is_record(record):
                raise ScoresError("found no record, expected one on every line", "kind", line)
            if record["kind"] == "decision":
                times.setdefault(record["stream"], []).append(float(record["time"]))
                offers_made.add(record["offer"])
                continue
            offer, answer, needed = record["offer"], record["outcome"], record["needed"]
            if answer not in _ANSWERS:
                raise ScoresError(f"found {answer!r:.80}, expected one of {', '.join(_ANSWERS)}", "outcome", line)
            if needed is not None and type(needed) is not bool:
                raise ScoresError(f"found {needed!r:.80}, expected true, false or null", "needed", line)
            if offer not in offers_made or offer in outcomes:
                again = "a second outcome of" if offer in outcomes else "an outcome of"
                raise ScoresError(f"found {again} {offer!r}, expected one of an offer that was made", "offer", line)
            outcomes[offer] = record
    for line, record in enumerate(records):
        if record["kind"] == "decision" and "unanswered" not in record:
            with _checked(line):
                y_accept = _answer(record, outcomes.get(record["offer"]), times[record["stream"]])
                rows = list(_candidates(record, outcomes.get(record["offer"]), y_accept))
            yield from ((line, row) for row in rows)


def by_days(scores: Scores) -> Scores | None:
    """The records of one person with days (of UTC) in the place of people; None of several people, or of one day.

    Without people, a single stream is one person's. A stream is what it was on a day, which is its name, and no row has
    a person, where there is one.
    """
    streams = set(scores.stream.tolist())
    if scores.time is None or len(streams if scores.person is None else set(scores.person.tolist())) > 1:
        return None
    day = (scores.time // 86_400).astype("datetime64[D]").astype(str).astype(object)
    if len(set(day.tolist())) == 1:
        return None
    if len(streams) == 1:
        return dataclasses.replace(scores, stream=day, person=None)
    return dataclasses.replace(scores, stream=scores.stream + np.array(", on ", object) + day, person=day)


@contextlib.contextmanager
def _checked(line: int) -> Iterator[None]:
    """Turns what reading a record of another layout raises into a ScoresError of its line."""
    try:
        yield
    except ScoresError:
        raise
    except KeyError as error:
        raise ScoresError("found no such key, expected it", error.args[0], line) from None
    except (TypeError, ValueError, OverflowError, IndexError) as error:
        raise ScoresError(f"found another content than a record has ({error})", None, line) from None


def _answer(record: Mapping[str, Any], outcome: Mapping[str, Any] | None, times: list[float]) -> float | None:
    """The acceptance label of the offer; None for silence, and where nobody knows."""
    if not record["spoke"]:
        return None
    if outcome is not None:
        return _ANSWERS[outcome["outcome"]]
    offered_at = float(record["time"])
    next_event, timeout_event = bisect.bisect_right(times, offered_at), bisect.bisect_right(times, offered_at + TIMEOUT)
    return 0.0 if next_event < timeout_event < len(times) else None


def _candidates(
    record: Mapping[str, Any], outcome: Mapping[str, Any] | None, y_accept: float | None
) -> Iterator[dict[str, Any]]:
    fast, slow, tokens = record["fast"]["raw"], record["slow"], record["tokens"]
    needed = None if outcome is None else outcome["needed"]
    person = (record.get("person") or {}).get("name")
    for i, p_accept in enumerate(fast["p_accept"]):
        chosen = i == record["chosen"]
        yield {
            "stream": record["stream"],
            "person": person,
            "step": record["event"],
            "candidate": i,
            "time": record["time"],
            "domain": record["domain"],
            "p_need_fast": fast["p_need"],
            "p_accept_fast": p_accept,
            "p_need_slow": None if slow is None else slow["raw"]["p_need"],
            "p_accept_slow": None if slow is None else slow["raw"]["p_accept"][i],
            "y_need": None if needed is None else float(needed),
            "y_accept": y_accept if chosen else None,
            "logged": bool(chosen and record["spoke"]),
            # Null where the offer could not be made: inverse weights need every offer possible.
            "propensity": (record["propensity"] or None) if chosen else None,
            "tokens_fast": tokens["read"],
            "tokens_slow": tokens["think"] if record["thought"] else None,
            "tokens_response": tokens["respond"],
            "need_target": record["policy"].get("need_target", "marginal"),
        }
