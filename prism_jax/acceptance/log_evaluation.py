"""Evaluates a log of answers to offers: is its score a probability, what gate do the costs ask for, what did it cost.

People are held out whole: ten folds of them, or one per person where there are fewer. Maps and the person layer are
fitted on the other people, and the layer predicts each answer before it sees it (`study.py`). Files in the workdir:
acceptance_log.json with every number, and the tables as CSV and Markdown.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
from etils import epath
from jaxtyping import Float64, Int

from prism_jax.acceptance.columns import LogColumns, LogError
from prism_jax.acceptance.log_scores import scores_of_log, weights
from prism_jax.acceptance.logs import AcceptanceLog, check_propensities, read_log
from prism_jax.acceptance.measures import RESAMPLES, Measure, measure
from prism_jax.acceptance.own_score import (
    MAPS,
    SHOWN_PEOPLE,
    OwnScore,
    as_dicts,
    own_score,
    people_of,
    people_table,
    sentences,
)
from prism_jax.acceptance.study import MEANINGS, Study, study
from prism_jax.decision import gate
from prism_jax.decision.uncertainty import Bounds, Cells, interval
from prism_jax.evaluation.intervals import known
from prism_jax.report.table import Column, Row, Section, Table, print_all
from prism_jax.report.tables import ALONE, DASH, SHOWN_ONLY, number, over_units, percent
from prism_jax.runtime.files import check_folder_of, encode_json, write_files
from prism_jax.scores import encode_scores

ROWS = ("constant", "score", "score, temperature", "score, Platt", "person", "score+person")
"""The predictions that are compared, of those that `people.study` makes."""
EXAMPLES: dict[str, LogColumns] = {
    "copilot": LogColumns(person="person", time="time", score="confidence", accepted="accepted"),
    "coauthor": LogColumns(person="person", time="time", score="max_log_prob", accepted="accepted"),
    "distraction": LogColumns(person="person", time="time", accepted="distraction<4"),
}
"""The columns of three public logs, by the name of their file (docs/acceptance_logs.md).

The confidence of copilot is a product's own, coauthor's largest log-probability is no probability of acceptance, and
distraction has no score at all: there, an interruption that distracted little counts as accepted.
"""


class Costs(NamedTuple):
    """What the gate on one prediction would have cost; intervals are over people."""

    speak_rate: float  # share of the offers that it would have made
    cost: Measure  # mean realised cost per offer of the log
    gain: Measure  # that cost minus the better constant's, paired


def evaluate_log(
    path: str | os.PathLike[str],
    columns: LogColumns,
    workdir: str | os.PathLike[str],
    *,
    c_fa: float,
    c_fn: float,
    export_scores: str | None = None,
    keep_names: bool = False,
    shown_only: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Evaluates a log (.csv or .parquet), prints and writes its tables, and returns what acceptance_log.json holds.

    `c_fa`, above 0, is the cost of an offer that is not accepted, and `c_fn`, at least 0, that of silence where it
    would have been accepted. `export_scores` names a scores file to write as well, .parquet or .jsonl, which numbers
    people unless `keep_names`. `shown_only` leaves out the offers that were not made; the titles then say so.

    Raises:
      ValueError, OSError: in one line, for a log that cannot be read, or on which nothing can be measured.
    """
    if export_scores is not None:
        check_folder_of(export_scores)
    log = read_log(path, columns, shown_only=shown_only)
    check_propensities(path, log)
    studied = study(log, seed)
    plain = log.score is not None and not log.score_is_probability
    names = [name for name in ROWS if name in studied.predictions]
    still = np.zeros(len(studied.accepted))  # folds differ in their constant by who is left out, which ranks nothing
    measured = {
        name: measure(
            studied.predictions[name],
            studied.accepted,
            studied.person,
            probability=not (plain and name == "score"),
            ranking=still if name == "constant" else None,
            seed=seed,
        )
        for name in names
    }
    weight = weights(log, studied.row)
    gated = [name for name in names if measured[name].brier is not None]
    costs = gate_costs(studied, weight, gated, c_fa, c_fn, seed)
    compared = None if "score" not in gated else score_and_constant(log, studied, seed)
    threshold = c_fa / (c_fa + c_fn)
    own = own_score(log, studied, columns.score, threshold, weight)
    people = people_of(log, studied, own, threshold)
    tables = {
        "predictions": _prediction_table(log, studied, measured, compared),
        "gate": _gate_table(log, costs, own, c_fa, c_fn),
        "people_by_number": people_table(people, own, threshold),
    }
    value = {
        "log": {"rows": len(log), "answers": len(studied.accepted), "people": len(np.unique(studied.person))}
        | {
            "accepted": float(studied.accepted.mean()),
            "score_missing": _missing(log, studied),
            "not_made": not_made(log),
        },
        "protocol": {"folds": studied.folds, "seed": seed, "resamples": RESAMPLES, "has_need": False},
        "rows": {
            name: {key: estimate and _as_json(estimate) for key, estimate in row._asdict().items()}
            for name, row in measured.items()
        },
        "where_scored": None if compared is None else {name: _as_json(brier) for name, brier in compared.items()},
        "gate": {"c_fa": c_fa, "c_fn": c_fn, "threshold": threshold, "score": own and own.as_dict()},
        "people": as_dicts(people),
        "costs": {
            name: {"speak_rate": row.speak_rate, "cost": _as_json(row.cost), "minus_constant": _as_json(row.gain)}
            for name, row in costs.items()
        },
    }
    folder = epath.Path(workdir)
    files = {folder / "acceptance_log.json": encode_json(value)}
    for name, table in tables.items():
        files |= {folder / f"{name}.csv": table.to_csv().encode(), folder / f"{name}.md": table.to_markdown().encode()}
    if export_scores is not None:
        best = None if own is None else own.best
        scores = scores_of_log(log, seed, keep_names=keep_names, best=best)
        files[epath.Path(export_scores)] = encode_scores(export_scores, scores)
    folder.mkdir(parents=True, exist_ok=True)
    write_files(files)
    print_all([tables["predictions"], tables["gate"], people_table(people, own, threshold, SHOWN_PEOPLE)])
    for sentence in [] if own is None else sentences(own):
        print(sentence)
    if export_scores is not None:
        by = "" if own is None else f"; p_accept is {columns.score} by {MAPS[own.best]}, fitted on other people"
        print(f"scores: {export_scores}{by}")
        only = " --shown_only" if log.left_out else ""
        print(f"python -m prism_jax.evaluate --scores={export_scores}{only} --workdir=DIR reads it")
    return value


