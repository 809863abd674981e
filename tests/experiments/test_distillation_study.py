"""The pure parts of the study of distillation: the draw, the labels that are counted, and its tables."""

import numpy as np
import pytest

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.experiments.distill_report import TEACHER, Decisions, Truth, costs
from prism_jax.experiments.distillation import TEACHERS, draw, judged, labelled
from prism_jax.experiments.distillation_tables import (
    FAST,
    MARGIN,
    Measured,
    curve_table,
    difference_table,
    pool,
    student_table,
    trained_on,
)
from prism_jax.experiments.simulated_users import population
from prism_jax.streams.edit import keep_candidates
from prism_jax.streams.simulator_config import SimulatorConfig
from prism_jax.training.pathways.curated import already_curated

POINT = OperatingPoint(c_fa=1.0, c_fn=2.0)


@pytest.fixture(scope="module")
def users():
    config = SimulatorConfig(population="switches", min_events=8, max_events=10, responses=0, teacher=True)
    return population({"train": 16}, config)["train"]


def rows(streams):
    return [(stream.id, step.event) for stream in streams for step in stream.steps]


def test_the_draw_keeps_as_many_rows_and_marks_them(users):
    found, again, other = (draw(users, 50, seed) for seed in (0, 0, 1))
    assert len(rows(found)) == len(rows(other)) == 50
    assert found == again and rows(found) != rows(other)
    assert set(rows(found)) < set(rows(users))
    assert already_curated(found).startswith(f"found {len(found)} of {len(found)} streams curated already")
    assert found[0].curated == f"50 of {len(rows(users))} rows drawn at random"
    assert rows(draw(users, len(rows(users)), 0)) == rows(users)
    with pytest.raises(ValueError, match="count: found"):
        draw(users, len(rows(users)) + 1, 0)


def test_the_draw_prefers_no_row(users):
    some = users[:2]
    counts = dict.fromkeys(rows(some), 0)
    for seed in range(200):
        for row in rows(draw(some, len(counts) // 2, seed)):
            counts[row] += 1
    # Each count is binomial of 200 draws with probability of about 1/2; 5 standard deviations are 35.
    assert max(abs(count - 100) for count in counts.values()) < 36


def test_judges_err_with_their_own_seeds_and_not_with_the_teachers(users):
    good, bad = (labelled(users, users, TEACHERS[name]) for name in ("good", "bad"))
    first, second = judged(good, users, 0), judged(bad, users, 0)
    answers = [
        [(s.y_need, s.candidates[0].y_accept) for one in streams for s in one.steps] for streams in (first, second)
    ]
    assert answers[0] == answers[1], "the teacher's errors do not reach the judges"
    other = judged(good, users, 1)
    assert [s.votes for one in other for s in one.steps] != [s.votes for one in first for s in one.steps]
    votes = np.array([s.votes for one in first for s in one.steps])
    assert len(np.unique(votes, axis=1).T) == 3, "no two judges agree everywhere"


def test_wrong_labels_are_counted_against_the_users(users):
    found = trained_on({"true": users, "half": [keep_candidates(s, lambda _: True) for s in users[:8]]}, users)
    assert found["true"].wrong_need == found["true"].wrong_accept == 0
    assert found["true"].rows == len(rows(users)) and found["half"].rows == len(rows(users[:8]))
    noisy = judged(labelled(users, users, TEACHERS["good"]), users, 0)
    truth = {(s.id, step.event): step.y_need for s in users for step in s.steps}
    wrong = np.mean([step.y_need != truth[s.id, step.event] for s in noisy for step in s.steps])
    assert trained_on({"all": noisy}, users)["all"].wrong_need == pytest.approx(wrong)
    assert 0 < wrong < 0.15


def measured(users, seed):
    """Random decisions of every system, except that those on curated rows are Bayes'."""
    truth, rng = Truth.of(users), np.random.default_rng(seed)
    bayes = 1 - truth.p_accept <= 2 * truth.p_both
    systems = {
        (arm, key): Decisions(rng.random(len(bayes)) < 0.5, bayes)
        for arm in ("all", "random")
        for key in (FAST, MARGIN)
    }
    systems |= {("curated", key): Decisions(bayes, bayes) for key in (FAST, MARGIN)}
    systems |= {(name, ""): Decisions(rng.random(len(bayes)) < 0.5) for name in ("teacher", TEACHER)}
    return Measured(truth, systems)


def test_differences_are_paired_and_pooled(users):
    found = [measured(users, seed) for seed in range(3)]
    pooled = pool(found)
    assert len(pooled.truth.need) == 3 * len(rows(users))
    assert len(set(pooled.truth.stream.tolist())) == 3 * len(users), "one user per seed, not one in all"
    table = difference_table(found, POINT)
    row = next(row for row in table.sections[1].rows if row.name == "curated − random")
    one, other = (pooled.systems[name, MARGIN] for name in ("curated", "random"))
    change = np.mean(costs(one, pooled.truth, POINT) - costs(other, pooled.truth, POINT))
    assert change < 0 and row.cells[0].startswith(f"{change:+.3f} [")
    of_seeds = [float(value) for value in row.cells[2].split(", ")]
    assert float(row.cells[1].split()[0]) == pytest.approx(np.mean(of_seeds), abs=1.1e-3)
    students = {row.name: row.cells for row in student_table(found, POINT).sections[0].rows}
    assert students["curated, fast only"][2] == "100.0"
    assert students["teacher"][3] == ""


def test_the_curve_compares_with_the_best_teachers_student(users):
    curve = {"good": measured(users, 0), "bad": measured(users, 1)}
    worse = curve["bad"].systems
    worse["curated", MARGIN] = worse["random", MARGIN]
    good, bad = curve_table(curve, TEACHERS, POINT).sections[0].rows
    assert good.name == "blur 0.25, bias 0, 0 % of fields, 0 % of responses"
    assert good.cells[-1] == "" and good.cells[4] == "100.0"
    assert bad.cells[-1].startswith("+") and float(bad.cells[3]) > float(good.cells[3])
