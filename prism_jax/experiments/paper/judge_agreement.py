"""How far judges agree with each other and with people, or pools of simulated judges with the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prism_jax.decision.uncertainty import Estimate
from prism_jax.experiments.paper import cells, pools, references
from prism_jax.experiments.paper.sheet import Line, Measure, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, SkippedError, Study
from prism_jax.experiments.paper.systems import Systems
from prism_jax.labelling.judges.agreements import HUMAN, Agreements, PairRow, compare_judges
from prism_jax.report.tables import over_units

PAIRS = {
    (pools.ENSEMBLE, HUMAN): f"{pools.ENSEMBLE} and {pools.TRUTH}",
    (pools.POOL_A, HUMAN): f"{pools.POOL_A} and {pools.TRUTH}",
    (pools.POOL_B, HUMAN): f"{pools.POOL_B} and {pools.TRUTH}",
    (pools.POOL_A, pools.POOL_B): f"{pools.POOL_A} and {pools.POOL_B}",
}
"""The paper's comparisons of majorities; the rows of single judges stand below."""
MEASURES = {
    "support": Measure("items", "Verdicts that both have.", digits=0),
    "agreement": Measure("agreement", "Share of items with the same verdict.", "%"),
    "kappa": Measure("Cohen's κ", "Agreement beyond chance.", digits=2),
    "mcc": Measure("MCC", "Matthews' correlation coefficient.", digits=2),
    "constant": Measure("constant judge", "Agreement of the better constant judge with the second rater.", "%"),
    "sensitivity": Measure("sensitivity", "Share of what the second accepts that the first accepts.", "%"),
    "specificity": Measure("specificity", "Share of what the second rejects that the first rejects.", "%"),
}
WITHIN = {
    "support": MEASURES["support"],
    "agreement": Measure("agreement", "Share of the pairs of verdicts on one item that agree.", "%"),
    "fleiss": Measure("Fleiss' κ", "Agreement beyond chance.", digits=2),
    "alpha": Measure("Krippendorff's α", "Agreement beyond chance.", digits=2),
}

OF_PAPER = "The paper does not say whether its events are offers or silences, nor what people would agree on by chance."


def make(study: Study) -> ExperimentResult:
    """Compares majorities and single judges with the truth, pools with each other, and judges within a pool."""
    assert study.trainings is not None, "the runner calls this with a student that was trained here"
    streams = study.trainings.test_streams()
    agreement = compare_judges(
        pools.panels(streams, study.trainings.seed),
        pools.truth(streams),
        resamples=study.settings.resamples,
        seed=study.settings.seed,
    )
    lines = [
        *(_line(row, PAIRS[row.judge, row.reference], row.kind) for row in agreement.pairs if _is_printed(row)),
        *(
            _line(row, row.judge, f"{row.kind}: single judges and {pools.TRUTH}")
            for row in agreement.pairs
            if _single(row)
        ),
    ]
    rates = ", ".join(
        f"{pool}: {errors.sensitivity:g} and {errors.specificity:g}" for pool, errors in pools.ERRORS.items()
    )
    note = study.note(
        f"Judges know the truth and err independently of each other; sensitivity and specificity of {rates}.",
        "Errors of language models are not independent, so their majorities gain less.",
    )
    return _result(lines, agreement, note, study.note(), people=False)


def of_systems(of: Systems) -> ExperimentResult:
    """Compares panels and people on what systems did and on silence, every judge with people, and within panels."""
    if not of.panels and of.human is None:
        raise SkippedError("--panel: found none, expected NAME=VOTES of each panel of judges, or --human")
    agreement = compare_judges(of.panels, of.human, **of.settings.resampling)
    streams = len({stream.id for system in of.systems for stream in system.streams})
    lines = [_line(row, f"{row.judge} and {row.reference}", row.kind) for row in agreement.pairs]
    note = f"On what the systems did, and on silence at the same steps. {over_units(streams, level=of.settings.level)}."
    return _result(lines, agreement, note, note, people=True)


def _result(
    lines: Sequence[Line], agreement: Agreements, note: str, note_within: str, *, people: bool
) -> ExperimentResult:
    within = tuple(
        Line(row.panel, {"support": Number(float(row.items)), **_numbers(row.measures)}, row.kind)
        for row in agreement.panels
        if people or row.panel != "human votes"
    )
    sheets = (
        Sheet("judge_agreement", "Agreement of two raters", "raters", MEASURES, tuple(lines), note, OF_PAPER),
        Sheet("judge_agreement_within", "Agreement within a pool", "judges", WITHIN, within, note_within),
    )
    return ExperimentResult(sheets)


def _is_printed(row: PairRow) -> bool:
    return (row.judge, row.reference) in PAIRS


def _single(row: PairRow) -> bool:
    """Whether the row compares one judge of a pool with the truth; the ensemble's judges are also in a pool."""
    return row.reference == HUMAN and not _is_printed(row) and not row.judge.startswith(pools.ENSEMBLE)


def _line(row: PairRow, name: str, section: str) -> Line:
    values: dict[str, Number | str] = {
        "support": Number(float(row.items)),
        "agreement": Number.of(row.measures["agreement"]),
        "kappa": Number.of(row.measures["kappa"]),
        "mcc": Number.of(row.measures["matthews"]),
        "constant": Number(row.constant),
        "sensitivity": Number.of(row.sensitivity),
        "specificity": Number.of(row.specificity),
    }
    printed = references.AGREEMENT.get(name.replace(HUMAN, pools.TRUTH)) if section == "offers" else None
    return Line(name, cells.beside(values, printed), section)


def _numbers(measures: Mapping[str, Estimate]) -> dict[str, Number]:
    return {name: Number.of(estimate) for name, estimate in measures.items()}
