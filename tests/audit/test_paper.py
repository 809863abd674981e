"""What the audit finds in the paper's tables, each of which was checked by hand (docs/paper.md)."""

import pathlib

import pytest

from studies.audit_tables.auditing import audit
from studies.audit_tables.labels import _BASE, _OTHER, joint_range
from studies.audit_tables.paired import narrowest_width
from studies.audit_tables.reading import read_table

TABLES = pathlib.Path(__file__).parents[2] / "docs" / "paper_tables"
NAMES = [
    *("main", "ablation_a", "ablation_b", "ablation_c", "ablation_d", "margin_sweep", "cost_margin_grid"),
    *("cost_sensitivity", "domain_transfer", "calibration_quality", "drift", "judge_agreement", "judge_robustness"),
    *("significance", "text"),
]


@pytest.fixture(scope="module")
def results():
    sheets = [read_table(str(TABLES / f"{name}.csv")) for name in NAMES]
    return {one.sheet.name.removesuffix(".csv"): one for one in audit(sheets, [233, 227], same_labels=True)}


def test_every_table_of_the_folder_is_audited():
    assert sorted(path.stem for path in TABLES.glob("*.csv")) == sorted(NAMES)


FOUND = {
    "impossible": [
        ("ablation_b", "Slow-only", "F1 = 2PR / (P + R)", "= 85.83, printed 86.79"),
        ("ablation_d", "p_accept only (p_need = 1)", "P + FA = 100 %", "46.20 + 62.50 = 108.70, not 100"),
        ("text", "Abstract: false alarms reduced by 22.78%", "difference", "= -27.28 points"),
        ("text", "About 11% of cases are thought about", "one setting", "slow rate"),
        ("ablation_b", "Slow-on-margin; 1:2 (cost_sensitivity.csv)", "one setting, one result", "78.81 and 73.07"),
        ("calibration_quality", "Task, after scaling", "F1 ≤ 2P / (1 + P)", "= 85.64 (at R = 100), printed 85.70"),
        ("significance", "Accuracy", "difference", "76.39 − 72.69 = 3.70 points"),
        ("significance", "Precision; False-Alarm", "mirrored interval", "[-7.05, -2.35], printed [-7.12, -2.28]"),
    ],
    "averages only": [
        ("ablation_c", "SFT", "F1 = 2PR / (P + R)", "= 84.01, printed 76.09"),
        ("drift", "Super pessimistic", "F1 = 2PR / (P + R)", "= 52.71, printed 38.89"),
        ("main", "GPT-4o-mini; Qwen3-8B-PRISM", "rates of one set of labels", "34.80 to 34.83 %"),
        ("main", "Qwen3-8B-PRISM, human experts", "P + FA = 100 %", "74.01 + 25.91 = 99.92"),
        ("ablation_c", "SFT", "Acc ≥ F1 / (2 − F1)", "= 72.43 (reached where TN = 0), printed 69.52"),
        ("drift", "T = 1, ε = +0.15", "bounds of the flip rate", "0.00 to 5.06 %, printed 12.08 %"),
        ("drift", "T = 1, ε = -0.15", "bounds of the flip rate", "0.00 to 4.03 %, printed 14.83 %"),
        ("drift", "Super optimistic", "bounds of the flip rate", "0.00 to 55.66 %, printed 68.34 %"),
        ("significance", "Recall", "width of the paired interval", "at least 2.15 points wide"),
    ],
    "last digit": [
        ("main", "6 rows", "one way of cutting digits", "N = 233 truncated: DeepSeek-R1, Qwen3-8B-PRISM"),
        ("judge_agreement", "4 rows", "one way of cutting digits", "N = 229 truncated: Pool A vs pool B"),
    ],
    "note": [("ablation_a", "Static-cost; Dynamic", "nested policies", "at least 72.41, printed 38.54")],
}


@pytest.mark.parametrize(
    ("level", "table", "row", "check", "words"), [(level, *row) for level, rows in FOUND.items() for row in rows]
)
def test_it_finds(results, level, table, row, check, words):
    if check == "one setting" and row.startswith("About"):
        found = [one for one in results["cost_sensitivity"].findings if row in one.row]
        assert "slow rate 13.47 and 11.00" in found[0].arithmetic
        return
    found = [one for one in results[table].findings if (one.row, one.check) == (row, check)]
    assert len(found) == 1
    assert words in found[0].arithmetic
    assert found[0].level == level


def test_the_rows_of_the_main_table_come_from_two_sets_of_events(results):
    fits = {fit.row: fit for fit in results["main"].fits}
    assert fits["Qwen3-8B-PRISM"].ways == ((233, "truncated"),)
    assert fits["Qwen3-8B-PRISM"].solutions.lowest == (178, 53, 2, 0)
    assert fits["GPT-4o"].ways == ((227, "rounded"),)
    assert (227, "rounded") in fits["Qwen2-7B-Proactive"].ways
    assert fits["Qwen2-7B-Proactive"].solutions.lowest == (111, 112, 0, 4)


def test_f1_by_20_points_is_a_difference_and_54_percent_a_ratio(results):
    found = {one.row: one for one in results["text"].findings}
    assert "Abstract: F1 improved by 20.14%" not in found
    assert found["False alarms cut by nearly 54% relative"].level == "note"


def test_the_bound_of_flips_is_sharp():
    """Optimistic: with π positives, min(1.988π, .012π) + min(1.2138π, 2 - 3.2138π), largest near π = .452."""
    rows = read_table(str(TABLES / "drift.csv")).rows
    cells = [{name: row.cells[name] for name in ("recall", "precision")} for row in (rows[0], rows[-2])]
    most = 0.0
    for share in range(1, 10_000):
        p = share / 10_000
        alarms = [float(c["recall"].value * (1 / c["precision"].value - 1)) * p for c in cells]
        if max(alarms) <= 1 - p:
            hits = [float(c["recall"].value) * p for c in cells]
            flips = min(sum(hits), 2 * p - sum(hits)) + min(sum(alarms), 2 * (1 - p) - sum(alarms))
            most = max(most, flips)
    _, high = joint_range(*cells, _BASE != _OTHER)
    assert most <= high < most + 0.01  # the printed digits leave recall up to 100.5 % minus 99 %


def test_the_accuracys_interval_is_as_narrow_as_a_paired_one_can_be():
    """Its printed width is 4.66 points: PRISM would have to be right wherever the baseline is."""
    assert 100 * narrowest_width(0.0343, 233) == pytest.approx(4.67, abs=0.02)
