"""The table and the figure about when to think, and what the report says about the slow pass."""

import numpy as np
import pytest
from synthetic_scores import make_columns, make_scores

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import protocol
from prism_jax.report import figures, page, tables
from prism_jax.scores import Scores

POINT = OperatingPoint(trigger="value", price=3e-4)


@pytest.fixture(scope="module")
def case():
    columns = make_columns(seed=1, noise=1.0)
    scores = Scores.from_columns(columns | {"tokens_slow": np.full(len(columns["step"]), 120)})
    fits = protocol.calibrate(scores)
    return scores, fits, protocol.evaluate(scores, fits, POINT)


def test_the_table_has_every_row_of_the_comparison(case):
    (table,) = tables.trigger_tables(case[2])
    assert [section.title for section in table.sections[:3]] == ["Constant", "10 % of steps", "20 % of steps"]
    rows = [row for section in table.sections for row in section.rows]
    assert [row.name for row in rows] == [row.trigger for row in case[2].triggers.rows]
    cells = dict(zip([column.label for column in table.columns], rows[3].cells, strict=False))
    value = case[2].triggers.rows[3]
    assert (value.trigger, value.budget) == ("value", 0.1)
    assert cells["slow rate"] == tables.percent(value.slow_rate)
    assert cells["kept"] == tables.percent(value.kept)
    assert cells["price of tokens"] == tables.number(value.token_cost)
    assert "480 calibration steps" in table.note and tables.number(case[2].triggers.gain) in table.note
    assert table in tables.all_tables(case[2])


def test_the_figure_joins_never_and_always_for_each_trigger(case):
    figure = figures.trigger_figure(case[2])
    assert [line[0] for line in figure.lines] == ["margin", "value", "entropy", "random"]
    for _, meaning, path, marks in figure.lines:
        assert meaning and len(marks) == 6
        points = path.replace("M", "").replace("L", "").split(" ")
        assert points[:2] == [figure.x(0.0), figure.y(0.0)]
        assert points[-2:] == [figure.x(1.0), figure.y(1.0)]
    for row, mark in zip(
        [row for row in case[2].triggers.rows if row.trigger == "value"], figure.lines[1][3], strict=True
    ):
        assert (mark.x, mark.y) == (figure.x(row.slow_rate), figure.y(row.kept))


def test_the_report_shows_table_figure_moves_and_price(case):
    scores, fits, evaluation = case
    source = page.render(evaluation, protocol.explore(scores, fits, POINT), fits)
    for text in ("When to think", 'class="trigger-value"', "trigger value, price 0.0003 per slow token", "on value"):
        assert text in source
    assert "moves the log-odds of acceptance by" in source and "120.0 tokens on average" in source


def test_without_a_slow_pass_nothing_is_added():
    scores = make_scores(slow=False)
    fits = protocol.calibrate(scores)
    evaluation = protocol.evaluate(scores, fits, OperatingPoint())
    assert tables.trigger_tables(evaluation) == ()
    assert figures.trigger_figure(evaluation) is None
    source = page.render(evaluation, protocol.explore(scores, fits, OperatingPoint()), fits)
    for text in ("When to think", "moves the log-odds", "per slow token", "on value"):
        assert text not in source


def test_a_slow_pass_that_saves_nothing_has_a_table_and_no_figure():
    columns = make_columns()
    columns |= {f"p_{name}_slow": columns[f"p_{name}_fast"] for name in ("need", "accept")}
    scores = Scores.from_columns(columns)
    evaluation = protocol.evaluate(scores, protocol.calibrate(scores), OperatingPoint())
    assert figures.trigger_figure(evaluation) is None
    (table,) = tables.trigger_tables(evaluation)
    assert "kept" not in {column.label for column in table.columns}
