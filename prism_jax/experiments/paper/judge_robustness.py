"""Whether the gain of the deployed policy over a baseline depends on who judges it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

from prism_jax.evaluation.policy_rows import Decided, EvaluationData
from prism_jax.evaluation.rows import Form
from prism_jax.experiments.paper import cells, pools, references, systems
from prism_jax.experiments.paper.sheet import Line, Measure, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, Study
from prism_jax.experiments.paper.systems import Systems
from prism_jax.labelling.judges.agreements import HUMAN_CONFIG
from prism_jax.labelling.judges.ballots import majority, step_items
from prism_jax.labelling.judges.robustness import Deed, RobustnessRow, compare_judged, correct, judged
from prism_jax.report.judges import corrected_table
from prism_jax.report.table import Table
from prism_jax.report.tables import over_units
from prism_jax.streams import Stream

BASELINE: tuple[str, Form] = ("fixed", "raw")
"""The rule of ablation A on raw signals of the fast pass."""
OF_PAPER = "The paper's baseline is its student's teacher."
PRINTED = ("DeepSeek-R1", "Qwen3-8B-PRISM")
"""The paper's baseline and system, beside which its numbers stand."""
_LAST = ("precision", "recall", "accuracy", "false_alarm")
MEASURES = {
    "f1": cells.RATES["f1"],
    "gain": Measure("gain of F1", "F1 minus the baseline's, with its paired interval.", "%", 2),
    **{name: systems.RATES[name] for name in _LAST},
}


def make(study: Study) -> ExperimentResult:
    """Scores both systems by each pool's majority and by the truth, with ProactiveBench's own counts."""
    assert study.trainings is not None, "the runner calls this with a student that was trained here"
    streams, data = study.trainings.test_streams(), study.at()
    baseline, system = (
        deeds_of(streams, _offers(data, decided))
        for decided in (data.decide(*BASELINE), data.decide(data.deployed(), "calibrated"))
    )
    panels = pools.panels(streams, study.trainings.seed)
    raters = {pool: majority(panels[pool]) for pool in (pools.POOL_A, pools.POOL_B)} | {
        pools.TRUTH: pools.truth(streams)
    }
    lines = []
    for pool, rater in raters.items():
        row = compare_judged(pool, judged(baseline, rater), judged(system, rater), **study.settings.resampling)
        lines += _lines(row, "baseline", "deployed policy", references.ROBUSTNESS[pool])
    note = study.note(
        f"Baseline: fixed τ = {study.point.fixed_threshold:g} on raw p_accept.",
        systems.COUNTING,
    )
    return _result(lines, note, "Two systems under each pool of judges", MEASURES)


def of_systems(of: Systems) -> ExperimentResult:
    """Scores the system of --against and each other one by every judge of both."""
    against, judges, lines = *of.compared(), list[Line]()
    for judge, members in judges.items():
        others = {name: own for name, own in members.items() if name != against}
        for name, own in others.items():
            row = compare_judged(judge, members[against], own, **of.settings.resampling)
            baseline = against if len(others) == 1 else f"{against}, on the steps of {name}"
            panel = pools.TRUTH if judge == systems.PEOPLE else judge
            printed = references.ROBUSTNESS.get(panel) if (against, name) == PRINTED else None
            lines += _lines(row, baseline, name, printed or {})
    streams = {stream for members in judges.values() for stream, _ in systems.union(members)}
    over = over_units(len(streams), level=of.settings.level)
    note = f"{systems.COUNTING} {over}."
    result = _result(lines, note, "Systems under each panel of judges", MEASURES | systems.BOTH)
    return dataclasses.replace(result, study_tables=_corrected(of))


def _corrected(of: Systems) -> dict[str, Table]:
    """The numbers of each system by every panel, raw and corrected for its errors where people judged too."""
    if of.human is None:
        return {}
    raters = {name: majority(ballots) for name, ballots in of.panels.items()}
    people, tables = majority(of.human, HUMAN_CONFIG), dict[str, Table]()
    for system in of.systems:
        rows = correct(system.streams, raters, people, **of.settings.resampling)
        if rows:
            stem = re.sub(r"[^\w.-]+", "_", f"judge_corrected_{system.name}")
            tables[stem] = corrected_table(rows, system.name)
    return tables


def _lines(row: RobustnessRow, baseline: str, system: str, printed: Mapping[str, float]) -> list[Line]:
    """The baseline and the system under one panel."""
    rates = {name: row.rates[name] for name in ("f1", *_LAST)}
    first = {name: Number.of(rate.first) for name, rate in rates.items()}
    second = {name: Number.of(rate.second) for name, rate in rates.items()}
    second["gain"] = Number.of(rates["f1"].difference)
    first["steps"] = second["steps"] = Number(float(row.steps))
    of_baseline = {"f1": printed["baseline"]} if printed else {}
    of_system = {key: value for key, value in printed.items() if key != "baseline"}
    return [
        Line(baseline, cells.beside(first, of_baseline), row.panel),
        Line(system, cells.beside(second, of_system), row.panel),
    ]


def _result(lines: Sequence[Line], note: str, title: str, measures: Mapping[str, Measure]) -> ExperimentResult:
    sheet = Sheet("judge_robustness", title, "system", measures, tuple(lines), note, OF_PAPER, signed=("gain",))
    return ExperimentResult((sheet,))


def _offers(data: EvaluationData, decided: Decided) -> dict[tuple[str, int], bool]:
    """Whether a policy offers, by stream and number of the step."""
    places = zip(data.steps.stream.tolist(), data.steps.step.tolist(), strict=True)
    return dict(zip(places, decided.offer.tolist(), strict=True))


def deeds_of(streams: Iterable[Stream], offers: Mapping[tuple[str, int], bool]) -> dict[tuple[str, int], Deed]:
    """What a policy did at each step: it offered the only candidate, or stayed silent."""
    steps = ((stream, number, step) for stream in streams for number, step in enumerate(stream.steps))
    return {
        (stream.id, number): Deed(made := offers[stream.id, number], tuple(step_items(stream, step))[made])
        for stream, number, step in steps
    }
