"""The person layer beside scikit-learn: its speed on a large log, and its predictions on any log.

    python benchmarks/people.py           # a million answers of ten thousand people; about a minute on two cores
    python benchmarks/people.py 100000    # another number of answers, with a hundredth as many people
    python benchmarks/people.py FILE --columns=person=..,time=..,accepted=.. --context=COL,..

Speed: both sides predict every answer and then see it. Ours is the median of three runs after one that compiles. A loop
over scikit-learn's SGDClassifier is timed on two thousand answers and scaled up to the whole log.

Predictions: the study of `prism_jax.evaluation.answers`, and on the same folds a logistic regression of scikit-learn
(C = 0.1) on scaled numbers and one-hot categories, with the person's running rate (six pseudo-answers of the base rate)
as a feature. Its encoders see the columns of all rows, which can only help it.
"""

from __future__ import annotations

import argparse
import dataclasses
import resource
import statistics
import time

import numpy as np
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import brier_score_loss, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from prism_jax.decision.person import Population
from prism_jax.evaluation.answers.columns import parse_columns
from prism_jax.evaluation.answers.context import folds_of_people
from prism_jax.evaluation.answers.logs import AcceptanceLog, read_log
from prism_jax.evaluation.answers.parts import FOLDS
from prism_jax.evaluation.answers.study import study
from prism_jax.people.layer import prequential

POPULATION = Population(1.0, 0.0, 0.9, 0.005)
TIMED = 2_000


def draw(answers: int, people: int, share: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-odds, answers and people of a log in which one person has this share of all answers."""
    rng = np.random.default_rng(0)
    person = rng.integers(0, people, answers)
    person[rng.random(answers) < share] = 0
    log_odds = rng.normal(size=answers)
    rate = rng.normal(0, 0.9, people)
    return log_odds, (rng.random(answers) < 1 / (1 + np.exp(-log_odds - rate[person]))).astype(float), person


def ours(log_odds: np.ndarray, accepted: np.ndarray, person: np.ndarray) -> tuple[float, float]:
    """Seconds of the first run, which compiles, and the median of three more."""
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        prequential(log_odds, accepted, person, POPULATION)
        seconds.append(time.perf_counter() - start)
    return seconds[0], statistics.median(seconds[1:])


def theirs(log_odds: np.ndarray, accepted: np.ndarray, person: np.ndarray) -> float:
    """Seconds of a loop with one online logistic regression per person, scaled from a part of the log."""
    models: dict[int, SGDClassifier] = {}
    start = time.perf_counter()
    for z, y, i in zip(log_odds[:TIMED], accepted[:TIMED], person[:TIMED].tolist(), strict=True):
        x = np.array([[z]])
        model = models.setdefault(i, SGDClassifier(loss="log_loss"))
        if hasattr(model, "coef_"):
            model.predict_proba(x)
        model.partial_fit(x, [y], classes=[0.0, 1.0])
    return (time.perf_counter() - start) * len(log_odds) / min(TIMED, len(log_odds))


def columns_of(log: AcceptanceLog, rows: np.ndarray) -> np.ndarray:
    """Context as scikit-learn's encoders make it, with indicators of missing numbers."""
    parts = []
    for column in log.context:
        values = column.values[rows]
        if column.kind == "category":
            encoder = OneHotEncoder(min_frequency=10, sparse_output=False, handle_unknown="infrequent_if_exist")
            parts.append(encoder.fit_transform(values[:, None]))
        else:
            parts.append(np.column_stack([np.nan_to_num(values, nan=np.nanmean(values)), np.isnan(values)]))
    return np.column_stack(parts) if parts else np.zeros((len(rows), 0))


def running_log_odds(y: np.ndarray, person: np.ndarray, base: float) -> np.ndarray:
    """Log-odds of each person's rate so far, with six answers at the base rate before the first."""
    begins = np.flatnonzero(np.diff(person, prepend=-1))
    counts = np.diff(begins, append=len(y))
    before = np.cumsum(y) - y
    before -= np.repeat(before[begins], counts)
    rate = (before + 6 * base) / (np.arange(len(y)) - np.repeat(begins, counts) + 6)
    return np.log(rate / (1 - rate))


def compare(log: AcceptanceLog) -> None:
    """Prints both sides' AUROC and Brier score on the same folds of people."""
    result = study(dataclasses.replace(log, score=None))
    y, person = result.accepted, result.person
    x, fold, p = columns_of(log, result.row), folds_of_people(person, FOLDS, 0), np.empty(len(y))
    for number in range(result.folds):
        train, held_out = fold != number, fold == number
        features = np.column_stack([x, running_log_odds(y, person, y[train].mean())])
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000)).fit(features[train], y[train])
        p[held_out] = model.predict_proba(features[held_out])[:, 1]
    print(f"{len(y):,} answers of {len(np.unique(person)):,} people")
    best = "context+person" if log.context else "person"
    for name, q in (("scikit-learn, with the running rate", p), (f"ours, {best}", result.predictions[best])):
        print(f"{name:38} AUROC {roc_auc_score(y, q):.3f}   Brier {brier_score_loss(y, q):.3f}")


def speed(answers: int) -> None:
    """Prints the times of both sides."""
    people = max(2, answers // 100)
    print(f"{answers:,} prequential updates over {people:,} people")
    print(f"{'log':38} {'first run':>10} {'ours':>9} {'per-person SGD':>15} {'ratio':>9} {'peak memory':>12}")
    for name, share in (("equal people", 0.0), ("one person has a tenth of all answers", 0.1)):
        log = draw(answers, people, share)
        (first, ours_s), theirs_s = ours(*log), theirs(*log)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        print(f"{name:38} {first:9.2f}s {ours_s:8.2f}s {theirs_s:14.0f}s {theirs_s / ours_s:8.0f}x {peak:8.0f} MiB")


def main() -> None:
    """Runs what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="1000000", help="a number of answers, or a log")
    parser.add_argument("--columns", default="person=person,time=time,accepted=accepted")
    parser.add_argument("--context", default="")
    arguments = parser.parse_args()
    if arguments.what.isdigit():
        speed(int(arguments.what))
    else:
        compare(
            read_log(
                arguments.what,
                parse_columns(arguments.columns),
                [name for name in arguments.context.split(",") if name],
            )
        )


if __name__ == "__main__":
    main()
