"""Geometry of the report's figures: turns numbers into coordinates and texts, which the template draws as inline SVG.

Every mark carries a sentence for hovering and for screen readers. Coordinates are strings with two decimals, so the
same evaluation always gives the same bytes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float64

from prism_jax.decision.calibration import Reliability
from prism_jax.evaluation.policy_rows import ALL_POLICIES
from prism_jax.evaluation.results import Evaluation
from prism_jax.evaluation.rows import SignalRow
from prism_jax.report.numbers import number, percent
from prism_jax.report.tables import TRIGGER_MEANINGS

MAX_POINTS = 400  # per curve; a screen cannot show more


@dataclasses.dataclass(frozen=True)
class Scale:
    """A linear map from data in [low, high] to coordinates in [start, stop]."""

    low: float | int
    high: float | int
    start: float | int
    stop: float | int

    def __call__(self, value: float | int) -> str:
        """Returns the coordinate of a value, as a string with two decimals."""
        share = (value - self.low) / (self.high - self.low)
        return f"{self.start + share * (self.stop - self.start):.2f}"

    def ticks(self, most: int = 5) -> list[float]:
        """Chooses at most `most` + 1 round, evenly spaced numbers within the data's range."""
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        unit = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * (1 - 1e-9))
        first, last = math.ceil(self.low / unit - 1e-9), math.floor(self.high / unit + 1e-9)
        return [float(f"{k * unit:.12g}") for k in range(first, last + 1)]


@dataclasses.dataclass(frozen=True)
class Mark:
    """A point with its text."""

    x: str
    y: str
    text: str
    kind: str = ""
    size: str = "4"


@dataclasses.dataclass(frozen=True)
class Bar:
    """A rectangle with its text."""

    x: str
    y: str
    width: str
    height: str
    text: str = ""


@dataclasses.dataclass(frozen=True)
class CostFigure:
    """Realised cost of each policy (dot: calibrated, ring: raw), with lines for Bayes and the better constant."""

    x: Scale
    height: int
    rows: list[tuple[str, str, list[Mark], bool]]
    lines: list[tuple[str, str, str]]


@dataclasses.dataclass(frozen=True)
class TriggerFigure:
    """What each trigger keeps of the gain of always thinking, against the share of steps that it thinks about.

    `lines` holds each trigger's name, meaning, path and marks.
    """

    x: Scale
    y: Scale
    lines: list[tuple[str, str, str, list[Mark]]]


@dataclasses.dataclass(frozen=True)
class ReliabilityFigure:
    """A reliability diagram: observed share against mean probability, with a consistency band and a histogram of p."""

    title: str
    form: str
    signal: str
    caption: str
    x: Scale
    y: Scale
    bands: list[Bar]
    path: str
    marks: list[Mark]
    bars: list[Bar]


@dataclasses.dataclass(frozen=True)
class ThresholdFigure:
    """Realised cost against the threshold on a score, with lines for the constants: their names, heights and texts."""

    name: str
    x: Scale
    y: Scale
    path: str
    marks: list[Mark]
    lines: list[tuple[str, str, str]]


@dataclasses.dataclass(frozen=True)
class CurveFigure:
    """One term of the training log, plotted against the step."""

    name: str
    x: Scale
    y: Scale
    path: str
    smooth: str
    last: str
    text: str


def polyline(points: Sequence[tuple[str, str]]) -> str:
    """An SVG path through the points."""
    return " ".join(f"{'L' if i else 'M'}{x} {y}" for i, (x, y) in enumerate(points))


def cost_figure(evaluation: Evaluation) -> CostFigure:
    """Places each policy at its realised cost."""
    rows = [row for row in evaluation.policies if row.policy != "clairvoyant"]
    constants = {row.policy: row.realised_cost for row in rows if row.policy in ("always", "never")}
    better = min(constants, key=lambda name: constants[name])
    x = Scale(0.0, max(row.realised_cost for row in rows) * 1.04 or 1.0, 120, 900)
    lines = [("constant", x(constants[better]), f"better constant ({better}) {number(constants[better])}")]
    lines += [
        ("bayes", x(row.realised_cost), f"Bayes {number(row.realised_cost)}") for row in rows if row.policy == "bayes"
    ]
    shown: list[tuple[str, str, list[Mark], bool]] = []
    for name in dict.fromkeys(row.policy for row in rows):
        policy = ALL_POLICIES[name]
        policy_rows = [row for row in rows if row.policy == name]
        y = f"{58 + 26 * len(shown):.2f}"
        marks = [
            Mark(
                x(row.realised_cost),
                y,
                f"{policy.label}{f', {row.form} signals' if row.form else ''}: {number(row.realised_cost)} per step, "
                f"offers at {percent(row.speak_rate)} % of steps",
                row.form or "calibrated",
            )
            for row in reversed(policy_rows)  # raw first, so that the calibrated mark is drawn on top
        ]
        shown.append((policy.label, policy.meaning, marks, any(row.deployed for row in policy_rows)))
    return CostFigure(x, 58 + 26 * len(shown) + 22, shown, lines)


