"""The measures and their resamples against scikit-learn, the decision library and brute force."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import brier_score_loss, roc_auc_score

from prism_jax.decision.calibration import expected_calibration_error
from prism_jax.experiments.ranking import MEASURES, Ranked, ece_of_exact, intervals, measures

STREAMS = ["a", "b", "c", "d"]


@pytest.fixture
def signal():
    """Scores with ties, streams of unequal length, one of them (d) without a positive label."""
    rng = np.random.default_rng(0)
    stream = np.repeat(STREAMS, [40, 25, 30, 5])
    y = ((rng.random(100) < 0.4) & (stream != "d")).astype(float)
    p = np.round(np.clip(rng.normal(0.4 + 0.1 * y, 0.2), 0, 1), 2)
    return Ranked(np.sqrt(p), p, y, stream)


def expected(p, y, stream):
    """Each measure computed separately, from its definition."""
    pairs, won = 0, 0.0
    for name in set(stream):
        here = stream == name
        count = int(y[here].sum()) * int((1 - y[here]).sum())
        if count:
            pairs, won = pairs + count, won + count * roc_auc_score(y[here], p[here])
    return [roc_auc_score(y, p), won / pairs, brier_score_loss(y, p), expected_calibration_error(p, y)]


def test_estimates_equal_scikit_learn(signal):
    found = intervals(signal, resamples=20)
    np.testing.assert_allclose([found[name].value for name in MEASURES], expected(*signal[1:]), rtol=1e-12)


def test_a_resample_is_the_data_with_its_streams_repeated(signal):
    """Pairs between two copies of a stream count for the pooled AUROC only."""
    drawn = np.array([2, 0, 1, 3])
    copies = [(name, copy) for name, times in zip(STREAMS, drawn, strict=True) for copy in range(times)]
    rows = [np.flatnonzero(signal.stream == name) for name, _ in copies]
    names = np.repeat([f"{name}{copy}" for name, copy in copies], [len(part) for part in rows])
    index = np.concatenate(rows)
    again = expected(signal.p[index], signal.y[index], names)
    np.testing.assert_allclose(measures(signal, STREAMS)(drawn), again, rtol=1e-12)
    both = measures(signal, STREAMS)(np.stack([drawn, np.ones(4, int)]))
    np.testing.assert_allclose(both, [again, expected(*signal[1:])], rtol=1e-12)


def test_intervals_hold_the_estimate_and_a_difference_to_itself_is_zero(signal):
    assert np.isnan(intervals(signal)["auroc"].low), "four streams are too few for an interval"
    signal = signal._replace(stream=np.array([f"{name}{row % 2}" for row, name in enumerate(signal.stream)]))
    found = intervals(signal)
    for name in ("auroc", "auroc_within", "brier"):
        assert found[name].low < found[name].value < found[name].high
    for interval in intervals(signal, signal).values():
        assert interval.value == interval.standard_error == 0 and np.isnan(interval.low)
    worse = signal._replace(score=-signal.score)
    gain = intervals(worse, signal, resamples=50)["auroc"]
    assert gain.value == pytest.approx(2 * roc_auc_score(signal.y, signal.p) - 1)


def test_labels_must_be_hard(signal):
    with pytest.raises(ValueError, match=r"^y: found 0\.5"):
        intervals(signal._replace(y=np.full(100, 0.5)))


def test_the_ece_of_exact_probabilities_is_above_zero_and_shrinks_with_the_labels():
    """One label at 1/2 is always half off; of n labels in one bin it is the mean distance of a binomial share."""
    assert tuple(ece_of_exact(np.array([0.5]))[:3]) == (0.5, 0.5, 0.5)
    found = ece_of_exact(np.full(100, 0.3), draws=20_000)
    expected = stats.binom(100, 0.3).expect(lambda k: abs(k / 100 - 0.3))
    assert found.value == pytest.approx(expected, rel=0.02)
    distance = stats.binom(100, 0.3).ppf(0.975) / 100 - 0.3
    assert found.low < found.value < found.high == pytest.approx(distance, abs=0.011)
