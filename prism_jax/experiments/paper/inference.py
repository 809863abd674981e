"""Ablation B: the fast pass alone, the slow pass alone, and the slow pass within the margin."""

from __future__ import annotations

from prism_jax.evaluation.policy_rows import EvaluationData
from prism_jax.experiments.paper import cells, methods, references
from prism_jax.experiments.paper.drawing import bars
from prism_jax.experiments.paper.sheet import Line, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, Study

STRATEGIES = {"fast only": "dynamic", "slow only": "slow_only", "slow on margin": "slow_on_margin"}
MEASURES = {**cells.RATES, **cells.AREA, **cells.COST, **cells.SLOW, **cells.TOKENS}


def make(study: Study) -> ExperimentResult:
    """Compares the three strategies at the operating point, on calibrated signals."""
    data = study.with_slow()
    lines = tuple(
        Line(name, cells.beside(numbers(study, data, policy), references.INFERENCE[name]))
        for name, policy in STRATEGIES.items()
    )
    note = study.note(
        f"C_FA = {study.point.c_fa:g}, C_FN = {study.point.c_fn:g}, margin {study.point.margin:g}.",
    )
    words = "The paper's AUDBC is another area, and its tokens are those of an 8B model's prompt."
    sheet = Sheet("inference", "Ablation B: inference strategy", "strategy", MEASURES, lines, note, of_paper=words)
    last = "cost" if study.scores.tokens_slow is None else "tokens"
    shown = {key: MEASURES[key] for key in ("f1", "audbc", last)}
    return ExperimentResult((sheet,), lambda figure: bars(figure, lines, shown))


def numbers(study: Study, data: EvaluationData, policy: str) -> dict[str, Number]:
    """The numbers of a policy on calibrated signals: rates, AUDBC, cost, slow rate and tokens."""
    tally, decisions = study.tally, cells.decisions(data, policy, "calibrated")
    return {
        **cells.rates(tally, decisions),
        **methods.areas(tally, data, policy, "calibrated", study.method),
        "cost": cells.cost(tally, decisions),
        "slow_rate": cells.slow_rate(tally, decisions),
        "tokens": cells.tokens(tally, decisions),
    }
