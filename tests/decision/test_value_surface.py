"""The surface over costs and prices against the gate, cell by cell."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_jax.decision import metrics, thinking
from prism_jax.decision.passes import BothPasses, Pass
from prism_jax.decision.thinking import Moves
from prism_jax.decision.value_surface import value_surface

RATIOS, PRICES = [2.0, 0.0, 0.5, 4.0, 1.0], [1e-3, 0.0, 4e-4, 2e-4, 4e-4, 10.0]
HALF = np.full(2, 0.5)
MOVES, TOKENS = Moves(1.5, 0.8, 0.4), 60.0


def steps(seed, n=80):
    rng = np.random.default_rng(seed)
    need_fast, accept_fast, *slow = rng.random((4, n)).round(1)  # with ties, and certain probabilities
    need, accept, thought = (rng.random((3, n)) < 0.5).astype(int)
    signals = BothPasses(Pass(need_fast, accept_fast), Pass(*slow))
    return signals, need, accept, thought, rng.integers(0, 300, n)


@given(st.integers(0, 100), st.booleans(), st.booleans())
@settings(max_examples=15)
def test_every_cell_equals_the_decisions_at_that_cell(seed, two, more):
    signals, need, accept, thought, spent = steps(seed)
    labels = {"y_slow": need * thought, "y_accept_slow": thought} if two else {}
    best = np.maximum(accept, thought) if two else accept
    if more:  # candidates that neither pass picks
        best = np.maximum(best, np.random.default_rng(seed).integers(0, 2, len(best)))
        labels["y_best"] = need * best
    table = value_surface(
        *signals,
        need * accept,
        MOVES,
        TOKENS,
        RATIOS,
        PRICES,
        slow_tokens=spent,
        y_need=need,
        y_accept=accept,
        **labels,
    )
    assert table.slow.shape == (len(PRICES), len(RATIOS))
    for i, price in enumerate(PRICES):
        for j, ratio in enumerate(RATIOS):
            offer, slow = thinking.decide_by_value(*signals, 1.0, ratio, MOVES, price, TOKENS)
            own = np.where(offer, np.where(slow, thought, accept) if two else accept, best)
            counts = metrics.confusion(offer, need * own)
            assert [cells[i, j] for cells in table.confusion()] == [int(cell) for cell in counts]
            assert table.slow[i, j] == slow.sum()
            assert table.slow_tokens[i, j] == spent[slow].sum()
            cost = metrics.realised_cost(offer, need, own, 1.0, ratio)
            assert table.realised_cost()[i, j] == pytest.approx(cost, rel=1e-12)
            assert table.token_cost()[i, j] == pytest.approx(price * spent[slow].sum() / len(spent))
            assert table.slow_rate()[i, j] == slow.mean()
            assert table.speak_rate()[i, j] == offer.mean()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": np.array([0.0, 0.5])}, "y: found 0.5"),
        ({"y_need": np.ones(2)}, "y_need, y_accept: found one of them"),
        ({"y_need": np.ones(2), "y_accept": np.ones(2), "y_slow": np.ones(2)}, "y_slow, y_accept_slow: found one"),
        ({"slow_tokens": np.ones(2)}, "slow_tokens: found dtype float64"),
        ({"tokens": 0.0}, "tokens: found 0.0"),
        ({"prices": [-1.0]}, "prices: found -1.0"),
        ({"cost_ratios": np.ones((1, 1))}, r"cost_ratios: found the shape \(1, 1\)"),
        ({"moves": Moves(1.0, 1.0, 2.0)}, "moves.both: found 2"),
        ({"groups": np.array([0.0, 1.0])}, "groups: found dtype float64"),
        ({"groups": np.array([0, 2]), "num_groups": 2}, "groups: found 2"),
        ({"groups": np.array([0, 1, 2])}, "groups: found 3 "),
        ({"tokens": np.ones(3)}, "tokens: found 3 "),
    ],
)
def test_bad_input_is_refused_by_name(changes, message):
    given_ = dict.fromkeys(("fast", "slow"), Pass(HALF, HALF)) | {
        "y": np.array([0, 1]),
        "moves": MOVES,
        "tokens": TOKENS,
    }
    given_ |= {"cost_ratios": RATIOS, "prices": PRICES}
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(value_surface)(**{**given_, **changes})


def test_groups_and_tokens_of_each_step_are_counted_apart():
    signals, need, accept, thought, spent = steps(2)
    rng = np.random.default_rng(2)
    groups, tokens = rng.choice([0, 1, 3], len(spent)), rng.choice([20.0, 60.0, 61.5], len(spent))

    def table(rows, expected, **more):
        labels = {"y_need": need, "y_accept": accept, "y_slow": need * thought, "y_accept_slow": thought}
        labels = {name: label[rows] for name, label in labels.items()}
        y, spends = (need * accept)[rows], {"slow_tokens": spent[rows]}
        passes = (Pass(need[rows], accept[rows]) for need, accept in signals)
        return value_surface(*passes, y, MOVES, expected, RATIOS, PRICES, **labels, **spends, **more)

    grouped = table(slice(None), tokens, groups=groups, num_groups=5)
    assert grouped.steps.tolist() == np.bincount(groups, minlength=5).tolist()
    for group in range(5):
        parts = [
            table((groups == group) & (tokens == number), number) for number in set(tokens[groups == group].tolist())
        ]
        for name in ("tp", "fp", "fn", "tn", "slow", "slow_tokens", "rejected", "missed"):
            assert (getattr(grouped, name)[group] == sum(getattr(part, name) for part in parts)).all()
    assert np.isnan(grouped.realised_cost()[4]).all() and np.isnan(grouped.slow_rate()[2]).all()
    assert (grouped.speak_rate()[0] == (grouped.tp + grouped.fp)[0] / grouped.steps[0]).all()


def test_costs_need_the_labels_and_the_tokens():
    signals, need, accept, _, _ = steps(0)
    table = value_surface(*signals, need * accept, MOVES, TOKENS, RATIOS, PRICES)
    assert table.slow_tokens is None and table.rejected is None
    with pytest.raises(ValueError, match="realised_cost: found no acceptance counts"):
        table.realised_cost()
    with pytest.raises(ValueError, match="token_cost: found no tokens"):
        table.token_cost()
