"""Tables that come from counts, however they are printed, and ProactiveBench's own results: no finding."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from printed_tables import ROUNDING, exact, shown, table
from real_checkout import CHECKOUT, needs_checkout
from true_tables import true_table

from studies.audit_tables.auditing import audit
from studies.audit_tables.quantities import RATIOS
from studies.audit_tables.reading import read_table

USUAL = ["recall", "precision", "accuracy", "false alarm", "F1"]


def findings(sheets, *arguments, **settings):
    return [one for result in audit(sheets, *arguments, **settings) for one in result.findings if one.level != "note"]


@settings(max_examples=20)
@given(
    st.lists(st.tuples(*[st.integers(0, 60)] * 4).filter(sum), min_size=1, max_size=4),
    st.one_of(st.just(USUAL), st.lists(st.sampled_from(sorted(RATIOS)), min_size=1, max_size=8, unique=True)),
    st.integers(0, 8),
    st.sampled_from([how for hows in ROUNDING.items() for how in hows[1]]),
    st.booleans(),
    st.booleans(),
)
def test_a_table_of_counts_has_no_finding(tmp_path_factory, rows, names, decimals, how, percent, stabilised):
    if not percent and decimals == 0:
        decimals = 1
    path = tmp_path_factory.mktemp("tables") / "table.csv"
    path.write_text(table(rows, names, decimals, how, percent=percent, stabilised=stabilised))
    assert findings([read_table(str(path))]) == []


@settings(max_examples=5)
@given(st.integers(0, 10**6), st.integers(5, 300), st.sampled_from([how for hows in ROUNDING.values() for how in hows]))
def test_a_drift_study_of_decisions_has_no_finding(tmp_path_factory, seed, steps, how):
    """Scores are drawn, thresholded at several temperatures and biases, and counted against one set of labels."""
    key = np.random.default_rng(seed)
    z, labels, threshold = key.normal(size=steps), key.random(steps) < 0.5, key.random(steps)
    lines = ["name,T,ε,Recall,Precision,Accuracy,F1,Flip"]
    base = None
    for t in (1.0, 1.5):
        for bias in (0.0, 0.15, -0.15):
            speaks = 1 / (1 + np.exp(-z / t)) >= threshold - bias
            base = speaks if base is None else base
            counts = [int((a & b).sum()) for a, b in ((speaks, labels), (speaks, ~labels), (~speaks, labels))]
            counts.append(steps - sum(counts))
            cells = [shown(exact(counts, name), 2, how) for name in ("recall", "precision", "accuracy", "F1")]
            flips = shown(Fraction(int((speaks != base).sum()), steps), 2, how)
            lines.append(",".join([f"{t} {bias}", str(t), str(bias), *cells, flips]))
    path = tmp_path_factory.mktemp("tables") / "drift.csv"
    path.write_text("\n".join(lines) + "\n")
    assert findings([read_table(str(path))], [steps], same_labels=True) == []


@settings(max_examples=6)
@given(
    st.lists(st.tuples(*[st.integers(0, 60)] * 4).filter(sum), min_size=2, max_size=3),
    st.sampled_from([how for hows in ROUNDING.values() for how in hows]),
    st.booleans(),
)
def test_a_pooled_row_and_an_averaged_row_have_no_finding(tmp_path_factory, rows, how, pooled):
    rows = [tuple(count + 1 for count in row) for row in rows]
    text = table(rows, USUAL, 2, how)
    if pooled:
        cells = [shown(exact([sum(column) for column in zip(*rows, strict=True)], name), 2, how) for name in USUAL]
    else:
        cells = [shown(sum(exact(row, name) for row in rows) / len(rows), 2, how) for name in USUAL]
    text += ",".join(["Average", *cells, str(sum(map(sum, rows)))]) + "\n"
    path = tmp_path_factory.mktemp("tables") / "pooled.csv"
    path.write_text(text)
    (result,) = audit([read_table(str(path))])
    assert [one for one in result.findings if one.check == "pooled row"] == []


def levels(tmp_path, seeds):
    """Levels of findings in true tables: of single confusions, and of averages."""
    path, found = tmp_path / "table.csv", {False: set(), True: set()}
    for seed in seeds:
        text, steps, averages = true_table(np.random.default_rng(seed))
        path.write_text(text)
        for one in findings([read_table(str(path))], [] if steps is None else [steps]):
            found[averages].add(one.level)
    return found


@pytest.mark.slow
def test_no_true_table_is_impossible_and_none_of_single_confusions_has_a_finding(tmp_path):
    assert levels(tmp_path, range(150)) == {False: set(), True: {"averages only", "last digit"}}


@pytest.mark.study
def test_ten_thousand_true_tables_are_never_impossible(tmp_path):
    assert levels(tmp_path, range(10_000)) == {False: set(), True: {"averages only", "last digit"}}


def test_a_row_that_pools_nothing_is_noted(tmp_path):
    path = tmp_path / "pooled.csv"
    text = table([(40, 10, 5, 45), (20, 20, 20, 40)], USUAL, 2, ROUNDING["truncated"][0])
    average = table([(61, 30, 24, 85)], USUAL, 2, ROUNDING["truncated"][0]).splitlines()[1].replace("row 0", "Average")
    path.write_text(text + average + "\n")
    ((found,),) = [result.findings for result in audit([read_table(str(path))])]
    assert (found.check, found.row, found.level) == ("pooled row", "Average", "note")
    assert found.arithmetic.startswith(
        "the other rows' 200 decisions have TP 60, FP 30, FN 25, TN 85; this row has TP 61"
    )


def check(tmp_path, text):
    path = tmp_path / "table.csv"
    path.write_text(text)
    (result,) = audit([read_table(str(path))])
    return [(one.row, one.check, one.level) for one in result.findings]


def test_a_truncated_false_alarm_without_precision_is_read_from_its_own_side(tmp_path):
    """TP 3, FP 186, FN 25: P = 1.587 %, 1 - P = 98.412 %, truncated to 98 %, and F1 = 2.76 %, truncated to 2.7 %."""
    assert check(tmp_path, "m,FA,R,F1\na,98%,10.7%,2.7%\n") == []
    assert check(tmp_path, "m,FA,F1\na,98.4%,3.1%\n") == []


def test_an_f1_below_the_formula_is_an_average_and_one_above_it_is_impossible(tmp_path):
    """Seeds of (P, R) = (0.9, 0.1) and (0.1, 0.9) have a mean F1 of 0.18; the formula of their means gives 0.5."""
    assert check(tmp_path, "m,P,R,F1\na,0.500,0.500,0.180\n") == [("a", "F1 = 2PR / (P + R)", "averages only")]
    assert check(tmp_path, "m,P,R,F1\na,0.500,0.500,0.520\n") == [("a", "F1 = 2PR / (P + R)", "impossible")]
    assert check(tmp_path, "m,P,R,F1\na,0.900,0.900,0.700\n") == [("a", "F1 = 2PR / (P + R)", "impossible")]


def test_rates_that_sum_to_more_than_one_are_impossible_and_less_is_an_average_with_empty_parts(tmp_path):
    assert check(tmp_path, "m,P,FA\na,80%,30%\nb,50%,40%\n") == [
        ("a", "P + FA = 100 %", "impossible"),
        ("b", "P + FA = 100 %", "averages only"),
    ]


def test_swapped_precision_and_recall_are_not_seen(tmp_path):
    """All identities of P, R and F1 are symmetric."""
    assert check(tmp_path, "m,R,P,F1\na,0.900,0.500,0.643\n") == []


@needs_checkout
def test_the_published_results_of_proactivebench_have_no_finding():
    """The 16 scored systems; one more file there is empty."""
    paths = [path for path in sorted((CHECKOUT / "eval" / "results").glob("*.csv")) if path.read_text().strip()]
    assert len(paths) == 16
    results = audit([read_table(str(path)) for path in paths])
    assert [one for result in results for one in result.findings] == []
    assert [fit.solutions.number for result in results for fit in result.fits] == [1] * 48
