"""Synthetic scores with known true probabilities, for the tests of evaluation."""

import numpy as np

from prism_jax.decision.calibration import Temperature
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import protocol
from prism_jax.evaluation.fits import Calibration, SignalFit
from prism_jax.scores import Scores

SPLITS = ("calibration", "test")
POINT = OperatingPoint()
FIT = SignalFit(Temperature(1.0), base_rate=0.5, count=1, effective_count=1.0)
IDENTITY = Calibration(FIT, FIT, FIT, FIT)


def logit(p):
    return np.log(p) - np.log1p(-p)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def make_columns(seed=0, streams=80, steps=12, temperature=0.5, noise=0.3, slow=True, logging=False, splits=SPLITS):
    """Columns of a table whose signals are the truth's logits, blurred by `noise` and divided by `temperature`.

    A signal without noise is calibrated by T = 1 / temperature exactly; slow signals have a third of the noise.
    """
    rng = np.random.default_rng(seed)
    n = streams * steps
    p_need, p_accept = rng.beta(0.8, 0.8, n), rng.beta(0.8, 1.2, n)
    need, accept = rng.random(n) < p_need, rng.random(n) < p_accept

    def read(p, blur):
        return sigmoid((logit(p) + blur * rng.normal(size=n)) / temperature)

    stream = np.repeat(np.arange(streams), steps)
    columns = {
        "stream": [f"stream-{i}" for i in stream],
        "step": np.tile(np.arange(steps), streams),
        "time": np.tile(np.arange(steps) * 30.0, streams),
        "domain": [("coding", "writing", "life")[i % 3] for i in stream],
        "split": [splits[i % len(splits)] for i in stream],
        "p_need_fast": read(p_need, noise),
        "p_accept_fast": read(p_accept, noise),
        "y_need": need.astype(float),
        "y_accept": accept.astype(float),
        "p_need_true": p_need,
        "p_accept_true": p_accept,
        "p_both_true": p_need * p_accept,
    }
    if slow:
        columns |= {"p_need_slow": read(p_need, noise / 3), "p_accept_slow": read(p_accept, noise / 3)}
    if logging:
        propensity = rng.choice([0.02, 0.2, 0.7], n)
        logged = rng.random(n) < propensity
        columns |= {
            "propensity": propensity,
            "logged": logged,
            "y_accept": np.where(logged, columns["y_accept"], np.nan),
        }
    return columns


def make_two_passes(seed=0, streams=40, steps=10, splits=("test",)):
    """Columns with three candidates per step: need is of the step, everything else of the candidate."""
    rng = np.random.default_rng(seed)
    columns = make_columns(seed, streams, steps * 3, splits=splits)
    number = np.arange(streams * steps * 3)
    for name in ("p_need_fast", "p_need_slow", "p_need_true", "y_need"):
        columns[name] = np.asarray(columns[name])[number // 3 * 3]
    columns["step"] = number // 3 % steps
    columns["candidate"] = number % 3
    columns["time"] = columns["step"] * 30.0
    columns["p_both_true"] = columns["p_need_true"] * columns["p_accept_true"]
    for name in ("p_accept_fast", "p_accept_slow"):  # ties, which go to the lowest number
        columns[name] = np.round(columns[name] * 20) / 20 * 0.98 + 0.01
    return columns, rng


def without(columns, *names):
    return {name: column for name, column in columns.items() if name not in names}


def in_folds(columns, folds):
    """The columns with a fold of each stream in the place of the split."""
    fold = np.array([int(name.split("-")[1]) % folds for name in columns["stream"]])
    return without(columns, "split") | {"fold": fold}


def as_log(columns, propensity, rng):
    """The columns of a log that makes each offer with its propensity, and knows the answers to those alone."""
    made = rng.random(len(propensity)) < propensity
    answers = np.where(made, columns["y_accept"], np.nan)
    return columns | {"propensity": propensity, "logged": made, "y_accept": answers}


def make_scores(**knobs):
    return Scores.from_columns(make_columns(**knobs))


def evaluate(scores, point=POINT):
    return protocol.evaluate(scores, protocol.calibrate(scores), point)


def changed(scores, where, **columns):
    """The table with some columns replaced on some rows."""
    values = scores.columns()
    return Scores.from_columns(
        {**values, **{name: np.where(where, column, values[name]) for name, column in columns.items()}}
    )
