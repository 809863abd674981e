"""How results change with the slow margin, from the fast pass alone to the slow pass at every step."""

from __future__ import annotations

import dataclasses

from prism_jax.decision.surface import PAPER_MARGINS
from prism_jax.experiments.paper import cells, references
from prism_jax.experiments.paper.drawing import curves
from prism_jax.experiments.paper.inference import MEASURES, numbers
from prism_jax.experiments.paper.sheet import Line, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, Study

MARGINS = (*PAPER_MARGINS, 0.2, 0.3, 0.5, 1.0)


def make(study: Study) -> ExperimentResult:
    """Sweeps the margin at the study's costs, on calibrated signals."""
    study.with_slow()
    lines = []
    for margin in MARGINS:
        data = study.with_slow(dataclasses.replace(study.point, margin=margin))
        values = numbers(study, data, "slow_on_margin")
        lines.append(Line(f"{margin:g}", cells.beside(values, references.MARGINS.get(f"{margin:g}"))))
    note = study.note(
        f"C_FA = {study.point.c_fa:g}, C_FN = {study.point.c_fn:g}; 0 is the fast pass alone, 1 the slow pass alone."
    )
    sheet = Sheet("margin_sweep", "Sensitivity to the slow margin δ", "margin", MEASURES, tuple(lines), note)
    last = "tokens" if study.scores.tokens_slow is not None else "slow_rate"
    shown = {key: MEASURES[key] for key in ("audbc", "false_alarm", last)}
    drawn = [line for line in lines if float(line.name) <= 0.5]
    x = [float(line.name) for line in drawn]
    return ExperimentResult((sheet,), lambda figure: curves(figure, x, {"ours": drawn}, shown, "margin δ"))
