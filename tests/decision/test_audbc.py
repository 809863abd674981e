"""The area under benefit over burden, against brute force over every cost ratio, and its bootstrap interval."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_samples import sample, slow_sample, trapezoid

from prism_jax.decision import gate
from prism_jax.decision.audbc import audbc, audbc_value, burden_benefit_curve, policy_signals
from prism_jax.decision.passes import Pass

seeds = st.integers(0, 2**32 - 1)
quick = settings(deadline=None, max_examples=40)


def swept_points(decide, ratios, y, weight):
    """(burden, benefit) of `decide` at, just below and just above each of the critical ratios."""
    finite = np.unique(ratios[np.isfinite(ratios)])
    around = np.concatenate([[0.0], finite, np.nextafter(finite, 0), finite * (1 + 1e-9) + 1e-12])
    points = {(0.0, 0.0), (1.0, np.average(y, weights=weight))}
    for r in around:
        chosen = decide(r)
        points.add((np.average(chosen, weights=weight), np.average(chosen & y, weights=weight)))
    return sorted(points)


@given(seed=seeds, decimals=st.sampled_from([1, 2]), weighted=st.booleans())
@quick
def test_area_is_the_sweep_over_every_ratio(seed, decimals, weighted):
    p_need, p_accept, y_need, y_accept = sample(seed, decimals=decimals)
    y, fast = y_need & y_accept, Pass(p_need, p_accept)
    weight = np.random.default_rng(seed).random(len(y)) if weighted else np.ones(len(y))
    ratios = gate.critical_ratio(p_need, p_accept)
    points = swept_points(lambda r: ratios <= r, ratios, y, weight)
    pi = np.average(y, weights=weight)
    value = audbc_value(fast, y, weight=weight if weighted else None)
    assert value == pytest.approx(trapezoid(points) / (pi - pi**2 / 2), abs=1e-12)
    curve = burden_benefit_curve(fast, y, weight=weight if weighted else None)
    assert set(zip(curve.burden.round(12), curve.benefit.round(12), strict=True)) <= {
        (round(b, 12), round(u, 12)) for b, u in points
    }
    assert np.all(np.diff(curve.burden) >= 0) and np.all(np.diff(curve.benefit) >= 0)


@given(seed=seeds, margin=st.sampled_from([0.0, 0.05, 0.1, 0.3, 0.7, 1.0, 1.5]), two=st.booleans())
@quick
def test_with_a_margin_the_curve_follows_the_policys_own_decisions(seed, margin, two):
    """Also where the slow pass picks a candidate of its own."""
    p_need, p_accept, y_need, y_accept = sample(seed)
    fast, options, y = Pass(p_need, p_accept), {"margin": margin, **slow_sample(seed)}, y_need & y_accept
    y_slow = np.random.default_rng(seed).random(len(y)) < 0.5 if two and margin else y
    options |= {"y_slow": y_slow} if two and margin else {}
    curve = burden_benefit_curve(fast, y, **options)

    # Except at the critical ratios, whose quotients are rounded, the decisions at each ratio are a point of the curve.
    finite = np.unique(curve.cost_ratio[np.isfinite(curve.cost_ratio) & (curve.cost_ratio > 0)])
    apart = finite[1:] > finite[:-1] * (1 + 1e-9)
    for r in np.concatenate([[finite[0] / 2, finite[-1] * 2], np.sqrt(finite[1:] * finite[:-1])[apart]]):
        chosen, thought = gate.decide_with_slow(fast, options["slow"], 1.0, r, margin)
        expected = (chosen.mean(), (chosen & np.where(thought, y_slow, y)).mean())
        last = np.searchsorted(curve.cost_ratio, r, side="right") - 1
        assert (curve.burden[last], curve.benefit[last]) == pytest.approx(expected, abs=1e-12)
    pi = (y | y_slow).mean()
    area = trapezoid(np.stack([curve.burden, curve.benefit], axis=1)) / (pi - pi**2 / 2)
    assert audbc_value(fast, y, **options) == pytest.approx(area, abs=1e-12)


def test_a_slow_no_at_the_edge_of_the_band_counts_as_beyond():
    """At r_hi the slow pass still runs and decides for silence; one ulp above, the fast signals intervene."""
    p_need, p_accept, y = np.array([1.0, 1.0]), np.array([0.75, 0.5]), np.array([True, False])
    slow = {"slow": Pass(np.array([0.0, 1.0]), np.array([0.0, 0.5]))}
    # margin 1/4: the band of the first step is r in [0, 1]; the second step starts at r = 1, within its own band.
    curve = burden_benefit_curve(Pass(p_need, p_accept), y, margin=0.25, **slow)
    assert curve.cost_ratio.tolist() == [0, 1, 1]
    assert curve.burden.tolist() == [0, 0.5, 1]
    assert curve.benefit.tolist() == [0, 0, 0.5], "the second step comes first, although both begin around r = 1"


@given(y=st.lists(st.booleans(), min_size=2, max_size=50).filter(any), seed=seeds)
@quick
def test_oracle_is_one_and_the_mean_over_rankings_is_chance(y, seed):
    y = np.array(y)
    rng = np.random.default_rng(seed)
    p_accept = np.where(y, 0.6, 0.1) + 0.3 * rng.random(len(y))
    assert audbc_value(Pass(np.ones(len(y)), p_accept), y) == pytest.approx(1, abs=1e-12)
    found = audbc(Pass(np.ones(len(y)), np.full(len(y), 0.5)), y, streams=None, resamples=20)
    assert found.value == pytest.approx(found.chance, abs=1e-12), "all steps tied: nothing is ranked"
    assert found.chance == pytest.approx(1 / (2 - y.mean()))
    assert found.rescaled == pytest.approx(0, abs=1e-9) or (np.isnan(found.rescaled) and y.all())


def test_mean_over_all_rankings_is_chance():
    y = np.array([True, True, False, False, False])
    ranks = np.linspace(0.1, 0.9, 5)
    values = [audbc_value(Pass(np.ones(5), ranks[list(p)]), y) for p in itertools.permutations(range(5))]
    # Half of each step's own benefit counts in the area, so the mean over rankings is slightly above chance.
    assert np.mean(values) == pytest.approx(1 / (2 - 0.4), abs=1e-12)


@given(seed=seeds)
@quick
def test_swept_policies_decide_as_the_gate_does(seed):
    p_need, p_accept, *_ = sample(seed, decimals=1)
    for policy, r in itertools.product(("dynamic", "static", "product", "need_only"), (0.0, 0.5, 1.0, 2.0, 7.0)):
        need, accept = policy_signals(p_need, p_accept, policy, base_rate=0.25)
        expected = gate.decide(p_need, p_accept, 1.0, r, policy, base_rate=0.25)
        np.testing.assert_array_equal(gate.decide(need, accept, 1.0, r), expected, err_msg=policy)
    with pytest.raises(ValueError, match="base_rate: found None"):
        policy_signals(p_need, p_accept, "need_only")


class TestInterval:
    def data(self, n=400, streams=40, seed=0):
        p_need, p_accept, y_need, y_accept = sample(seed, n=n)
        return p_need, p_accept, y_need & y_accept, np.arange(n) % streams

    def test_contains_the_value_and_follows_the_seed(self):
        p_need, p_accept, y, _ = self.data()
        found = audbc(Pass(p_need, p_accept), y, streams=None)
        assert found.low < found.value < found.high and found.standard_error > 0
        drawn = [audbc(Pass(p_need, p_accept), y, streams=None, method="percentile", seed=seed) for seed in (0, 0, 1)]
        assert drawn[0] == drawn[1] != drawn[2]
        assert found.value == audbc_value(Pass(p_need, p_accept), y)

    @pytest.mark.parametrize("clustered", [False, True])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_replicates_are_areas_of_resampled_rows(self, clustered, weighted):
        """Resampling rows by index and recomputing the area gives the same mean and spread over many replicates."""
        p_need, p_accept, y, stream = self.data(n=60, streams=12)
        weight = np.random.default_rng(1).random(60) if weighted else None
        streams = stream if clustered else None
        found = audbc(Pass(p_need, p_accept), y, streams=streams, weight=weight, method="percentile", resamples=4000)
        rng, values = np.random.default_rng(2), []
        for _ in range(1500):
            if clustered:
                rows = np.concatenate([np.flatnonzero(stream == s) for s in rng.integers(0, 12, 12)])
            else:
                rows = rng.integers(0, 60, 60)
            if y[rows].any():
                w = None if weight is None else weight[rows]
                values.append(audbc_value(Pass(p_need[rows], p_accept[rows]), y[rows], weight=w))
        spread = np.std(values)
        assert found.standard_error == pytest.approx(spread, rel=0.08)
        tails = np.quantile(values, [0.025, 0.975])
        np.testing.assert_allclose([found.low, found.high], tails, atol=0.25 * spread)

    def test_streams_of_equal_steps_widen_the_interval(self):
        p_need, p_accept, y, _ = self.data(n=80)
        again = [np.repeat(x, 9) for x in (p_need, p_accept, y)]
        alone = audbc(Pass(*again[:2]), again[2], streams=None)
        streams = audbc(Pass(*again[:2]), again[2], streams=np.repeat(np.arange(80), 9))
        assert streams.value == alone.value
        ratio = streams.standard_error / alone.standard_error
        assert ratio == pytest.approx(3, rel=0.1), "nine copies of a step carry the information of one"

    def test_merged_ranks_move_the_interval_little(self):
        p_need, p_accept, y, stream = self.data(n=3000, streams=100)
        rng = np.random.default_rng(5)
        p_accept = np.clip(p_accept + 1e-3 * rng.random(3000), 0, 1)  # distinct scores
        for streams in (None, stream):
            exact, merged = (
                audbc(Pass(p_need, p_accept), y, streams=streams, max_ranks=ranks, resamples=3000)
                for ranks in (None, 256)
            )
            assert merged.value == exact.value
            width = exact.high - exact.low
            np.testing.assert_allclose([merged.low, merged.high], [exact.low, exact.high], atol=0.1 * width)
            assert merged.standard_error == pytest.approx(exact.standard_error, rel=0.05)

    def test_bca_is_close_to_percentile_here(self):
        p_need, p_accept, y, stream = self.data()
        percentile = audbc(Pass(p_need, p_accept), y, streams=stream, resamples=4000, method="percentile")
        bca = audbc(Pass(p_need, p_accept), y, streams=stream, resamples=4000, method="bca")
        assert (bca.low, bca.high) != (percentile.low, percentile.high)
        atol = 0.15 * (percentile.high - percentile.low)
        np.testing.assert_allclose([bca.low, bca.high], [percentile.low, percentile.high], atol=atol)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p, y: audbc(Pass(p, p), np.zeros(3, bool), streams=None), "y: found only 0s, expected at least one"),
        (lambda p, y: audbc(Pass(p, p), y, streams=None, weight=np.array([1.0, 0, 1])), "y: found only 0s"),
        (lambda p, y: audbc(Pass(p, p), y, streams=None, margin=0.1), "margin: found 0.1 without p_need_slow"),
        (lambda p, y: audbc(Pass(p, p), y, streams=None, margin=-0.1), "margin: found -0.1"),
        (lambda p, y: audbc(Pass(p, p), y, streams=np.arange(2)), "streams: found 2 rows, expected 3"),
        (lambda p, y: audbc(Pass(p, p), y, streams=None, max_ranks=0), "max_ranks: found 0"),
        (lambda p, y: audbc(Pass(p, p), y, streams=None, level=1.0), "level: found 1.0"),
        (lambda p, y: audbc(Pass(p, p), y, streams=None, resamples=0), "resamples: found 0"),
        (lambda p, y: audbc_value(Pass(p, p), np.array([0, 0.5, 1])), "y: found 0.5 at index 1"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.array([0.25, 0.5, 0.75]), np.array([False, True, False]))


def test_swept_policies_check_and_keep_the_base_rate():
    _, accept = policy_signals(np.array([1, 0]), np.array([1, 0]), "need_only", base_rate=0.3)
    np.testing.assert_array_equal(accept, [0.3, 0.3])
    with pytest.raises(ValueError, match="p_accept: found 3 rows, expected 2"):
        policy_signals(np.ones(2), np.ones(3), "product")
    with pytest.raises(ValueError, match="p_need: found nan"):
        policy_signals(np.array([np.nan, 1.0]), np.ones(2))


def test_one_stream_has_no_interval():
    p, y = np.array([0.2, 0.8]), np.array([False, True])
    found = audbc(Pass(p, p), y, streams=["a", "a"])
    assert found.value == 1.0 and np.isnan([found.low, found.high, found.standard_error]).all()
    with pytest.raises(ValueError, match="cells: found 1 independent unit, expected at least 2"):
        audbc(Pass(p, p), y, streams=["a", "a"], method="percentile")
