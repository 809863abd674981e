"""The command of promises: which units certify, what is chosen and printed, and what is refused."""

import dataclasses
import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest
from synthetic_scores import without

from prism_jax.decision import gate, risk
from prism_jax.decision.calibration import CalibrationConfig
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.passes import Pass
from prism_jax.decision.policies import POLICIES, Policy, promised_policies
from prism_jax.evaluation import promises
from prism_jax.evaluation.answers.columns import LogError, parse_columns
from prism_jax.evaluation.answers.log_scores import scores_of_log
from prism_jax.evaluation.answers.logs import read_log
from prism_jax.evaluation.fits import write_calibration
from prism_jax.evaluation.merged import promising
from prism_jax.evaluation.merged.running import over
from prism_jax.evaluation.merged.states import decode, encode, merge
from prism_jax.evaluation.promise_units import Family, judged_units
from prism_jax.evaluation.promises import GRID
from prism_jax.evaluation.protocol import calibrate
from prism_jax.evaluation.splits import CALIBRATION, TEST, rows_of
from prism_jax.runs import sharded
from prism_jax.runs.promising import families_of, promise_scores
from prism_jax.runs.running import Running
from prism_jax.scores import Scores, ScoresError, parts, write_scores

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


@pytest.fixture
def said(tmp_path, capsys):
    """What the command prints of a table, on one line."""

    def run(scores, *asked, point=POINT, **options):
        path = tmp_path / "scores.parquet"
        write_scores(path, scores)
        promise_scores(str(path), list(asked), point, level=0.9, **options)
        return " ".join(capsys.readouterr().out.split())

    return run


def promise(scores, *asked, point=POINT, error=0.1, families=(), start=None, number=1, **how):
    """What is promised of a table: of all rows together, or of several parts of whole streams, which divide people."""
    place = scores.numbered("stream")[1] % number
    tables = [scores if number == 1 else scores.take(place == i) for i in range(number)]
    wanted = promises.Wanted(asked, point, error, tuple(families) or (Family(point.policy),), start)
    return promising.promise(over(tables), wanted, exact=number == 1, **how)


def decisions(maps, rows, ratio):
    return gate.decide(*(maps.calibrated(signal, "fast", rows) for signal in ("need", "accept")), 1.0, ratio)


def test_the_chosen_gate_is_the_certified_one_nearest_to_the_stated_costs(scores):
    found = promise(scores, FALSE_ALARMS)
    line = found.lines[0]
    assert [one.bound for one in found.lines] == ["betting", "hoeffding_bentkus", "expectation"]
    assert found.chosen is line and line.certified[-1] < 2.0 and line.gate.ratio == line.certified[-1]
    low = promise(scores, FALSE_ALARMS, point=OperatingPoint(1.0, 0.01))
    assert low.chosen.gate.ratio == 0.01
    assert found.lines[1].gate.ratio < line.gate.ratio < found.lines[2].gate.ratio


def test_the_measured_risk_is_that_of_the_gate_on_new_units(scores):
    found = promise(scores, FALSE_ALARMS)
    certifying = np.isin(scores.stream, found.certifying.names)
    test = rows_of(scores, TEST)
    offer = decisions(calibrate(scores.take(~certifying)), test, found.chosen.gate.ratio)
    false_alarm = offer * (1 - test.y_need * test.y_accept)
    np.testing.assert_allclose(found.chosen.gate.test_risks[FALSE_ALARMS].value, false_alarm.reshape(-1, 6).mean())
    np.testing.assert_allclose(found.chosen.gate.test_speak_rate, offer.mean())


