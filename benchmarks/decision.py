"""Speed of the decision library: each function compared with its peers in one run.

    python benchmarks/decision.py              # everything, about a minute on two cores
    python benchmarks/decision.py surface ece  # some of it

Every time is the median of at least five runs after a warm-up run, which includes compilation. Peers that would run for
minutes are timed on a random part of the job (cells of a surface, margins, resamples), and the time is scaled up; the
table says where. Ratios are peer time / our time. Inputs are float32 NumPy arrays.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np
from scipy import stats
from sklearn.isotonic import IsotonicRegression

from prism_jax.decision import audbc, calibration, gate, metrics, surface, thinking, uncertainty
from prism_jax.decision.passes import Pass

STEPS = 1_000_000
COSTS = np.geomspace(0.1, 10, 256).astype(np.float32)
MARGINS = np.linspace(0, 0.63, 64).astype(np.float32)
RATES = ("precision", "recall", "f1")


@dataclasses.dataclass(frozen=True)
class Timing:
    """One timing; `times` is the size of the whole job relative to the part that was timed."""

    name: str
    seconds: float
    times: int = 1
    note: str = ""


def median(run: Callable[[], object], repeats: int = 5) -> float:
    """The median time of `repeats` calls in seconds, after one call that is not timed."""
    run()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def median_over(run: Callable[[int], object], items: Iterable[int]) -> float:
    """The median time of `run` over several items, in seconds, after one run of the first item that is not timed."""
    items = list(items)
    run(items[0])
    seconds = []
    for item in items:
        start = time.perf_counter()
        run(item)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def signals(steps: int) -> dict[str, Any]:
    """Uniform fast signals, slow signals near them, and labels drawn from the fast signals."""
    rng = np.random.default_rng(0)
    need, accept = rng.random(steps, np.float32), rng.random(steps, np.float32)
    slow_signals = [np.clip(p + rng.normal(0, 0.1, steps), 0, 1).astype(np.float32) for p in (need, accept)]
    return {
        "fast": Pass(need, accept),
        "slow": Pass(*slow_signals),
        "y": (rng.random(steps) < need) & (rng.random(steps) < accept),
    }


def evaluate_cell(data: dict[str, Any], margin: np.float32, r: np.float32) -> tuple[Any, Any, Any]:
    """True positives, interventions and slow passes of one cell, by NumPy over all steps."""
    (need, accept), (need_slow, accept_slow), y = data.values()
    tau = 1 / (1 + need * r)
    slow = np.abs(accept - tau) <= margin
    chosen = np.where(slow, accept_slow >= 1 / (1 + need_slow * r), accept >= tau)
    return np.count_nonzero(chosen & y), np.count_nonzero(chosen), np.count_nonzero(slow)


def evaluate_margin(data: dict[str, Any], margin: np.float32, slow_index: np.ndarray) -> np.ndarray:
    """The same counts for all costs at one margin, by the index identity (docs/maths.md, section 3) in NumPy."""
    (need, accept), _, y = data.values()
    with np.errstate(divide="ignore"):
        high, low = accept + margin, accept - margin
        start_ratio = np.where(high >= 1, 0, (1 - high) / (high * need))
        stop_ratio = np.where(low <= 0, np.inf, (1 - low) / (low * need))
    start, stop = np.searchsorted(COSTS, start_ratio), np.searchsorted(COSTS, stop_ratio, side="right")
    first = np.clip(slow_index, start, stop)
    bins = len(COSTS) + 1
    spoken = np.bincount(first + bins * y, minlength=2 * bins).reshape(2, bins)
    slow = np.bincount(start, minlength=bins) - np.bincount(stop, minlength=bins)
    return np.cumsum([*spoken, slow], axis=1)[:, :-1]


def benchmark_surface() -> Iterator[Timing]:
    """Counts and slow rate at 256 costs x 64 margins, and peak memory."""
    data = signals(STEPS)

    def ours() -> surface.Surface:
        return surface.control_surface(**data, cost_ratios=COSTS, margins=MARGINS)

    yield Timing("control_surface", median(ours))
    need_slow, accept_slow = data["slow"]
    slow_index = np.searchsorted(COSTS, (1 - accept_slow) / np.maximum(accept_slow * need_slow, 1e-30))
    seconds = median_over(lambda m: evaluate_margin(data, MARGINS[m], slow_index), range(3, 63, 8))
    yield Timing("NumPy histogram of the identity", seconds, len(MARGINS), "8 margins timed; target 3x")
    cells = np.random.default_rng(1).integers(1, len(MARGINS) * len(COSTS), 48)
    seconds = median_over(
        lambda cell: evaluate_cell(data, MARGINS[cell // len(COSTS)], COSTS[cell % len(COSTS)]), cells
    )
    yield Timing("NumPy, cell by cell", seconds, len(MARGINS) * len(COSTS), "48 cells timed; target 100x")
    command = [sys.executable, __file__, "--memory"]  # a fresh process: this one's heap includes what peers freed
    print("   ", subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def report_surface_memory() -> None:
    """Prints the peak memory of the surface, inputs included, in multiples of its inputs plus output."""
    data = signals(STEPS)

    def run(steps: int) -> surface.Surface:
        part = jax.tree.map(lambda value: value[:steps], data)
        return surface.control_surface(**part, cost_ratios=COSTS, margins=MARGINS)

    run(1 << 15)  # compiles, and leaves a heap that holds no more than one block of steps
    before = resident("VmRSS")
    found = run(STEPS)
    inputs, output = sum(x.nbytes for x in jax.tree.leaves(data)), sum(x.nbytes for x in found if x is not None)
    share = (inputs + resident("VmHWM") - before) / (inputs + output)
    print(f"peak memory: {share:.2f} x (inputs + output), inputs included; target below 3 x")


def resident(field: str) -> int:
    """This process's resident memory in bytes, now (VmRSS) or at its highest (VmHWM); Linux only."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))


