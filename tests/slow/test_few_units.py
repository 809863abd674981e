"""Intervals of 5, 13 and 40 streams hold the truth at least 92 % of the time, and reject a true null at most 7 %."""

import numpy as np
import pytest

from prism_jax.decision.audbc import CriticalRatio, Events
from prism_jax.decision.uncertainty import SHARE, Cells, Estimate, interval, mean_interval_of
from prism_jax.evaluation.merged import assembling, histograms, ranks
from prism_jax.evaluation.recalibration import labels_to_show
from studies.coverage.drawing import POPULATIONS
from studies.coverage.intervals import UNITS, intervals

pytestmark = pytest.mark.study


def coverage(population, units, form=None):
    return intervals(population, units, 2000, [form])[0].coverage


RARE = tuple(name for name in POPULATIONS if "of the streams" in name)


@pytest.mark.parametrize("name", [name for name in POPULATIONS if name not in RARE])
def test_intervals_of_few_streams_cover(name):
    for units in UNITS:
        assert coverage(POPULATIONS[name], units) >= (0.93 if name.startswith("difference") else 0.92), units


@pytest.mark.parametrize("name", RARE)
def test_no_interval_of_few_streams_knows_of_a_kind_that_it_has_not_seen(name):
    assert min(coverage(POPULATIONS[name], units) for units in UNITS) < 0.85


def test_percentile_intervals_of_few_streams_do_not():
    assert coverage(POPULATIONS["cost, C_FN = 2"], 5, "percentile") < 0.88


def streams_of_lengths(rng, number):
    """Acceptances that are the more frequent the longer a stream is, ranked by a noisy score: ratio, gold, stream."""
    steps = np.maximum(1, np.round(np.exp(rng.normal(np.log(10), 1.2, number)))).astype(int)
    stream = np.repeat(np.arange(number), steps)
    gold = 1.0 * (rng.random(len(stream)) < np.clip(rng.beta(2, 6, number) * (steps / 10) ** 0.6, 0, 0.95)[stream])
    score = 1.2 * gold + rng.normal(size=len(stream)) + rng.normal(0, 0.5, number)[stream]
    return Events(CriticalRatio(np.exp(-score), None), np.ones(len(stream)), gold, gold), stream


def linear(area, cells):
    """The interval of what is linear in each unit's weight."""

    def changed(totals):
        parts, _, _, best, weight = np.moveaxis(totals, -1, 0)
        positive = best / weight
        share = parts / area.mass**2 + area.area / area.mass**2 * (1 - 2 * weight / area.mass)
        return share / (positive - positive**2 / 2)

    return interval(cells, changed, bounds=SHARE)


def test_the_area_in_parts_covers_where_long_streams_differ():
    """100 streams: 88.7 % where linear in the weights, 94.9 % where exact without each stream."""
    events, stream = streams_of_lengths(np.random.default_rng(99), 40_000)
    truth, _ = histograms.area(ranks.curve_of(events)).normalised(float(events.best.sum()))
    rng, held = np.random.default_rng(1), np.zeros(2)
    for _ in range(1000):
        events, stream = streams_of_lengths(rng, 100)
        area = histograms.area(ranks.curve_of(events))
        columns = [*ranks.shares_of(area, events, stream), events.best, events.mass]
        cells = Cells.of_units(np.stack([np.bincount(stream, column) for column in columns], axis=1))
        both = linear(area, cells), assembling.area_of(area, cells)[0]
        held += [float(found.low <= truth <= found.high) for found in both]
    print(f"coverage in percent, linear in the weights and exact: {100 * held / 1000}")
    assert held[0] < 900 and held[1] >= 920


def test_labels_are_seldom_said_to_show_a_saving_that_there_is_not():
    """Differences of 40 streams; of all with a number at which they would be 1.96 errors, `enough` says a third."""
    print("| saving per step | said, % | with 1.96 errors, % | would show it | from | as measured |")
    said = {}
    for saving in (0.0, 0.005, 0.02, 0.05):
        rng = np.random.default_rng(0)
        cells = [POPULATIONS["difference, skewed"].draw(rng, 40) for _ in range(2000)]
        found = [mean_interval_of(Cells.of_units(one - [saving, 0] * one[:, 1:])) for one in cells]
        value, low, high, error = (np.array([float(one[field][0]) for one in found]) for field in range(4))
        labels = np.array([one[:, 1].sum() for one in cells])
        numbers = np.where(high < 0, np.nan, labels_to_show(Estimate(value, low, high, error), labels))
        would = labels.mean() * (2.80 * value.std() / saving) ** 2 if saving else np.inf
        shares = 100 * (~np.isnan(numbers[0])).mean(), 100 * ((value < 0) & (high >= 0)).mean()
        row = (
            *(f"{share:.1f}" for share in shares),
            *(f"{one:,.0f}" for one in (would, *np.nanmedian(numbers, axis=1))),
        )
        print(f"| {saving:g} | {' | '.join(row)} |")
        said[saving] = shares
    assert said[0.0][0] < 20 < 40 < said[0.0][1]
