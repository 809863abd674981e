"""Evaluates a log of answers to offers: is its score a probability, what gate do the costs ask for, what did it cost.

People are held out whole: ten folds of them, or one per person where there are fewer. Maps and the person layer are
fitted on the other people, and the layer predicts each answer before it sees it (`prism_jax.people.study`). Files in
the workdir: acceptance_log.json with every number, and the two tables as CSV and Markdown.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
import scipy
from etils import epath
from jaxtyping import Bool, Float64, Int

from prism_jax.decision.calibration import Platt, fit_platt
from prism_jax.decision.losses import propensity_weight
from prism_jax.decision.uncertainty import Cells, interval
from prism_jax.people.columns import LogColumns, LogError
from prism_jax.people.context import folds_of_people
from prism_jax.people.logs import AcceptanceLog, check_propensities, read_log
from prism_jax.people.measures import RESAMPLES, Measure, measure
from prism_jax.people.study import FOLDS, MEANINGS, Study, study
from prism_jax.recipes.scores_files import SHOWN_ONLY
from prism_jax.report.table import Column, Row, Section, Table, print_all
from prism_jax.report.tables import ALONE, DASH, number, percent
from prism_jax.runtime.files import check_folder_of, encode_json, write_files
from prism_jax.scores import Scores, encode_scores

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
_EDGE = 1e-6


class Costs(NamedTuple):
    """What the gate on one prediction would have cost; intervals are over people.

    Attributes:
      speak_rate: Share of the offers that it would have made.
      cost: Mean realised cost per offer of the log.
      gain: That cost minus the better constant's, on the same resamples.
    """

    speak_rate: float
    cost: Measure
    gain: Measure


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
    """Evaluates a log, prints two tables and writes them.

    Args:
      path: The log, .csv or .parquet.
      columns: Which columns are which (`EXAMPLES`).
      workdir: Folder for the results.
      c_fa: Cost of an offer that is not accepted, above 0.
      c_fn: Cost of silence where the offer would have been accepted, at least 0.
      export_scores: Scores file to write as well, .parquet or .jsonl (docs/scores.md).
      keep_names: Whether that file names people as the log does; by default they are numbered.
      shown_only: Whether to leave out the offers that were not made; the titles then say so.
      seed: Seed of the folds and of the resampling.

    Returns:
      What acceptance_log.json holds.

    Raises:
      ValueError, OSError: in one line, for a log that cannot be read, or on which nothing can be measured.
    """
    if export_scores is not None:
        check_folder_of(export_scores)
    log = read_log(path, columns, shown_only=shown_only)
    check_propensities(path, log)
    found = study(log, seed)
    plain = log.score is not None and not log.score_is_probability
    names = [name for name in ROWS if name in found.predictions]
    still = np.zeros(len(found.accepted))  # folds differ in their constant by who is left out, which ranks nothing
    measured = {
        name: measure(
            found.predictions[name],
            found.accepted,
            found.person,
            probability=not (plain and name == "score"),
            ranking=still if name == "constant" else None,
            seed=seed,
        )
        for name in names
    }
    gated = [name for name in names if measured[name].brier is not None]
    costs = gate_costs(found, _weight(log, found), gated, c_fa, c_fn, seed)
    compared = None if "score" not in gated else score_and_constant(log, found, seed)
    threshold = c_fa / (c_fa + c_fn)
    on_score = score_threshold(log, found, threshold)
    tables = {
        "predictions": _prediction_table(log, found, measured, compared),
        "gate": _gate_table(log, costs, c_fa, c_fn, threshold, on_score),
    }
    value = {
        "log": {"rows": len(log), "answers": len(found.accepted), "people": len(np.unique(found.person))}
        | {"accepted": float(found.accepted.mean()), "score_missing": _missing(log, found), "not_made": not_made(log)},
        "protocol": {"folds": found.folds, "seed": seed, "resamples": RESAMPLES, "has_need": False},
        "rows": {
            name: {key: one and one._asdict() for key, one in row._asdict().items()} for name, row in measured.items()
        },
        "where_scored": None if compared is None else {name: one._asdict() for name, one in compared.items()},
        "gate": {"c_fa": c_fa, "c_fn": c_fn, "threshold": threshold, "score_threshold": on_score},
        "costs": {
            name: {"speak_rate": one.speak_rate, "cost": one.cost._asdict(), "minus_constant": one.gain._asdict()}
            for name, one in costs.items()
        },
    }
    folder = epath.Path(workdir)
    files = {folder / "acceptance_log.json": encode_json(value)}
    for name, table in tables.items():
        files |= {folder / f"{name}.csv": table.to_csv().encode(), folder / f"{name}.md": table.to_markdown().encode()}
    if export_scores is not None:
        files[epath.Path(export_scores)] = encode_scores(export_scores, scores_of_log(log, seed, keep_names=keep_names))
    folder.mkdir(parents=True, exist_ok=True)
    write_files(files)
    print_all(list(tables.values()))
    if export_scores is not None:
        print(f"scores: {export_scores}; python -m prism_jax.evaluate --scores={export_scores} --workdir=DIR reads it")
    return value


def gate_costs(
    found: Study, weight: Float64[np.ndarray, " rows"], names: list[str], c_fa: float, c_fn: float, seed: int = 0
) -> dict[str, Costs]:
    """What always and never offering, and the gate on each prediction, would have cost.

    An offer that is not accepted costs C_FA, silence where it would have been accepted C_FN; the gate offers where
    (1 - p) C_FA <= p C_FN (docs/maths.md, section 2, with certain need).

    Args:
      found: Predictions and answers.
      weight: Weight of each row.
      names: The predictions to gate, all probabilities.
      c_fa: C_FA.
      c_fn: C_FN.
      seed: Seed of the resampling.
    """
    y = found.accepted
    offers = {"always": np.ones(len(y), bool), "never": np.zeros(len(y), bool)}
    for name in names:
        p = found.predictions[name]
        offers[name] = ((1 - p) * c_fa <= p * c_fn) & (p > 0)
    costs = np.stack([np.where(offer, c_fa * (1 - y), c_fn * y) for offer in offers.values()])
    total = costs @ weight
    better = int(np.argmin(total[:2]))
    estimate, low, high = _over_people(np.vstack([costs, costs - costs[better]]), weight, found.person, seed)
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

    Args:
      log: A log whose score is a probability.
      found: Its predictions.
      seed: Seed of the resampling.

    Raises:
      LogError: if no offer has a score.
    """
    assert log.score is not None, "called where there is a score"
    known = ~np.isnan(log.score[found.row])
    if not known.any():
        raise LogError("score: found no value on any offer that was made, expected some")
    score, constant = ((found.predictions[name] - found.accepted)[known] ** 2 for name in ("score", "constant"))
    values = np.stack([score, constant, score - constant])
    ends = _over_people(values, np.ones(int(known.sum())), found.person[known], seed)
    names = ("score", "constant", "difference")
    return {name: Measure(*(float(end[i]) for end in ends)) for i, name in enumerate(names)}


