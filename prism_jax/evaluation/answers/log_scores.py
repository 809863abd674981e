"""A log of answers as a scores table, which the commands that read scores files take."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Int

from prism_jax.decision.score_maps import Scale, scale_of
from prism_jax.evaluation.answers.columns import LogError
from prism_jax.evaluation.answers.context import folds_of_people
from prism_jax.evaluation.answers.logs import AcceptanceLog
from prism_jax.evaluation.answers.parts import FOLDS, Answers, Divided
from prism_jax.evaluation.answers.statistics import Model
from prism_jax.evaluation.answers.study import in_memory, maps_by_fold
from prism_jax.scores import Scores


def scores_of_log(log: AcceptanceLog, best: str | None, seed: int = 0, *, keep_names: bool = False) -> Scores:
    """The log as a scores table without need: one stream per person, a step per offer in the order of time.

    People are called p1, p2 and so on, in the order in which the log first mentions them, unless `keep_names`. A log of
    one person by days has a stream per day, d1, d2 and so on or their dates, and no person; by answers one for each.

    `p_accept_fast` is the score through the map named `best` (`score_maps`), fitted for each fold on the people of the
    others; where the score is missing it is their acceptance rate. `fold` holds whole people. The table says that it
    is calibrated, so that nothing calibrates it again.

    With `best` None, no answer is used: `p_accept_fast` is the same increasing function of the score on every row
    (`Scale.unit` of `scale_of_log`), with the mean score where it is missing. A gate on it is a gate on the score.

    Raises:
      LogError: for a log without a score.
    """
    if log.score is None:
        raise LogError("columns: found no score, expected score=COLUMN: a scores file holds one")
    rows = log.order
    person, score = log.person[rows], log.score[rows]
    fold = folds_of_people(person, FOLDS, seed)
    if best is None:
        known = log.score[~np.isnan(log.score)]
        p = scale_of_log(log).unit(np.where(np.isnan(score), known.mean(), score))
    else:
        p = _maps_by_fold(log, fold).scored(score, fold)[best]
    begins = np.flatnonzero(np.diff(person, prepend=-1))
    order = log.numbers
    names = [log.names[code] if keep_names else f"{log.unit[0]}{order[code]}" for code in person.tolist()]
    columns: dict[str, Any] = {
        "stream": names,
        **({"person": names} if log.unit == "people" else {}),
        "step": np.arange(len(rows)) - np.repeat(begins, np.diff(begins, append=len(rows))),
        "fold": fold,
        "p_accept_fast": p,
        "y_accept": log.accepted[rows],
    }
    columns |= {} if best is None else {"calibrated": np.ones(len(rows), bool)}
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


def _maps_by_fold(log: AcceptanceLog, fold: Int[np.ndarray, " rows"]) -> Model:
    """What is fitted on the answers of the other folds; `fold` is that of each row, by person and time."""
    divided = Divided.of_log(log)
    (answers,) = divided.parts
    assert isinstance(answers, Answers), "they are in memory"
    in_folds = [answers._replace(fold=fold[log.logged[log.order]])]
    divided = dataclasses.replace(divided, parts=in_folds, folds=int(fold.max()) + 1)
    return maps_by_fold(in_memory(divided), divided, weighted=False)[1]
