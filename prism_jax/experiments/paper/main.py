"""The paper's main comparison: the deployed policy beside constants, the gate's parts, and the systems of the paper."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from prism_jax.evaluation.rows import Form
from prism_jax.experiments.paper import cells, references, systems
from prism_jax.experiments.paper.drawing import bars
from prism_jax.experiments.paper.sheet import Line, Measure, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, Study
from prism_jax.experiments.paper.systems import Systems
from prism_jax.labelling.judges.robustness import Judged

ROWS: dict[str, tuple[str, Form, str]] = {
    "always offers": ("always", "raw", "Offers at every step."),
    "never offers": ("never", "raw", "Stays silent at every step."),
    "p_accept alone": ("static", "calibrated", "Offers where calibrated p_accept reaches C_FA / (C_FA + C_FN)."),
    "gate, uncalibrated": ("dynamic", "raw", "The gate on raw signals of the fast pass."),
    "gate": ("dynamic", "calibrated", "The gate on calibrated signals of the fast pass."),
}
"""Policy and form behind each row, in the order of the table."""
ROWS_WITHOUT_NEED: dict[str, tuple[str, Form, str]] = {
    **{name: row for name, row in ROWS.items() if row[0] in ("always", "never")},
    "p_accept alone, uncalibrated": ("static", "raw", "The gate on the raw signal of the fast pass."),
    "p_accept alone": ROWS["p_accept alone"],
}
MEASURES = {**cells.RATES, **cells.COST}
OF_SYSTEMS = {
    **systems.RATES,
    "steps": Measure("steps", "Steps with a verdict.", digits=0),
    "missing": Measure("missing", "Steps without one, at which another system has one.", digits=0),
}


def make(study: Study) -> ExperimentResult:
    """Compares the policies of one agent, and lists the paper's systems below."""
    data = study.at()
    rows = ROWS if data.has_need else ROWS_WITHOUT_NEED
    ours = [
        _line(study, name, cells.decisions(data, policy, form), meaning)
        for name, (policy, form, meaning) in rows.items()
    ]
    if data.deployed() not in ("dynamic", "static"):
        words = "The policy of the operating point, on calibrated signals."
        ours.append(_line(study, "deployed policy", cells.decisions(data, data.deployed(), "calibrated"), words))
    last = ours[-1]
    ours[-1] = Line(last.name, cells.beside(last.cells, references.MAIN["Qwen3-8B-PRISM"]), "ours", last.meaning, True)
    theirs = _theirs(["Qwen3-8B-PRISM"])
    note = study.note(
        f"C_FA = {study.point.c_fa:g}, C_FN = {study.point.c_fn:g}, margin {study.point.margin:g}.",
    )
    words = "Our last row stands beside the paper's Qwen3-8B-PRISM."
    sheet = Sheet("main", "Main comparison", "policy", MEASURES, (*ours, *theirs), note, of_paper=words)
    shown = {key: MEASURES[key] for key in ("f1", "false_alarm", "cost")}
    return ExperimentResult((sheet,), lambda figure: bars(figure, ours, shown))


def of_systems(of: Systems) -> ExperimentResult:
    """Compares systems, in one table per judge; people's verdicts stand in a section below those of the first judge."""
    judges = {name: judged for name, judged in of.judges.items() if name != systems.PEOPLE} or of.judges
    sheets = list[Sheet]()
    for judge, judged in judges.items():
        sections = {judge if judge == systems.PEOPLE else f"judged by {judge}": judged}
        if not sheets and systems.PEOPLE in of.judges:
            # Who was asked about none of a system's proposals says nothing of it.
            sections[systems.PEOPLE] = {
                name: own
                for name, own in of.judges[systems.PEOPLE].items()
                if (own.proposed & ~np.isnan(own.accepted)).any() or not own.proposed.any()
            }
        lines = [
            _system(of, name if section != systems.PEOPLE else f"{name}, human labels", section, members, own)
            for section, members in sections.items()
            for name, own in members.items()
        ]
        note = of.note(of=judged)
        everyone = (*lines, *_theirs([line.name for line in lines]))
        sheets.append(
            Sheet(systems.stem("main", judge, judges), "Main comparison", "system", OF_SYSTEMS, everyone, note)
        )
    return ExperimentResult(tuple(sheets))


def _system(of: Systems, name: str, section: str, members: Mapping[str, Judged], own: Judged) -> Line:
    steps = {"steps": len(own.known), "missing": len(systems.union(members) - own.known)}
    values = of.rates(own) | {key: Number(float(count)) for key, count in steps.items()}
    return Line(name, cells.beside(values, references.MAIN.get(name)), section)


def _theirs(ours: Collection[str]) -> list[Line]:
    """The paper's systems, apart from those that stand beside rows of ours."""
    return [
        Line(name, cells.beside({}, numbers), "the paper's systems")
        for name, numbers in references.MAIN.items()
        if name not in ours
    ]


def _line(study: Study, name: str, decisions: cells.Decisions, meaning: str) -> Line:
    values = cells.rates(study.tally, decisions) | {"cost": cells.cost(study.tally, decisions)}
    return Line(name, values, "ours", meaning)