def _over_people(
    values: Float64[np.ndarray, "values rows"],
    weight: Float64[np.ndarray, " rows"],
    person: Int[np.ndarray, " rows"],
    seed: int,
) -> tuple[Float64[np.ndarray, " values"], Float64[np.ndarray, " values"], Float64[np.ndarray, " values"]]:
    """Weighted means, and the ends of their 95 % intervals over resamples of whole people."""
    unit = np.unique(person, return_inverse=True)[1]
    sums = np.stack([np.bincount(unit, one * weight) for one in values] + [np.bincount(unit, weight)], axis=1)
    cells = Cells(sums, np.ones(len(sums), np.int64))
    found = interval(cells, lambda total: total[..., :-1] / total[..., -1:], resamples=RESAMPLES, seed=seed)
    return np.asarray(found.estimate), np.asarray(found.low), np.asarray(found.high)


def score_threshold(log: AcceptanceLog, found: Study, threshold: float) -> float | None:
    """The value of the score from which on to offer: where Platt's map, fitted on everybody, reaches the threshold.

    Returns:
      The value; None without a score that is a probability, or where a higher score does not mean more acceptance.
    """
    if log.score is None or not log.score_is_probability or not 0 < threshold < 1:
        return None
    score = log.score[found.row]
    known = ~np.isnan(score)
    y = found.accepted[known]
    if not known.any() or y.min() == y.max():
        return None
    platt: Platt = fit_platt(np.clip(score[known], _EDGE, 1 - _EDGE), y)
    if platt.scale <= 0:
        return None
    return float(scipy.special.expit((scipy.special.logit(threshold) - platt.bias) / platt.scale))