def gate_costs(
    found: Study, weight: Float64[np.ndarray, " rows"], names: list[str], c_fa: float, c_fn: float, seed: int = 0
) -> dict[str, Costs]:
    """What always and never offering, and the gate on each of the named probabilities, would have cost.

    An offer that is not accepted costs C_FA, silence where it would have been accepted C_FN; the gate offers where
    (1 - p) C_FA <= p C_FN (docs/maths.md, section 2, with certain need).
    """
    y = found.accepted
    offers = {"always": np.ones(len(y), bool), "never": np.zeros(len(y), bool)}
    for name in names:
        p = found.predictions[name]
        offers[name] = gate.intervene_unchecked(p, p, c_fa, c_fn)
    costs = np.stack([np.where(offer, c_fa * (1 - y), c_fn * y) for offer in offers.values()])
    total = costs @ weight
    better = int(np.argmin(total[:2]))
    most = np.repeat([max(c_fa, c_fn), np.inf], len(offers))
    estimate, low, high = _over_people(np.vstack([costs, costs - costs[better]]), weight, found.person, seed, most)
    half = len(offers)
    return {
        name: Costs(
            float(np.average(offer, weights=weight)),
            Measure(float(estimate[i]), float(low[i]), float(high[i])),
            Measure(float(estimate[half + i]), float(low[half + i]), float(high[half + i])),
        )
        for i, (name, offer) in enumerate(offers.items())
    }


def score_and_constant(log: AcceptanceLog, found: Study, seed: int = 0) -> dict[str, Measure]:
    """Brier scores on the offers that have a score: the score's, the constant's, and their paired difference.

    The score has to be a probability; LogError if no offer has one.
    """
    assert log.score is not None, "called where there is a score"
    known = ~np.isnan(log.score[found.row])
    if not known.any():
        raise LogError("score: found no value on any offer that was made, expected some")
    score, constant = ((found.predictions[name] - found.accepted)[known] ** 2 for name in ("score", "constant"))
    values = np.stack([score, constant, score - constant])
    most = np.array([1.0, 1.0, np.inf])
    ends = _over_people(values, np.ones(int(known.sum())), found.person[known], seed, most)
    names = ("score", "constant", "difference")
    return {name: Measure(*(float(end[i]) for end in ends)) for i, name in enumerate(names)}


def _over_people(
    values: Float64[np.ndarray, "values rows"],
    weight: Float64[np.ndarray, " rows"],
    person: Int[np.ndarray, " rows"],
    seed: int,
    most: Float64[np.ndarray, " values"],
) -> tuple[Float64[np.ndarray, " values"], Float64[np.ndarray, " values"], Float64[np.ndarray, " values"]]:
    """Weighted means of the values, and the low and high ends of their 95 % intervals over people.

    `most` is the largest value of each mean whose smallest is 0, and infinite for a difference.
    """
    unit = np.unique(person, return_inverse=True)[1]
    sums = np.stack([np.bincount(unit, value * weight) for value in values] + [np.bincount(unit, weight)], axis=1)
    cells = Cells(sums, np.ones(len(sums), np.int64))
    bounds = Bounds(np.where(np.isfinite(most), 0.0, -np.inf), most)
    settings: dict[str, Any] = {"bounds": bounds, "resamples": RESAMPLES, "seed": seed}
    means = interval(cells, lambda total: total[..., :-1] / total[..., -1:], **settings)
    return np.asarray(means.estimate), np.asarray(means.low), np.asarray(means.high)


