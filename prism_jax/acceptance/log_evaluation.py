"""Evaluates a log of answers to offers: what predicts them, what gate do the costs ask for, what did it cost.

People are held out whole: ten folds of them, or one per person where there are fewer. Maps and the person layer are
fitted on the other people, and the layer predicts each answer before it sees it (`study.py`). Files in the workdir:
acceptance_log.json with every number, and the tables as CSV and Markdown.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Float64

from prism_jax.acceptance.by_answers import by_answers, pair_of
from prism_jax.acceptance.columns import LogColumns, LogError
from prism_jax.acceptance.costs import gate_costs
from prism_jax.acceptance.findings import Findings, Question, publish
from prism_jax.acceptance.log_scores import scores_of_log, weights
from prism_jax.acceptance.logs import AcceptanceLog, check_propensities, doubted, read_log
from prism_jax.acceptance.measures import Measures, measure, weighted_means
from prism_jax.acceptance.own_score import MAPS, own_score, people_of
from prism_jax.acceptance.study import Study, study
from prism_jax.acceptance.tables import Facts
from prism_jax.decision import off_policy
from prism_jax.decision.uncertainty import Estimate
from prism_jax.runtime.files import check_folder_of, check_outputs
from prism_jax.scores import encode_scores

ROWS = ("constant", "score", "score, temperature", "score, Platt", "person", "score+person")
"""The predictions that are compared, of those that `study` makes."""
CONTEXT_ROWS = ("context", "context+person")
"""Those that are compared too where columns of context are named."""
EXAMPLES: dict[str, LogColumns] = {
    "copilot": LogColumns(person="person", time="time", score="confidence", accepted="accepted"),
    "coauthor": LogColumns(person="person", time="time", score="max_log_prob", accepted="accepted"),
    "distraction": LogColumns(person="person", time="time", accepted="distraction<4"),
}
"""The columns of three public logs, by the name of their file (docs/acceptance_logs.md).

The confidence of copilot is a product's own, coauthor's largest log-probability is no probability of acceptance, and
distraction has no score at all: there, an interruption that distracted little counts as accepted.
"""


def evaluate_log(
    path: str | os.PathLike[str],
    columns: LogColumns,
    workdir: str | os.PathLike[str],
    *,
    c_fa: float,
    c_fn: float,
    context: Sequence[str] = (),
    weighted: bool = False,
    truth: Float64[np.ndarray, " rows"] | None = None,
    export_scores: str | None = None,
    keep_names: bool = False,
    shown_only: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Evaluates a log (.csv or .parquet), prints and writes its tables, and returns what acceptance_log.json holds.

    Args:
      path: Names the log.
      columns: Says which columns are which.
      workdir: Folder for the results.
      c_fa: Cost of an offer that is not accepted, above 0.
      c_fn: Cost of silence where the offer would have been accepted, at least 0.
      context: Columns that were known at the moment of the offer.
      weighted: Whether fits and measures weigh answers by their clipped inverse propensities.
      truth: True probability of each row that is read, where the log is simulated.
      export_scores: Scores file to write as well, .parquet or .jsonl, which numbers people unless `keep_names`.
      keep_names: Whether that file names people.
      shown_only: Whether to leave out the offers that were not made; the titles then say so.
      seed: Seed of the folds and of the resampling.

    Raises:
      ValueError, OSError: in one line, for a log that cannot be read, or on which nothing can be measured.
    """
    if export_scores is not None:
        check_folder_of(export_scores)
        check_outputs({"export_scores": export_scores}, {"scores": path})
    question = Question(c_fa, c_fn, context, weighted, seed)
    log = read_log(path, columns, context, shown_only=shown_only)
    check_propensities(path, log)
    findings = findings_of(log, columns.score, question, truth)
    files = {}
    if export_scores is not None:
        best = None if findings.own is None else findings.own.best
        scores = scores_of_log(log, seed, keep_names=keep_names, best=best)
        files[epath.Path(export_scores)] = encode_scores(export_scores, scores)
    value = publish(findings, question, workdir, files)
    if export_scores is not None:
        best = None if findings.own is None else MAPS[findings.own.best]
        by = "" if best is None else f"; p_accept is {columns.score} by {best}, fitted on other people"
        print(f"scores: {export_scores}{by}")
        only = " --shown_only" if log.left_out else ""
        print(f"python -m prism_jax.evaluate --scores={export_scores}{only} --workdir=DIR reads it")
    return value


