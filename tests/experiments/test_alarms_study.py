"""The study of alarms: the changed mood, forecasts without a look ahead, and both tables."""

import numpy as np
import pytest

from prism_jax.experiments import alarms
from prism_jax.people import parse_columns, read_log


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(6), 30)
    return person, (rng.random(180) < np.repeat([0.2, 0.4, 0.5, 0.6, 0.8, 0.9], 30)).astype(float)


def test_moods_change_from_the_middle_on_and_only_acceptances_turn(people):
    person, accepted = people
    changed, unchanged = alarms.with_changed_mood(person, accepted)
    assert unchanged.tolist() == [15] * 6
    early = np.tile(np.arange(30) < 15, 6)
    np.testing.assert_array_equal(changed[early], accepted[early])
    assert (changed[~early] <= accepted[~early]).all()
    assert 0.3 < 1 - changed[~early].sum() / accepted[~early].sum() < 0.7


def test_a_forecast_knows_neither_its_answer_nor_those_after_it(people):
    person, accepted = people
    other = accepted.copy()
    other[40:60] = 1 - other[40:60]  # the end of the second person
    before, after = (alarms.forecasts(person, accepted, seen) for seen in (accepted, other))
    for name in before:
        same = np.isclose(before[name], after[name], atol=1e-12)
        assert same[:41].all() and same[60:].all()
    assert not np.isclose(before[alarms.LAYER], after[alarms.LAYER])[41:60].any()


def test_the_tables(people, tmp_path):
    person, accepted = people
    path = tmp_path / "log.csv"
    lines = [f"{one},{t},{int(y)}" for t, (one, y) in enumerate(zip(person, accepted, strict=True))]
    path.write_text("\n".join(["who,when,yes", *lines]))
    table = alarms.log_table(read_log(path, parse_columns("person=who,time=when,accepted=yes")), "six", alpha=0.05)
    assert [section.title for section in table.sections] == ["the log as it is", "after a change of mood"]
    assert [row.name for row in table.sections[0].rows] == [alarms.RATE, alarms.LAYER]
    simulated = alarms.shift_table(people=20, answers=30, alpha=0.5)
    assert [row.name for row in simulated.sections[0].rows][0] == "none (null replays)"
