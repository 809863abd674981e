"""One stream as a timeline: both signals, the threshold and the decision at each step, and the events.

Times are relative to the stream's first event, or to its first step if the stream itself is not given.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection

import numpy as np

from prism_jax.decision import metrics
from prism_jax.evaluation.results import Evaluation, Trace
from prism_jax.report.figures import Mark, Scale, polyline
from prism_jax.report.numbers import number
from prism_jax.scores.texts import numbered
from prism_jax.streams import Stream

MAX_STEPS = 40  # more would be unreadable
MAX_TEXT = 500  # characters per event


@dataclasses.dataclass(frozen=True)
class Moment:
    """One event of a timeline; the cells of the decision are empty for an event without a decision."""

    number: str
    time: str
    text: str
    p_need: str = ""
    p_accept: str = ""
    threshold: str = ""
    decision: str = ""
    slow: bool = False
    y_need: str = ""
    y_accept: str = ""
    other: str = ""  # says that another offer than the silent policy's would have helped
    cost: str = ""


@dataclasses.dataclass(frozen=True)
class Timeline:
    """Everything that the template draws and prints for one stream."""

    stream: str
    facts: str
    shown: int
    total: int
    width: int
    x: Scale
    y: Scale
    need: str
    accept: str
    threshold: str
    need_marks: list[Mark]
    accept_marks: list[Mark]
    strip: list[tuple[str, Moment, str]]
    moments: list[Moment]
    has_need: bool = True


def choose_stream(trace: Trace, known: Collection[str] = ()) -> str:
    """Chooses the stream that shows the gate at work: of those with an offer and a silence, with most changes of both.

    Ties go to the stream of which more answers are known, then to the lower share of wrong decisions, then to the
    first. Without such a stream, one with an offer is taken before one without. If any stream is in `known`, the names
    of streams with texts, only those are considered. Only the first `MAX_STEPS`, which a page shows, count.
    """
    texts = set(known)
    names, stream = numbered(trace.stream)
    order = np.argsort(stream, kind="stable")
    grouped = stream[order]
    shown = order[np.arange(len(order)) - np.searchsorted(grouped, grouped) < MAX_STEPS]
    offer, answer = trace.decision[shown], trace.y_need[shown] * trace.y_accept[shown]
    of_row, number = stream[shown], len(names)

    def per_stream(values: np.ndarray) -> np.ndarray:
        return np.bincount(of_row, values, number)

    kinds = per_stream(offer).astype(bool) * 2 + per_stream(~offer).astype(bool)
    changed = np.r_[False, (np.diff(offer.astype(int)) != 0) & (np.diff(of_row) == 0)]
    known_answers = per_stream(~np.isnan(answer))
    wrong = per_stream(np.nan_to_num(np.abs(offer - answer))) / np.maximum(known_answers, 1)
    chosen = np.array([i for i, name in enumerate(names) if name in texts] or range(number))
    keys = (-chosen, -wrong[chosen], known_answers[chosen], per_stream(changed)[chosen], kinds[chosen])
    return names[chosen[np.lexsort(keys)[-1]]]


def timeline(evaluation: Evaluation, name: str, stream: Stream | None) -> Timeline:
    """Lays out one stream's signals, threshold and decisions, with the events' texts if the stream is given.

    Raises:
      ValueError: if the trace has a step that `stream` lacks.
    """
    trace = evaluation.trace
    of_stream = np.flatnonzero(trace.stream == name).tolist()
    rows = of_stream[:MAX_STEPS]
    width = max(960, 90 + 24 * len(rows))
    x, y = Scale(-0.5, len(rows) - 0.5, 56, width - 20), Scale(0, 1, 224, 14)
    moments = {row: _moment(evaluation, row, stream) for row in rows}
    if stream is None and (times := trace.time) is not None:
        moments = {row: dataclasses.replace(moments[row], time=clock(times[row] - times[rows[0]])) for row in rows}
    sentences = {row: _sentence(moments[row], evaluation.has_need) for row in rows}
    places = {row: x(i) for i, row in enumerate(rows)}
    thresholds = enumerate(np.minimum(trace.threshold[rows], 1.0))  # horizontal across each step

    def marks(values: np.ndarray, kind: str = "") -> list[Mark]:
        return [Mark(places[row], y(values[row]), sentences[row], kind or _kind(trace, row)) for row in rows]

    def line(values: np.ndarray) -> str:
        return polyline([(places[row], y(values[row])) for row in rows])

    return Timeline(
        stream=name,
        facts="" if stream is None else f"domain {stream.domain}, persona {stream.persona}",
        shown=len(rows),
        total=len(of_stream),
        width=width,
        x=x,
        y=y,
        need=line(trace.p_need),
        accept=line(trace.p_accept),
        threshold=polyline([(x(i + side), y(value)) for i, value in thresholds for side in (-0.5, 0.5)]),
        need_marks=marks(trace.p_need, "need"),
        accept_marks=marks(trace.p_accept),
        strip=[(places[row], moments[row], sentences[row]) for row in rows],
        moments=_with_events(trace, rows, moments, stream),
        has_need=evaluation.has_need,
    )


def _kind(trace: Trace, row: int) -> str:
    return "offer" if trace.decision[row] else "silent"


def _moment(evaluation: Evaluation, row: int, stream: Stream | None) -> Moment:
    trace = evaluation.trace
    step, time, text = int(trace.step[row]), "", ""
    if stream is not None:
        event = stream.events[event_of(stream, step)]
        time, text = clock(event.time - stream.events[0].time), cut(event.text)
    threshold = float(trace.threshold[row])
    return Moment(
        number=str(step),
        time=time,
        text=text,
        p_need=number(float(trace.p_need[row]), 3),
        p_accept=number(float(trace.p_accept[row]), 3),
        threshold="unreachable" if math.isinf(threshold) else number(threshold, 3),
        decision=_kind(trace, row),
        slow=bool(trace.slow[row]),
        y_need=_label(float(trace.y_need[row])),
        y_accept=_label(float(trace.y_accept[row])),
        other=", another offer yes" if not trace.decision[row] and trace.y_best[row] > trace.y_accept[row] else "",
        cost=_cost(evaluation, row),
    )


def event_of(stream: Stream, step: int) -> int:
    """The index of the event at which a step of the scores decides; ValueError if the stream has no such step."""
    if step >= len(stream.steps):
        raise ValueError(f"stream {stream.id!r}: found step {step} in the scores, expected below {len(stream.steps)}")
    return stream.steps[step].event


def _cost(evaluation: Evaluation, row: int) -> str:
    """The step's realised cost according to its labels; "?" if a label is unknown."""
    trace, point = evaluation.trace, evaluation.point
    need, accept, best = (float(label[row]) for label in (trace.y_need, trace.y_accept, trace.y_best))
    cost = metrics.step_costs(bool(trace.decision[row]), accept, best, point.c_fa, point.c_fn * need)
    return "?" if math.isnan(need + accept) else f"{float(cost):g}"


