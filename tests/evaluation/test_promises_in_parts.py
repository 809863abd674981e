"""Promises of scores that are read part by part: the same as of a table in memory."""

import dataclasses
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from test_promises import FALSE_ALARMS, FALSE_DISCOVERY, POINT, table, with_slow

from prism_jax.decision import risk
from prism_jax.evaluation import promises
from prism_jax.evaluation.fits import write_calibration
from prism_jax.evaluation.merged import promising
from prism_jax.evaluation.merged.running import over
from prism_jax.evaluation.merged.states import decode, encode, merge
from prism_jax.evaluation.promise_units import Family, judged_units
from prism_jax.evaluation.promises import GRID, Wanted
from prism_jax.evaluation.protocol import calibrate
from prism_jax.evaluation.splits import TEST
from prism_jax.runs import sharded
from prism_jax.runs.promising import promise_scores
from prism_jax.runs.scores_files import Running
from prism_jax.scores import ScoresError, parts, write_scores

MISSED = risk.Promise("missed_help", 0.4)


@pytest.fixture(scope="module")
def scores():
    """Two candidates at each step, some steps without labels, and two streams of each person."""
    rows = table(80, 6)
    person = np.array([f"p{int(name[4:]) // 2:02}" for name in rows.stream], object)
    y = np.where(np.random.default_rng(4).random(len(rows)) < 0.1, np.nan, rows.y_accept)
    return dataclasses.replace(with_slow(rows), person=np.repeat(person, 2), y_accept=np.repeat(y, 2))


def chunks(scores, number=5):
    """Parts of whole streams, which divide people."""
    place = scores.numbered("stream")[1] % number
    return over([scores.take(place == i) for i in range(number)])


def assert_same(ours, theirs, exact=True):
    assert (ours.unit, ours.halves, ours.folds, ours.families) == (
        theirs.unit,
        theirs.halves,
        theirs.folds,
        theirs.families,
    )
    for mine, other in ((ours.certifying, theirs.certifying), (ours.test, theirs.test)):
        assert (mine is None) == (other is None)
        if mine is not None:
            np.testing.assert_array_equal(mine.names, other.names)
            assert (mine.unjudged, mine.steps.sum()) == (other.unjudged, other.steps.sum())
    if not exact:
        return
    assert ours.passing == theirs.passing
    for mine, other in zip(ours.lines, theirs.lines, strict=True):
        assert mine.certified == other.certified
        assert (mine.gate is None) == (other.gate is None)
        if mine.gate is not None:
            assert [*map(float, mine.gate[:4])] == pytest.approx([*map(float, other.gate[:4])], rel=1e-12)
            for promised, estimate in mine.gate.test_risks.items():
                assert tuple(estimate)[:3] == pytest.approx(tuple(other.gate.test_risks[promised])[:3], rel=1e-9)


CASES = {
    "margins": ([FALSE_ALARMS, MISSED], (Family("dynamic"), Family("dynamic", 0.2), Family("product")), 0.0),
    "one family": ([FALSE_ALARMS], (Family("dynamic"),), 0.0),
    "false discovery": ([FALSE_DISCOVERY], (Family("product"),), 0.4),
    "nothing": ([risk.Promise("false_discovery", 0.02)], (Family("dynamic"),), 0.0),
    "dismissals": ([risk.Promise("dismissals", 0.6), MISSED], (Family("static"),), 0.0),
}


@pytest.mark.filterwarnings("ignore:p_accept_fast. temperature")
@pytest.mark.parametrize("case", CASES)
def test_with_maps_of_others_the_promise_is_that_of_the_table_in_memory(scores, case):
    wanted, families, share = CASES[case]
    maps = calibrate(scores)
    theirs = promises.promise(scores, wanted, POINT, error=0.1, families=families, calibration=maps, test_share=share)
    asked = Wanted(wanted, POINT, 0.1, families)
    ours = promising.promise(chunks(scores), asked, calibration=maps, test_share=share)
    assert_same(ours, theirs)
    assert (ours.chosen is None) == (case == "nothing") and bool(ours.passing) == (case == "nothing")


