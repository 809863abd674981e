"""The command of promises: which units certify, what is chosen and printed, and what is refused."""

import dataclasses
import json

import numpy as np
import pytest

from prism_jax.decision import gate, risk
from prism_jax.decision.calibration import CalibrationConfig
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import promises
from prism_jax.evaluation.protocol import CALIBRATION, TEST, calibrate, rows_of
from prism_jax.recipes.promising import promise_scores
from prism_jax.scores import Scores, ScoresError, write_scores

POINT = OperatingPoint(c_fa=1.0, c_fn=2.0, margin=0.0)
FALSE_ALARMS, FALSE_DISCOVERY = risk.Promise("false_alarms", 0.2), risk.Promise("false_discovery", 0.7)


def table(units=120, steps=6, seed=0):
    rng = np.random.default_rng(seed)
    number = 2 * units * steps
    stream = np.repeat(np.arange(2 * units), steps)
    need, accept = rng.random((2, number))
    return Scores.from_columns(
        {
            "stream": [f"user{one:03}" for one in stream],
            "step": np.tile(np.arange(steps), 2 * units),
            "split": np.where(stream < units, CALIBRATION, TEST).astype(object),
            "p_need_fast": need,
            "p_accept_fast": accept,
            "y_need": (rng.random(number) < need).astype(float),
            "y_accept": (rng.random(number) < accept).astype(float),
        }
    )


@pytest.fixture(scope="module")
def scores():
    return table()


def test_the_chosen_gate_is_the_certified_one_nearest_to_the_stated_costs(scores):
    found = promises.promise(scores, [FALSE_ALARMS], POINT, error=0.1)
    line = found.lines[0]
    assert [one.bound for one in found.lines] == ["betting", "hoeffding_bentkus", "expectation"]
    assert line.certified[-1] < 2.0 and line.chosen == line.certified[-1]
    assert promises.promise(scores, [FALSE_ALARMS], OperatingPoint(1.0, 0.01), error=0.1).lines[0].chosen == 0.01
    assert found.lines[1].chosen < line.chosen < found.lines[2].chosen


def test_the_measured_risk_is_that_of_the_gate_on_new_units(scores):
    found = promises.promise(scores, [FALSE_ALARMS], POINT, error=0.1)
    rows = rows_of(scores, CALIBRATION)
    half = promises._first_half(promises.unit_of(rows))
    maps = calibrate(rows.take(half))
    test = rows_of(scores, TEST)
    offer = gate.decide(
        maps.calibrated("need", "fast", test), maps.calibrated("accept", "fast", test), 1.0, found.lines[0].chosen
    )
    false_alarm = offer * (1 - test.y_need * test.y_accept)
    np.testing.assert_allclose(found.lines[0].test_risks[FALSE_ALARMS].estimate, false_alarm.reshape(-1, 6).mean())
    np.testing.assert_allclose(found.lines[0].test_speak_rate, offer.mean())


def test_half_of_the_units_certify_unless_the_maps_cannot_matter(scores):
    alone = dataclasses.replace(POINT, policy="static")

    def certifying(point, *given, **options):
        found = promises.promise(scores, given, point, error=0.1, **options)
        return found.halves, found.certifying.number

    assert certifying(POINT, FALSE_ALARMS) == (True, 60)
    assert certifying(alone, FALSE_ALARMS) == (False, 120)
    assert certifying(alone, FALSE_DISCOVERY) == (True, 60)
    assert certifying(alone, FALSE_ALARMS, config=CalibrationConfig("platt")) == (True, 60)
    assert certifying(POINT, FALSE_DISCOVERY, calibration=calibrate(table(seed=1))) == (False, 120)


def test_people_are_the_units_and_scores_without_need_are_acceptance_alone(scores):
    columns = {name: column for name, column in scores.columns().items() if "need" not in name}
    pairs = [f"person{int(name[4:]) // 2}" for name in scores.stream]
    found = promises.promise(Scores.from_columns({**columns, "person": pairs}), [FALSE_ALARMS], POINT, error=0.1)
    assert (found.unit, found.certifying.number, found.halves) == ("person", 60, False)
    np.testing.assert_array_equal(found.certifying.y, scores.y_accept[scores.split == CALIBRATION])


def test_false_discovery_starts_where_a_calibrated_gate_would_keep_it_and_has_no_row_in_expectation(scores):
    found = promises.promise(scores, [FALSE_DISCOVERY], dataclasses.replace(POINT, policy="product"), error=0.1)
    assert [line.bound for line in found.lines] == ["betting", "hoeffding_bentkus"]
    assert found.lines[0].certified[0] == pytest.approx(0.7 / 0.3)
    index = int(np.searchsorted(np.unique([*promises.GRID, 2.0, 0.7 / (1 - 0.7)]), found.lines[0].chosen))
    offer, y = found.test.first <= index, found.test.y
    np.testing.assert_allclose(found.lines[0].test_risks[FALSE_DISCOVERY].estimate, 1 - y[offer].mean())


def test_the_command_prints_what_to_deploy_and_writes_it(scores, tmp_path, capsys):
    path = tmp_path / "scores.parquet"
    write_scores(path, scores)
    texts = ["false_alarms<=0.2", "missed_help<=0.3"]
    promise_scores(str(path), texts, POINT, level=0.9, out=str(tmp_path / "out.json"))
    printed = capsys.readouterr().out
    chosen = json.loads((tmp_path / "out.json").read_text())["bounds"]["betting"]["chosen"]
    assert chosen == promises.GRID[np.searchsorted(promises.GRID, chosen)]
    assert f"Deploy --c_fa=1 --c_fn={chosen!r} --margin=0" in printed
    assert "Certified on 60 streams; the other half of the calibration streams fitted the maps" in printed


def test_what_cannot_be_promised_is_said_with_the_smallest_limit(scores, tmp_path, capsys):
    path = tmp_path / "scores.parquet"
    write_scores(path, scores)
    promise_scores(str(path), ["false_alarms<=0.02"], POINT, level=0.9)
    printed = capsys.readouterr().out
    assert "Nothing can be promised with 60 streams: no tested gate keeps false_alarms<=0.02." in printed
    smallest = risk.smallest_limit(60, 0.1)
    assert f"is {np.ceil(1e4 * smallest) / 1e4:.4f}." in printed


def test_what_makes_a_promise_void_is_refused(scores):
    single = scores.take(scores.step == 0)
    with pytest.raises(ValueError, match="units with one step each, expected streams or people"):
        promises.promise(single, [FALSE_ALARMS], POINT, error=0.1)
    columns = scores.columns()
    made = [row != 3 for row in range(len(scores))]
    answers = [y if one else None for y, one in zip(scores.y_accept.tolist(), made, strict=True)]
    logged = Scores.from_columns({**columns, "logged": made, "y_accept": answers})
    with pytest.raises(ScoresError, match=r"row 3, logged: found an offer that was not made"):
        promises.promise(logged, [FALSE_ALARMS], POINT, error=0.1)
    with pytest.raises(ValueError, match=r"policy: found 'fixed', expected one of dynamic, static, product"):
        promises.promise(scores, [FALSE_ALARMS], dataclasses.replace(POINT, policy="fixed"), error=0.1)
    with pytest.raises(ValueError, match=r"promise: found false_alarms<=0.2, false_alarms<=0.2, expected each once"):
        promises.promise(scores, [FALSE_ALARMS, FALSE_ALARMS], POINT, error=0.1)
