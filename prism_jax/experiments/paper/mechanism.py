"""Ablation D: which signals the gate needs, and what calibration adds."""

from __future__ import annotations

from prism_jax.evaluation import protocol
from prism_jax.evaluation.policy_rows import EvaluationData
from prism_jax.evaluation.rows import Form
from prism_jax.experiments.paper import cells, methods, references
from prism_jax.experiments.paper.drawing import bars
from prism_jax.experiments.paper.sheet import Line, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, Study
from prism_jax.experiments.paper.tallies import Tally
from prism_jax.training.pathway_config import Method

ROWS: dict[str, tuple[str, Form, str]] = {
    "accept only": ("static", "calibrated", "p_need = 1: offers where p_accept reaches C_FA / (C_FA + C_FN)."),
    "need only": ("need_only", "calibrated", "p_accept is the acceptance rate of the calibration split's offers."),
    "need only, as printed": ("need_only_paper", "raw", "p_accept = τ(p_need) is an equality: offers at every step."),
    "both, uncalibrated": ("dynamic", "raw", "The gate on raw signals."),
    "both, calibrated": ("dynamic", "calibrated", "The gate on calibrated signals."),
}
MEASURES = {**cells.RATES, **cells.AREA, **cells.COST}


def make(study: Study) -> ExperimentResult:
    """Switches each signal and the calibration off in turn, on the fast pass."""
    data = study.with_need()
    lines = [_line(study.tally, data, study.method, name, *row) for name, row in ROWS.items()]
    if study.trainings is not None:
        scores = study.trainings.given_accept()
        other = protocol.prepare(scores, protocol.calibrate(scores), study.point)[0]
        words = "The same gate on another student, whose p_need is given acceptance (loss.need_target=given_accept)."
        tally = Tally(study.settings.keywords())
        lines.append(_line(tally, other, study.method, "both, need given acceptance", "dynamic", "calibrated", words))
    note = study.note(f"C_FA = {study.point.c_fa:g}, C_FN = {study.point.c_fn:g}, no slow pass.")
    sheet = Sheet("mechanism", "Ablation D: signals and calibration", "gate", MEASURES, tuple(lines), note)
    shown = {key: MEASURES[key] for key in ("f1", "audbc", "cost")}
    return ExperimentResult((sheet,), lambda figure: bars(figure, lines, shown))


def _line(tally: Tally, data: EvaluationData, method: Method, name: str, policy: str, form: Form, meaning: str) -> Line:
    decisions = cells.decisions(data, policy, form)
    values = cells.rates(tally, decisions) | {"cost": cells.cost(tally, decisions)}
    values |= methods.areas(tally, data, policy, form, method)
    paper = name.removesuffix(", as printed") if method == "paper" else name
    return Line(name, cells.beside(values, references.MECHANISM.get(paper)), meaning=meaning)
