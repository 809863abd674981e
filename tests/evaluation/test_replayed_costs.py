"""Policies replayed on human labels, against plain loops over steps and offers."""

import dataclasses

import numpy as np
import pytest

from prism_jax.evaluation.protocol import calibrate
from prism_jax.evaluation.replay import (
    accept_alone,
    costs,
    gains,
    gate_offers,
    most_accepted,
    policy_rows,
    pooled,
    replay_fold,
    trained_threshold,
)
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
    return [replay_fold(*pair) for pair in folds_of(table)]


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
    row = next(row for row in policy_rows({"m": folds}, ratio, resamples=200) if row.name == "gate on m")
    assert row.speak_rate == offers / len(realised)
    np.testing.assert_allclose([row.realised.value, row.gold.value], [np.mean(realised), np.mean(gold)])


def test_p_accept_alone_speaks_as_often_as_the_gate(folds):
    steps = pooled([fold.test for fold in folds])
    for ratio in (4.0, 2.0, 1.0, 0.5):
        offers = accept_alone(folds, ratio, "matched")
        assert np.isclose(offers.sum(), gate_offers(steps, ratio).sum())
        assert (np.diff(offers[np.argsort(steps.p_accept)]) >= -1e-12).all()
    np.testing.assert_array_equal(most_accepted(np.array([0.5, 0.9, 0.5, 0.1]), 2.0), [0.5, 1.0, 0.5, 0.0])
    assert trained_threshold(steps, 0) == np.inf
    assert trained_threshold(steps, len(steps)) == steps.p_accept.min()


def test_a_trained_threshold_does_not_depend_on_how_often_the_gate_offers_on_test_streams(folds):
    needed = [fold._replace(test=dataclasses.replace(fold.test, p_need=np.ones(len(fold.test)))) for fold in folds]
    gate, more = (gate_offers(pooled([fold.test for fold in some]), 1.0).sum() for some in (folds, needed))
    assert more > gate
    np.testing.assert_array_equal(accept_alone(needed, 1.0, "trained"), accept_alone(folds, 1.0, "trained"))


def test_the_order_of_rows_changes_nothing(table, folds):
    rng = np.random.default_rng(1)
    shuffled = [table[i] for i in rng.permutation(len(table))]
    numbers: dict = {}
    renamed = []
    for row in shuffled:  # the number of an offer in its step is another one too
        key = row["stream"], row["step"]
        numbers[key] = numbers.get(key, -1) + 1
        renamed.append({**row, "candidate": numbers[key]})
    other = [replay_fold(*pair) for pair in folds_of(renamed)]
    for name in ("y_first", "y_best", "y_mean", "y_need", "step"):
        np.testing.assert_array_equal(getattr(other[0].test, name), getattr(folds[0].test, name))
    np.testing.assert_allclose(other[0].test.p_accept, folds[0].test.p_accept, rtol=1e-9)


def test_gains_are_paired_differences_and_no_decision_beats_the_clairvoyant(folds):
    steps = pooled([fold.test for fold in folds])
    found = {(gain.matching, gain.ratio): gain for gain in gains({"m": folds}, resamples=200)}
    for matching in ("matched", "trained"):
        means = []
        for ratio in (4.0, 2.0, 1.0, 0.5):
            gate = costs(gate_offers(steps, ratio), steps.y_first, steps, ratio).realised
            alone = costs(accept_alone(folds, ratio, matching), steps.y_first, steps, ratio).realised
            means.append(gate.mean() - alone.mean())
            assert np.isclose(found[matching, ratio].realised.value, means[-1])
        assert np.isclose(found[matching, None].realised.value, np.mean(means))
    for ratio in (4.0, 0.5):
        table = {row.name: row for row in policy_rows({"m": folds}, ratio, resamples=200)}
        assert all(row.realised.value >= table["clairvoyant"].realised.value for row in table.values())
        assert all(row.gold.value >= table["clairvoyant, of the gold cost"].gold.value for row in table.values())
        ends = {name: row.gold.low for name, row in table.items()}
        assert {name for name, low in ends.items() if np.isnan(low)} == {"clairvoyant, of the gold cost"}