def scores_of_log(log: AcceptanceLog, seed: int = 0, *, keep_names: bool = False) -> Scores:
    """The log as a scores table without need: one stream per person, a step per offer in the order of time.

    People are called p1, p2 and so on, in the order in which the log first mentions them, unless `keep_names`.

    `p_accept_fast` is the score as it is. Where it is missing it is the acceptance rate of the people in other folds,
    and a score that is no probability becomes one by Platt's map of the other people. `fold` holds whole people, so
    that `prism_jax.evaluate --scores` calibrates each on the others.

    Raises:
      LogError: for a log without a score, or one that is no probability where some offers were not made.
    """
    if log.score is None:
        raise LogError("columns: found no score, expected score=COLUMN: a scores file holds one")
    rows = log.order
    person = log.person[rows]
    fold = folds_of_people(person, FOLDS, seed)
    if log.score_is_probability:
        p = log.score[rows]
        p = np.where(np.isnan(p), _base_rates(log.accepted[rows], fold), p)
    elif log.logged.all():
        p = study(log, seed).predictions["score, Platt"]
    else:
        raise LogError("score: found numbers outside [0, 1] and offers that were not made, expected one of these only")
    begins = np.flatnonzero(np.diff(person, prepend=-1))
    number = _numbers(log)
    names = [log.names[code] if keep_names else f"p{number[code]}" for code in person.tolist()]
    columns: dict[str, Any] = {
        "stream": names,
        "person": names,
        "step": np.arange(len(rows)) - np.repeat(begins, np.diff(begins, append=len(rows))),
        "fold": fold,
        "p_accept_fast": p,
        "y_accept": log.accepted[rows],
    }
    columns |= {"time": log.time[rows]} if log.timed else {}
    if log.propensity is not None:
        columns |= {"logged": log.logged[rows], "propensity": log.propensity[rows]}
    table = Scores.from_columns(columns)
    # In alphabetical order, the rows would still tell which of two names comes first.
    return table if keep_names else table.take(np.argsort(number[person], kind="stable"))


def _numbers(log: AcceptanceLog) -> Int[np.ndarray, " people"]:
    """The number of each person, from 1, in the order in which the rows of the log first mention them."""
    first = np.unique(log.person, return_index=True)[1]
    return np.argsort(np.argsort(first)) + 1


def _base_rates(accepted: Float64[np.ndarray, " rows"], fold: Int[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"]:
    """For each row the acceptance rate of the people in the other folds."""
    known = ~np.isnan(accepted)
    total, count = (np.bincount(fold, one) for one in (np.where(known, accepted, 0.0), known))
    return ((total.sum() - total) / (count.sum() - count))[fold]


def not_made(log: AcceptanceLog) -> int:
    """Number of offers in the file that were not made."""
    return log.left_out + int((~log.logged).sum())


def _weight(log: AcceptanceLog, found: Study) -> Float64[np.ndarray, " rows"]:
    """Clipped inverse propensities of the answered offers; 1 where every offer was made."""
    if log.propensity is None:
        return np.ones(len(found.row))
    made: Bool[np.ndarray, " rows"] = np.ones(len(found.row), bool)
    return np.asarray(propensity_weight(made * 1.0, log.propensity[found.row]), np.float64)


def _missing(log: AcceptanceLog, found: Study) -> int | None:
    """Number of answered offers without a score; None if the log has none."""
    return None if log.score is None else int(np.isnan(log.score[found.row]).sum())


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
        Row(name, tuple(map(_shown, (one.brier, one.ece, one.auroc, one.within_person))), MEANINGS[name])
        for name, one in measured.items()
    )
    note = (
        f"{len(found.accepted):,} answers of {len(np.unique(found.person)):,} people, {found.accepted.mean():.1%} "
        f"accepted; {found.folds} folds of whole people, every prediction before its answer. 95 % intervals, "
        f"{RESAMPLES} resamples of whole people."
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


def _gate_table(
    log: AcceptanceLog, costs: dict[str, Costs], c_fa: float, c_fn: float, threshold: float, on_score: float | None
) -> Table:
    """What the gate would have cost."""
    columns = (
        Column("offers", "Share of the log's offers that would have been made.", "%"),
        Column("realised cost", "Mean of C_FA for an offer not accepted, C_FN for silence where it would have been."),
        Column("minus the better constant", "Cost minus that of the better of always and never, paired."),
    )
    rows = tuple(
        Row(name, (percent(one.speak_rate), _shown(one.cost), _shown(one.gain, sign=True)), MEANINGS.get(name, ""))
        for name, one in costs.items()
    )
    note = f"C_FA = {c_fa:g}, C_FN = {c_fn:g}: offer where p_accept ≥ C_FA / (C_FA + C_FN) = {threshold:.4g}."
    if on_score is not None:
        note += f" By Platt's map of all people, that is where the score is at least {on_score:.4g}."
    title = _titled("What the gate would have cost, per offer", log)
    return Table(title, "gate on", columns, (Section("", rows),), note)


def _titled(words: str, log: AcceptanceLog) -> str:
    """A title that says whose costs these are."""
    return ", ".join([words, ALONE, *([SHOWN_ONLY] if log.left_out else [])])


def _shown(one: Measure | None, *, sign: bool = False) -> str:
    if one is None:
        return DASH
    value, low, high = (("+" if sign and end > 0 else "") + number(end, 3) for end in one)
    return f"{value} [{low}, {high}]"