def benchmark_ece() -> Iterator[Timing]:
    """Expected calibration error of 1e7 probabilities in 15 bins."""
    rng = np.random.default_rng(0)
    p = rng.random(10 * STEPS, np.float32)
    y = rng.random(10 * STEPS) < p

    def bincount() -> float:
        index = np.minimum((p * np.float32(15)).astype(np.intp), 14)
        return np.abs(np.bincount(index, p - y, 15)).sum() / len(p)

    def binned_statistic() -> float:
        return np.abs(stats.binned_statistic(p, p - y, "sum", bins=15, range=(0, 1)).statistic).sum() / len(p)

    ours = calibration.expected_calibration_error
    yield Timing("expected_calibration_error, NumPy inputs", median(lambda: ours(p, y)))
    p_jax, y_jax = jax.numpy.asarray(p), jax.numpy.asarray(y)
    jitted = jax.jit(ours)
    yield Timing("the same, jitted on JAX inputs", median(lambda: jitted(p_jax, y_jax).block_until_ready()))
    yield Timing("numpy.bincount", median(bincount), note="target: ahead of it")
    yield Timing("scipy.stats.binned_statistic", median(binned_statistic), note="target 5x")
    np.testing.assert_allclose([float(ours(p, y)), binned_statistic()], bincount(), atol=1e-5)


def benchmark_bootstrap() -> Iterator[Timing]:
    """10,000 resamples of F1, precision and recall of 1e5 decisions."""
    steps = STEPS // 10
    data = signals(steps)
    decision, y = data["fast"].accept > 0.5, data["y"]
    rng = np.random.default_rng(0)

    def resample_rows(_: int) -> list[float]:
        rows = rng.integers(0, steps, steps)
        chosen, gold = decision[rows], y[rows]
        tp, offers, positives = (np.count_nonzero(x) for x in (chosen & gold, chosen, gold))
        return [tp / offers, tp / positives, 2 * tp / (offers + positives)]

    yield Timing(
        "rate_intervals", median(lambda: uncertainty.rate_intervals(decision, y, streams=None, names=RATES), 9)
    )
    seconds = median_over(resample_rows, range(100))
    yield Timing("NumPy index resampling", seconds, 10_000, "100 resamples timed; target 300x")


