"""Histograms on a fixed grid: what follows from them is within its bound."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_jax.decision import calibration as measures
from prism_jax.decision.arrays import log_odds
from prism_jax.decision.audbc import Events, audbc_value
from prism_jax.decision.costs.sweep import CriticalRatio
from prism_jax.decision.passes import Pass
from prism_jax.decision.uncertainty import Cells
from prism_jax.evaluation.merged import assembling, histograms, ranks


@given(st.integers(0, 10_000), st.integers(2, 300), st.booleans())
def test_the_best_function_of_bins_is_within_its_bound(seed, n, few):
    """On a coarse grid, where bins hold many values."""
    rng = np.random.default_rng(seed)
    p = rng.choice([0.2, 0.5, 0.7], n) if few else rng.random(n)
    y, weight = (rng.random(n) < p).astype(float), rng.uniform(0.5, 3, n)
    z = log_odds(p)
    grid = histograms.Grid(-6.0, 6.0, 8)
    columns = {"one": weight * y, "zero": weight * (1 - y), "z_one": weight * y * z, "z_zero": weight * (1 - y) * z}
    histogram = histograms.Histogram.of(grid, z, columns)
    found = histograms.isotonic_score(histogram, float((weight * y**2).sum()))
    best = np.average((measures.fit_isotonic(p, y, weight)(p) - y) ** 2, weights=weight)
    assert -1e-12 <= found.score - best <= found.error + 1e-12
    if few and not histogram.mixed.any():
        assert found.error == 0


@given(st.integers(0, 10_000), st.integers(1, 200), st.booleans())
def test_the_area_of_bins_is_within_its_bound(seed, n, few):
    rng = np.random.default_rng(seed)
    need, accept = rng.random(n), rng.choice([0.3, 0.6], n) if few else rng.random(n)
    y = rng.random(n) < need * accept
    y[0] = True
    fast = Pass(need, accept)
    ratio = np.log((1 - accept) / (accept * need))
    columns = {"mass": np.ones(n), "gold": 1.0 * y, "abs_gold": 1.0 * y}
    histogram = histograms.Histogram.of(histograms.Grid(-4.0, 6.0, 10), ratio, columns)
    value, error = histograms.area(histogram).normalised(float(y.sum()))
    assert abs(value - float(audbc_value(fast, y))) <= error + 1e-12


def test_the_area_of_a_bin_in_which_candidates_change_is_within_its_bound():
    """Gold that comes and goes in one bin adds up to 0, and still can lie before or after all offers."""
    mass, gold = np.repeat([0.0, 1.0, 0.0], [1, 10, 1]), np.repeat([1.0, 0.0, -1.0], [1, 10, 1])
    for order in (1, -1):
        true = float(sum(mass * (np.cumsum(gold[::order]) - gold[::order] / 2)))
        columns = {"mass": mass, "gold": gold, "abs_gold": np.abs(gold)}
        found = histograms.area(histograms.Histogram.of(histograms.Grid(0.0, 20.0, 1), np.arange(12.0), columns))
        assert true == 10 * order and abs(found.area - true) <= found.error


@pytest.mark.parametrize("switches", [False, True])
@pytest.mark.parametrize("parts", [1, 3])
def test_the_interval_of_an_area_is_that_of_leaving_out_each_unit(parts, switches):
    """Streams of very different lengths, the longest of which have the most gold, with weights, ties and switches."""
    rng = np.random.default_rng(parts)
    steps = np.maximum(1, np.exp(rng.normal(2, 1.2, 30))).astype(int)
    unit = np.repeat(np.arange(30), steps)
    n, weight = len(unit), rng.uniform(0.5, 2, len(unit))
    gold = weight * (rng.random(n) < np.clip(steps / 60, 0.05, 0.9)[unit])
    ratio = np.round(np.exp(rng.normal(size=n) - (gold > 0)), 1) + 0.1
    events = Events(CriticalRatio(ratio, None), weight, gold, gold)
    if switches:
        other = weight * (rng.random(n) < 0.3)
        at = CriticalRatio(np.concatenate([ratio, ratio * 1.5]), None)
        events = Events(at, np.append(weight, 0 * weight), np.append(gold, other - gold), np.maximum(gold, other))

    def curve(kept):
        both = np.tile(kept, len(events.mass) // n)
        at = CriticalRatio(events.at.ratio[both], None)
        return Events(at, events.mass[both], events.gold[both], events.best[kept])

    def area(kept):
        return histograms.area(ranks.curve_of(curve(kept))), float(events.best[kept].sum())

    whole, best = area(np.ones(n, bool))
    without = [found.normalised(gold) for found, gold in (area(unit != left) for left in range(30))]
    error = np.sqrt(29 / 30 * sum((value - whole.normalised(best)[0]) ** 2 for value, _ in without))
    sums = np.zeros((30, 5))
    for place in range(parts):  # whole units in each part
        kept = unit % parts == place
        columns = [*ranks.shares_of(whole, curve(kept), unit[kept]), events.best[kept], weight[kept]]
        np.testing.assert_allclose(columns[2], (other if switches else gold)[kept])  # what the curve ends with
        sums += np.stack([np.bincount(unit[kept], column, minlength=30) for column in columns], axis=1)
    found, _ = assembling.area_of(whole, Cells.of_units(sums))
    assert found.value == pytest.approx(whole.normalised(best)[0], rel=1e-12)
    np.testing.assert_allclose(found.standard_error, error, rtol=1e-9)


def test_ratios_with_one_logarithm_do_not_tie():
    """Rounded probabilities have critical ratios that are neighbours."""
    ratio = 3.0 + np.arange(8) * np.spacing(3.0)
    logarithm = ranks.rank_of(CriticalRatio(ratio, None))
    first = int(np.flatnonzero(logarithm[1:] == logarithm[:-1])[0])
    gold, turning = np.array([1.0, 0.0]), np.array([False, True])
    for at, ties in (
        (CriticalRatio(ratio[first : first + 2], None), False),
        (CriticalRatio(np.full(2, ratio[0]), turning), False),
        (CriticalRatio(np.full(2, ratio[0]), None), True),
    ):
        found = histograms.area(ranks.curve_of(Events(at, np.ones(2), gold, gold)))
        assert (found.error == 0) == ties


def test_steps_that_turn_at_a_ratio_and_beyond_it_do_not_tie():
    ratio = np.array([0.0, 0.0, 1.0, 1.0, np.inf, np.inf])
    at = ranks.rank_of(CriticalRatio(ratio, np.array([False, True] * 3)))
    assert (at[::2] < at[1::2]).all()
    histogram = histograms.Histogram.of(histograms.LOG_RATIO, at, {})
    assert histogram.mixed.sum() == 3


@given(st.integers(1, 60))
def test_probabilities_near_1_survive_their_log_odds(ulps):
    """A rounded 1 would else be 1 - 2^-52, which is 0.7 less in log-odds and moves a temperature."""
    p = np.array([0.0, 0.5, 0.98, 1 - 2.0**-53 - ulps * 2.0**-53, 1.0])
    found = []
    for number in (1, 79):  # whose sums round
        rows = np.repeat(p, number)
        histogram = histograms.labelled(log_odds(rows), np.ones_like(rows), np.full_like(rows, 0.1))
        found.append(histograms.by_label(histogram).p)
    np.testing.assert_allclose(found, [p, p], rtol=0, atol=3e-16)
    assert min(values[-1] for values in found) >= 1 - 2.0**-53


def test_turning_ratios_reach_the_decisions_of_their_own_ratio():
    """Rounding to below a ratio that many steps share would take them all away."""
    ratio = np.geomspace(0.1, 9, 100)
    histogram = histograms.Histogram.of(histograms.LOG_RATIO, ratio, {"turns": np.ones(100)}, np.log)
    assert (np.array(ranks.turning_ratios(histogram)) >= np.sort(ratio)).all()


def test_probabilities_below_the_precision_of_1_keep_their_order():
    """A likelihood takes them for equal; a non-decreasing function may tell them apart."""
    p, y = np.array([0.0, 1e-200, 5.8e-17, 0.3, 0.5]), np.array([0.0, 0.0, 1.0, 0.0, 1.0])
    found = histograms.isotonic_score(histograms.labelled(log_odds(p), y, np.ones(5)), 2.0)
    best = np.average((measures.fit_isotonic(p, y)(p) - y) ** 2)
    assert 0 <= found.score - best + 1e-12 <= found.error + 2e-12 < 1e-9


@given(st.integers(0, 10_000), st.integers(1, 200), st.booleans())
def test_known_orders_change_no_histogram(seed, n, few):
    """Whether values ascend in one of the orders, descend in it, or neither."""
    rng = np.random.default_rng(seed)
    p = rng.choice([0.2, 0.5, 0.7], n) if few else rng.random(n)
    columns = {"weight": rng.random(n), "constant": np.full(n, 0.25)}
    orders = [rng.permutation(n), np.argsort(p)]
    for values in (p, log_odds(p), 1 / (1 + p), rng.random(n)):
        bins, known_bins = np.empty(n, np.int32), np.empty(n, np.int32)
        plain = histograms.Histogram.of(None, values, columns, bins=bins)
        known = histograms.Histogram.of(None, values, columns, bins=known_bins, orders=orders)
        np.testing.assert_array_equal(known.value, plain.value)
        np.testing.assert_allclose(known.sums["weight"], plain.sums["weight"], rtol=1e-12)
        np.testing.assert_array_equal(known_bins, bins)
        np.testing.assert_array_equal(known.sums["constant"], np.bincount(bins) * 0.25)


@pytest.mark.parametrize("largest", [0, 100, 2**53, 2**62])
def test_keys_are_sorted_with_room_for_their_places_and_without(largest):
    keys = np.random.default_rng(0).integers(0, largest, 1000, endpoint=True)
    keys[::7] = keys[0]
    found, order = histograms._sorted(keys)
    np.testing.assert_array_equal(order, np.argsort(keys, kind="stable"))
    np.testing.assert_array_equal(found, keys[order])
