"""Which map for somebody's own numbers, and from how many labels: what the gate costs after each, in simulations.

    python benchmarks/maps.py            # the table of docs/scores.md, about three minutes
    python benchmarks/maps.py --choose   # the penalties to choose among, on other seeds than that of the table

True log-odds of need and acceptance are normal. An agent says `scale` times the truth plus `bias`. Each map is fitted
on labels of its own, and the gate's cost is the expectation at 4,000 other steps, C_FA = 1 and C_FN = 2, for the choice
of penalties other C_FN too. A log shows offers by what it knows beyond the score, so that its answers are a selection.
"""

from __future__ import annotations

import argparse
import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit

from prism_jax.decision.calibration import CalibrationConfig, Platt, fit_map, fit_shrunk, platt
from prism_jax.decision.gate import decide
from prism_jax.decision.logistic import fit_logistic

LABELS = (20, 50, 200, 2000)
NEED, RARE, ACCEPT = (-0.6, 1.2), (-4.6, 1.2), (-0.3, 1.2)
"""Mean and spread of the true log-odds; need is rare at .02."""
TEST = 4000
SEED = 2
"""Of the table; the runs of `--choose` have those after it."""
SLOPES, BIASES = (1 / 10, 1 / 4, 1 / 2, 1, 2, 4, 8), (1 / 80, 1 / 40, 1 / 20, 1 / 10, 1 / 4)
"""The penalties to choose among."""
C_FNS = (0.5, 2.0, 8.0)
"""Where they are compared: at C_FN = 2 the threshold lies near log-odds of 0, which a slope does not move."""
COLUMNS = (
    "*Soft labels* is Platt's map fitted on the labels and on the raw probabilities as 20 more. *Decreasing* is the "
    "share of maps, of need or acceptance, that turn the order of the probabilities round; a temperature never does."
)
"""What the table does not say of its columns."""
Fit = Callable[[np.ndarray, np.ndarray, np.ndarray], Any]


class Agent(NamedTuple):
    """What an agent says of the truth, and where its labels of acceptance come from."""

    scale: float
    bias: float
    need: tuple[float, float] = NEED
    shown: bool = False  # whether the labels of acceptance are those of offers that a log showed
    propensities: bool = False  # whether the log knows its propensities


AGENTS = {
    "right": Agent(1.0, 0.0),
    "scale 1.5": Agent(1.5, 0.0),
    "scale 3": Agent(3.0, 0.0),
    "scale 0.5": Agent(0.5, 0.0),
    "offset +1.5": Agent(1.0, 1.5),
    "offset −1.5": Agent(1.0, -1.5),
    "both, 1.5 and +1.5": Agent(1.5, 1.5),
    "both, 3 and +1.5": Agent(3.0, 1.5),
    "rare needs, right": Agent(1.0, 0.0, RARE),
    "rare needs, both": Agent(1.5, 1.5, RARE),
    "shown, propensities, right": Agent(1.0, 0.0, shown=True, propensities=True),
    "shown, propensities, both": Agent(1.5, 1.5, shown=True, propensities=True),
    "shown, none, right": Agent(1.0, 0.0, shown=True),
    "shown, none, both": Agent(1.5, 1.5, shown=True),
}


