"""A log of answers as a scores table, which the commands that read scores files take."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64, Int

from prism_jax.acceptance.columns import LogError
from prism_jax.acceptance.context import folds_of_people
from prism_jax.acceptance.logs import AcceptanceLog
from prism_jax.acceptance.parts import FOLDS
from prism_jax.acceptance.score_maps import Scale, best_map, fit_score_maps, scale_of
from prism_jax.decision.losses import propensity_weight
from prism_jax.scores import Scores


def scores_of_log(
    log: AcceptanceLog, seed: int = 0, *, keep_names: bool = False, best: str | None = None, plain: bool = False
) -> Scores:
    """The log as a scores table without need: one stream per person, a step per offer in the order of time.

    People are called p1, p2 and so on, in the order in which the log first mentions them, unless `keep_names`.

    `p_accept_fast` is the score through the map named `best`, by default the one that is best out of fold, fitted for
    each fold on the people of the others; where the score is missing it is their acceptance rate. `fold` holds whole
    people. The table says that it is calibrated, so that nothing calibrates it again.

    With `plain`, no answer is used: `p_accept_fast` is the same increasing function of the score on every row
    (`Scale.unit` of `scale_of_log`), with the mean score where it is missing. A gate on it is a gate on the score.

    Raises:
      LogError: for a log without a score.
    """
    if log.score is None:
        raise LogError("columns: found no score, expected score=COLUMN: a scores file holds one")
    rows = log.order
    person = log.person[rows]
    fold = folds_of_people(person, FOLDS, seed)
    if plain:
        known = log.score[~np.isnan(log.score)]
        p = scale_of_log(log).unit(np.where(np.isnan(log.score), known.mean(), log.score))[rows]
    else:
        p = _out_of_fold(log, rows, fold, best)
    begins = np.flatnonzero(np.diff(person, prepend=-1))
    order = log.numbers
    names = [log.names[code] if keep_names else f"p{order[code]}" for code in person.tolist()]
    columns: dict[str, Any] = {
        "stream": names,
        "person": names,
        "step": np.arange(len(rows)) - np.repeat(begins, np.diff(begins, append=len(rows))),
        "fold": fold,
        "p_accept_fast": p,
        "y_accept": log.accepted[rows],
    }
    columns |= {} if plain else {"calibrated": np.ones(len(rows), bool)}
    columns |= {"time": log.time[rows]} if log.timed else {}
    if log.propensity is not None:
        columns |= {"logged": log.logged[rows], "propensity": log.propensity[rows]}
    elif log.left_out:
        columns |= {"logged": log.logged[rows]}  # for --shown_only of the commands that read the table
    table = Scores.from_columns(columns)
    # In alphabetical order, the rows would still tell which of two names comes first.
    return table if keep_names else table.take(np.argsort(order[person], kind="stable"))


def scale_of_log(log: AcceptanceLog) -> Scale:
    """How the score of a log becomes the `p_accept_fast` of a plain scores table; `Scale.on_score` turns rules back.

    LogError where no row has a score.
    """
    known = np.array([]) if log.score is None else log.score[~np.isnan(log.score)]
    if not len(known):
        raise LogError("score: found no value on any row, expected some")
    return scale_of(known, log.score_is_probability)


def _out_of_fold(
    log: AcceptanceLog, rows: Int[np.ndarray, " rows"], fold: Int[np.ndarray, " rows"], best: str | None
) -> Float64[np.ndarray, " rows"]:
    """The probabilities of the map that is best out of fold: each fold's from the people of the others."""
    assert log.score is not None, "the caller looked at it"
    score, y = log.score[rows], log.accepted[rows]
    known, answered = ~np.isnan(score), ~np.isnan(y)
    base = _base_rates(y, fold)
    out: dict[str, Float64[np.ndarray, " rows"]] = {}
    for number_of_fold in range(int(fold.max()) + 1):
        held, fitting = fold == number_of_fold, known & answered & (fold != number_of_fold)
        if len(np.unique(y[fitting])) < 2:
            raise LogError("log: found people whose removal leaves answers of one kind, expected both among the rest")
        maps = fit_score_maps(score[fitting], y[fitting], np.ones(int(fitting.sum())), log.score_is_probability)
        for name, fitted in maps.items():
            rated = held & known
            out.setdefault(name, base.copy())[rated] = fitted(score[rated])
    if best is None:
        best = best_map(out, np.nan_to_num(y), weights(log, rows), known & answered, log.score_is_probability)
    return out[best]


def _base_rates(accepted: Float64[np.ndarray, " rows"], fold: Int[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"]:
    """For each row the acceptance rate of the people in the other folds."""
    known = ~np.isnan(accepted)
    total, count = (np.bincount(fold, values) for values in (np.where(known, accepted, 0.0), known))
    return ((total.sum() - total) / (count.sum() - count))[fold]


def weights(log: AcceptanceLog, rows: Int[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"]:
    """Clipped inverse propensities of the offers that were made, and 1 elsewhere."""
    weight = np.ones(len(rows))
    if log.propensity is not None:
        made = log.logged[rows]
        weight[made] = propensity_weight(np.ones(int(made.sum())), log.propensity[rows][made])
    return weight
