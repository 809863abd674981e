"""The HTML page of a log: what to do, whether the score is a probability, what each threshold costs, and the tables."""

from __future__ import annotations

from collections.abc import Mapping

from prism_jax.acceptance.curves import Curves
from prism_jax.acceptance.measures import CONSTANTS
from prism_jax.acceptance.own_score import MAPS, OwnScore
from prism_jax.acceptance.tables import Costs, Facts
from prism_jax.decision.score_maps import PLATT, SCORE
from prism_jax.report import figures
from prism_jax.report.numbers import number
from prism_jax.report.table import Table
from prism_jax.report.templates import load_template


def render(
    facts: Facts, own: OwnScore | None, curves: Curves | None, costs: Mapping[str, Costs], tables: Mapping[str, Table]
) -> str:
    """Renders the page's HTML; `tables` are those that the command prints, the first of them on top."""
    first, *others = tables.values()
    title, diagrams, thresholds = "A gate on each person's own rate of acceptance", [], None
    if own is not None and curves is not None:
        cell = own.cell(own.rule)
        title = f"{cell} offer, whatever {own.column} says" if cell in CONSTANTS else f"offer where {own.named}"
        constants = {name: costs[name].cost.value for name in CONSTANTS}
        name, at = f"{own.column}{own.sign}", curves.threshold * (100.0 if own.sign else 1.0)
        thresholds = figures.threshold_figure(name, at, curves.cost, own.rule.value, constants)
        diagrams = [
            figures.reliability_diagram(
                curves.reliability[name],
                title=f"{own.column}, {MAPS[name]}",
                caption=f"Brier score {number(own.brier[name], 3)}, a constant's {number(own.brier['constant'], 3)}",
            )
            for name in dict.fromkeys([next(iter(own.maps)), PLATT if own.best == SCORE else own.best])
        ]
    return load_template("log.html.jinja").render(
        title=title[0].upper() + title[1:],
        measured=f"{facts.answers:,} answers of {facts.whose}, {facts.accepted:.1%} accepted.",
        first=first,
        diagrams=diagrams,
        thresholds=thresholds,
        tables=others,
    )