@pytest.mark.filterwarnings("ignore:p_accept_fast. temperature")
def test_units_are_divided_and_maps_are_fitted_as_in_memory(scores):
    asked = Wanted([FALSE_ALARMS], POINT, 0.1, (Family("dynamic"),))
    theirs = promises.promise(scores, [FALSE_ALARMS], POINT, error=0.1)
    ours = promising.promise(chunks(scores), asked)
    assert theirs.halves
    assert_same(ours, theirs, exact=False)
    assert ours.chosen.gate.cost == pytest.approx(theirs.chosen.gate.cost, abs=0.01)
    plain = dataclasses.replace(scores, split=None)
    theirs = promises.promise(plain, [FALSE_ALARMS], POINT, error=0.1, test_share=0.25)
    assert_same(promising.promise(chunks(plain), asked, test_share=0.25), theirs, exact=False)
    alone = {name: None for name in ("p_need_fast", "p_need_slow", "y_need")}
    simple = dataclasses.replace(scores, **alone)
    theirs = promises.promise(simple, [FALSE_ALARMS], POINT, error=0.1)
    ours = promising.promise(chunks(simple), asked)
    assert not ours.halves and ours.accept_map is not None
    assert_same(ours, theirs, exact=False)


def test_steps_of_a_unit_with_one_course_are_one_entry(scores):
    maps, ratios = calibrate(scores), GRID[::60]
    families = (Family("dynamic"), Family("dynamic", 0.2))
    whole, _ = judged_units(scores, maps, families, ratios)
    number = scores.numbered("stream")[1]
    one, two = (judged_units(scores.take(number % 2 == i), maps, families, ratios)[0] for i in range(2))
    both = merge(one, two)
    assert len(both.unit) < len(whole.unit) and both.steps.sum() == len(whole.unit)
    kept = decode(encode({"units": both}))["units"]
    for family in families:
        for promised in (FALSE_ALARMS, MISSED, FALSE_DISCOVERY, risk.Promise("dismissals", 0.3)):
            np.testing.assert_allclose(
                kept.losses(family, len(ratios), promised), whole.losses(family, len(ratios), promised), atol=1e-14
            )
        assert kept.cost(family, 2, POINT) == pytest.approx(whole.cost(family, 2, POINT), rel=1e-13)
        assert kept.slow_rate(family, 2) == pytest.approx(whole.slow_rate(family, 2), rel=1e-13)


@pytest.mark.filterwarnings("ignore:p_accept_fast. temperature")
def test_the_command_reads_parts_and_says_the_same(scores, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(parts, "PART_ROWS", 300)
    monkeypatch.setattr(parts, "CHUNK_ROWS", 100)
    monkeypatch.setattr(sharded, "_SECONDS", 0.0)
    place = tmp_path / "scores.parquet"
    shuffled = scores.take(np.random.default_rng(0).permutation(len(scores)))
    write_calibration(tmp_path / "calibration.json", calibrate(scores))
    found = []
    for rows, exact in ((scores, True), (scores, False), (shuffled, False)):
        write_scores(place, rows)
        pq.write_table(pq.read_table(place), place, row_group_size=50)
        promise_scores(
            str(place),
            ["false_alarms<=0.25"],
            POINT,
            level=0.9,
            calibration=str(tmp_path / "calibration.json"),
            out=str(tmp_path / "out.json"),
            running=Running(exact=exact, workers=1),
        )
        found.append((capsys.readouterr().out, json.loads((tmp_path / "out.json").read_text())))
    assert found[0][0] == found[1][0] == found[2][0]
    assert found[0][1]["chosen"] == found[1][1]["chosen"] and found[0][1]["chosen"] is not None


def test_what_cannot_be_promised_is_refused_as_in_memory(scores):
    asked = Wanted([FALSE_ALARMS], POINT, 0.1, (Family("dynamic"),))
    with pytest.raises(ScoresError, match=r"found the split 'calibration' and --test_share=0\.3"):
        promising.promise(chunks(scores), asked, test_share=0.3)
    hidden = dataclasses.replace(
        scores, logged=(scores.split != TEST).astype(float), y_accept=np.where(scores.split == TEST, np.nan, 1.0)
    )
    with pytest.raises(ScoresError, match="found an offer that was not made"):
        promising.promise(chunks(hidden), asked)
    unknown = dataclasses.replace(scores, y_accept=np.where(scores.split == TEST, np.nan, scores.y_accept))
    with pytest.raises(ScoresError, match="found no step with both labels among 480"):
        promising.promise(chunks(unknown), asked)
    other = dataclasses.replace(scores, split=np.where(scores.split == TEST, "train", scores.split).astype(object))
    with pytest.raises(ScoresError, match="found no row of the split 'test'"):
        promising.promise(chunks(other), asked)
