"""What a log of answers says, in one record: how it was found does not matter to the tables and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from etils import epath

from prism_jax.acceptance.by_answers import Pair, Part, by_answers_table
from prism_jax.acceptance.by_group import Group, group_table
from prism_jax.acceptance.curves import Curves
from prism_jax.acceptance.measures import RESAMPLES, Measures, as_json
from prism_jax.acceptance.own_score import SHOWN_PEOPLE, OwnScore, Person, as_dicts, people_table
from prism_jax.acceptance.page import render
from prism_jax.acceptance.tables import Costs, Drawn, Facts, gate_table, prediction_table, savings_table, titled
from prism_jax.decision.person import Population
from prism_jax.decision.uncertainty import Estimate
from prism_jax.gate import FILE
from prism_jax.report.table import print_all
from prism_jax.runtime.files import encode_json, write_files


class Question(NamedTuple):
    """What is asked of a log."""

    c_fa: float  # cost of an offer that is not accepted, above 0
    c_fn: float  # cost of silence where the offer would have been accepted, at least 0
    context: Sequence[str] = ()  # columns that were known at the moment of the offer
    weighted: bool = False  # whether fits and measures weigh answers by their clipped inverse propensities
    seed: int = 0  # of the folds and of the resampling
    group: str = ""  # the column by whose kinds the offers are divided

    @property
    def threshold(self) -> float:
        """The probability of acceptance from which on to offer."""
        return self.c_fa / (self.c_fa + self.c_fn)


class Findings(NamedTuple):
    """What a log says of a question."""

    facts: Facts
    populations: Sequence[Population]  # those of each fold
    measured: Mapping[str, Measures]  # of each prediction
    compared: Mapping[str, Estimate] | None  # the score beside the constant; None where it is no probability
    parts: Sequence[Part]
    pair: Pair
    own: OwnScore | None
    groups: Sequence[Group]  # of the offers, where a column has the role
    curves: Curves | None  # of the score
    people: Sequence[Person]
    costs: Mapping[str, Costs]
    drawn: Mapping[str, Drawn] = MappingProxyType({})  # the gate and --target beside what is done today
    left_out: Mapping[str, str] = MappingProxyType({})  # files that could not be read, with the reason of each
    bounds: Mapping[str, float] | None = None  # how far the AUROC of a prediction can be off; None where all is exact


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