def test_half_of_the_units_certify_unless_the_maps_cannot_matter(scores):
    alone = dataclasses.replace(POINT, policy="static")

    def certifying(point, *given, **options):
        found = promise(scores, *given, point=point, **options)
        return found.halves, found.certifying.number

    assert certifying(POINT, FALSE_ALARMS) == (True, 60)
    assert certifying(alone, FALSE_ALARMS) == (False, 120)
    assert certifying(alone, FALSE_DISCOVERY) == (True, 60)
    assert certifying(alone, FALSE_ALARMS, config=CalibrationConfig("platt")) == (True, 60)
    assert certifying(POINT, FALSE_DISCOVERY, calibration=calibrate(table(seed=1))) == (False, 120)


def test_people_are_the_units_and_scores_without_need_are_acceptance_alone(scores):
    columns = without_need(scores)
    pairs = [f"person{int(name[4:]) // 2}" for name in scores.stream]
    found = promise(Scores.from_columns({**columns, "person": pairs}), FALSE_ALARMS)
    assert (found.unit, found.certifying.number, found.halves) == ("person", 60, False)
    np.testing.assert_array_equal(found.certifying.fast.gold, scores.y_accept[scores.split == CALIBRATION])


def test_false_discovery_starts_where_a_calibrated_gate_would_keep_it_and_has_no_row_in_expectation(scores):
    found = promise(scores, FALSE_DISCOVERY, point=dataclasses.replace(POINT, policy="product"))
    assert [line.bound for line in found.lines] == ["betting", "hoeffding_bentkus"]
    assert found.lines[0].certified[0] == pytest.approx(0.7 / 0.3)
    index = int(np.searchsorted(np.unique([*promises.GRID, 2.0, 0.7 / (1 - 0.7)]), found.chosen.gate.ratio))
    offer, y = found.test.course.first <= index, found.test.fast.gold
    np.testing.assert_allclose(found.chosen.gate.test_risks[FALSE_DISCOVERY].value, 1 - y[offer].mean())


def test_the_command_prints_what_to_deploy_and_writes_it(scores, tmp_path, said):
    printed = said(scores, "false_alarms<=0.2", "missed_help<=0.3", out=str(tmp_path / "out.json"))
    chosen = json.loads((tmp_path / "out.json").read_text())["chosen"]["ratio"]
    assert chosen == promises.GRID[np.searchsorted(promises.GRID, chosen)]
    assert f"Deploy --c_fa=1 --c_fn={chosen!r} --margin=0" in printed
    assert "Certified on 60 streams; the other half of the calibration streams fitted the maps" in printed


