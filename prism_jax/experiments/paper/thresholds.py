"""Ablation A: fixed, static and dynamic thresholds, on raw and on calibrated signals of the fast pass."""

from __future__ import annotations

from prism_jax.evaluation.policies import FORMS
from prism_jax.experiments.paper import cells, references
from prism_jax.experiments.paper.drawing import bars
from prism_jax.experiments.paper.sheet import Line, Sheet
from prism_jax.experiments.paper.study import Outcome, Study

NAMES = {"fixed": "fixed τ", "static": "static cost τ", "dynamic": "dynamic τ(p_need)"}
SECTIONS = {"raw": "raw signals", "calibrated": "calibrated signals"}
MEASURES = {**cells.RATES, **cells.COST}


def make(study: Study) -> Outcome:
    """Compares the three rules; the paper's numbers stand beside raw signals, as it uses no calibration here."""
    data, lines = study.at(), []
    for form in reversed(FORMS):
        for policy, name in NAMES.items():
            decided = data.decide(policy, form)
            found = cells.rates(data, decided, study.settings) | {"cost": cells.cost(data, decided, study.settings)}
            printed = references.THRESHOLDS[policy] if form == "raw" else None
            lines.append(Line(name, cells.beside(found, printed), SECTIONS[form]))
    note = study.note(
        f"Fixed τ = {study.point.fixed_threshold:g}; C_FA = {study.point.c_fa:g}, C_FN = {study.point.c_fn:g}.",
        "The paper's rows are an untrained Qwen3-8B without calibration.",
    )
    sheet = Sheet("thresholds", "Ablation A: thresholds", "threshold", MEASURES, tuple(lines), note)
    shown = {key: MEASURES[key] for key in ("f1", "false_alarm", "cost")}
    return Outcome((sheet,), lambda figure: bars(figure, lines, shown))
