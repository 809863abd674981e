"""Ablation D: which signals the gate needs, and what calibration adds."""

from __future__ import annotations

from prism_jax.evaluation import protocol
from prism_jax.evaluation.policy_rows import EvaluationData
from prism_jax.evaluation.rows import Form
from prism_jax.experiments.paper import cells, references
from prism_jax.experiments.paper.drawing import bars
from prism_jax.experiments.paper.sheet import Line, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, Study

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
    lines = [_line(study, data, name, *row) for name, row in ROWS.items()]
    if study.trainings is not None:
        scores = study.trainings.given_accept()
        given_accept = protocol.prepare(scores, protocol.calibrate(scores), study.point)[0]
        words = "The same gate on another student, whose p_need is given acceptance (loss.need_target=given_accept)."
        lines.append(_line(study, given_accept, "both, need given acceptance", "dynamic", "calibrated", words))
    note = study.note(f"C_FA = {study.point.c_fa:g}, C_FN = {study.point.c_fn:g}, no slow pass.")
    sheet = Sheet("mechanism", "Ablation D: signals and calibration", "gate", MEASURES, tuple(lines), note)
    shown = {key: MEASURES[key] for key in ("f1", "audbc", "cost")}
    return ExperimentResult((sheet,), lambda figure: bars(figure, lines, shown))


def _line(study: Study, data: EvaluationData, name: str, policy: str, form: Form, meaning: str) -> Line:
    decided = data.decide(policy, form)
    values = cells.rates(data, decided, study.settings) | {"cost": cells.cost(data, decided, study.settings)}
    if policy != "need_only_paper":
        of_study = data is study.at()
        values["audbc"] = (
            cells.kept_area(study, data, policy, form) if of_study else cells.area(data, policy, form, study.settings)
        )
    return Line(name, cells.beside(values, references.MECHANISM.get(name)), meaning=meaning)
