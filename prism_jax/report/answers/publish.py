"""What the study of a log leaves behind: its JSON, its tables, its gate and its page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etils import epath

from prism_jax.decision.score_maps import PLATT, SCORE
from prism_jax.evaluation.answers.curves import Curves
from prism_jax.evaluation.answers.findings import Costs, Facts, Findings, Question
from prism_jax.evaluation.answers.measures import CONSTANTS, RESAMPLES, as_json
from prism_jax.evaluation.answers.own_score import MAPS, OwnScore, as_dicts
from prism_jax.gate import FILE
from prism_jax.report import figures
from prism_jax.report.answers.tables import (
    SHOWN_PEOPLE,
    by_answers_table,
    gate_table,
    group_table,
    people_table,
    prediction_table,
    savings_table,
    titled,
)
from prism_jax.report.numbers import number
from prism_jax.report.table import Table, print_all
from prism_jax.report.templates import load_template
from prism_jax.runtime.files import encode_json, write_files


def publish(
    findings: Findings, question: Question, workdir: epath.PathLike, more: Mapping[epath.Path, bytes] | None = None
) -> dict[str, Any]:
    """Writes acceptance_log.json, the page, the tables and further files, prints the tables, and returns the JSON."""
    facts, own, threshold = findings.facts, findings.own, question.threshold
    value: dict[str, Any] = {
        "log": {
            "rows": facts.rows,
            "answers": facts.answers,
            "people": facts.people if facts.unit == "people" else 1,
            **({} if facts.unit == "people" else {facts.unit: facts.people}),
            "accepted": facts.accepted,
            "score_missing": facts.score_missing,
            "not_made": facts.not_made,
        },
        "protocol": {
            "folds": facts.folds,
            "seed": question.seed,
            "resamples": RESAMPLES,
            "has_need": False,
            "weighted": question.weighted,
            "timed": facts.timed,
            "context": list(question.context),
        },
        "populations": [population._asdict() for population in findings.populations],
        "rows": {name: measures.as_dict() for name, measures in findings.measured.items()},
        "where_scored": None
        if findings.compared is None
        else {name: as_json(brier) for name, brier in findings.compared.items()},
        "by_answers": [part.as_dict(findings.pair) for part in findings.parts],
        "gate": {
            "c_fa": question.c_fa,
            "c_fn": question.c_fn,
            "threshold": threshold,
            "score": own and own.as_dict(),
        },
        "people": as_dicts(findings.people),
        "costs": {name: row.as_dict() for name, row in findings.costs.items()},
    }
    if findings.groups:
        value["groups"] = [group.as_dict() for group in findings.groups]
    if findings.drawn:
        value["today"] = {name: drawn.as_dict() for name, drawn in findings.drawn.items()}
    if findings.left_out:
        value["left_out"] = dict(findings.left_out)
    if findings.bounds is not None:
        value["bounds"] = {f"{name}.auroc": bound for name, bound in findings.bounds.items()}
    title = titled(f"By {question.group}", facts)
    gate = "person" if own is None else own.best
    by_group = {}
    if findings.groups:
        by_group["by_group"] = group_table(title, question.group, findings.groups, gate, facts.unit)
    tables = {
        "savings": savings_table(facts, findings.costs, own, findings.compared, findings.drawn),
        "predictions": prediction_table(
            facts, findings.measured, findings.compared, findings.bounds, len(findings.left_out)
        ),
        "gate": gate_table(facts, findings.costs, own, question.c_fa, question.c_fn),
        **by_group,
    }
    if findings.people:
        tables["by_answers"] = by_answers_table(findings.parts, findings.pair)
        tables["people_by_number"] = people_table(findings.people, own, threshold)
    folder = epath.Path(workdir)
    files = {folder / "acceptance_log.json": encode_json(value)}
    if own is not None:
        files[folder / FILE] = encode_json(own.gate(question.c_fa, question.c_fn).to_dict())
    for name, table in tables.items():
        files |= {folder / f"{name}.csv": table.to_csv().encode(), folder / f"{name}.md": table.to_markdown().encode()}
    shown = dict(tables)
    if findings.people:
        shown["people_by_number"] = people_table(findings.people, own, threshold, SHOWN_PEOPLE)
    files[folder / "report.html"] = render(facts, own, findings.curves, findings.costs, shown).encode()
    folder.mkdir(parents=True, exist_ok=True)
    write_files(files | dict(more or {}))
    print_all([*shown.values()])
    print(f"report: {folder / 'report.html'}")
    if own is not None:
        print(f"gate: {folder / FILE}, for prism_jax.Gate.load({str(folder)!r})(score=...)")
    return value


def render(
    facts: Facts, own: OwnScore | None, curves: Curves | None, costs: Mapping[str, Costs], tables: Mapping[str, Table]
) -> str:
    """Renders the page's HTML; `tables` are those that the command prints, the first of them on top."""
    first, *others = tables.values()
    title, diagrams, thresholds = "A gate on each person's own rate of acceptance", [], None
    if own is not None and curves is not None:
        cell = own.cell(own.rule)
        title = f"{cell} offer, whatever {own.column} says" if cell in CONSTANTS else f"offer where {own.named}"
        constants = {name: costs[name].cost.value for name in CONSTANTS}
        name, at = f"{own.column}{own.sign}", curves.threshold * (100.0 if own.sign else 1.0)
        thresholds = figures.threshold_figure(name, at, curves.cost, own.rule.value, constants)
        diagrams = [
            figures.reliability_diagram(
                curves.reliability[name],
                title=f"{own.column}, {MAPS[name]}",
                caption=f"Brier score {number(own.brier[name], 3)}, a constant's {number(own.brier['constant'], 3)}",
            )
            for name in dict.fromkeys([next(iter(own.maps)), PLATT if own.best == SCORE else own.best])
        ]
    return load_template("log.html.jinja").render(
        title=title[0].upper() + title[1:],
        measured=f"{facts.answers:,} answers of {facts.whose}, {facts.accepted:.1%} accepted.",
        first=first,
        diagrams=diagrams,
        thresholds=thresholds,
        tables=others,
    )
