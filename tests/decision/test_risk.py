"""Promises: losses against loops, tests against exact enumeration, sequences, and what is refused."""

import itertools

import numpy as np
import pytest
from scipy import stats

from prism_jax.decision import gate, risk
from prism_jax.decision.passes import Pass
from prism_jax.decision.risk import Promise

BOUNDS = tuple(risk.BOUNDS)
MAPIE = (
    (0.0051537752073201, 0.2821637928764284, 1.0, 1.0),
    (5.663216564269395e-07, 0.00023672887388175427, 0.01915362624980102, 1.0),
    (8.881784197001244e-16, 3.0806713741016104e-12, 5.721782126687206e-09, 0.008970938883935785),
)
"""p-values of mapie 1.6.0: compute_hoeffding_bentkus_p_value([0, 0.04, 0.1, 0.3], 50, [0.1, 0.25, 0.5])."""


def population(seed=0, units=12, rules=9):
    rng = np.random.default_rng(seed)
    unit = np.repeat(np.arange(units), rng.integers(1, 7, units))
    unit = rng.permutation(np.concatenate([unit, unit[:1]]))
    first, y = rng.integers(0, rules + 1, len(unit)), rng.integers(0, 5, len(unit)) / 4
    return first, y, unit, rules


@pytest.mark.parametrize("name", risk.RISKS)
def test_losses_of_all_rules_equal_a_loop_over_units_and_rules(name):
    first, y, unit, rules = population()
    promise = Promise(name, 0.2)
    found = risk.unit_losses(first, y, unit, rules, promise)
    for i, one in enumerate(np.unique(unit)):
        mine = unit == one
        for rule in range(rules):
            offer = first[mine] <= rule
            false, missed = (offer * (1 - y[mine])).mean(), (~offer * y[mine]).mean()
            expected = {
                "false_alarms": false,
                "burden": offer.mean(),
                "missed_help": missed,
                "false_discovery": 0.2 + false - 0.2 * offer.mean(),
                "dismissals": 0.2 + false - 0.2 * offer.mean(),
            }[name]
            np.testing.assert_allclose(found[i, rule], expected, atol=1e-15)


def test_the_first_ratio_is_where_the_gate_begins_to_offer_ties_included():
    p = np.array([0.0, 0.1, 0.25, 1 / 3, 0.5, 2 / 3, 0.75, 0.9, 1.0])
    p_need, p_accept = (grid.ravel() for grid in np.meshgrid(p, p))
    ratios = np.array([0.0, 1 / 9, 1 / 3, 0.5, 1.0, 2.0, 3.0, 4.0, 9.0, 81.0])
    first = risk.first_gate(p_need, p_accept, ratios)
    for index, ratio in enumerate(ratios):
        np.testing.assert_array_equal(first <= index, gate.decide(p_need, p_accept, 1.0, ratio))


