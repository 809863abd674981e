"""The paper's figures: legends beside the panels, every section named, no empty panels, each map apart."""

import numpy as np
import pytest
from paper_study import ON_SCORES, columns, study_of

from prism_jax.experiments.paper import drawing, registry
from prism_jax.experiments.paper.sheet import Line, Measure, Number

MEASURES = {"f1": Measure("F1", "", "%"), "zero": Measure("nothing", ""), "none": Measure("unknown", "")}


@pytest.fixture(scope="module")
def study():
    return study_of(columns())


def empty(**layout):
    from matplotlib.figure import Figure  # which no other tests load

    return Figure(**layout)


def drawn(name, study):
    figure = empty(layout="constrained")
    registry.function(name)(study).draw(figure)
    return figure


def line(name, value, section="", paper=np.nan):
    return Line(name, {"f1": Number(value, paper=paper), "zero": Number(0.0, paper=3.0), "none": Number()}, section)


@pytest.mark.parametrize("name", ON_SCORES)
def test_no_legend_stands_among_the_data(study, name):
    figure = drawn(name, study)
    assert all(axes.get_legend() is None for axes in figure.axes)
    labels = [label for axes in figure.axes for label in axes.get_legend_handles_labels()[1]]
    shown = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert shown == list(dict.fromkeys(labels))


def names_of(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def test_every_section_of_bars_is_named_the_first_included():
    figure = empty()
    drawing.bars(figure, [line("x", 0.5, "one"), line("y", 0.4, "one"), line("x", 0.3, "two")], MEASURES)
    assert names_of(figure.axes[0]) == ["one", "x", "y", "two", "x"]
    assert [bar.get_y() + bar.get_height() / 2 for bar in figure.axes[0].patches] == pytest.approx([1, 2, 4])


def test_the_rows_of_the_tests_of_significance_say_what_is_compared(study):
    names = names_of(drawn("significance", study).axes[0])
    assert names[0] == "gate minus p_accept alone"
    assert "slow on margin minus fast only" in names


def test_panels_of_zeros_are_left_out():
    figure = empty()
    drawing.bars(figure, [line("x", 0.5, paper=0.6), line("y", 0.4)], MEASURES)
    assert [axes.get_xlabel() for axes in figure.axes] == ["F1 (%)"]
    figure = empty()
    drawing.curves(figure, [0.0, 1.0], {"ours": [line("0", 0.5), line("1", 0.4)]}, MEASURES, "x")
    assert [axes.get_ylabel() for axes in figure.axes] == ["F1 (%)"]
    figure = empty()
    drawing.heatmaps(figure, {"zero": np.zeros((1, 2)), "some": np.array([[0.0, 1.0]])}, ["r"], ["a", "b"], ("y", "x"))
    assert [axes.get_title() for axes in figure.axes] == ["some"]


def test_a_figure_of_zeros_alone_is_drawn():
    figure = empty()
    drawing.bars(figure, [line("x", 0.0)], {"zero": MEASURES["zero"]})
    assert len(figure.axes) == 1


def test_raw_and_calibrated_signals_have_panels_of_their_own(study):
    figure = drawn("calibration_quality", study)
    titles = [axes.get_title().split(":")[0] for axes in figure.axes]
    assert titles == ["p_need, raw", "p_accept, raw", "p_need, calibrated", "p_accept, calibrated"]
    assert all(len(axes.collections) == 1 for axes in figure.axes)


def test_the_case_study_states_in_the_figure_what_happened(study):
    figure = drawn("case_study", study)
    assert "The slow pass" in figure.axes[0].get_title()
    assert names_of(figure.axes[1]) == ["fast pass", "with slow pass", "right"]