def trigger_figure(evaluation: Evaluation) -> TriggerFigure | None:
    """One line per trigger, from never to always thinking; None where there is no slow pass, or it saves nothing."""
    compared = evaluation.triggers
    if compared is None or any(row.kept is None for row in compared.rows):
        return None
    never, always = compared.rows[:2]
    kept = [row.kept for row in compared.rows if row.kept is not None]
    x, y = Scale(0.0, 1.0, 64, 860), Scale(min(0.0, *kept) - 0.05, max(1.0, *kept) + 0.05, 320, 16)
    lines = []
    for name in dict.fromkeys(row.trigger for row in compared.rows if row.budget is not None):
        trigger_rows = [row for row in compared.rows if row.trigger == name]
        points = [(x(row.slow_rate), y(row.kept or 0.0)) for row in (never, *trigger_rows, always)]
        marks = [
            Mark(
                *point,
                f"{name}, {percent(row.budget)} % of calibration steps: thinks about {percent(row.slow_rate)} % of "
                f"test steps, keeps {percent(row.kept)} % [{percent(row.kept_low)}, {percent(row.kept_high)}], "
                f"{number(row.realised_cost)} per step",
                name,
            )
            for row, point in zip(trigger_rows, points[1:-1], strict=True)
        ]
        lines.append((name, TRIGGER_MEANINGS[name], polyline(points), marks))
    return TriggerFigure(x, y, lines)


def reliability_figure(row: SignalRow) -> ReliabilityFigure:
    """Makes one signal's diagram."""
    title = f"p_{row.signal}, {row.form}" + ("" if row.thinking == "fast" else ", slow pass")
    made_by = f"{row.map or f'T = {number(row.temperature, 3)}'}, ECE {number(row.ece)}, {row.count} labels"
    return reliability_diagram(row.reliability, title, made_by, form=row.form, signal=row.signal)


def reliability_diagram(
    curve: Reliability, title: str, caption: str, *, form: str = "", signal: str = "accept"
) -> ReliabilityFigure:
    """Makes a diagram with the band in which the bins of calibrated probabilities would lie."""
    x, y = Scale(0, 1, 44, 284), Scale(0, 1, 254, 14)
    tallest = max(int(curve.count.max()), 1)
    depth = Scale(0, tallest, 0, 40)
    bands, marks, bars = [], [], []
    for k in np.flatnonzero(curve.count):
        left, right = curve.edges[k], curve.edges[k + 1]
        p, share, low, high = (float(column[k]) for column in (curve.mean_p, curve.mean_y, curve.low, curve.high))
        within = "within" if low <= share <= high else "outside"
        text = (
            f"p in [{left:.2f}, {right:.2f}]: {curve.count[k]} labels, mean p {p:.3f}, observed {share:.3f}, "
            f"{within} the band {low:.3f} to {high:.3f}"
        )
        wide, tall = f"{(right - left) * 240:.2f}", f"{(high - low) * 240:.2f}"
        bands.append(Bar(x(left), y(high), wide, tall))
        marks.append(Mark(x(p), y(share), text, within))
        height = depth(int(curve.count[k]))
        bars.append(Bar(x(left), f"{318 - float(height):.2f}", wide, height, text))
    outside = sum(mark.kind == "outside" for mark in marks)
    caption += f"; {outside} of {len(marks)} bins outside their {100 * curve.level:g} % band"
    path = polyline([(mark.x, mark.y) for mark in marks])
    return ReliabilityFigure(title, form, signal, caption, x, y, bands, path, marks, bars)


def threshold_figure(
    name: str,
    threshold: Float64[np.ndarray, " thresholds"],
    cost: Float64[np.ndarray, " thresholds"],
    chosen: float | None,
    constants: Mapping[str, float],
) -> ThresholdFigure:
    """Makes the curve of the cost against the threshold on a score, with the chosen one and the constants' costs."""
    values = [*cost.tolist(), *constants.values()]
    low, high = min(values), max(values)
    room = (high - low) * 0.08 or 0.1
    x, y = Scale(float(threshold[0]), float(threshold[-1]), 64, 860), Scale(max(0.0, low - room), high + room, 280, 16)
    points = list(zip(threshold.tolist(), cost.tolist(), strict=True))
    marks = []
    if chosen is not None and threshold[0] <= chosen <= threshold[-1]:
        at = float(np.interp(chosen, threshold, cost))
        marks.append(Mark(x(chosen), y(at), f"threshold {chosen:.5g}: {number(at, 3)} per offer"))
    lines = [(policy, y(value), f"{policy} {number(value, 3)}") for policy, value in constants.items()]
    return ThresholdFigure(name, x, y, polyline([(x(a), y(b)) for a, b in points]), marks, lines)


def curve_figure(name: str, steps: Sequence[float | int], values: Sequence[float | int]) -> CurveFigure:
    """Makes the curve of one term and its running mean; above `MAX_POINTS`, each point is a mean of neighbours."""
    size = math.ceil(len(values) / MAX_POINTS)
    starts = range(0, len(values), size)
    xs = [float(np.mean(steps[start : start + size])) for start in starts]
    ys = [float(np.mean(values[start : start + size])) for start in starts]
    # The window is symmetric, so that the end points are exact.
    reach = [min(len(ys) // 40, i, len(ys) - 1 - i) for i in range(len(ys))]
    smooth = [float(np.mean(ys[i - r : i + r + 1])) for i, r in enumerate(reach)]
    low, high = min(ys), max(ys)
    room = (high - low) * 0.06 or max(abs(high) * 0.1, 1e-12)
    x = Scale(xs[0], xs[-1] if xs[-1] > xs[0] else xs[0] + 1, 54, 308)
    y = Scale(low - room, high + room, 136, 12)
    path, trend = (polyline([(x(a), y(b)) for a, b in zip(xs, line, strict=True)]) for line in (ys, smooth))
    text = (
        f"{name}: {values[0]:.4g} at step {steps[0]:g}, {values[-1]:.4g} at step {steps[-1]:g}, least {min(values):.4g}"
    )
    return CurveFigure(name, x, y, path, trend, f"{values[-1]:.4g}", text)
