"""A threshold with a promise, over a million steps of ten thousand people, beside MAPIE in one run.

    pip install 'mapie>=1.4.1' && python benchmarks/risk.py

Both sides get the same scores, labels and 100 thresholds, and promise false alarms per step by Hoeffding's and
Bentkus's inequalities in a fixed sequence. MAPIE's unit is the row, so it solves an easier problem than ours, whose
unit is the person: it does not have to sum up people. The sides alternate; a ratio is the median over turns of the
quotients of processor times, with its quartiles. The first turn is not counted. The last row is ours with 400
thresholds and the betting bound, without a counterpart.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable

import numpy as np

from prism_jax.decision import risk

PROMISE = risk.Promise("false_alarms", 0.1)
ERROR = 0.1


def data(steps: int, people: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores in (0, 1), labels, and the person of each step."""
    rng = np.random.default_rng(seed)
    person = rng.integers(0, people, steps)
    person[:people] = np.arange(people)
    p = rng.beta(2, 2, steps)
    rate = np.clip(p + rng.normal(0, 0.1, people)[person], 0, 1)
    return p, (rng.random(steps) < rate).astype(int), person


def ours(p: np.ndarray, y: np.ndarray, person: np.ndarray, thresholds: np.ndarray, bound: str) -> int:
    """Number of thresholds that are certified."""
    first = risk.first_rule(p, thresholds)
    losses = risk.unit_losses(first, y, person, len(thresholds), PROMISE)
    return int(risk.certify({PROMISE: losses}, ERROR, bound=bound).rules.sum())


def theirs(p: np.ndarray, y: np.ndarray, thresholds: np.ndarray) -> int:
    """Number of thresholds that MAPIE certifies, rows as units."""
    from mapie.risk_control import BinaryClassificationController, BinaryRisk

    false_alarms = BinaryRisk(
        risk_occurrence=lambda y_true, y_pred: (y_pred == 1) & (y_true == 0),
        risk_condition=lambda y_true, y_pred: np.ones(len(y_true), bool),
        higher_is_better=False,
    )
    controller = BinaryClassificationController(
        predict_function=lambda rows: np.stack([1 - rows, rows], axis=1),
        risk=false_alarms,
        target_level=PROMISE.limit,
        confidence_level=1 - ERROR,
        best_predict_param_choice=false_alarms,
        list_predict_params=thresholds,
        fwer_method="fixed_sequence",
    )
    return len(controller.calibrate(p, y).valid_predict_params)


def seconds(run: Callable[[], int]) -> tuple[float, int]:
    """Processor time of a call, and its result."""
    begin = time.process_time()
    found = run()
    return time.process_time() - begin, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--people", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    if given.turns < 2:
        parser.error(f"--turns: found {given.turns}, expected at least 2, for quartiles")
    p, y, person = data(given.steps, given.people)
    few, many = (np.linspace(0.99, 0, number) for number in (100, 400))
    alone = [seconds(lambda: ours(p, y, person, many, "betting")) for _ in range(given.turns)]
    print(f"ours, betting, 400 thresholds     {statistics.median(s for s, _ in alone):7.2f} s  {alone[0][1]} certified")
    print(f"peak memory so far                {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:7.2f} GiB")
    pairs = []
    for turn in range(given.turns + 1):
        sides = {"ours": lambda: ours(p, y, person, few, "hoeffding_bentkus"), "theirs": lambda: theirs(p, y, few)}
        order = list(sides) if turn % 2 else list(sides)[::-1]
        found = {name: seconds(sides[name]) for name in order}
        if turn:
            pairs.append((found["ours"], found["theirs"]))
    for index, name in enumerate(("ours, 100 thresholds", "MAPIE, 100 thresholds")):
        middle = statistics.median(pair[index][0] for pair in pairs)
        print(f"{name:<33} {middle:7.2f} s  {pairs[0][index][1]} certified")
    low, middle, high = statistics.quantiles([theirs_[0] / ours_[0] for ours_, theirs_ in pairs], n=4)
    print(f"MAPIE / ours                      {middle:7.1f} [{low:.1f}, {high:.1f}] processor time")
    print(f"peak memory with MAPIE            {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:7.2f} GiB")


if __name__ == "__main__":
    main()
