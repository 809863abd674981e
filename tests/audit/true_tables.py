"""Draws tables that are true: each row is printed from counts, or from averages of such rows over seeds or classes."""

from fractions import Fraction

import numpy as np
from printed_tables import HEADINGS, ROUNDING, exact, shown

from studies.audit_tables.quantities import RATIOS

NAMES = ("Static embeddings", "Dynamic prompts", "Always-on cache", "Never-ending learner", "ours", "base", "Average")
USUAL = ("recall", "precision", "accuracy", "false alarm", "F1")
CUTS = tuple((kind, how) for kind, hows in ROUNDING.items() for how in hows)


def true_table(rng):
    """A CSV, the number of decisions to pass as `--n` (or None), and whether its rows are averages."""
    kind = rng.choice(["one confusion", "seeds", "classes"], p=[0.5, 0.25, 0.25])
    names = [name for name in USUAL if rng.random() < 0.6] or ["recall", "F1"]
    names += [str(name) for name in RATIOS if name not in names and rng.random() < 0.1]
    rng.shuffle(names)
    steps = int(rng.choice([rng.integers(2, 30), rng.integers(30, 300), rng.integers(300, 3000)]))
    scale = str(rng.choice(["%", "percent", "share"]))
    decimals = int(rng.integers(1 if scale == "share" else 0, 5))
    how = CUTS[rng.integers(len(CUTS))][1]
    stabilised, own_steps = rng.random() < 0.2, rng.random() < 0.5
    rows = rng.permutation(NAMES)[: rng.integers(2, 6)]
    lines = [",".join(["name", *(HEADINGS[name] for name in names), *["N"] * own_steps])]
    for row in rows:
        rates = _rates(rng, str(kind), names, steps, stabilised)
        cells = [shown(rates[name], decimals, how, scale != "share") for name in names]
        cells = cells if scale == "%" else [cell.removesuffix("%") for cell in cells]
        lines.append(",".join([str(row), *cells, *[str(steps)] * own_steps]))
    return "\n".join(lines) + "\n", (steps if not own_steps and rng.random() < 0.7 else None), kind != "one confusion"


def _rates(rng, kind, names, steps, stabilised):
    if kind == "one confusion":
        return _of(_confusion(rng, steps), names, stabilised)
    if kind == "seeds":
        parts = [_of(_confusion(rng, steps), names, stabilised) for _ in range(rng.integers(2, 7))]
        weights = [1] * len(parts)
    else:
        parts, weights = _classes(rng, names, steps, stabilised)
    counted_as = Fraction(0) if rng.random() < 0.5 else None
    return {name: _mean([part[name] for part in parts], weights, counted_as) for name in names}


def _of(counts, names, stabilised):
    return {name: exact(counts, name, stabilised) for name in names}


def _confusion(rng, steps):
    shares = rng.dirichlet(np.full(4, rng.choice([0.3, 1.0, 3.0])) * rng.choice([[1, 1, 1, 1], [1, 0.01, 1, 1]]))
    return tuple(map(int, rng.multinomial(steps, shares)))


def _classes(rng, names, steps, stabilised):
    """One against the rest for each class of one matrix; equal weights, or the classes' shares of labels."""
    classes = int(rng.integers(2, 6))
    matrix = rng.multinomial(steps, rng.dirichlet(np.full(classes**2, rng.choice([0.3, 1.0])))).reshape(classes, -1)
    matrix = matrix + np.diag(rng.integers(0, steps, classes) if rng.random() < 0.5 else np.zeros(classes, int))
    parts = []
    for c in range(classes):
        tp, fn, fp = (int(matrix[c, c]), int(matrix[c].sum() - matrix[c, c]), int(matrix[:, c].sum() - matrix[c, c]))
        parts.append(_of((tp, fp, fn, int(matrix.sum()) - tp - fp - fn), names, stabilised))
        if "accuracy" in names:
            parts[-1]["accuracy"] = Fraction(int(np.trace(matrix)), max(int(matrix.sum()), 1))
    weights = [1] * classes if rng.random() < 0.7 else [int(total) for total in matrix.sum(1)]
    return parts, weights if sum(weights) else [1] * classes


def _mean(values, weights, counted_as):
    values = [(counted_as if value is None else value, weight) for value, weight in zip(values, weights, strict=True)]
    values = [(value, weight) for value, weight in values if value is not None]
    total = sum(weight for _, weight in values)
    return sum(value * weight for value, weight in values) / total if total else None
