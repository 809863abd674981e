"""Figures of the experiments, drawn on a `matplotlib.figure.Figure` and saved as SVG and PNG with constant bytes.

matplotlib is an extra: nothing here imports it before a figure is saved.
"""

from __future__ import annotations

import io
import itertools
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from prism_jax.experiments.paper.sheet import Line, Measure, Number

COLOURS = ("#1f5f8b", "#d1812a", "#3b8f5a", "#8a4f9e", "#7a7a7a", "#b23a48")
"""One colour per series, told apart by most colour-blind readers."""
MISSING = "figures: matplotlib is not installed, so only tables are written (pip install 'prism_jax[figures]')"


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def save(
    draw: Callable[[Any], None], size: tuple[float, float] = (7.0, 4.0), *, with_paper: bool = True
) -> dict[str, bytes]:
    """Draws on an empty figure of this width and height in inches, and encodes it by suffix, svg and png.

    `with_paper` says whether it shows the paper's numbers. The bytes depend only on what is drawn and on matplotlib's
    version.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "prism_jax", "svg.fonttype": "none", "font.size": 9}):
        figure: Any = Figure(figsize=size, layout="constrained")
        figure.with_paper = with_paper  # read by `_of_paper`
        FigureCanvasAgg(figure)
        draw(figure)
        encoded = {}
        for suffix, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
            file = io.BytesIO()
            figure.savefig(file, format=suffix, dpi=150, metadata=metadata)
            encoded[suffix] = file.getvalue()
    return encoded


def _of(line: Line, key: str) -> Number:
    cell = line.cells.get(key, Number())
    return Number() if isinstance(cell, str) else cell


def _scaled(measure: Measure, numbers: Sequence[Number], part: str = "value") -> np.ndarray:
    """One part of some numbers in the unit of their axis."""
    return np.array([getattr(number, part) for number in numbers]) * (100 if measure.unit == "%" else 1)


def _of_paper(figure: Any, measure: Measure, numbers: Sequence[Number]) -> np.ndarray | None:
    """The paper's numbers in the unit of their axis; None without any, and for a figure without them."""
    paper = _scaled(measure, numbers, "paper")
    return paper if getattr(figure, "with_paper", True) and not np.isnan(paper).all() else None


def _errors(measure: Measure, numbers: Sequence[Number]) -> np.ndarray:
    """Lengths of the error bars below and above; 0 without an interval."""
    value, low, high = (_scaled(measure, numbers, part) for part in ("value", "low", "high"))
    return np.nan_to_num(np.clip(np.stack([value - low, high - value]), 0, None))


def _heading(measure: Measure) -> str:
    return f"{measure.label} ({measure.unit})" if measure.unit else measure.label


def _worth_a_panel(lines: Iterable[Line], measures: Mapping[str, Measure]) -> dict[str, Measure]:
    """The measures of which some row has a number other than 0; all of them if none has."""
    lines = list(lines)
    shown = {
        key: measure for key, measure in measures.items() if any(np.nan_to_num(_of(line, key).value) for line in lines)
    }
    return shown or dict(measures)


def legend_outside(figure: Any, *axes: Any) -> None:
    """One legend for the figure, beside the panels, where no mark of it can be taken for a point of the data."""
    by_label: dict[str, Any] = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            by_label.setdefault(label, handle)
    if by_label:
        names = list(by_label)
        style = {"ncols": min(len(names), 4), "frameon": False, "fontsize": 7.5}
        figure.legend(by_label.values(), names, loc="outside lower center", **style)


def bars(figure: Any, lines: Sequence[Line], measures: Mapping[str, Measure]) -> None:
    """One panel per measure: a horizontal bar per row with its interval, and a cross for the paper's number.

    Rows stand below the name of their section. Panels without a number other than 0 are left out.
    """
    measures = _worth_a_panel(lines, measures)
    names: list[str] = []
    place, headings = [], []
    for section, rows in itertools.groupby(lines, key=lambda line: line.section):
        if section:
            headings.append(len(names))
            names.append(textwrap.fill(section, 34))
        for line in rows:
            place.append(len(names))
            names.append(line.name)
    figure.set_figheight(1.2 + 0.24 * (len(names) + sum(name.count("\n") for name in names)))
    panels = np.atleast_1d(figure.subplots(1, len(measures), sharey=True))
    for number, (axes, (key, measure)) in enumerate(zip(panels, measures.items(), strict=True)):
        numbers = [_of(line, key) for line in lines]
        axes.barh(place, _scaled(measure, numbers), xerr=_errors(measure, numbers), color=COLOURS[number], height=0.65)
        if (paper := _of_paper(figure, measure, numbers)) is not None:
            axes.scatter(paper, place, marker="x", color="black", zorder=3, label="the paper's number")
        axes.set_xlabel(_heading(measure))
        axes.set_yticks(range(len(names)), names)
        axes.grid(axis="x", alpha=0.3)
    for heading in headings:
        panels[0].get_yticklabels()[heading].set_fontweight("bold")
    panels[0].set_ylim(len(names) - 0.4, -0.6)
    legend_outside(figure, *panels)


def curves(
    figure: Any,
    x: Sequence[float],
    series: Mapping[str, Sequence[Line]],
    measures: Mapping[str, Measure],
    label: str,
) -> None:
    """One panel per measure: a curve per series with intervals, and a dashed one for the paper's numbers.

    `x` has the positions of the rows of every series, `label` names the horizontal axis. Panels without a number other
    than 0 are left out.
    """
    measures = _worth_a_panel(itertools.chain.from_iterable(series.values()), measures)
    panels = np.atleast_1d(figure.subplots(1, len(measures)))
    for axes, (key, measure) in zip(panels, measures.items(), strict=True):
        for colour, (name, lines) in zip(itertools.cycle(COLOURS), series.items(), strict=False):
            numbers = [_of(line, key) for line in lines]
            errors = _errors(measure, numbers)
            axes.errorbar(x, _scaled(measure, numbers), yerr=errors, color=colour, marker="o", ms=3, label=name)
            if (paper := _of_paper(figure, measure, numbers)) is not None:
                whose = f"{name}, paper" if len(series) > 1 else "paper"
                axes.plot(x, paper, "--", color=colour, alpha=0.6, label=whose)
        axes.set_xlabel(label)
        axes.set_ylabel(_heading(measure))
        axes.grid(alpha=0.3)
    legend_outside(figure, *panels)


def heatmaps(
    figure: Any,
    grids: Mapping[str, np.ndarray],
    rows: Sequence[str],
    columns: Sequence[str],
    labels: tuple[str, str],
) -> None:
    """One panel per grid, with the values written into the cells; grids of zeros are left out unless all are.

    The grids are values [rows, columns] by title; the labels name the vertical and the horizontal axis.
    """
    grids = {title: values for title, values in grids.items() if np.nan_to_num(values).any()} or grids
    for axes, (title, values) in zip(np.atleast_1d(figure.subplots(1, len(grids))), grids.items(), strict=True):
        axes.imshow(values, cmap="viridis", aspect="auto")
        middle = (np.nanmin(values) + np.nanmax(values)) / 2
        for (row, column), value in np.ndenumerate(values):
            colour = "white" if value < middle else "black"
            axes.text(column, row, f"{value:.1f}", ha="center", va="center", color=colour, fontsize=7)
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), rows)
        axes.set_title(title, fontsize=9)
        axes.set_ylabel(labels[0])
        axes.set_xlabel(labels[1])