def not_made(log: AcceptanceLog) -> int:
    """Number of offers in the file that were not made."""
    return log.left_out + int((~log.logged).sum())


def _missing(log: AcceptanceLog, found: Study) -> int | None:
    """Number of answered offers without a score; None if the log has none."""
    return None if log.score is None else int(np.isnan(log.score[found.row]).sum())


def _as_json(found: Measure) -> dict[str, float | None]:
    """A number with its interval; null ends where there is none."""
    return {"value": found.value, "low": known(found.low), "high": known(found.high)}


def _prediction_table(
    log: AcceptanceLog, found: Study, measured: dict[str, Any], compared: dict[str, Measure] | None
) -> Table:
    """How each prediction ranks and how far it is from a probability."""
    columns = (
        Column("Brier", "Mean of (p − y)², the lower the better."),
        Column("ECE", "Expected calibration error, 15 bins of equal width."),
        Column("AUROC", "Share of pairs of an accepted and a rejected offer that are ranked right."),
        Column("within person", "The same over the pairs that belong to one person."),
    )
    rows = tuple(
        Row(
            name,
            tuple(map(_shown, (measures.brier, measures.ece, measures.auroc, measures.within_person))),
            MEANINGS[name],
        )
        for name, measures in measured.items()
    )
    note = (
        f"{len(found.accepted):,} answers of {len(np.unique(found.person)):,} people, {found.accepted.mean():.1%} "
        f"accepted; {found.folds} folds of whole people, every prediction before its answer. "
        f"{over_units(len(np.unique(found.person)), 'people')}."
    )
    if silent := not_made(log):
        note += f" Of shown offers only, without weights: {silent:,} offers were not made."
    if missing := _missing(log, found):
        note += f" The score is missing on {missing:,} rows, which take the constant."
    if compared is not None:
        worse = compared["difference"]
        verdict = "worse than" if worse.low > 0 else "better than" if worse.high < 0 else "not told apart from"
        note += (
            f" Read as a probability, where it is known, the score is {verdict} a constant: Brier "
            f"{number(compared['score'].value, 3)} against {number(compared['constant'].value, 3)}, difference "
            f"{_shown(worse, sign=True)}."
        )
    elif log.score is None:
        note += " The log has no score."
    else:
        note += " The score has values outside [0, 1], so it is no probability before Platt's map."
    return Table(_titled("Is the score a probability", log), "prediction", columns, (Section("", rows),), note)


def _gate_table(log: AcceptanceLog, costs: dict[str, Costs], own: OwnScore | None, c_fa: float, c_fn: float) -> Table:
    """What the gate would have cost, and where each map puts it on the score."""
    columns = (
        Column("offers", "Share of the log's offers that would have been made.", "%"),
        Column("realised cost", "Mean of C_FA for an offer not accepted, C_FN for silence where it would have been."),
        Column("minus the better constant", "Cost minus that of the better of always and never, paired."),
        *([] if own is None else [Column("offer if the score is", "By the map fitted on everybody.", text=True)]),
    )
    rules = {} if own is None else {name: own.cell(fitted.rule(own.threshold)) for name, fitted in own.maps.items()}
    rows = tuple(
        Row(
            name,
            (
                percent(row.speak_rate),
                _shown(row.cost),
                _shown(row.gain, sign=True),
                *([] if own is None else [rules.get(name, DASH)]),
            ),
            MEANINGS.get(name, ""),
            strong=own is not None and name == own.best,
        )
        for name, row in costs.items()
    )
    threshold = c_fa / (c_fa + c_fn)
    note = f"C_FA = {c_fa:g}, C_FN = {c_fn:g}: offer where p_accept ≥ C_FA / (C_FA + C_FN) = {threshold:.4g}."
    note += "" if own is None else f" {' '.join(sentences(own))}"
    title = _titled("What the gate would have cost, per offer", log)
    return Table(title, "gate on", columns, (Section("", rows),), note, mark="the best map out of fold")


def _titled(words: str, log: AcceptanceLog) -> str:
    """A title that says whose costs these are."""
    return ", ".join([words, ALONE, *([SHOWN_ONLY] if log.left_out else [])])


def _shown(one: Measure | None, *, sign: bool = False) -> str:
    if one is None:
        return DASH
    value, low, high = (("+" if sign and end > 0 else "") + number(end, 3) for end in one)
    return value if np.isnan(one.low) else f"{value} [{low}, {high}]"
