"""The search for counts against an enumeration of all confusions, and its speed at many decisions."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from printed_tables import ROUNDING, exact, shown

from prism_jax.decision import metrics
from studies.audit_tables.cells import as_percentage, parse
from studies.audit_tables.confusions import coefficients_of, solve
from studies.audit_tables.quantities import COUNTS, RATIOS

NAMES = st.lists(st.sampled_from(sorted(RATIOS)), min_size=1, max_size=5, unique=True)


def cell(text):
    number, percent = parse(text)
    return as_percentage(number) if percent else number


def enumerated(cells, steps, reading):
    """All confusions of `steps` decisions whose exact rates lie in the intervals of the printed ones."""
    found = []
    for tp, fp, fn in itertools.product(range(steps + 1), repeat=3):
        counts = (tp, fp, fn, steps - tp - fp - fn)
        if counts[3] >= 0 and all(_fits(counts, name, printed, reading) for name, printed in cells.items()):
            found.append(counts)
    return found


def _fits(counts, name, printed, reading):
    low, high = printed.interval(reading)
    if name in COUNTS:
        return counts[COUNTS.index(name)] == printed.value
    if name in RATIOS:
        value = exact(counts, name)
        return printed.value in (0, 1) if value is None else low <= value <= high
    value = coefficients_of(np.array(counts)[:, None])[name][0]
    return printed.value in (0, 1) if np.isnan(value) else float(low) - 1e-9 <= value <= float(high) + 1e-9


def check(cells, steps, reading):
    found, expected = solve(cells, steps, reading), enumerated(cells, steps, reading)
    assert (found.number, found.complete) == (len(expected), True)
    if expected:
        assert found.lowest == tuple(map(min, zip(*expected, strict=True)))
        assert found.highest == tuple(map(max, zip(*expected, strict=True)))


@settings(max_examples=40)
@given(st.data(), NAMES, st.integers(1, 9), st.sampled_from(["rounded", "truncated", "loose"]))
def test_it_finds_what_an_enumeration_finds(data, names, steps, reading):
    """Each rate is that of some confusion of up to two decisions more or fewer, so that many rows just miss."""
    cells = {}
    for name in names:
        n = data.draw(st.integers(max(1, steps - 2), steps + 2))
        cuts = sorted(data.draw(st.lists(st.integers(0, n), min_size=3, max_size=3)))
        counts = (cuts[0], cuts[1] - cuts[0], cuts[2] - cuts[1], n - cuts[2])
        value = exact(counts, name)
        how = ROUNDING.get(reading, ROUNDING["rounded"])[0]
        cells[name] = cell("0%" if value is None else shown(value, data.draw(st.integers(0, 3)), how))
    check(cells, steps, reading)


@settings(max_examples=20)
@given(
    st.integers(2, 9),
    st.integers(-10, 10),
    st.integers(-10, 10),
    st.sampled_from(["50%", "66.7%", "75%", "80%", None]),
    st.sampled_from([None, 0, 1, 3]),
)
def test_coefficients_and_counts_are_found_too(steps, kappa, mcc, accuracy, tp):
    cells = {"kappa": cell(f"{kappa / 10:.1f}"), "MCC": cell(f"{mcc / 10:.1f}")}
    cells |= {} if accuracy is None else {"accuracy": cell(accuracy)}
    cells |= {} if tp is None else {"TP": cell(str(tp))}
    check(cells, steps, "rounded")


@settings(max_examples=20)
@given(st.tuples(*[st.integers(0, 40)] * 4).filter(sum))
def test_the_ratios_are_those_of_the_decision_library(counts):
    rates = metrics.rates(metrics.Confusion(*counts))
    for name, value in {
        "recall": rates.recall,
        "precision": rates.precision,
        "accept rate": rates.precision,
        "false alarm": rates.false_alarm,
        "accuracy": rates.accuracy,
        "false positive rate": rates.false_positive_rate,
        "specificity": rates.specificity,
        "missed": rates.missed_need,
        "speak rate": rates.speak_rate,
        "share of positives": rates.prevalence,
        "false alarms per step": rates.false_alarms_per_step,
        "F1": rates.f1,
    }.items():
        expected = exact(counts, name)
        if expected is not None and not np.isnan(value):
            assert float(expected) == pytest.approx(value, abs=1e-8), name
    np.testing.assert_allclose(coefficients_of(np.array(counts)[:, None])["MCC"], rates.matthews, atol=1e-12)


def test_the_headline_row_has_one_solution_and_only_if_its_digits_were_truncated():
    row = {"recall": "98.88%", "precision": "77.05%", "accuracy": "76.39%", "false alarm": "22.94%", "F1": "86.61%"}
    cells = {name: cell(text) for name, text in row.items()}
    assert solve(cells, 233, "rounded").number == 0
    found = solve(cells, 233, "truncated")
    assert (found.number, found.lowest, found.highest) == (1, (178, 53, 2, 0), (178, 53, 2, 0))


@pytest.mark.parametrize("names", [("recall", "precision", "accuracy", "F1"), ("F1", "accuracy"), ("precision",)])
def test_a_hundred_thousand_decisions_take_seconds_at_most(names):
    counts = (41_234, 7_001, 1_766, 49_999)
    cells = {name: cell(shown(exact(counts, name), 2, ROUNDING["rounded"][0])) for name in names}
    start = time.process_time()
    found = solve(cells, 100_000, "rounded")
    assert found.number > 0
    if found.complete:
        assert all(low <= c <= high for low, c, high in zip(found.lowest, counts, found.highest, strict=True))
    assert time.process_time() - start < 5


def test_more_decisions_than_the_search_can_multiply_are_refused():
    with pytest.raises(ValueError, match="found 1000001, expected 1 to 1000000"):
        solve({"recall": cell("50%")}, 1_000_001, "rounded")
