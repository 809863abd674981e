"""What a log says by surface, beside sums over its rows."""

import numpy as np
import pytest

from prism_jax.decision.score_maps import Scale
from prism_jax.evaluation.answers.by_group import Groups
from prism_jax.evaluation.answers.columns import LogError, parse_columns
from prism_jax.evaluation.answers.logs import read_log
from prism_jax.evaluation.answers.parts import Answers
from prism_jax.evaluation.answers.statistics import Model, Predictor
from prism_jax.report.answers.tables import group_table


class Known(Predictor):
    """Predicts the score."""

    def predictions(self, rows, people=None):
        return {"it": rows.score}


def test_each_surface_has_its_own_rate_and_saving():
    rng = np.random.default_rng(0)
    person, p = np.repeat(np.arange(10), 30), rng.uniform(0, 1, 300)
    y, surface = (rng.random(300) < p).astype(np.float64), rng.integers(0, 2, 300)
    surface[:5] = -1  # one person alone has offers without a surface
    predictor = Known(Model({}, (), probability=True, weighted=False), {}, Scale())
    groups = Groups(predictor, "it", (1.0, 2.0), 0)
    state = groups.init()
    for rows in (slice(150), slice(150, 300)):  # of five people each
        columns = (person, person, np.arange(300.0), y, p)
        state = groups.add(state, Answers(*(column[rows] for column in columns), None, None, group=surface[rows]))
    found = groups.read(state, ("chat", "editor"))
    assert [one.answers for one in found] == sorted(np.bincount(surface + 1).tolist(), reverse=True)
    assert {one.name: one.people for one in found} == {"chat": 10, "editor": 10, "(none)": 1}
    for one in found:
        held = surface == {"chat": 0, "editor": 1, "(none)": -1}[one.name]
        offers, answer = p[held] >= 1 / 3, y[held]
        assert one.accepted == pytest.approx(answer.mean()) and one.speak_rate == pytest.approx(offers.mean())
        assert one.brier == pytest.approx(((p[held] - answer) ** 2).mean())
        if one.people > 1:
            saved = (np.where(offers, 1 - answer, 2 * answer) - (1 - answer)).mean()
            assert one.gain.value == pytest.approx(saved) and one.gain.low < saved < one.gain.high
    lines = group_table("By surface", "surface", found, "score, Platt").to_csv().splitlines()
    assert len(lines) == 4 and lines[-1].endswith(",–") and found[-1].as_dict()["gain"] is None


def test_a_column_of_very_many_kinds_is_no_surface(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("user,taken,where\n" + "".join(f"u{i % 5},{i % 2},w{i}\n" for i in range(101)))
    with pytest.raises(LogError, match=r"column 'where': found 101 kinds, expected at most 100 for group"):
        read_log(path, parse_columns("person=user,accepted=taken,group=where"))
