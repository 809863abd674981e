"""The study of coverage: what it draws, how it counts, its tables by part, and what its command refuses."""

import numpy as np
import pytest
from scipy import stats

from prism_jax.decision import risk
from prism_jax.evaluation.answers.columns import parse_columns
from prism_jax.evaluation.answers.logs import read_log
from studies.coverage import alarms, drawing, off_policy, promises
from studies.coverage.counting import count
from studies.coverage.drawing import DESIGNS, Design, made_logs, redrawn_logs

REPLICATIONS = 1_000


def test_what_is_refused_or_has_no_interval_is_not_counted():
    rows = np.array([[1.0, 0.0, 2.0, 0], [4.0, 3.5, 4.5, 0], [9.0, 0.0, 9.0, 1], [2.0, np.nan, np.nan, 0]])
    (found,) = count(1.5, lambda rng: rng.integers(9), lambda drawn: [rows[: len(list(drawn))]], 4)
    assert (found.coverage, found.width, found.unrefused.coverage) == (0.5, 1.5, 2 / 3)
    assert found.bias == pytest.approx((1.0, 1.5 / np.sqrt(2)))
    nothing = found._replace(refused=np.full(4, True))
    assert np.isnan([nothing.coverage, nothing.width, *nothing.bias]).all()


def test_the_truth_is_the_mean_of_many_estimates_and_logs_differ_in_who_has_what():
    design = Design("linear", 0.2, 20, 20)
    found = off_policy.differences(made_logs(design), 40)
    assert not any(one.refused.any() for one in found) and min(one.coverage for one in found) > 0.75
    rng, person = np.random.default_rng(0), np.repeat(np.arange(20), 20)
    first, second = (drawing.rows_of(design, person, rng)[0] for _ in range(2))
    assert (first != second).any() and np.array_equal(np.sort(first), np.sort(second))


def test_the_table_has_a_row_per_design_and_a_dash_where_nothing_is_answered():
    designs = (Design("constant", 0.5, 10, 20), Design("constant", 0.05, 10, 40), Design("linear", 0.1, 2, 20))
    table = off_policy.design_table(10, designs)
    cells = [row.cells for section in table.sections for row in section.rows]
    assert [len(section.rows) for section in table.sections] == [2, 1]
    assert cells[0][0] == "0.0" and cells[0][1] == cells[0][2]
    assert cells[1][:2] == ("100.0", "–") and "–" not in cells[1][2] and cells[2] == ("100.0", "–", "–")


@pytest.mark.study
@pytest.mark.parametrize("design", DESIGNS, ids=lambda one: f"{one.kind}, {one}")
def test_answered_logs_are_covered_and_those_that_hide_what_they_lack_are_refused(design):
    """At least 93 %, of rare answers 90, within three standard errors; a design is answered if most of its logs are."""
    if design.people < off_policy.LEAST_PEOPLE:
        return
    found, least = off_policy.differences(made_logs(design), REPLICATIONS), 0.9 if "answers" in design.kind else 0.93
    if found[0].refused.mean() < 0.5:
        assert min(one.coverage for one in found) >= least - 3 * np.sqrt(0.93 * 0.07 / REPLICATIONS)
    assert found[0].refused.all() or design.kind != "rare rows" or design.value > 0.05