def test_the_files_of_a_folder_are_one_table(scores, tmp_path, capsys):
    number = scores.numbered("stream")[1]
    write_scores(tmp_path / "one.parquet", scores)
    (tmp_path / "many").mkdir()
    for i in range(2):
        write_scores(tmp_path / "many" / f"{i}.parquet", scores.take(number // 60 % 2 == i))
    printed = []
    for pattern in (tmp_path / "one.parquet", tmp_path / "many", tmp_path / "many" / "*.parquet"):
        promise_scores(str(pattern), ["false_alarms<=0.2"], POINT, level=0.9)
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] == printed[2]
    first = scores.take(number < 60)
    write_scores(tmp_path / "many" / "2.jsonl", first)
    with pytest.raises(ScoresError, match=r"many/2\.jsonl, line 1: found .* a second time"):
        promise_scores(str(tmp_path / "many"), ["false_alarms<=0.2"], POINT, level=0.9)
    write_scores(tmp_path / "many" / "2.jsonl", dataclasses.replace(first, y_accept=None))
    with pytest.raises(ScoresError, match=r"2\.jsonl, y_accept: found no such column, expected the columns of .*0"):
        promise_scores(str(tmp_path / "many"), ["false_alarms<=0.2"], POINT, level=0.9)


def test_what_cannot_be_promised_is_said_with_the_smallest_limit(scores, said):
    printed = said(scores, "false_alarms<=0.02")
    assert "Nothing can be promised with 60 streams: no tested gate keeps false_alarms<=0.02." in printed
    smallest = risk.smallest_limit(60, 0.1)
    assert f"is {np.ceil(1e4 * smallest) / 1e4:.4f}." in printed


def test_what_makes_a_promise_void_is_refused(scores):
    single = scores.take(scores.step == 0)
    with pytest.raises(ValueError, match="units with one step each, expected streams or people"):
        promise(single, FALSE_ALARMS)
    made = np.arange(len(scores)) != 3
    logged = dataclasses.replace(scores, logged=made * 1.0, y_accept=np.where(made, scores.y_accept, np.nan))
    for number in (1, 3):
        with pytest.raises(ScoresError, match=r"logged: found an offer that was not made \(stream 'user000', step 3\)"):
            promise(logged, FALSE_ALARMS, number=number)
    unknown = dataclasses.replace(scores, y_accept=np.where(scores.split == TEST, np.nan, scores.y_accept))
    with pytest.raises(ScoresError, match="found no step with both labels among 720"):
        promise(unknown, FALSE_ALARMS, number=3)
    other = dataclasses.replace(scores, split=np.where(scores.split == TEST, "train", scores.split).astype(object))
    with pytest.raises(ScoresError, match="found no row of the split 'test'"):
        promise(other, FALSE_ALARMS)
    with pytest.raises(ValueError, match=r"policy: found 'fixed', expected one of dynamic, static, product"):
        promise(scores, FALSE_ALARMS, point=dataclasses.replace(POINT, policy="fixed"))
    with pytest.raises(ValueError, match=r"promise: found false_alarms<=0.2, false_alarms<=0.2, expected each once"):
        promise(scores, FALSE_ALARMS, FALSE_ALARMS)


def without_need(scores):
    return without(scores.columns(), "p_need_fast", "y_need")


def with_slow(scores, seed=1):
    """Two candidates per step and a slow pass with signals of its own, which often chooses the other one."""
    rng = np.random.default_rng(seed)
    number = len(scores)
    double = {name: np.repeat(column, 2) for name, column in scores.columns().items()}
    accept, slow = rng.random((2, 2 * number))
    double |= {"candidate": np.tile([0, 1], number), "p_accept_fast": accept, "p_accept_slow": slow}
    double |= {"p_need_slow": np.repeat(rng.random(number), 2), "y_accept": (rng.random(2 * number) < slow) * 1.0}
    return Scores.from_columns(double)


def test_slow_margins_count_the_labels_of_the_pass_that_decides(scores):
    slow, family = with_slow(scores), Family("dynamic", 0.2)
    maps = calibrate(slow)
    found = promise(slow, FALSE_ALARMS, families=[family], calibration=maps)
    assert [line.bound for line in found.lines] == ["betting", "hoeffding_bentkus"]  # losses need no order here
    rows = rows_of(slow, TEST)
    passes = [rows.steps(), rows.steps("slow")]
    signals = [
        Pass(*(maps.calibrated(signal, thinking, steps) for signal in ("need", "accept")))
        for thinking, steps in zip(("fast", "slow"), passes, strict=True)
    ]
    offer, thinks = gate.decide_with_slow(*signals, 1.0, found.chosen.gate.ratio, 0.2)
    gold = np.where(thinks, *(steps.y_need * steps.y_accept for steps in passes[::-1]))
    np.testing.assert_allclose(found.chosen.gate.test_risks[FALSE_ALARMS].value, (offer * (1 - gold)).mean())
    best = np.array([max(rows.y_need[i] * rows.y_accept[i] for i in (k, k + 1)) for k in range(0, len(rows), 2)])
    rejected = np.where(thinks, *(1 - steps.y_accept for steps in passes[::-1]))
    cost = np.where(offer, POINT.c_fa * rejected, POINT.c_fn * best)  # silence costs what the best candidate misses
    rule = int(np.searchsorted(np.unique([*promises.GRID, 2.0]), found.chosen.gate.ratio))
    assert found.test.cost(rule, POINT) == pytest.approx(cost.mean())
    missed = found.test.losses(len(np.unique([*promises.GRID, 2.0])), risk.Promise("missed_help", 0.2))
    assert missed[:, rule].mean() == pytest.approx((~offer * best).mean())
    np.testing.assert_allclose(found.test.slow_rate(rule), thinks.mean())


@pytest.mark.filterwarnings("ignore:p_accept_fast. temperature")  # the fast pass of `with_slow` knows nothing
def test_families_share_the_error_and_the_cheapest_certified_gate_is_chosen(scores, said):
    slow = with_slow(scores)
    families = families_of(["dynamic", "product"], [0.0, 1.0])
    assert families == (("dynamic", 0.0), ("dynamic", 1.0), ("product", 0.0))
    maps = calibrate(slow)
    found = promise(slow, FALSE_ALARMS, families=families, calibration=maps)
    alone = promise(slow, FALSE_ALARMS, error=0.1 / 3, families=families[:1], calibration=maps)
    assert found.lines[0].certified == alone.lines[0].certified
    costs = {line.family: line.gate.cost for line in found.lines if line.bound == "betting"}
    assert found.chosen.family == min(costs, key=costs.get) == ("dynamic", 1.0)
    printed = said(slow, "false_alarms<=0.2", families=families)
    assert "false_alarms<=0.2, with probability 0.9 for all 3 families at once" in printed
    assert re.search(r"Deploy --policy=(dynamic|product) --c_fa=1 --c_fn=[\d.]+ --margin=[01]: ", printed)
    assert "of all 3 families keep the promise at once, so this one could be chosen" in printed


def test_scores_without_splits_certify_on_everybody_or_on_a_share(scores):
    columns = without(without_need(scores), "split")
    folds = np.unique(scores.stream, return_inverse=True)[1] % 5
    found = promise(Scores.from_columns(columns | {"fold": folds}), FALSE_ALARMS)
    assert (found.folds, found.halves, found.certifying.number, found.test) == (True, False, 240, None)
    assert found.chosen.gate.test_speak_rate is None and found.chosen.gate.test_risks == {}
    table = Scores.from_columns(columns)
    found = promise(table, FALSE_ALARMS, test_share=0.25)
    assert (found.folds, found.certifying.number, found.test.number) == (False, 180, 60)
    assert not set(found.certifying.names) & set(found.test.names)
    flipped = table.take(np.arange(len(table))[::-1])
    again = promise(flipped, FALSE_ALARMS, test_share=0.25)
    assert set(again.test.names) == set(found.test.names)
    found = promise(scores, FALSE_ALARMS, test_share=0.25, calibration=calibrate(scores))
    assert (found.halves, found.certifying.number, found.test.number) == (False, 90, 30)
    assert set(found.certifying.names) | set(found.test.names) == set(scores.stream[scores.split == TEST])


def test_families_and_shares_that_cannot_be_are_refused(scores):
    with pytest.raises(ScoresError, match=r"split: found the split 'calibration' and --test_share=0.3"):
        promise(scores, FALSE_ALARMS, test_share=0.3)
    with pytest.raises(ValueError, match=r"--margin: found it with --policy=static, expected it with dynamic"):
        families_of(["static"], [0.1])
    with pytest.raises(ScoresError, match=r"p_accept_slow: found no such column"):
        promise(scores, FALSE_ALARMS, families=[Family("dynamic", 0.1)])
    with pytest.raises(ValueError, match=r"policy, margin: found dynamic; dynamic, expected each once"):
        promise(scores, FALSE_ALARMS, families=[Family("dynamic")] * 2)
    alone = Scores.from_columns(without_need(scores))
    with pytest.raises(ValueError, match=r"expected one policy: without p_need_fast they all decide the same"):
        promise(alone, FALSE_ALARMS, families=[Family("dynamic"), Family("static")])


def test_the_default_start_of_false_discovery_is_said_to_suit_product_only(scores, said):
    def printed(policy, **options):
        return said(scores, "false_discovery<=0.4", families=families_of([policy], [0.0]), **options)

    words = "keeps the limit at every offer for the policy product only"
    assert words in printed("dynamic") and "--start, fixed beforehand" in printed("static")
    for other in (printed("product"), printed("dynamic", start=3.0), said(scores, "dismissals<=0.2")):
        assert words not in other


@pytest.mark.parametrize("start", [None, 1.5])
def test_the_smallest_limit_of_false_discovery_that_would_pass_is_said(scores, said, start):
    def found(limit):
        one = risk.Promise("false_discovery", limit)
        return promise(scores, one, point=point, start=start, config=config), one

    config = CalibrationConfig("penalised")
    point = dataclasses.replace(POINT, policy="product")
    nothing, one = found(0.02)
    assert nothing.chosen is None
    smallest = nothing.passing[one]
    assert 0.02 < smallest < 0.99
    assert found(smallest)[0].chosen is not None and found(smallest)[0].passing == {}
    assert found(round(smallest - 0.01, 2))[0].chosen is None
    printed = said(scores, "false_discovery<=2%", point=point, start=start)
    assert f"The smallest limit of false_discovery that would pass on these streams is {smallest:g}, at" in printed


def test_dismissals_are_judged_by_acceptance_alone_and_limits_may_be_percentages(scores):
    one = risk.Promise.parse("dismissals <= 45%")
    assert one == risk.Promise("dismissals", 0.45) and risk.Promise.parse("burden<=7 %").limit == 0.07
    maps = calibrate(table(units=2000, seed=1))
    found = promise(scores, one, calibration=maps)
    assert found.certifying.number == 120 and found.too_talkative == ()
    test = rows_of(scores, TEST)
    offer = decisions(maps, test, found.chosen.gate.ratio)
    measured = 1 - test.y_accept[offer == 1].mean()
    np.testing.assert_allclose(found.chosen.gate.test_risks[one].value, measured)
    for limit in ("120%", "0%", "20 percent"):
        with pytest.raises(ValueError, match=r"dismissals: found the limit|promise: found 'dismissals"):
            risk.Promise.parse(f"dismissals<={limit}")


def test_a_policy_of_the_registry_can_be_promised(scores, monkeypatch):
    assert promised_policies() == ("dynamic", "static", "product")
    cautious = Policy("cautious", "", signals=lambda n, p, _: (n, p**2), threshold=POLICIES["dynamic"].threshold)
    monkeypatch.setitem(POLICIES, "cautious", cautious)
    families = [Family("dynamic"), Family("cautious")]
    found = promise(scores, FALSE_ALARMS, point=OperatingPoint(1.0, 1.0), families=families)
    gates = {line.family: line.gate for line in found.lines if line.bound == "betting"}
    assert gates[families[1]].ratio == gates[families[0]].ratio == 1.0
    assert 0 < gates[families[1]].speak_rate < gates[families[0]].speak_rate
    with pytest.raises(ValueError, match=r"policy: found 'always', expected one of dynamic, static, product, cautious"):
        promise(scores, FALSE_ALARMS, families=[Family("always")])


def test_a_log_of_answers_is_promised_as_its_scores_are(tmp_path, capsys):
    rng = np.random.default_rng(0)
    path, columns = tmp_path / "log.csv", ["person=who", "accepted=took", "logged=shown", "score=p"]
    p = rng.random(4000)
    shown, took = rng.random(4000) > 0.08, rng.random(4000) < p
    lines = [f"u{i % 200},{int(took[i]) if shown[i] else ''},{int(shown[i])},{p[i]:.6f}" for i in range(4000)]
    path.write_text("\n".join(["who,took,shown,p", *lines]) + "\n")
    with pytest.raises(LogError, match=r"found \d+ of 4000 offers that were not made, expected none, or --shown_only"):
        promise_scores(str(path), ["dismissals<=45%"], POINT, level=0.9, columns=columns)

    def promised(place, out, **how):
        options = {"level": 0.9, "test_share": 0.3, "out": str(tmp_path / out)}
        promise_scores(str(place), ["dismissals<=45%"], POINT, **options, **how)
        return json.loads((tmp_path / out).read_text())

    of_log = promised(path, "a.json", columns=columns, shown_only=True)
    assert "The promise is about offers that the log shows only" in capsys.readouterr().out
    table = scores_of_log(read_log(path, parse_columns(columns), shown_only=True), None)
    write_scores(tmp_path / "scores.parquet", table)
    for file, roles in ((path, columns), (tmp_path / "scores.parquet", None)):
        with pytest.raises(ValueError, match=r"--out: found .*, the file of --scores, expected another one"):
            promise_scores(str(file), ["dismissals<=0.45"], POINT, level=0.9, columns=roles, out=str(file))
    of_table = promised(tmp_path / "scores.parquet", "b.json")
    assert of_log["chosen"] is not None
    assert of_log.pop("on_score")["column"] == "p" and of_table.pop("on_score")["column"] == "p_accept_fast"
    assert of_log == of_table


@pytest.mark.filterwarnings("ignore::prism_jax.decision.calibration.CalibrationWarning")
def test_a_score_that_falls_as_acceptance_rises_is_named(tmp_path, capsys):
    rng = np.random.default_rng(0)
    p = rng.random(2000)
    took = rng.random(2000) < p
    for score, falls in ((p, False), (-p, True)):
        lines = [f"u{i % 100},{int(took[i])},{score[i]:.6f}" for i in range(2000)]
        (tmp_path / "log.csv").write_text("\n".join(["who,took,s", *lines]) + "\n")
        columns = ["person=who", "accepted=took", "score=s"]
        promise_scores(str(tmp_path / "log.csv"), ["missed_help<=0.3"], POINT, level=0.9, columns=columns)
        assert ("A higher s goes with fewer acceptances" in capsys.readouterr().out) == falls


@pytest.fixture(scope="module")
def of_people():
    """Two candidates at each step, some steps without labels, and two streams of each person."""
    rows = table(80, 6)
    person = np.array([f"p{int(name[4:]) // 2:02}" for name in rows.stream], object)
    y = np.where(np.random.default_rng(4).random(len(rows)) < 0.1, np.nan, rows.y_accept)
    return dataclasses.replace(with_slow(rows), person=np.repeat(person, 2), y_accept=np.repeat(y, 2))


MISSED = risk.Promise("missed_help", 0.4)
CASES = {
    "margins": ([FALSE_ALARMS, MISSED], (Family("dynamic"), Family("dynamic", 0.2), Family("product")), 0.0),
    "one family": ([FALSE_ALARMS], (Family("dynamic"),), 0.0),
    "false discovery": ([FALSE_DISCOVERY], (Family("product"),), 0.4),
    "nothing": ([risk.Promise("false_discovery", 0.02)], (Family("dynamic"),), 0.0),
    "dismissals": ([risk.Promise("dismissals", 0.6), MISSED], (Family("static"),), 0.0),
}


@pytest.mark.filterwarnings("ignore:p_accept_fast. temperature")
@pytest.mark.parametrize("case", CASES)
def test_with_maps_of_others_parts_promise_what_all_rows_do(of_people, case):
    asked, families, share = CASES[case]
    how = {"families": families, "calibration": calibrate(of_people), "test_share": share}
    found, whole = (promise(of_people, *asked, number=number, **how) for number in (5, 1))
    assert_same_units(found, whole)
    assert (found.chosen is None) == (case == "nothing") and bool(found.passing) == (case == "nothing")
    assert found.passing == whole.passing
    for line, expected in zip(found.lines, whole.lines, strict=True):
        assert line.certified == expected.certified and (line.gate is None) == (expected.gate is None)
        if line.gate is not None:
            assert line.gate[:4] == pytest.approx(expected.gate[:4], rel=1e-12)
            for promised, estimate in line.gate.test_risks.items():
                assert estimate[:3] == pytest.approx(expected.gate.test_risks[promised][:3], rel=1e-9)


def assert_same_units(found, expected):
    assert found[3:6] == expected[3:6]  # units, halves and folds
    for units, others in ((found.certifying, expected.certifying), (found.test, expected.test)):
        assert (units is None) == (others is None)
        if units is not None:
            np.testing.assert_array_equal(units.names, others.names)
            assert (units.unjudged, units.steps.sum()) == (others.unjudged, others.steps.sum())


@pytest.mark.filterwarnings("ignore:p_accept_fast. temperature")
def test_parts_divide_units_as_all_rows_do_and_fit_the_maps_on_histograms(of_people):
    alone = dict.fromkeys(("p_need_fast", "p_need_slow", "y_need"))
    plain = dataclasses.replace(of_people, split=None)
    for rows, how in ((of_people, {}), (plain, {"test_share": 0.25}), (dataclasses.replace(of_people, **alone), {})):
        found, whole = (promise(rows, FALSE_ALARMS, number=number, **how) for number in (5, 1))
        assert_same_units(found, whole)
        assert whole.halves == rows.has_need == (found.accept_map is None)
        if rows is of_people:
            assert found.chosen.gate.cost == pytest.approx(whole.chosen.gate.cost, abs=0.01)


def test_steps_of_a_unit_with_one_course_are_one_entry(of_people):
    maps, ratios = calibrate(of_people), GRID[::60]
    families = (Family("dynamic"), Family("dynamic", 0.2))
    whole, _ = judged_units(of_people, maps, families, ratios)
    number = of_people.numbered("stream")[1]
    parts = [judged_units(of_people.take(number % 2 == i), maps, families, ratios)[0] for i in range(2)]
    kept = decode(encode({"units": merge(*parts)}))["units"]
    for family, units in kept.items():
        each = whole[family]
        assert len(units.unit) < len(each.unit) and units.steps.sum() == len(each.unit)
        for promised in (FALSE_ALARMS, MISSED, FALSE_DISCOVERY, risk.Promise("dismissals", 0.3)):
            losses = [of.losses(len(ratios), promised) for of in (units, each)]
            np.testing.assert_allclose(*losses, atol=1e-14)
        assert units.cost(2, POINT) == pytest.approx(each.cost(2, POINT), rel=1e-13)
        assert units.slow_rate(2) == pytest.approx(each.slow_rate(2), rel=1e-13)


@pytest.mark.filterwarnings("ignore:p_accept_fast. temperature")
def test_the_command_reads_parts_and_says_the_same(of_people, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(parts, "PART_ROWS", 300)
    monkeypatch.setattr(parts, "CHUNK_ROWS", 100)
    monkeypatch.setattr(sharded, "_SECONDS", 0.0)
    place = tmp_path / "scores.parquet"
    shuffled = of_people.take(np.random.default_rng(0).permutation(len(of_people)))
    write_calibration(tmp_path / "calibration.json", calibrate(of_people))
    found = []
    for rows, exact in ((of_people, True), (of_people, False), (shuffled, False)):
        write_scores(place, rows)
        pq.write_table(pq.read_table(place), place, row_group_size=50)
        promise_scores(
            str(place),
            ["false_alarms<=0.25"],
            POINT,
            level=0.9,
            calibration=str(tmp_path / "calibration.json"),
            out=str(tmp_path / "out.json"),
            running=Running(most=None if exact else 0, workers=1),
        )
        found.append((capsys.readouterr().out, json.loads((tmp_path / "out.json").read_text())))
    assert found[0][0] == found[1][0] == found[2][0]
    assert found[0][1]["chosen"] == found[1][1]["chosen"] and found[0][1]["chosen"] is not None
