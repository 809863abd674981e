"""The study of promises: its row-wise test, its draws, and what it refuses."""

import numpy as np
import pytest
from scipy import stats

from prism_jax.decision import risk
from prism_jax.experiments.promises import METHODS, Population, measure, of_log, table_of


@pytest.fixture(scope="module")
def population():
    rng = np.random.default_rng(0)
    unit = np.repeat(np.arange(6), [3, 5, 8, 2, 9, 4])
    y = (rng.random(len(unit)) < 0.7).astype(float)
    return Population(np.round(rng.random(len(unit)) + y, 2), y, unit, "six people")


def test_one_draw_of_each_method_is_what_the_library_says(population):
    promise = risk.Promise("false_alarms", 0.4)
    found = {one.method: one for one in measure(population, promise, error=0.3, units=40, draws=1, seed=3)}
    assert found.keys() == METHODS.keys()
    counts = np.random.default_rng(3).multinomial(40, np.full(6, 1 / 6), 1)[0]
    thresholds = np.unique(np.quantile(population.score, np.linspace(0, 1, 200)))[::-1]
    first = risk.first_rule(population.score, thresholds)
    losses = risk.unit_losses(first, population.y, population.unit, len(thresholds), promise)
    drawn = np.repeat(losses, counts, axis=0)
    for bound in risk.BOUNDS:
        last = np.flatnonzero(risk.certify({promise: drawn}, 0.3, bound=bound).rules)[-1]
        np.testing.assert_allclose(found[bound].mean_risk, losses[:, last].mean())
    copies = counts[population.unit]
    p_values = [
        stats.binomtest(int(copies @ ((first <= g) * (1 - population.y))), int(copies.sum()), 0.4, "less").pvalue
        for g in range(len(thresholds))
    ]
    last = int(np.flatnonzero(np.array(p_values) > 0.3)[0]) - 1 if max(p_values) > 0.3 else len(p_values) - 1
    np.testing.assert_allclose(found["rows"].mean_risk, ((first <= last) * (1 - population.y)).mean())


def test_the_table_has_a_section_per_promise_and_number_of_units(population):
    promises = [risk.Promise.parse(f"false_alarms<={limit}") for limit in (0.3, 0.5)]
    table = table_of(population, promises, error=0.1, units=[6, 20], draws=10)
    titles = [f"{one}, {units} units drawn" for units in (6, 20) for one in promises]
    assert [section.title for section in table.sections] == titles
    with pytest.raises(ValueError, match=r"promise: found burden<=0.5, expected one about false_alarms"):
        table_of(population, [risk.Promise("burden", 0.5)], error=0.1, units=[6], draws=10)


def test_a_log_without_a_score_is_refused(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("who,yes,s\na,1,0.5\na,0,\nb,1,0.25\n")
    with pytest.raises(ValueError, match=r"columns: found no score of .*, expected score=COLUMN"):
        of_log(str(path), "person=who,accepted=yes")
    assert of_log(str(path), "person=who,accepted=yes,score=s").score.tolist() == [0.5, -np.inf, 0.25]
