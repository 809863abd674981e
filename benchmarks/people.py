"""Speed of the person layer: prequential updates over a whole log, beside one scikit-learn model per person.

    python benchmarks/people.py           # a million answers of ten thousand people; about a minute on two cores
    python benchmarks/people.py 100000    # another number of answers, with a hundredth as many people

Both sides predict every answer and then see it. Ours is the median of three runs after one that compiles. A loop over
scikit-learn's SGDClassifier is timed on two thousand answers and scaled up to the whole log.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time

import numpy as np
from sklearn.linear_model import SGDClassifier

from prism_jax.people import Population, prequential

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


def main() -> None:
    answers = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    people = max(2, answers // 100)
    print(f"{answers:,} prequential updates over {people:,} people")
    print(f"{'log':38} {'first run':>10} {'ours':>9} {'per-person SGD':>15} {'ratio':>9} {'peak memory':>12}")
    for name, share in (("equal people", 0.0), ("one person has a tenth of all answers", 0.1)):
        log = draw(answers, people, share)
        (first, ours_s), theirs_s = ours(*log), theirs(*log)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        print(f"{name:38} {first:9.2f}s {ours_s:8.2f}s {theirs_s:14.0f}s {theirs_s / ours_s:8.0f}x {peak:8.0f} MiB")


if __name__ == "__main__":
    main()
