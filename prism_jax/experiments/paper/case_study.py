"""One step as the paper draws it: the fast pass, the slow pass, the gate and the label."""

from __future__ import annotations

from typing import Any

import numpy as np

from prism_jax.evaluation.policies import EvaluationData, least_acceptance
from prism_jax.experiments.paper.sheet import Line, Measure, Number, Sheet
from prism_jax.experiments.paper.study import Outcome, Study

MEASURES = {
    "p_need": Measure("p_need", "Calibrated probability that help is needed.", digits=3),
    "p_accept": Measure("p_accept", "Calibrated probability that the offer would be accepted.", digits=3),
    "threshold": Measure("τ", "The least p_accept at which the gate opens.", digits=3),
    "decision": Measure("decision", "What the gate decides on these signals."),
}
RULE = (
    "Chosen by rule: of the judged test steps at which the slow pass ran and turned a wrong decision into a right one, "
    "that with p_accept nearest to τ; if there is none, of all steps at which it ran; else of all judged steps. "
    "The first of a tie."
)


def make(study: Study) -> Outcome:
    """Shows the signals, the threshold and the label of the chosen step."""
    data = study.at()
    step = choose(data)
    stream, position = str(data.steps.stream[step]), int(data.steps.step[step])
    passes = ("fast", "slow") if data.slow and _margin(data).slow[step] else ("fast",)
    lines = [_pass(data, step, thinking) for thinking in passes]
    kinds = ("need", "accept") if data.has_need else ("accept",)
    labels = {f"p_{signal}": Number(float(data.label(signal)[step])) for signal in kinds}
    lines.append(Line("label", labels, "what was right"))
    note = f"{RULE} C_FA = {study.point.c_fa:g}, C_FN = {study.point.c_fn:g}, margin {study.point.margin:g}."
    title = f"Case study: stream {stream}, step {position}"
    measures = {key: one for key, one in MEASURES.items() if data.has_need or key != "p_need"}
    sheet = Sheet("case_study", title, "stage", measures, tuple(lines), f"{note} On {study.source}.")
    return Outcome((sheet,), lambda figure: _draw(figure, data, step))


def choose(data: EvaluationData) -> int:
    """The index of the step that `RULE` chooses."""
    fast = data.decide("dynamic", "calibrated")
    need, accept = data.signal("need_fast", "calibrated"), data.signal("accept_fast", "calibrated")
    distance = np.abs(accept - least_acceptance("dynamic", need, data.point))
    groups = [data.judged]
    if data.slow:
        both = _margin(data)
        ran = data.judged & both.slow
        wrong = fast.offer != (data.counted(fast).gold == 1)
        right = both.offer == (data.counted(both).gold == 1)
        groups = [ran & wrong & right, ran, data.judged]
    group = next(group for group in groups if group.any())
    return int(np.argmin(np.where(group, np.nan_to_num(distance, posinf=1e9), np.inf)))


def _margin(data: EvaluationData) -> Any:
    return data.decide("slow_on_margin", "calibrated")


def _pass(data: EvaluationData, step: int, thinking: str) -> Line:
    """The signals of one pass at the step, and what the gate decides on them."""
    need, accept = (data.signal(f"{signal}_{thinking}", "calibrated") for signal in ("need", "accept"))
    threshold = least_acceptance("dynamic", need, data.point)
    offers = data.decide("dynamic" if thinking == "fast" else "slow_only", "calibrated").offer[step]
    cells: dict[str, Number | str] = {
        "p_need": Number(float(need[step])),
        "p_accept": Number(float(accept[step])),
        "threshold": Number(float(threshold[step])),
        "decision": "offer" if offers else "silence",
    }
    return Line(f"{thinking} pass", cells, "signals")


def _draw(figure: Any, data: EvaluationData, step: int) -> None:
    """p_accept and the threshold along the stream, with the slow pass's signal at the chosen step."""
    here = data.steps.stream == data.steps.stream[step]
    x = data.steps.step[here]
    need, accept = (data.signal(f"{signal}_fast", "calibrated")[here] for signal in ("need", "accept"))
    threshold = least_acceptance("dynamic", need, data.point)
    axes = figure.subplots()
    axes.plot(x, accept, "-o", ms=3, color="#1f5f8b", label="p_accept, fast")
    if data.has_need:
        axes.plot(x, need, ":", color="#7a7a7a", label="p_need, fast")
    axes.plot(x, threshold, "-", color="#b23a48", label="τ(p_need)" if data.has_need else "τ")
    axes.fill_between(x, threshold - data.point.margin, threshold + data.point.margin, color="#b23a48", alpha=0.12)
    axes.axvline(data.steps.step[step], color="black", linewidth=0.8)
    if data.slow:
        slow = data.signal("accept_slow", "calibrated")[step]
        axes.scatter([data.steps.step[step]], [slow], marker="D", color="#3b8f5a", zorder=3, label="p_accept, slow")
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("step of the stream")
    axes.set_ylabel("probability")
    axes.legend(frameon=False, fontsize=7)