@pytest.mark.parametrize("margin", [0.0, 0.25, 1.0])
def test_with_a_slow_margin_decisions_stay_nested_and_losses_are_those_of_the_pass_that_decides(margin):
    p = np.array([0.0, 0.25, 1 / 3, 0.5, 0.75, 1.0])
    signals = [grid.ravel() for grid in np.meshgrid(p, p, p, p)]
    ratios = np.array([0.0, 1 / 9, 1 / 3, 0.5, 1.0, 2.0, 3.0, 9.0])
    first, start, stop = risk.first_gate_with_slow(Pass(*signals[:2]), Pass(*signals[2:]), ratios, margin)
    rng = np.random.default_rng(0)
    y, y_slow = rng.integers(0, 2, (2, len(first)))
    unit = rng.integers(0, 5, len(first))
    slow, best = risk.Slow(start, stop, y_slow), np.maximum(np.maximum(y, y_slow), rng.integers(0, 2, len(first)))
    losses = {
        name: risk.unit_losses(first, y, unit, len(ratios), Promise(name, 0.2), slow, best)
        for name in ("false_alarms", "missed_help")
    }
    of_two = risk.unit_losses(first, y, unit, len(ratios), Promise("missed_help", 0.2), slow)
    assert (np.diff(losses["missed_help"], axis=1) <= 0).all()  # whichever pass is silent
    for index, ratio in enumerate(ratios):
        offer, thinks = gate.decide_with_slow(Pass(*signals[:2]), Pass(*signals[2:]), 1.0, ratio, margin)
        np.testing.assert_array_equal(first <= index, offer)
        np.testing.assert_array_equal((start <= index) & (index < stop), thinks)
        label = np.where(thinks, y_slow, y)
        for name, loss in (("false_alarms", offer * (1 - label)), ("missed_help", ~offer * best)):
            np.testing.assert_allclose(losses[name][:, index], np.bincount(unit, loss) / np.bincount(unit))
        of_pair = np.bincount(unit, ~offer * np.maximum(y, y_slow)) / np.bincount(unit)
        np.testing.assert_allclose(of_two[:, index], of_pair)
    # Where the fast pass offers its own candidate again, a more talkative ratio can have the smaller loss.
    steps = np.arange(2)
    course = risk.Slow(np.array([0, 0]), np.array([2, 2]), np.array([0.0, 0.0]))
    losses = risk.unit_losses(np.array([1, 1]), np.ones(2), steps // 2, 3, Promise("false_alarms", 0.2), course)
    assert losses.tolist() == [[0.0, 1.0, 0.0]]


def test_the_first_threshold_is_the_first_that_the_score_reaches():
    score = np.array([-np.inf, -1.0, 0.0, 0.5, 2.0, np.inf])
    thresholds = np.array([2.0, 0.5, 0.25, -1.0])
    first = risk.first_rule(score, thresholds)
    np.testing.assert_array_equal(first[:, None] <= np.arange(4), score[:, None] >= thresholds)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("limit", [0.1, 0.3, 0.6])
def test_enumeration_of_all_outcomes_shows_that_no_level_is_exceeded(bound, limit):
    """Every outcome of five units with losses 0, 1/2 and 1 and mean exactly at the limit, with its probability."""
    values = np.array([0.0, 0.5, 1.0])
    outcomes = np.array(list(itertools.product(range(3), repeat=5)))
    p_values = risk.BOUNDS[bound](values[outcomes].T, limit)[0]
    for half in np.linspace(0, 2 * min(limit, 1 - limit), 7):
        chance = np.array([1 - limit - half / 2, half, limit - half / 2])
        probability = chance[outcomes].prod(axis=1)
        for level in np.unique(p_values):
            assert probability[p_values <= level * (1 + 1e-12)].sum() <= level * (1 + 1e-9)


@pytest.mark.parametrize("bound", BOUNDS)
def test_p_values_never_fall_when_a_loss_grows_and_ignore_the_order_of_units(bound):
    rng = np.random.default_rng(0)
    L_UxG = rng.beta(1, 6, (8, 200))
    larger = L_UxG.copy()
    larger[3] = np.minimum(1, larger[3] + rng.random(200) * (rng.random(200) < 0.5))
    p_values = risk.BOUNDS[bound](L_UxG, 0.3)
    assert (risk.BOUNDS[bound](larger, 0.3) >= p_values * (1 - 1e-12)).all()
    np.testing.assert_allclose(risk.BOUNDS[bound](rng.permutation(L_UxG), 0.3), p_values)


@pytest.mark.parametrize("bound", BOUNDS)
def test_counts_are_repeated_units(bound):
    L_UxG = np.random.default_rng(1).beta(1, 4, (6, 5))
    L_UxG[0] = 1.0  # lost bets of a unit that is drawn, and of one that is not
    counts = np.array([[0, 2, 1, 0, 3, 1], [1, 1, 1, 1, 1, 2]])
    found = risk.BOUNDS[bound](L_UxG, 0.4, counts=counts)
    for row, count in zip(found, counts, strict=True):
        np.testing.assert_allclose(row, risk.BOUNDS[bound](np.repeat(L_UxG, count, axis=0), 0.4)[0])


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("units", [1, 7, 400])
def test_the_smallest_limit_is_where_no_loss_at_all_suffices(bound, units):
    limit = risk.smallest_limit(units, 0.1, bound)
    (above,), (below,) = (risk.BOUNDS[bound](np.zeros((units, 1)), limit * scale)[0] for scale in (1 + 1e-9, 1 - 1e-9))
    assert above <= 0.1 < below
    assert limit >= 1 - 0.1 ** (1 / units) - 1e-12  # Pr(no loss) of a coin with this mean


def test_a_sequence_stops_at_its_first_failure():
    p_values = np.array([[0.01, 0.04, 0.2, 0.01, 0.01, 0.03]])
    assert risk.fixed_sequence(p_values, 0.05)[0].tolist() == [True, True, False, False, False, False]
    assert risk.fixed_sequence(p_values, 0.05, starts=(5,), upwards=False)[0].tolist() == [False] * 3 + [True] * 3
    assert risk.fixed_sequence(p_values, 0.05, starts=(0, 3))[0].tolist() == [True, False, False, True, True, False]


def test_several_promises_share_the_error_and_intersect():
    first, y, unit, rules = population(units=300, rules=20)
    promises = [Promise("false_alarms", 0.3), Promise("missed_help", 0.45), Promise("burden", 0.8)]
    losses = {promise: risk.unit_losses(first, y, unit, rules, promise) for promise in promises}
    together = risk.certify(losses, 0.1)
    for one in together.kept:
        alone = risk.certify({one.promise: losses[one.promise]}, 0.1 / 3).rules
        np.testing.assert_array_equal(one.rules, alone)
    assert together.rules.any() and not together.rules[0] and not together.rules[-1]
    np.testing.assert_array_equal(together.rules, np.logical_and.reduce([one.rules for one in together.kept]))
    np.testing.assert_array_equal(risk.certify(losses, 0.2, families=2).rules, together.rules)


def test_false_discovery_is_tested_from_the_stated_start():
    first, y, unit, rules = population(units=200, rules=30)
    y = (np.random.default_rng(0).random(len(first)) > first / 40).astype(float)
    first = np.maximum(first, 3)  # the first rules offer nothing
    promise = Promise("false_discovery", 0.4)
    L_UxG = risk.unit_losses(first, y, unit, rules, promise)
    assert not risk.certify({promise: L_UxG}, 0.1, starts={promise: (0,)}).rules.any()  # hardly any offer yet
    rules_from_ten = risk.certify({promise: L_UxG}, 0.1, starts={promise: (10,)}).rules
    assert rules_from_ten[10] and not rules_from_ten[:10].any()
    with pytest.raises(ValueError, match=r"starts: found none for false_discovery<=0.4"):
        risk.certify({promise: L_UxG}, 0.1)


def test_risk_in_expectation_holds_exactly_over_all_draws_of_three_units():
    """Three units certify and one is new, all drawn from four kinds of units: every draw with its probability."""
    promise = Promise("false_alarms", 0.5)
    kinds = np.array([[0, 0, 0.25, 0.5], [0, 0.25, 0.5, 1], [0, 0, 0, 0.25], [0.25, 0.5, 1, 1]])
    chance, total = np.array([0.4, 0.2, 0.3, 0.1]), 0.0
    for drawn in itertools.product(range(4), repeat=3):
        allowed = np.flatnonzero(risk.kept_in_expectation({promise: kinds[list(drawn)]}))
        loss = chance @ kinds[:, allowed[-1]] if len(allowed) else 0.0
        total += chance[list(drawn)].prod() * loss
    assert 0.2 < total <= 0.5
    mean = kinds.mean(axis=0)
    expected = (4 * mean + 1) / 5 <= 0.5
    np.testing.assert_array_equal(risk.kept_in_expectation({promise: kinds}), expected)


def test_hoeffding_bentkus_agrees_with_mapie():
    means = np.array([0.0, 0.04, 0.1, 0.3])
    L_UxG = np.full((50, 4), means)
    for limit, column in zip((0.1, 0.25, 0.5), MAPIE, strict=True):
        np.testing.assert_allclose(risk.hoeffding_bentkus_p_values(L_UxG, limit)[0], column, rtol=1e-9)
    bentkus = np.minimum(1, np.e * stats.binom.cdf([0, 2, 5, 15], 50, 0.1))
    assert (risk.hoeffding_bentkus_p_values(L_UxG, 0.1)[0] <= bentkus).all()


def test_rows_as_units_and_other_mistakes_are_refused():
    first, y, unit, rules = population()
    promise = Promise("false_alarms", 0.2)
    with pytest.raises(ValueError, match=r"unit: found 3 units with one step each, expected streams or people"):
        risk.unit_losses(first[:3], y[:3], np.arange(3), rules, promise)
    with pytest.raises(ValueError, match="rules: found 2000, expected 1 to 1000"):
        risk.unit_losses(first, y, unit, 2000, promise)
    with pytest.raises(ValueError, match=r"y_best: found 0.* at index \d+, expected at least y = 1"):
        risk.unit_losses(first, np.ones(len(y)), unit, rules, promise, y_best=np.zeros(len(y)))
    with pytest.raises(ValueError, match=r"promise: found 'false_alarm<=0.1', expected RISK<=LIMIT"):
        Promise.parse("false_alarm<=0.1")
    with pytest.raises(ValueError, match=r"burden: found the limit 1.0, expected a number above 0 and below 1"):
        Promise.parse("burden <= 1")
    with pytest.raises(ValueError, match="losses that do not grow"):
        risk.certify({promise: np.array([[0.5, 0.2]])}, 0.1)
    with pytest.raises(ValueError, match="found a risk that is not monotone"):
        risk.kept_in_expectation({Promise("false_discovery", 0.2): np.zeros((3, 2))})
    with pytest.raises(ValueError, match="thresholds: found values out of order, expected descending ones"):
        risk.first_rule(y, np.array([0.1, 0.2]))


@pytest.mark.parametrize("limit", [0.3, 0.4, 0.5])
def test_what_a_calibrated_gate_keeps_at_the_ratio_of_its_limit(limit):
    """At r = limit / (1 - limit): false discovery for the product only, dismissals for every policy."""
    rng = np.random.default_rng(0)
    need, accept = rng.random((2, 200_000))
    for policy in ("dynamic", "static", "product"):
        offer = gate.decide(need, accept, 1.0, limit / (1 - limit), policy) == 1
        false_discovery, dismissals = 1 - (need * accept)[offer].mean(), 1 - accept[offer].mean()
        assert (false_discovery <= limit) == (policy == "product")
        assert (accept[offer] >= 1 - limit - 1e-12).all() and dismissals <= limit
