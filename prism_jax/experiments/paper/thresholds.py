"""Ablation A: fixed, static and dynamic thresholds, on raw and on calibrated signals of the fast pass."""

from __future__ import annotations

from prism_jax.evaluation import protocol
from prism_jax.evaluation.policy_rows import FORMS, EvaluationData
from prism_jax.evaluation.rows import Form
from prism_jax.experiments.paper import cells, references
from prism_jax.experiments.paper.drawing import bars
from prism_jax.experiments.paper.sheet import Line, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, Study
from prism_jax.experiments.paper.tallies import Tally

NAMES = {"fixed": "fixed τ", "static": "static cost τ", "dynamic": "dynamic τ(p_need)"}
SECTIONS = {"raw": "raw signals", "calibrated": "calibrated signals"}
UNTRAINED = "untrained student, "
MEASURES = {**cells.RATES, **cells.COST}


def make(study: Study) -> ExperimentResult:
    """Compares the three rules, on a student that was trained here also before its training.

    The paper's numbers stand beside raw signals, as it uses no calibration here, and of the untrained student where
    there is one.
    """
    own = study.at()
    lines = [line for form in reversed(FORMS) for line in _lines(study.tally, own, form, paper=study.trainings is None)]
    if study.trainings is not None:
        scores = study.trainings.untrained()
        before = protocol.prepare(scores, protocol.calibrate(scores), study.point)[0]
        tally = Tally(study.settings.keywords())
        lines += [line for form in reversed(FORMS) for line in _lines(tally, before, form, UNTRAINED, paper=True)]
    note = study.note(
        f"Fixed τ = {study.point.fixed_threshold:g}; C_FA = {study.point.c_fa:g}, C_FN = {study.point.c_fn:g}.",
    )
    words = "The paper's rows are an untrained Qwen3-8B without calibration."
    sheet = Sheet("thresholds", "Ablation A: thresholds", "threshold", MEASURES, tuple(lines), note, of_paper=words)
    shown = {key: MEASURES[key] for key in ("f1", "false_alarm", "cost")}
    return ExperimentResult((sheet,), lambda figure: bars(figure, lines, shown))


def _lines(tally: Tally, data: EvaluationData, form: Form, whose: str = "", *, paper: bool) -> list[Line]:
    """The three rules on one form of one student's signals."""
    lines = []
    for policy, name in NAMES.items():
        if policy == "dynamic" and not data.has_need:
            continue  # decides as the static threshold does
        decisions = cells.decisions(data, policy, form)
        values = cells.rates(tally, decisions) | {"cost": cells.cost(tally, decisions)}
        printed = references.THRESHOLDS[policy] if paper and form == "raw" else None
        lines.append(Line(name, cells.beside(values, printed), whose + SECTIONS[form]))
    return lines
