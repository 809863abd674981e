"""Policies replayed on human labels, against plain loops over steps and offers."""

import numpy as np
import pytest

from prism_jax.evaluation.protocol import calibrate
from prism_jax.evaluation.replay import accept_alone, costs, gate_offers, pooled, replay
from prism_jax.scores import Scores


def rows(seed=0, streams=6, steps=8):
    """Random signals and labels, some tied, as rows of a table."""
    rng = np.random.default_rng(seed)
    for stream in range(streams):
        for step in range(steps):
            p_need, y_need = rng.uniform(0.05, 0.95), float(rng.random() < 0.5)
            for candidate in range(rng.integers(1, 5)):
                yield {
                    "stream": f"s{stream}",
                    "step": step,
                    "candidate": candidate,
                    "p_need_fast": p_need,
                    "p_accept_fast": float(rng.choice([0.2, 0.4, 0.6, 0.8])),
                    "y_need": y_need,
                    "y_accept": float(rng.random() < 0.4),
                }


def folds_of(table):
    """Two folds with the odd and the even streams as test split."""
    found = []
    for fold in range(2):
        split = lambda row, fold=fold: "test" if int(row["stream"][1:]) % 2 == fold else "calibration"  # noqa: E731
        scores = Scores.from_rows([{**row, "split": split(row), "fold": fold} for row in table])
        found.append((scores, calibrate(scores)))
    return found


@pytest.fixture(scope="module")
def table():
    return list(rows())


@pytest.fixture(scope="module")
def folds(table):
    return [replay(*pair, "test") for pair in folds_of(table)]


@pytest.mark.parametrize("ratio", [4.0, 1.0, 0.5])
def test_costs_are_those_of_a_loop(table, folds, ratio):
    temperature = {}
    for scores, calibration in folds_of(table):
        for stream in set(scores.stream[scores.split == "test"].tolist()):
            temperature[stream] = [calibration.fit(signal, "fast").temperature for signal in ("need", "accept")]
    realised, gold, offers = [], [], 0
    for stream, step in sorted({(row["stream"], row["step"]) for row in table}):
        own = [row for row in table if (row["stream"], row["step"]) == (stream, step)]
        top = max(row["p_accept_fast"] for row in own)
        need, first = own[0]["y_need"], np.mean([row["y_accept"] for row in own if row["p_accept_fast"] == top])
        best = max(row["y_accept"] for row in own)
        p_need, p_accept = (
            1 / (1 + ((1 - p) / p) ** (1 / t))
            for p, t in zip((own[0]["p_need_fast"], top), temperature[stream], strict=True)
        )
        if (1 - p_accept) <= p_accept * p_need * ratio:
            offers += 1
            realised.append(1 - first)
            gold.append(1 - need * first)
        else:
            realised.append(ratio * need * best)
            gold.append(ratio * need * best)
    steps = pooled(folds)
    gate = gate_offers(steps, ratio)
    assert gate.sum() == offers
    for found, looped in zip(costs(gate, steps.y_first, steps, ratio), (realised, gold), strict=True):
        np.testing.assert_allclose(found.mean(), np.mean(looped))


def test_p_accept_alone_speaks_as_often_as_the_gate(folds):
    steps = pooled(folds)
    for ratio in (4.0, 2.0, 1.0, 0.5):
        offers = accept_alone(steps, ratio)
        assert np.isclose(offers.sum(), gate_offers(steps, ratio).sum())
        assert (np.diff(offers[np.argsort(steps.p_accept)]) >= -1e-12).all()


def test_the_order_of_rows_changes_nothing(table, folds):
    rng = np.random.default_rng(1)
    shuffled = [table[i] for i in rng.permutation(len(table))]
    numbers: dict = {}
    renamed = []
    for row in shuffled:  # the number of an offer in its step is another one too
        key = row["stream"], row["step"]
        numbers[key] = numbers.get(key, -1) + 1
        renamed.append({**row, "candidate": numbers[key]})
    other = [replay(*pair, "test") for pair in folds_of(renamed)]
    for name in ("y_first", "y_best", "y_mean", "y_need", "step"):
        np.testing.assert_array_equal(getattr(other[0], name), getattr(folds[0], name))
    np.testing.assert_allclose(other[0].p_accept, folds[0].p_accept, rtol=1e-9)


def test_without_need_acceptance_decides_alone(table):
    rows = [{name: value for name, value in row.items() if "need" not in name} for row in table]
    scores = Scores.from_rows([{**row, "split": "test"} for row in rows])
    certain = calibrate(Scores.from_rows([{**row, "split": "calibration"} for row in rows]))
    steps = replay(scores, certain, "test")
    assert (steps.p_need == 1).all() and (steps.y_need == 1).all()
    np.testing.assert_array_equal(gate_offers(steps, 1.0), steps.p_accept >= 0.5)
