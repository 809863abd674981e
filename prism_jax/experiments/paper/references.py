"""The numbers that the paper prints, by table and row; shares as fractions, latencies in seconds.

They stand beside ours for reference only. Several contradict each other (docs/maths.md, section 11).
"""

from __future__ import annotations

from collections.abc import Mapping

Numbers = Mapping[str, float]
Printed = Mapping[str, Numbers]

_PLAIN = ("tokens", "t_need", "t_accept", "p_value", "support", "kappa", "mcc")
_UNITS = {"latency": 1000.0, **dict.fromkeys(_PLAIN, 1.0)}
"""What a printed number is divided by; all others are percentages."""


def _rows(keys: str, rows: Mapping[str, tuple[int | float, ...]]) -> Printed:
    names = keys.split()
    return {
        row: {name: value / _UNITS.get(name, 100.0) for name, value in zip(names, values, strict=True)}
        for row, values in rows.items()
    }


_FIVE = "recall precision accuracy false_alarm f1"

MAIN = _rows(
    _FIVE,
    {
        "Claude-3.5-Sonnet": (97.89, 45.37, 49.78, 54.63, 62.00),
        "GPT-4o-mini": (100.00, 35.28, 36.12, 64.73, 52.15),
        "GPT-4o": (98.11, 48.15, 49.78, 51.85, 64.60),
        "LLaMA-3.1-8B-Proactive": (99.06, 49.76, 52.86, 50.24, 66.25),
        "Qwen2-7B-Proactive": (100.00, 49.78, 50.66, 50.22, 66.47),
        "DeepSeek-R1": (98.12, 72.35, 72.96, 27.64, 83.28),
        "Qwen3-8B": (73.79, 73.33, 67.85, 26.67, 73.34),
        "Qwen3-8B-PRISM": (98.88, 77.05, 76.39, 22.94, 86.61),
        "DeepSeek-R1, human labels": (99.05, 70.03, 71.12, 29.70, 82.05),
        "Qwen3-8B-PRISM, human labels": (99.41, 74.01, 73.79, 25.91, 84.85),
    },
)
"""The main comparison."""

THRESHOLDS = _rows(
    _FIVE,
    {
        "fixed": (92.42, 71.96, 76.03, 28.23, 80.74),
        "static": (38.54, 59.67, 63.94, 40.32, 46.83),
        "dynamic": (72.41, 68.29, 69.52, 31.70, 70.29),
    },
)
"""Ablation A, by policy."""

INFERENCE = _rows(
    "recall precision false_alarm f1 audbc tokens latency",
    {
        "fast only": (100.0, 71.08, 28.92, 83.09, 79.26, 510, 176),
        "slow only": (100.0, 75.17, 24.83, 86.79, 81.43, 693, 312),
        "slow on margin": (100.0, 78.81, 21.19, 88.15, 82.72, 541, 196),
    },
)
"""Ablation B, by strategy; latencies are 95th percentiles."""

PATHWAYS = _rows(
    _FIVE,
    {
        "sft": (100.00, 72.43, 69.52, 27.56, 76.09),
        "dft": (80.14, 72.43, 69.52, 27.56, 76.09),
        "weighted_sft": (93.70, 70.68, 72.10, 29.31, 80.59),
        "rdc_sft": (98.88, 77.05, 76.39, 22.49, 86.61),
    },
)
"""Ablation C, by pathway."""

MECHANISM = _rows(
    "recall precision false_alarm f1 audbc",
    {
        "accept only": (99.95, 46.20, 62.50, 63.19, 58.40),
        "need only": (99.15, 69.50, 29.10, 81.72, 82.45),
        "both, uncalibrated": (98.80, 74.77, 25.23, 85.12, 86.43),
        "both, calibrated": (98.88, 77.05, 22.94, 86.61, 88.52),
    },
)
"""Ablation D."""

_GRID = "recall precision accuracy false_alarm f1 audbc tokens latency"

MARGINS = _rows(
    _GRID,
    {
        "0": (100, 71.08, 71.07, 28.92, 83.09, 79.26, 510, 176),
        "0.05": (100, 74.11, 74.10, 25.89, 85.12, 81.19, 518, 178),
        "0.1": (100, 78.81, 79.33, 21.19, 88.15, 82.72, 541, 196),
        "0.15": (100, 74.57, 75.20, 25.43, 85.43, 80.58, 563, 230),
    },
)
"""The margin sweep, by margin."""

GRID = _rows(
    _GRID,
    {
        "1:4, 0": (100, 67.24, 78.93, 32.76, 83.64, 79.97, 532, 198),
        "1:4, 0.05": (100, 70.56, 81.24, 29.44, 82.13, 81.28, 547, 210),
        "1:4, 0.1": (100, 70.41, 80.22, 29.59, 83.63, 81.57, 562, 216),
        "1:4, 0.15": (100, 69.72, 81.57, 30.28, 82.96, 80.92, 590, 244),
        "1:2, 0": (100, 71.08, 71.07, 28.92, 83.09, 79.26, 510, 176),
        "1:2, 0.05": (100, 74.11, 74.10, 25.89, 85.12, 81.19, 518, 178),
        "1:2, 0.1": (100, 78.81, 79.33, 21.19, 88.15, 82.72, 541, 196),
        "1:2, 0.15": (100, 74.57, 75.20, 25.43, 85.43, 80.58, 563, 230),
        "1:1, 0": (98.89, 72.18, 80.34, 27.82, 83.34, 78.98, 517, 182),
        "1:1, 0.05": (97.96, 73.62, 81.50, 26.38, 84.07, 80.42, 532, 186),
        "1:1, 0.1": (98.88, 72.36, 80.35, 23.64, 83.96, 81.97, 534, 183),
        "1:1, 0.15": (98.85, 74.26, 78.64, 25.74, 83.42, 80.89, 568, 217),
        "1.2:1, 0": (86.18, 75.87, 79.90, 24.13, 82.39, 77.31, 504, 176),
        "1.2:1, 0.05": (90.34, 75.13, 78.44, 24.87, 81.28, 78.97, 515, 188),
        "1.2:1, 0.1": (89.62, 76.83, 79.59, 23.16, 83.74, 79.34, 528, 178),
        "1.2:1, 0.15": (86.45, 74.73, 78.52, 25.27, 83.45, 78.18, 572, 197),
    },
)
"""The grid sweep, by "C_FA:C_FN, margin"."""