def labelled(
    rng: np.random.Generator, agent: Agent, signal: str, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the agent says, labels and weights."""
    shown = agent.shown and signal == "accept"
    mean, spread = agent.need if signal == "need" else ACCEPT
    true = rng.normal(mean, spread, 20 * count if shown else count)
    y = (rng.random(len(true)) < expit(true)).astype(float)
    weight = np.ones(count)
    if shown:
        e = np.clip(expit(0.7 * true + 1.5 * (y - 0.5) + rng.normal(size=len(true)) - 0.5), 0.05, 1.0)
        made = np.flatnonzero(rng.random(len(true)) < e)[:count]
        true, y = true[made], y[made]
        weight = 1 / e[made] if agent.propensities else weight
    return expit(agent.scale * true + agent.bias), y, weight


def soft(p: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Platt:
    """The map that `calibrate` fitted before: the probabilities so far as soft labels, 20 in all."""
    both = np.concatenate([weight, weight * 20 / len(p)])
    columns = np.stack([np.tile(logit(p), 2), np.ones(2 * len(p))], axis=1)
    return Platt(*fit_logistic(columns, np.concatenate([y, p]), both, np.zeros((2, 2)), np.array([1.0, 0.0])).tolist())


FITS: dict[str, Fit] = {
    "temperature": functools.partial(fit_map, CalibrationConfig("temperature")),
    "Platt": functools.partial(fit_map, CalibrationConfig("platt")),
    "soft labels": soft,
    "penalised": functools.partial(fit_shrunk, CalibrationConfig("penalised")),
}


class Test:
    """The steps on which gates are measured, of one seed."""

    def __init__(self, agent: Agent, seed: int) -> None:
        rng = np.random.default_rng(seed)
        true = {"need": rng.normal(*agent.need, TEST), "accept": rng.normal(*ACCEPT, TEST)}
        self.true = {signal: expit(z) for signal, z in true.items()}
        self.said = {signal: expit(agent.scale * z + agent.bias) for signal, z in true.items()}

    def cost(self, need: np.ndarray, accept: np.ndarray, c_fn: float = 2.0) -> float:
        """The expected cost of a gate on some probabilities, C_FA = 1."""
        offer = decide(need, accept, 1.0, c_fn)
        return float(np.where(offer, 1 - self.true["accept"], c_fn * self.true["need"] * self.true["accept"]).mean())


def costs(
    agent: Agent, fits: Mapping[Any, Fit], count: int, runs: int, seed: int, c_fns: tuple[float, ...] = (2.0,)
) -> tuple[np.ndarray, np.ndarray]:
    """The cost (c_fns, fits, runs) after each fit, and the share (fits,) of decreasing maps."""
    test, rng = Test(agent, seed), np.random.default_rng([seed, count])
    cost, decreasing = np.empty((len(c_fns), len(fits), runs)), np.zeros(len(fits))
    for run in range(runs):
        data = {signal: labelled(rng, agent, signal, count) for signal in ("need", "accept")}
        for i, fit in enumerate(fits.values()):
            said = dict(test.said)
            for signal, rows in data.items():
                try:
                    fitted = fit(*rows)
                except ValueError:  # labels of one class: the probabilities stay as they are
                    continue
                said[signal] = fitted(said[signal])
                decreasing[i] += isinstance(fitted, Platt) and fitted.scale < 0
            cost[:, i, run] = [test.cost(**said, c_fn=c_fn) for c_fn in c_fns]
    return cost, decreasing / (2 * runs)


def table(runs: int) -> None:
    """The costs of every agent and number of labels."""
    names = ["agent", "labels", "never", "raw", *FITS, "truth", *(f"{name}, decreasing" for name in list(FITS)[1:])]
    print(f"| {' | '.join(names)} |")
    print("|---" * len(names) + "|")
    largest = 0.0
    for name, agent in AGENTS.items():
        test = Test(agent, SEED)
        never = 2 * test.true["need"] * test.true["accept"]
        for count in LABELS:
            number = runs if count < 2000 else max(runs // 4, 2)
            (cost,), decreasing = costs(agent, FITS, count, number, SEED)
            largest = max(largest, float((cost.std(axis=1, ddof=1) / number**0.5).max()))
            cells = [never.mean(), test.cost(**test.said), *cost.mean(axis=1), test.cost(**test.true)]
            shares = [f"{100 * share:.0f} %" for share in decreasing[1:]]
            print(f"| {name} | {count:,} | " + " | ".join([*(f"{cell:.4f}" for cell in cells), *shares]) + " |")
    few = f"{runs:,} runs ({max(runs // 4, 2):,} at 2,000 labels)"
    print(f"\nMeans of {few}; the largest standard error is {largest:.4f}. {COLUMNS}")


def penalised(slope: float, bias: float, *rows: np.ndarray) -> Any:
    """A fit with other penalties than those shipped."""
    shipped = platt.SLOPE, platt.BIAS
    platt.SLOPE, platt.BIAS = slope, bias
    try:
        return FITS["penalised"](*rows)
    finally:
        platt.SLOPE, platt.BIAS = shipped


def choose(runs: int) -> None:
    """The mean cost beyond that of the truth, over agents, up to 200 labels and all C_FN, by the two penalties.

    Each run has a seed of its own, for labels and test steps, so that the standard errors cover both.
    """
    pairs = [(slope, bias) for slope in SLOPES for bias in BIASES]
    fits = {pair: functools.partial(penalised, *pair) for pair in pairs}
    excess = np.zeros((len(C_FNS), len(pairs), runs))
    cells = [(agent, count) for agent in AGENTS.values() for count in LABELS[:3]]
    for run in range(runs):
        seed = SEED + 1 + run
        for agent, count in cells:
            test = Test(agent, seed)
            least = np.array([test.cost(**test.true, c_fn=c_fn) for c_fn in C_FNS])
            cost, _ = costs(agent, fits, count, 1, seed, C_FNS)
            excess[..., run] += (cost[..., 0] - least[:, None]) / len(cells)
    every = np.concatenate([excess, excess.mean(axis=0, keepdims=True)])
    shipped = pairs.index((platt.SLOPE, platt.BIAS))
    names = [*(f"C_FN = {c_fn:g}" for c_fn in C_FNS), "mean"]
    print(f"| slope | bias | {' | '.join(names)} |")
    print("|---" * (2 + len(names)) + "|")
    for k in np.argsort(every[-1].mean(axis=1)):
        beyond = every[:, k] - every[:, shipped]
        error = beyond.std(axis=1, ddof=1) / runs**0.5
        cell = [
            f"{a:.5f} ({b:+.5f} ± {c:.5f})"
            for a, b, c in zip(every[:, k].mean(axis=1), beyond.mean(axis=1), error, strict=True)
        ]
        print(f"| {pairs[k][0]:g} | {pairs[k][1]:g} | {' | '.join(cell)} |")
    print(f"\nBeyond the cost of the truth, means of {runs:,} runs; in brackets beyond the shipped, ± standard error.")


def main() -> None:
    """Prints the table, or what to choose among."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--choose", action="store_true", help="Compare penalties instead.")
    parser.add_argument("--runs", type=int, default=200, help="Runs for each agent and number of labels.")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    (choose if options.choose else table)(options.runs)


if __name__ == "__main__":
    main()