@pytest.fixture(scope="module")
def full():
    """40 people of very different numbers of rows and habits: person, acceptance, rank of the score."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(40), rng.geometric(1 / 40, 40))
    habit, score = rng.normal(size=40), rng.normal(size=len(person))
    accepted = rng.random(len(person)) < 1 / (1 + np.exp(-habit[person] - score))
    return person, accepted.astype(float), (stats.rankdata(score) - 0.5) / len(score)


@pytest.mark.study
@pytest.mark.parametrize("least", [0.0, 0.6])
def test_intervals_cover_the_truth_of_the_full_log(full, least):
    for found in off_policy.differences(redrawn_logs(*full, 0.1 + 0.8 * full[2], (full[2] >= least) * 1.0, 100), 400):
        bias, error = found.bias
        assert abs(bias) < 4 * error
        # Within two points of 95 %, and 2.5 standard errors of 400 replications around that.
        assert abs(found.coverage - 0.95) < 0.02 + 2.5 * np.sqrt(0.95 * 0.05 / 400)
        assert not found.refused.any()


@pytest.mark.study
def test_refusals_come_where_the_log_cannot_tell(full):
    everything, rank = np.ones(len(full[0])), full[2]

    def refused(logging, target):
        return off_policy.differences(redrawn_logs(*full, logging, target, 50), 20)[0].refused.mean()

    blind = np.where(rank < 0.3, 0.0, 0.5)
    assert refused(blind, everything) == 1 and refused(0.005 * everything, everything) > 0.9
    assert refused(blind, (rank > 0.5).astype(float)) == 0


@pytest.fixture(scope="module")
def six():
    rng = np.random.default_rng(0)
    unit = np.repeat(np.arange(6), [3, 5, 8, 2, 9, 4])
    y = (rng.random(len(unit)) < 0.7).astype(float)
    return promises.Steps(np.round(rng.random(len(unit)) + y, 2), y, unit, "six people")


def test_one_draw_of_each_method_is_what_the_library_says(six):
    promise = risk.Promise("false_alarms", 0.4)
    found = promises.measure(six, promise, error=0.3, units=40, times=1, seed=3)
    assert found.keys() == promises.METHODS.keys()
    counts = np.random.default_rng(3).multinomial(40, np.full(6, 1 / 6), 1)[0]
    thresholds = np.unique(np.quantile(six.score, np.linspace(0, 1, 200)))[::-1]
    first = risk.first_rule(six.score, thresholds)
    losses = risk.unit_losses(first, six.y, six.unit, len(thresholds), promise)
    drawn = np.repeat(losses, counts, axis=0)
    for bound in risk.BOUNDS:
        last = np.flatnonzero(risk.certify({promise: drawn}, 0.3, bound=bound).rules)[-1]
        np.testing.assert_allclose(found[bound].risk, losses[:, last].mean())
    copies = counts[six.unit]
    p_values = [
        stats.binomtest(int(copies @ ((first <= g) * (1 - six.y))), int(copies.sum()), 0.4, "less").pvalue
        for g in range(len(thresholds))
    ]
    last = int(np.flatnonzero(np.array(p_values) > 0.3)[0]) - 1 if max(p_values) > 0.3 else len(p_values) - 1
    np.testing.assert_allclose(found["rows"].risk, ((first <= last) * (1 - six.y)).mean())


def test_the_table_has_a_section_per_promise_and_number_of_units(six):
    limits = [risk.Promise.parse(f"false_alarms<={limit}") for limit in (0.3, 0.5)]
    titles = [section.title for section in promises.table(six, limits, [6, 20], 10).sections]
    assert titles == [f"{one}, {units} units drawn" for units in (6, 20) for one in limits]
    with pytest.raises(ValueError, match=r"promise: found burden<=0.5, expected one about false_alarms"):
        promises.table(six, [risk.Promise("burden", 0.5)], [], 10)


def test_a_log_without_a_score_is_refused(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("who,yes,s\na,1,0.5\na,0,\nb,1,0.25\n")
    with pytest.raises(ValueError, match=r"columns: found no score of log.csv, expected score=COLUMN"):
        promises.of_log(read_log(str(path), parse_columns("person=who,accepted=yes")), "log.csv")
    log = read_log(str(path), parse_columns("person=who,accepted=yes,score=s"))
    assert promises.of_log(log, "log.csv").score.tolist() == [0.5, -np.inf, 0.25]


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(5)
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


@pytest.mark.slow
def test_false_alarms_at_any_time_are_at_most_alpha():
    assert 0.002 < (alarms.replay(0.0, 10_000) > 0).mean() <= alarms.ALPHA
    assert (alarms.replay(0.0, 10_000, withdrawn=0.5) > 0).mean() <= alarms.ALPHA


@pytest.mark.slow
def test_larger_shifts_ring_sooner_and_small_ones_ring_as_well():
    rings = [alarms.replay(shift, 500, seed=1) for shift in (0.5, 1.0, -1.0, 2.0)]
    shares = [(one > 0).mean() for one in rings]
    half, one, _, two = (np.median(np.where(one > 0, one, 301)) for one in rings)
    assert min(shares[1:]) > 0.98 and shares[0] > 0.6 and two < one < half


@pytest.mark.slow
def test_a_forecast_knows_neither_its_answer_nor_those_after_it(people, tmp_path):
    person, accepted = people
    other = accepted.copy()
    other[40:60] = 1 - other[40:60]  # the end of the second person
    before, after = (alarms.forecasts(person, accepted, seen) for seen in (accepted, other))
    for name in before:
        same = np.isclose(before[name], after[name], atol=1e-12)
        assert same[:41].all() and same[60:].all()
    assert not np.isclose(before[alarms.LAYER], after[alarms.LAYER])[41:60].any()
    path = tmp_path / "log.csv"
    path.write_text("who,when,yes\n" + "".join(f"{person[t]},{t},{accepted[t]:.0f}\n" for t in range(180)))
    table = alarms.log_table(read_log(str(path), parse_columns("person=who,time=when,accepted=yes")), "six")
    assert [section.title for section in table.sections] == ["the log as it is", "after a change of mood"]
    assert [row.name for row in table.sections[0].rows] == [alarms.RATE, alarms.LAYER]