COSTS = _rows(
    "recall precision accuracy false_alarm f1 audbc slow_rate tokens latency",
    {
        "1:4": (100, 70.41, 80.22, 29.59, 83.63, 81.57, 15.45, 562.43, 216.16),
        "1:2": (100, 73.07, 81.36, 26.93, 84.44, 82.22, 13.47, 538.73, 191.82),
        "1:1": (98.88, 72.36, 80.35, 23.64, 83.96, 81.97, 11.15, 533.79, 182.90),
        "1.2:1": (89.62, 76.83, 79.59, 23.17, 83.74, 79.34, 9.96, 528.34, 177.67),
    },
)
"""Sensitivity to costs, by "C_FA:C_FN"."""

DOMAINS = _rows(
    "recall precision false_alarm f1 audbc",
    {
        "in domain, raw": (98.80, 74.77, 25.23, 85.12, 86.43),
        "in domain, calibrated": (98.80, 74.77, 25.23, 85.12, 86.43),
        "out of domain, raw": (95.83, 71.39, 28.61, 81.37, 82.15),
        "out of domain, calibrated": (98.37, 73.37, 26.63, 82.63, 84.66),
    },
)
"""Domain transfer, from coding to writing."""

CALIBRATION = _rows(
    "t_need t_accept ece_need ece_accept brier_need brier_accept f1 false_alarm",
    {
        "raw": (1.0, 1.0, 21.53, 13.19, 17.95, 18.58, 84.85, 25.99),
        "calibrated": (0.5, 0.7, 12.16, 7.42, 14.71, 18.20, 85.70, 25.12),
    },
)
"""Quality of calibration."""

DRIFT = _rows(
    "recall precision false_alarm f1 audbc flip_rate",
    {
        "T = 1, ε = 0": (98.80, 74.77, 25.23, 85.12, 86.43, 0),
        "T = 0.75, ε = 0": (98.95, 74.41, 25.89, 84.78, 84.47, 6.25),
        "T = 1.25, ε = 0": (97.89, 75.58, 24.42, 85.56, 87.02, 4.46),
        "T = 1, ε = 0.15": (99.98, 71.87, 28.13, 83.34, 81.57, 12.08),
        "T = 1, ε = −0.15": (96.67, 76.22, 23.78, 85.30, 87.34, 14.83),
        "T = 0.75, ε = 0.15": (99.14, 73.69, 26.31, 82.84, 80.58, 14.29),
        "T = 0.75, ε = −0.15": (97.63, 75.21, 24.79, 85.67, 85.83, 13.52),
        "T = 1.25, ε = 0.15": (98.73, 73.33, 26.67, 83.21, 83.24, 15.17),
        "T = 1.25, ε = −0.15": (95.58, 77.67, 22.33, 82.97, 80.32, 17.85),
        "T = 0.5, ε = 0.3": (100, 53.18, 46.82, 68.67, 42.57, 68.34),
        "T = 1.5, ε = −0.3": (37.49, 88.74, 11.26, 38.89, 45.64, 72.95),
    },
)
"""Drift of the calibration, in the order of `drift.PAPER_GRID`."""

SIGNIFICANCE = _rows(
    "first second difference p_value",
    {
        "recall": (98.12, 98.88, 0.76, 0.115),
        "precision": (72.35, 77.05, 4.70, 0.001),
        "accuracy": (72.69, 76.39, 3.43, 0.004),
        "false_alarm": (27.64, 22.94, -4.70, 0.001),
        "f1": (83.28, 86.61, 3.33, 0.002),
    },
)
"""PRISM (second) against its teacher (first); 0.001 stands for "below 0.001". Not comparable with our pairs."""

AGREEMENT = _rows(
    "support agreement kappa mcc",
    {
        "ensemble and the truth": (229, 89.1, 0.71, 0.71),
        "pool A and the truth": (229, 90.8, 0.75, 0.76),
        "pool B and the truth": (229, 89.1, 0.71, 0.71),
        "pool A and pool B": (229, 91.2, 0.76, 0.77),
    },
)
"""Agreement of language models with people, for whom the simulator's truth stands here."""

ROBUSTNESS = _rows(
    "baseline f1 gain",
    {
        "pool A": (82.92, 86.05, 3.13),
        "pool B": (83.28, 86.61, 3.33),
        "the truth": (82.05, 84.85, 2.80),
    },
)
"""F1 of DeepSeek-R1 (baseline) and of PRISM by panel; that of people stands for the truth."""