def _with_events(trace: Trace, rows: list[int], moments: dict[int, Moment], stream: Stream | None) -> list[Moment]:
    """The moments of the steps, together with the stream's other events up to the last step."""
    if stream is None:
        return [moments[row] for row in rows]
    at = {stream.steps[int(trace.step[row])].event: moments[row] for row in rows}
    return [
        at.get(i, Moment(number="", time=clock(event.time - stream.events[0].time), text=cut(event.text)))
        for i, event in enumerate(stream.events[: max(at) + 1])
    ]


def cut(text: str) -> str:
    """The text, cut to `MAX_TEXT` characters if it is longer."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} … ({len(text)} characters)"


def _sentence(moment: Moment, has_need: bool) -> str:
    slow = " after thinking slowly" if moment.slow else ""
    signal, label = (f"p_need {moment.p_need}, ", f"need {moment.y_need}, ") if has_need else ("", "")
    return (
        f"step {moment.number}: {signal}p_accept {moment.p_accept}, threshold {moment.threshold}, "
        f"{moment.decision}{slow}; {label}accept {moment.y_accept}{moment.other}, cost {moment.cost}"
    )


def _label(value: float) -> str:
    """A label in words; soft labels remain numbers."""
    return {1.0: "yes", 0.0: "no"}.get(value, "unknown" if math.isnan(value) else f"{value:.2f}")


def clock(seconds: float) -> str:
    """Formats seconds as m:ss or h:mm:ss, from a day on with the days before it; NaN gives an empty string."""
    if math.isnan(seconds):
        return ""
    sign, whole = "−" if seconds < 0 else "", round(abs(seconds))
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{sign}{days} d {hours}:{minutes:02d}:{whole % 60:02d}"
    return f"{sign}{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{sign}{minutes}:{whole % 60:02d}"
