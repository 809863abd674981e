"""How often the alarm rings falsely over 10,000 null replays, how soon after a shift, and on a log."""

import numpy as np
import pytest

from prism_jax.evaluation.answers.columns import parse_columns
from prism_jax.evaluation.answers.logs import read_log
from prism_jax.experiments import alarms
from prism_jax.experiments.alarms import replay

pytestmark = pytest.mark.slow
ALPHA = 0.05


def test_false_alarms_at_any_time_are_at_most_alpha():
    rings = replay(shift=0.0, people=10_000, answers=300, change=0, alpha=ALPHA, seed=0)
    assert 0.002 < (rings > 0).mean() <= ALPHA
    rings = replay(shift=0.0, people=10_000, answers=300, change=0, alpha=ALPHA, seed=0, withdrawn=0.5)
    assert (rings > 0).mean() <= ALPHA


def test_larger_shifts_ring_sooner_and_small_ones_ring_as_well():
    shares, delays = [], []
    for shift in (0.5, 1.0, -1.0, 2.0):
        rings = replay(shift=shift, people=500, answers=300, change=0, alpha=ALPHA, seed=1)
        shares.append((rings > 0).mean())
        delays.append(np.median(np.where(rings > 0, rings, 301)))
    assert min(shares[1:]) > 0.98 and shares[0] > 0.6
    assert delays[3] < delays[1] < delays[0]


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(5)
    person = np.repeat(np.arange(6), 30)
    return person, (rng.random(180) < np.repeat([0.2, 0.4, 0.5, 0.6, 0.8, 0.9], 30)).astype(float)


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
