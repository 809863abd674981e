"""Made logs with easy and hard probabilities: the study's own truth, and whether refusals leave honest intervals."""

import numpy as np
import pytest

from prism_jax.experiments import overlap
from prism_jax.experiments.overlap import DESIGNS, Design, measure_design

REPLICATIONS = 1_000


def test_the_truth_is_the_mean_of_many_estimates_and_logs_differ_in_who_has_what():
    design = Design("linear", 0.2, 20, 20)
    found = measure_design(design, 40)
    assert found.refused == 0 and min(found.covered) > 0.75 and found.covered == found.anyway
    generator, person = np.random.default_rng(0), np.repeat(np.arange(20), 20)
    first, second = (overlap._rows(design, person, generator)[0] for _ in range(2))
    assert (first != second).any() and np.array_equal(np.sort(first), np.sort(second))


def test_the_table_has_a_row_per_design_and_a_dash_where_nothing_is_answered():
    designs = (Design("constant", 0.5, 10, 20), Design("constant", 0.05, 10, 40), Design("linear", 0.1, 2, 20))
    table = overlap.table_of(designs, 10)
    cells = [row.cells for section in table.sections for row in section.rows]
    assert [len(section.rows) for section in table.sections] == [2, 1]
    assert cells[0][0] == "0.0" and cells[1][:2] == ("100.0", "–") and cells[2] == ("100.0", "–", "–", "–")


@pytest.mark.study
@pytest.mark.parametrize("design", DESIGNS, ids=lambda one: f"{one.kind}, {one}")
def test_answered_logs_are_covered(design):
    """At least 93 %, of rare answers 90, within three standard errors; a design is answered if most of its logs are."""
    found, least = measure_design(design, REPLICATIONS), 0.9 if design.kind == "rare answers" else 0.93
    if found.refused < 0.5:
        assert min(found.covered) >= least - 3 * np.sqrt(0.93 * 0.07 / REPLICATIONS)


@pytest.mark.study
def test_logs_that_hide_what_they_lack_are_refused():
    for design in DESIGNS:
        if (design.kind == "rare rows" and design.value <= 0.05) or design.people < 8:
            assert measure_design(design, 20).refused == 1, design
