"""Which map for somebody's own numbers, and from how many labels: what the gate costs after each, in simulations.

    python benchmarks/maps.py            # the table of docs/scores.md, about three minutes
    python benchmarks/maps.py --choose   # the penalties to choose among, on other seeds than those of the table

True log-odds of need and acceptance are normal. An agent says `scale` times the truth plus `bias`. Each map is fitted
on labels of its own, and the gate's cost is the expectation at 4,000 other steps, C_FA = 1 and C_FN = 2. A log shows
offers by what it knows beyond the score, so that its answers are a selection.
"""

from __future__ import annotations

import argparse
import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit

from prism_jax.decision.calibration import CalibrationConfig, Platt, fit_map, fit_shrunk, platt
from prism_jax.decision.gate import decide

LABELS = (20, 50, 200, 2000)
NEED, RARE, ACCEPT = (-0.6, 1.2), (-4.6, 1.2), (-0.3, 1.2)
"""Mean and spread of the true log-odds; need is rare at .02."""
TEST = 4000
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
    fitted = platt._newton(np.tile(logit(p), 2), np.concatenate([y, p]), both, np.array([1.0, 0.0]), np.zeros((2, 2)))
    return Platt(*fitted)


FITS: dict[str, Fit] = {
    "temperature": functools.partial(fit_map, CalibrationConfig("temperature")),
    "Platt": functools.partial(fit_map, CalibrationConfig("platt")),
    "soft labels": soft,
    "penalised": functools.partial(fit_shrunk, CalibrationConfig("penalised")),
}


class Test:
    """The steps on which gates are measured."""

    def __init__(self, agent: Agent) -> None:
        rng = np.random.default_rng(0)
        true = {"need": rng.normal(*agent.need, TEST), "accept": rng.normal(*ACCEPT, TEST)}
        self.true = {signal: expit(z) for signal, z in true.items()}
        self.said = {signal: expit(agent.scale * z + agent.bias) for signal, z in true.items()}

    def cost(self, need: np.ndarray, accept: np.ndarray) -> float:
        """The expected cost of a gate on some probabilities."""
        offer = decide(need, accept, 1.0, 2.0)
        return float(np.where(offer, 1 - self.true["accept"], 2 * self.true["need"] * self.true["accept"]).mean())


def costs(agent: Agent, fits: dict[str, Fit], count: int, runs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The cost of each run after each fit, and the share of maps that decrease."""
    test, rng = Test(agent), np.random.default_rng([seed, count])
    cost, decreasing = np.empty((len(fits), runs)), np.zeros(len(fits))
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
            cost[i, run] = test.cost(**said)
    return cost, decreasing / (2 * runs)


def table(runs: int) -> None:
    """The costs of every agent and number of labels."""
    names = ["agent", "labels", "never", "raw", *FITS, "truth", *(f"{name}, decreasing" for name in list(FITS)[1:])]
    print(f"| {' | '.join(names)} |")
    print("|---" * len(names) + "|")
    largest = 0.0
    for name, agent in AGENTS.items():
        test = Test(agent)
        never = 2 * test.true["need"] * test.true["accept"]
        for count in LABELS:
            number = runs if count < 2000 else max(runs // 4, 2)
            cost, decreasing = costs(agent, FITS, count, number, seed=2)
            largest = max(largest, float((cost.std(axis=1, ddof=1) / number**0.5).max()))
            cells = [never.mean(), test.cost(**test.said), *cost.mean(axis=1), test.cost(**test.true)]
            shares = [f"{100 * share:.0f} %" for share in decreasing[1:]]
            print(f"| {name} | {count:,} | " + " | ".join([*(f"{cell:.4f}" for cell in cells), *shares]) + " |")
    few = f"{runs:,} runs ({max(runs // 4, 2):,} at 2,000 labels)"
    print(f"\nMeans of {few}; the largest standard error is {largest:.4f}.")


def choose(runs: int) -> None:
    """The mean cost beyond that of the truth, over all agents and numbers of labels, by the two penalties."""
    print("| slope, per label | bias, per label | mean excess | largest |\n|---|---|---|---|")
    found = []
    for slope in (1 / 10, 1 / 4, 1 / 2, 1, 2):
        for bias in (1 / 80, 1 / 40, 1 / 20, 1 / 10, 1 / 4):
            platt.SLOPE, platt.BIAS = slope, bias
            excess = []
            for agent in AGENTS.values():
                test = Test(agent)
                for count in LABELS[:3]:
                    cost, _ = costs(agent, {"penalised": FITS["penalised"]}, count, runs, seed=1)
                    excess.append(cost.mean() - test.cost(**test.true))
            found.append((float(np.mean(excess)), max(excess), slope, bias))
    for mean, most, slope, bias in sorted(found):
        print(f"| {slope:g} | {bias:g} | {mean:.5f} | {most:.4f} |")


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
