"""The tables of an evaluation and their form on the terminal."""

import io
import math

import pytest
import rich.console
from synthetic_scores import make_scores

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import protocol
from prism_jax.report import tables
from prism_jax.scores import Scores


def evaluate(drop=(), **knobs):
    columns = {name: column for name, column in make_scores(**knobs).columns().items() if name not in drop}
    scores = Scores.from_columns(columns)
    return protocol.evaluate(scores, protocol.calibrate(scores), OperatingPoint())


def printed(evaluation, width=None):
    console = rich.console.Console(file=io.StringIO(), width=width)
    tables.print_tables(evaluation, console)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.25, "0.2500"), (-0.00001, "−0.0000"), (-1.5, "−1.5000"), (None, "–"), (math.nan, "–"), (math.inf, "∞")],
)
def test_numbers(value, shown):
    assert tables.number(value) == shown


def test_percents_and_counts():
    assert (tables.percent(0.12345), tables.percent(-1.5), tables.percent(None)) == ("12.3", "−150.0", "–")
    assert (tables.count(12.0), tables.count(3), tables.count(2.25)) == ("12", "3", "2.2")


@pytest.mark.parametrize("knobs", [{}, {"slow": False}, {"drop": ("p_both_true",)}, {"logging": True}])
def test_every_row_has_a_cell_for_each_column_and_each_policy_a_meaning(knobs):
    evaluation = evaluate(**knobs)
    for table in tables.all_tables(evaluation):
        for section in table.sections:
            assert section.rows
            assert {len(row.cells) for row in section.rows} == {len(table.columns)}
        assert all(column.label and column.meaning.endswith((".", ")")) for column in table.columns)
    for table in (tables.cost_table(evaluation), tables.interval_table(evaluation), tables.rate_table(evaluation)):
        rows = [row for section in table.sections for row in section.rows]
        assert len(rows) == len(evaluation.policies)
        assert [row.strong for row in rows] == [row.deployed for row in evaluation.policies]
        assert all(row.meaning for row in rows)


def test_columns_without_a_known_number_are_left_out():
    labels = {column.label for column in tables.cost_table(evaluate()).columns}
    bare = {column.label for column in tables.cost_table(evaluate(drop=("p_both_true",), slow=False)).columns}
    assert labels - bare == {"expected cost", "regret", "gap closed", "gap labels", "slow rate"}
    distances = {column.label for column in tables.signal_table(evaluate()).columns}
    gone = {column.label for column in tables.signal_table(evaluate(drop=("p_need_true", "p_accept_true"))).columns}
    assert distances - gone == {"distance to truth", "constant's distance"}


def test_the_terminal_shows_every_cell_and_what_is_switched_off():
    evaluation = evaluate(drop=("p_both_true",))
    text = printed(evaluation, width=120)
    lines = iter(line.replace("▸", " ").split() for line in text.splitlines())
    for table in tables.all_tables(evaluation):
        assert table.title in text
        for section in table.sections:
            assert not section.title or section.title.split() in lines  # in order, after all lines before
            for row in section.rows:
                assert [*row.name.split(), *row.cells] in lines
    assert text.count("▸ on margin") == 4
    assert "480 test steps of 40 streams, all judged" in text
    assert "C_FA = 1, C_FN = 2" in text
    assert "off: Bayes oracle, regret, gap closed and distance to the truth: there is no column p_both_true" in text


def test_masked_steps_are_reported():
    assert "masked because a label is missing" in tables.what_was_measured(evaluate(logging=True))


def test_without_a_console_no_number_is_cut_however_narrow_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    evaluation = evaluate()
    tables.print_tables(evaluation)
    text = capsys.readouterr().out
    assert "…" not in text
    for table in tables.all_tables(evaluation):
        for section in table.sections:
            assert all(cell in text for row in section.rows for cell in row.cells)
