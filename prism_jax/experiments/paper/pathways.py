"""Ablation C: what the students of each training pathway decide."""

from __future__ import annotations

import dataclasses
from typing import Any

from prism_jax.evaluation import protocol
from prism_jax.evaluation.policy_rows import FORMS, EvaluationData
from prism_jax.evaluation.rows import Form
from prism_jax.experiments.paper import cells, methods, references, systems
from prism_jax.experiments.paper.drawing import bars
from prism_jax.experiments.paper.sheet import Line, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, IntervalSettings, SkippedError, Subject
from prism_jax.experiments.paper.systems import Systems
from prism_jax.experiments.paper.tallies import Tally
from prism_jax.runs.store import Store, of_seed
from prism_jax.scores import Scores
from prism_jax.training.pathway_config import SECOND_STAGES, Method, Name, PathwayConfig
from prism_jax.training.run_config import RunConfig

NAMES: dict[Name, str] = {
    "sft": "SFT",
    "dft": "DFT, second stage",
    "weighted_sft": "Weighted-SFT, second stage",
    "rdc_sft": "RDC-SFT",
    "schema_sft": "schema SFT",
}
SECTIONS = {"raw": "raw signals", "calibrated": "calibrated signals"}
MEASURES = {**cells.RATES, **cells.AREA, **cells.COST}


def make(subject: Subject) -> ExperimentResult:
    """Compares the gate on the fast pass of each student; the paper's numbers stand beside calibrated signals."""
    trainings = subject.trainings
    config, prepared = of_seed(trainings.recipes.pathways, trainings.seed), {}
    for pathway in NAMES:
        by = PathwayConfig(name=pathway).curated_by(subject.method)
        scores = scores_of(config, trainings.store, by)
        prepared[pathway] = protocol.prepare(scores, protocol.calibrate(scores), subject.point)[0]
    lines = []
    for form in reversed(FORMS):
        for pathway, data in prepared.items():
            row = numbers(data, form, subject.settings, subject.method)
            printed = references.PATHWAYS.get(pathway) if form == "calibrated" else None
            lines.append(Line(NAMES[pathway], cells.beside(row, printed), SECTIONS[form]))
    note = subject.note(
        f"C_FA = {subject.point.c_fa:g}, C_FN = {subject.point.c_fn:g}; the gate on the fast pass.",
        f"Each student takes {config.training.steps} steps; a second stage spends the first half of them on RDC-SFT "
        "and starts from it.",
        *["Curation is by Eq. 2 as printed, with one cut."] * (subject.method == "paper"),
        data=prepared.values(),
    )
    sheet = Sheet("pathways", "Ablation C: training pathways", "pathway", MEASURES, tuple(lines), note)
    shown = {key: MEASURES[key] for key in ("f1", "false_alarm", "cost")}
    return ExperimentResult((sheet,), lambda figure: bars(figure, lines, shown))


def scores_of(config: RunConfig, store: Store, pathway: PathwayConfig) -> Scores:
    """The scores of the fast pass of a student that was trained on a pathway, and is kept in the store.

    `training.steps` is the number of both stages together: a second stage starts from an rdc_sft run of the first half.
    """
    name, steps = f"pathway-{pathway.name}", config.training.steps
    if pathway.name not in SECOND_STAGES:
        return store.scores(name, _with(config, pathway), "fast")
    first = _with(config, dataclasses.replace(pathway, name="rdc_sft"), steps=steps // 2)
    start = store.finished("pathway-first-stage", first).resolve()
    return store.scores(name, _with(config, pathway, steps=steps - steps // 2, start=str(start)), "fast")


def _with(config: RunConfig, pathway: PathwayConfig, **training: Any) -> RunConfig:
    """The config on a pathway, with some training settings changed; a second stage is only valid with its start."""
    changed = dataclasses.replace(config.training, **training)
    return dataclasses.replace(config, pathway=pathway, training=changed)


def of_systems(of: Systems) -> ExperimentResult:
    """Compares the deployed policy of each scores table; the paper's numbers stand beside calibrated signals."""
    tables, lines = [system for system in of.systems if system.data is not None], list[Line]()
    if not tables:
        raise SkippedError("--system: found no scores table, expected one of each pathway")
    judged, keys = of.judges[systems.OWN], {name: key for key, name in NAMES.items()}
    for form in reversed(FORMS):
        for system in tables:
            assert system.data is not None, "a scores table"
            data, policy = system.data, system.data.deployed()
            row = of.rates(system.by_labels(policy, form))
            row |= methods.areas(Tally(of.settings.keywords()), data, policy, form, of.method)
            printed = references.PATHWAYS.get(keys.get(system.name, system.name)) if form == "calibrated" else None
            lines.append(Line(system.name, cells.beside(row, printed), SECTIONS[form]))
    note = of.note("The policy of the operating point; AUDBC takes need and acceptance together as right.", of=judged)
    measures = {**systems.RATES, **cells.AREA}
    sheet = Sheet("pathways", "Ablation C: training pathways", "pathway", measures, tuple(lines), note)
    return ExperimentResult((sheet,))


def numbers(data: EvaluationData, form: Form, settings: IntervalSettings, method: Method) -> dict[str, Number]:
    """Rates, AUDBC and cost of the gate on the fast pass of one student."""
    tally, decisions = Tally(settings.keywords()), cells.decisions(data, "dynamic", form)
    values = cells.rates(tally, decisions) | methods.areas(tally, data, "dynamic", form, method)
    return values | {"cost": cells.cost(tally, decisions)}
