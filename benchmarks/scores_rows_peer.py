"""What somebody writes who has a scores file, NumPy and pandas: the peer of `scores_rows.py`.

One temperature per signal by SciPy, fitted on the calibration split; on the test split the policies of `evaluate`, on
raw and calibrated signals, with realised costs, rates and intervals over streams (1,000 resamples of the sums by
stream, drawn once for all policies); calibration errors; the area under benefit over burden of every policy, and with
the argument `areas` its interval over the same resamples. No table by group, no costs over ratios, no report.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from scipy import optimize, special

C_FA, C_FN = 1.0, 2.0


def temperature(p: np.ndarray, y: np.ndarray) -> float:
    z = special.logit(p)

    def loss(t: float) -> float:
        return float(np.mean(np.logaddexp(0.0, z / t) - y * z / t))

    return float(optimize.minimize_scalar(loss, bounds=(0.05, 20.0), method="bounded").x)


def ece(p: np.ndarray, y: np.ndarray) -> float:
    bins = pd.cut(p, np.linspace(0, 1, 16), include_lowest=True)
    groups = pd.DataFrame({"bin": bins, "p": p, "y": y}).groupby("bin", observed=True)
    return float((groups.size() * (groups["p"].mean() - groups["y"].mean()).abs()).sum() / len(p))


def area(score: np.ndarray, gold: np.ndarray) -> float:
    order = np.argsort(-score)
    benefit = np.concatenate([[0.0], np.cumsum(gold[order])]) / len(gold)
    share = gold.mean()
    return float(np.trapezoid(benefit, dx=1 / len(gold)) / (share - share**2 / 2))


def area_interval(score: np.ndarray, gold: np.ndarray, stream: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    order = np.argsort(-score)
    gold, stream = gold[order], stream[order]
    areas = []
    for times in drawn:  # how often each stream is in a resample
        weight = times[stream].astype(np.float64)
        benefit = weight * gold
        total, share = weight.sum(), benefit.sum() / weight.sum()
        under = (weight * (np.cumsum(benefit) - benefit / 2)).sum() / total**2
        areas.append(under / (share - share**2 / 2))
    return np.quantile(areas, [0.025, 0.975])


def main() -> None:
    table = pd.read_parquet(sys.argv[1])
    calibration, test = table[table["split"] == "calibration"], table[table["split"] == "test"]
    fitted = {
        signal: temperature(calibration[f"p_{signal}_fast"].to_numpy(), calibration[f"y_{signal}"].to_numpy())
        for signal in ("need", "accept")
    }
    rate = calibration["y_accept"].mean()
    y_need, y_accept = test["y_need"].to_numpy(), test["y_accept"].to_numpy()
    gold = y_need * y_accept
    stream = test["stream"].astype("category").cat.codes.to_numpy()
    streams = stream.max() + 1
    drawn = np.random.default_rng(0).multinomial(streams, np.full(streams, 1 / streams), size=1000)
    columns, names = [], []
    for form in ("raw", "calibrated"):
        need, accept = (
            special.expit(special.logit(test[f"p_{name}_fast"].to_numpy()) / (1.0 if form == "raw" else fitted[name]))
            for name in ("need", "accept")
        )
        print(form, "ECE", ece(need, y_need), ece(accept, y_accept))
        scores = {
            "dynamic": (need, accept),
            "static": (1.0, accept),
            "product": (1.0, need * accept),
            "need": (need, rate),
        }
        decisions = {
            name: (1 - p_accept) * C_FA <= p_accept * p_need * C_FN for name, (p_need, p_accept) in scores.items()
        }
        decisions |= {"fixed": accept >= 0.5, "always": np.ones(len(test), bool), "never": np.zeros(len(test), bool)}
        for name, (p_need, p_accept) in scores.items():
            ranked = p_accept * p_need / (1 - p_accept)
            ends = area_interval(ranked, gold, stream, drawn) if sys.argv[2:] == ["areas"] else ""
            print(form, name, "AUDBC", area(ranked, gold), ends)
        for name, offer in decisions.items():
            cost = offer * (1 - y_accept) * C_FA + ~offer * gold * C_FN
            columns.append(np.bincount(stream, cost, minlength=streams))
            names.append((form, name))
            tp, fp, fn = (offer & (gold == 1)).sum(), (offer & (gold == 0)).sum(), (~offer & (gold == 1)).sum()
            print(form, name, "recall", tp / max(tp + fn, 1), "precision", tp / max(tp + fp, 1))
    sums = np.stack([*columns, np.bincount(stream, minlength=streams)], axis=1)
    resampled = drawn @ sums
    means = resampled[:, :-1] / resampled[:, -1:]
    for name, column, mean in zip(names, means.T, sums.sum(0)[:-1] / sums.sum(0)[-1], strict=True):
        print(*name, mean, *np.quantile(column, [0.025, 0.975]))


if __name__ == "__main__":
    main()