def benchmark_isotonic() -> Iterator[Timing]:
    """Isotonic calibration."""
    p, y = signals(STEPS)["fast"].accept, signals(STEPS)["y"]
    yield Timing("fit_isotonic", median(lambda: calibration.fit_isotonic(p, y)))
    peer = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    yield Timing("scikit-learn IsotonicRegression.fit", median(lambda: peer.fit(p, y)), note="target 5x")


def benchmark_reading() -> Iterator[Timing]:
    """Fits and areas, compared with the time of reading their inputs once."""
    data = signals(STEPS)
    fast, y = data["fast"], data["y"]
    need, accept = fast
    streams = np.random.default_rng(0).integers(0, 5000, STEPS)
    yield Timing(
        "reading p_need, p_accept and y once", median(lambda: (need.sum(), accept.sum(), np.count_nonzero(y)), 9)
    )
    yield Timing("fit_temperature", median(lambda: calibration.fit_temperature(accept, y)))
    yield Timing("audbc_value", median(lambda: audbc.audbc_value(fast, y)))
    yield Timing("audbc, 1000 resamples of steps", median(lambda: audbc.audbc(fast, y, streams=None)))
    yield Timing("audbc, 1000 resamples of 5000 streams", median(lambda: audbc.audbc(fast, y, streams=streams)))
    yield Timing("expected_cost", median(lambda: audbc.expected_cost(fast, y, y)))
    decision = accept > 0.5
    yield Timing("confusion", median(lambda: metrics.confusion(decision, y), 9))


def benchmark_checks() -> Iterator[Timing]:
    """1,000 calls of the gate, with its checks, beside its formula."""
    rng = np.random.default_rng(0)
    fast = need, accept = Pass(*rng.random((2, 100)))
    moves = thinking.Moves(1.0, 1.0, 0.5)

    def calls(decide: Callable[[], object]) -> float:
        return median(lambda: [decide() for _ in range(1000)], 9)

    yield Timing(
        "the formula, 100 steps", calls(lambda: ((1 - accept) * 1.0 <= accept * need * 2.0) & (accept * need > 0))
    )
    yield Timing("gate.decide, 100 steps", calls(lambda: gate.decide(need, accept, 1.0, 2.0)))
    yield Timing("gate.decide, one step", calls(lambda: gate.decide(0.5, 0.6, 1.0, 2.0)))
    yield Timing("gate.decide_with_slow", calls(lambda: gate.decide_with_slow(fast, fast, 1.0, 2.0, 0.1)))
    by_value = functools.partial(thinking.decide_by_value, fast, fast, 1.0, 2.0, moves, 1e-4, 20.0)
    yield Timing("thinking.decide_by_value", calls(by_value))


BENCHMARKS = {
    "checks": benchmark_checks,
    "surface": benchmark_surface,
    "ece": benchmark_ece,
    "bootstrap": benchmark_bootstrap,
    "isotonic": benchmark_isotonic,
    "reading": benchmark_reading,
}


def main() -> None:
    """Runs the benchmarks named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="|".join(BENCHMARKS))
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(BENCHMARKS):
        parser.error(f"unknown benchmarks {sorted(unknown)}; expected some of {', '.join(BENCHMARKS)}")
    if arguments.memory:
        return report_surface_memory()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, NumPy {np.__version__}, JAX {jax.__version__}")
    for name in arguments.names or BENCHMARKS:
        print(f"{name}: {BENCHMARKS[name].__doc__}")
        base = None
        for row in BENCHMARKS[name]():
            total = row.seconds * row.times
            base = base or total
            note = f"  ({row.note})" if row.note else ""
            print(f"    {row.name:42s} {total * 1e3:12.1f} ms {total / base:9.1f} x{note}", flush=True)


if __name__ == "__main__":
    main()
