"""Seconds by phase and by policy, on the machine of the call; the numbers of other tables do not depend on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np
from jaxtyping import Float64

from prism_jax.decision.surface import PAPER_MARGINS
from prism_jax.evaluation.policy_rows import Decided, EvaluationData
from prism_jax.experiments.paper import cells, references
from prism_jax.experiments.paper.drawing import bars
from prism_jax.experiments.paper.inference import COSTS, STRATEGIES
from prism_jax.experiments.paper.sheet import Line, Measure, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, Study
from prism_jax.experiments.paper.timing import Phase, Timing

SECONDS = {
    "mean": Measure("mean", "Mean seconds.", "s", 4),
    "p50": Measure("P50", "Median of the seconds.", "s", 4),
    "p95": Measure("P95", "95th percentile of the seconds.", "s", 4),
    "p99": Measure("P99", "99th percentile of the seconds.", "s", 4),
}
PHASE = {
    "count": Measure("count", "How many were timed.", digits=0),
    **SECONDS,
    "tokens": Measure("tokens", "Mean tokens that were read, or written in the slow pass."),
}
POLICY = {**SECONDS, **cells.SLOW, "tokens": Measure("tokens", "Mean tokens of both passes per step, read or written.")}
WORDS = {
    "prefill": ("prefill, a whole stream", "A stream read from nothing in one go, as after a restart."),
    "fast": ("fast pass, one step", "One event read against the cached trunk, with the slots after it."),
    "slow": ("slow pass, one step", "The fields written, and the slots read again after them."),
}


_NOTHING = Phase(np.zeros(1), np.zeros(1, np.int64))
"""The slow pass of a student without one."""


def make(study: Study) -> ExperimentResult:
    """The phases, and what each policy of the other tables spends per step."""
    timed = study.timing()
    phases = tuple(Line(WORDS[name][0], _phase(timed, name), meaning=WORDS[name][1]) for name in timed.phases)
    lines = tuple(_policies(study, timed))
    streams = len({stream for stream, _ in timed.steps})
    measured = f"Timed on the steps of {streams} streams, one at a time, on the machine of this measurement."
    note, words = f"{measured} Seconds differ between calls and machines.", "The paper's are those of an 8B model."
    sheets = (
        Sheet("latency", "Latency by phase", "phase", PHASE, phases, measured),
        Sheet("latency_policies", "Latency by policy", "policy", POLICY, lines, note, words),
    )
    shown = {key: SECONDS[key] for key in ("mean", "p95")}
    return ExperimentResult(sheets, lambda figure: bars(figure, lines, shown))


def spent(timing: Timing, data: EvaluationData, decided: Decided) -> tuple[Float64[np.ndarray, " n"], np.ndarray]:
    """Seconds and tokens of a policy at each timed step: the fast pass, and the slow pass where it ran."""
    place = {key: row for row, key in enumerate(zip(data.steps.stream.tolist(), data.steps.step.tolist(), strict=True))}
    slow = decided.slow[[place[key] for key in timing.steps]]
    fast, thinking = timing.phases["fast"], timing.phases.get("slow", _NOTHING)
    return fast.seconds + slow * thinking.seconds, fast.tokens + slow * thinking.tokens


def summary(seconds: Float64[np.ndarray, " n"]) -> dict[str, Number]:
    """The numbers of `SECONDS`."""
    percentiles = np.percentile(seconds, (50, 95, 99))
    names = ("mean", "p50", "p95", "p99")
    return {name: Number(float(value)) for name, value in zip(names, (seconds.mean(), *percentiles), strict=True)}


def _phase(timing: Timing, name: str) -> dict[str, Number]:
    phase = timing.phases[name]
    return {
        "count": Number(float(len(phase.seconds))),
        **summary(phase.seconds),
        "tokens": Number(float(phase.tokens.mean())),
    }


def _policies(study: Study, timing: Timing) -> Iterator[Line]:
    """The strategies of ablation B, the margins of its sweep, and the cost ratios, beside the paper's percentiles."""
    if not study.at().slow:
        yield _line("fast only", study.at(), "dynamic", timing, "ablation B", references.INFERENCE["fast only"])
        return
    for name, policy in STRATEGIES.items():
        yield _line(name, study.with_slow(), policy, timing, "ablation B", references.INFERENCE[name])
    for margin in PAPER_MARGINS:
        data = study.with_slow(dataclasses.replace(study.point, margin=margin))
        yield _line(f"{margin:g}", data, "slow_on_margin", timing, "by margin", references.MARGINS[f"{margin:g}"])
    for costs, (c_fa, c_fn) in COSTS.items():
        data = study.with_slow(dataclasses.replace(study.point, c_fa=c_fa, c_fn=c_fn))
        yield _line(costs, data, "slow_on_margin", timing, "by cost ratio", references.COSTS[costs])


def _line(
    name: str, data: EvaluationData, policy: str, timing: Timing, section: str, printed: Mapping[str, float]
) -> Line:
    decided = data.decide(policy, "calibrated")
    seconds, tokens = spent(timing, data, decided)
    row = summary(seconds) | {"slow_rate": Number(float(decided.slow.mean())), "tokens": Number(float(tokens.mean()))}
    return Line(name, cells.beside(row, {"p95": printed["latency"], "tokens": printed["tokens"]}), section)
