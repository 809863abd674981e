"""The study of alarms: the changed mood, and the table of simulated people; tests/slow has its forecasts."""

import numpy as np

from prism_jax.experiments import alarms


def people():
    rng = np.random.default_rng(5)
    person = np.repeat(np.arange(6), 30)
    return person, (rng.random(180) < np.repeat([0.2, 0.4, 0.5, 0.6, 0.8, 0.9], 30)).astype(float)


def test_moods_change_from_the_middle_on_and_only_acceptances_turn():
    person, accepted = people()
    changed, unchanged = alarms.with_changed_mood(person, accepted)
    assert unchanged.tolist() == [15] * 6
    early = np.tile(np.arange(30) < 15, 6)
    np.testing.assert_array_equal(changed[early], accepted[early])
    assert (changed[~early] <= accepted[~early]).all()
    assert 0.3 < 1 - changed[~early].sum() / accepted[~early].sum() < 0.7


def test_simulated_people_fill_a_row_per_shift():
    table = alarms.shift_table(people=20, answers=30, alpha=0.5)
    names = ["none (null replays)", "none, half of the refusals withdrawn", "+0.25"]
    assert [row.name for row in table.sections[0].rows][:3] == names
    assert table.sections[0].rows[0].strong
