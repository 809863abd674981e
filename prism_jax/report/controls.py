"""The data behind the report's control surface, as JSON that stands in the page and that control.js reads.

Counts are integers, stored as differences along the cost ratios. Probabilities and log-odds are the bytes of their
float64 values, so the script compares exactly the numbers that the library compares. Texts from outside are made
visible as everywhere on the page, and no character of the JSON can end the element that holds it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

import markupsafe
import numpy as np
from jaxtyping import Float64, Int

from prism_jax.decision import arrays
from prism_jax.evaluation.surfaces import Exploration, Table
from prism_jax.report.timeline import clock, cut, event_of
from prism_jax.runtime.shown_text import visible
from prism_jax.scores.texts import numbered
from prism_jax.streams import Stream

MOST_ROWS = 20_000
"""Largest number of steps that all go into the page; of more, only the first streams do."""
BROWSED_ROWS = 2_000
"""Number of steps of the streams that can be browsed where there are more than `MOST_ROWS`."""
MOST_TEXT = 400_000
"""Characters of event texts in the page, as JSON in ASCII; events beyond them can be browsed without texts."""
TEMPERATURES = (0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)
"""Temperatures that the page can apply on top of the calibration; 1 changes nothing."""
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Small integers as one character each."""


def control_data(exploration: Exploration, first: str, streams: Mapping[str, Stream]) -> dict[str, Any]:
    """Everything that the page's script needs, as values that JSON can represent.

    `first` is the stream to show first; its texts come before those of the other `streams`.

    Raises:
      ValueError: if a stream lacks a step of the scores.
    """
    complete = len(exploration.stream) <= MOST_ROWS and not exploration.part
    names, stream = numbered(exploration.stream)
    of_name = {name: number for number, name in enumerate(names)}
    names.insert(0, names.pop(of_name[first]))
    chosen = [of_name[name] for name in names[:BROWSED_ROWS]]  # each has a step, so that more are never needed
    rows = np.arange(len(exploration.stream)) if complete else _browsed(stream, chosen)
    browsed = set(exploration.stream[rows].tolist())
    return {
        "cFa": exploration.c_fa,
        "ratios": exploration.ratios.tolist(),
        "ratio": exploration.deployed,
        "temperatures": TEMPERATURES,
        "columns": exploration.columns,
        "groups": [[visible(value) for value in group] for group in exploration.groups],
        **{name: sizes.tolist() for name, sizes in exploration.totals._asdict().items()},
        "tables": [_table(table, rows) for table in exploration.tables],
        "complete": complete,
        "hasNeed": exploration.has_need,
        "rows": _rows(exploration, rows),
        "streams": _streams(exploration, rows, [name for name in names if name in browsed], streams),
    }


def as_script_text(data: Mapping[str, Any]) -> markupsafe.Markup:
    """JSON that can stand in a `<script type="application/json">`: it holds no `<`, `>` or `&`."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return markupsafe.Markup(text.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"}))


def _browsed(stream: Int[np.ndarray, " steps"], chosen: list[int]) -> Int[np.ndarray, " rows"]:
    """The steps of the first of the chosen streams, about `BROWSED_ROWS` in all; of a longer stream, its beginning."""
    candidates = np.flatnonzero(np.isin(stream, chosen))
    of_step = stream[candidates]
    rows, left = [], BROWSED_ROWS
    for number in chosen:
        if left <= 0:
            break
        mine = candidates[of_step == number][:BROWSED_ROWS]
        rows.append(mine)
        left -= len(mine)
    return np.sort(np.concatenate(rows))


def _table(table: Table, rows: Int[np.ndarray, " rows"]) -> dict[str, Any]:
    """One trigger's counts, flat in the order group, setting, ratio."""
    names = ("tp", "fp", "fn", "rejected", "offers", "slow")
    reach = None if table.reach is None else "".join(DIGITS[k] for k in table.reach[rows].ravel().tolist())
    return {
        "trigger": table.trigger,
        "settings": table.settings.tolist(),
        "deployed": table.deployed,
        "counts": {name: np.diff(getattr(table, name), axis=-1, prepend=0).ravel().tolist() for name in names},
        "reach": reach,
    }


def _rows(exploration: Exploration, rows: Int[np.ndarray, " rows"]) -> dict[str, Any]:
    """Signals, labels and groups of the steps that are in the page."""
    signals = [signal[rows] for signals in exploration.passes for signal in signals]
    labels = (
        exploration.y_need,
        exploration.y_accept[0],
        exploration.y_accept[-1],
        np.where(exploration.y_best == 1, 1, 0),
    )
    code = sum(np.where(np.isnan(label), 2, label)[rows] * 3**place for place, label in enumerate(labels))
    return {
        "p": [_bytes(signal) for signal in signals],
        # No temperature changes a signal of 0 or 1, so its log-odds are never looked at.
        "z": [_bytes(arrays.log_odds(np.where((signal == 0) | (signal == 1), 0.5, signal))) for signal in signals],
        "labels": "".join(DIGITS[int(value)] for value in np.asarray(code).tolist()),
        "group": exploration.group[rows].tolist(),
        "step": exploration.step[rows].tolist(),
    }


def _streams(
    exploration: Exploration,
    rows: Int[np.ndarray, " rows"],
    names: Iterable[str],
    streams_by_name: Mapping[str, Stream],
) -> list[dict[str, Any]]:
    """Name, place of the rows and events of each stream; an event is its row or -1, its time, and its text."""
    shown: list[dict[str, Any]] = []
    left = MOST_TEXT
    of_row = exploration.stream[rows]
    for name in names:
        mine = np.flatnonzero(of_row == name).tolist()
        stream = streams_by_name.get(name)
        events: list[tuple[int, str, str]] = []
        if stream is not None and left > 0:
            at = {event_of(stream, int(exploration.step[rows[row]])): row for row in mine}
            start = stream.events[0].time
            for i, event in enumerate(stream.events[: max(at) + 1]):
                text = visible(cut(event.text)) if left > 0 else ""
                left -= len(json.dumps(text))  # as it stands in the page, where most scripts take six characters
                events.append((at.get(i, -1), clock(event.time - start), text))
        else:
            times = exploration.time[rows[mine]]
            events = [(row, clock(float(time - times[0])), "") for row, time in zip(mine, times, strict=True)]
        shown.append({"name": visible(name), "rows": [*mine[:1], len(mine)], "events": events})
    return shown


def _bytes(values: Float64[np.ndarray, " rows"]) -> str:
    return base64.b64encode(values.astype("<f8").tobytes()).decode("ascii")