def findings_of(
    log: AcceptanceLog,
    score: str | None,
    question: Question,
    truth: Float64[np.ndarray, " rows"] | None = None,
) -> Findings:
    """What a log says of a question.

    `score` is the name of its column, None of a log without; `truth` the true probability of each row of a simulated
    log.

    Raises:
      ValueError: in one line, for a log on which nothing can be measured.
    """
    seed = question.seed
    studied = study(log, seed, weighted=question.weighted)

    # What predicts acceptance.
    wanted = (*ROWS, *CONTEXT_ROWS) if question.context else ROWS
    predictions = {name: studied.predictions[name] for name in wanted if name in studied.predictions}
    known_truth = {} if truth is None else {"truth": truth[studied.row]}
    measured = measure_all(log, studied, predictions | known_truth, seed)
    probabilities = [name for name in predictions if measured[name].brier is not None]
    pair = pair_of(probabilities)

    # What the costs ask for.
    weight = weights(log, studied.row)
    own = own_score(log, studied, score, question.threshold, weight)
    return Findings(
        facts=Facts(
            rows=len(log),
            answers=len(studied.accepted),
            people=len(np.unique(studied.person)),
            accepted=float(np.average(studied.accepted, weights=studied.weight)),
            score_missing=None if log.score is None else int(np.isnan(log.score[studied.row]).sum()),
            not_made=log.not_made,
            shown_only=log.left_out > 0,
            timed=log.timed,
            folds=studied.folds,
            unequal=bool((studied.weight != 1).any()),
            doubted=doubted(drawn_of(log)),
        ),
        populations=studied.populations,
        measured=measured,
        compared=None if "score" not in probabilities else score_and_constant(log, studied, seed),
        parts=by_answers(studied, probabilities, pair, seed),
        pair=pair,
        own=own,
        people=people_of(log, studied, own, question.threshold),
        costs=gate_costs(studied, weight, probabilities, question.c_fa, question.c_fn, seed),
    )


def drawn_of(log: AcceptanceLog) -> list[off_policy.Drawn]:
    """What the log says of its propensities; empty of one without."""
    if log.propensity is None:
        return []
    score = np.zeros(len(log)) if log.score is None else log.score
    edges, people = off_policy.edges_of(score), len(log.names)
    sums = off_policy.drawn_sums(log.logged, log.propensity, score, edges, log.person, people)
    return off_policy.drawn(*sums, people)


def measure_all(
    log: AcceptanceLog, studied: Study, predictions: Mapping[str, Float64[np.ndarray, " rows"]], seed: int = 0
) -> dict[str, Measures]:
    """Measures each prediction; a score that is no probability only ranks."""
    only_ranks = {"score"} if log.score is not None and not log.score_is_probability else set()
    # Folds differ in their constant by who is left out, which ranks nothing.
    ranking = {"constant": np.zeros(len(studied.accepted))}
    return {
        name: measure(
            p,
            studied.accepted,
            studied.person,
            probability=name not in only_ranks,
            ranking=ranking.get(name),
            weight=studied.weight,
            seed=seed,
        )
        for name, p in predictions.items()
    }


def score_and_constant(log: AcceptanceLog, studied: Study, seed: int = 0) -> dict[str, Estimate]:
    """Brier scores on the offers that have a score: the score's, the constant's, and their paired difference.

    The score has to be a probability; LogError if no offer has one.
    """
    assert log.score is not None, "called where there is a score"
    known = ~np.isnan(log.score[studied.row])
    if not known.any():
        raise LogError("score: found no value on any offer that was made, expected some")
    score, constant = ((studied.predictions[name] - studied.accepted)[known] ** 2 for name in ("score", "constant"))
    values, most = np.stack([score, constant, score - constant]), np.array([1.0, 1.0, np.inf])
    means = weighted_means(values, studied.weight[known], studied.person[known], most, seed)
    return dict(zip(("score", "constant", "difference"), means, strict=True))
