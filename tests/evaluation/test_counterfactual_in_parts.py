"""Counterfactual costs of tables that are read part by part: the same as of a table in memory."""

import dataclasses
import itertools

import numpy as np
import pytest
from in_parts import SETTINGS, ask, write

from prism_jax.decision import off_policy
from prism_jax.decision.off_policy import OverlapError
from prism_jax.evaluation import logged_steps
from prism_jax.evaluation.fits import Calibration, write_calibration
from prism_jax.evaluation.logged_steps import Reading
from prism_jax.evaluation.merged import states
from prism_jax.evaluation.merged.counterfactual import Folds, estimate, over_log
from prism_jax.evaluation.merged.running import over
from prism_jax.evaluation.merged.states import UnitSums
from prism_jax.evaluation.protocol import calibrate
from prism_jax.scores import Scores, ScoresError, write_scores


def table(people=24, streams=2, steps=12, candidates=2, seed=0, **changed):
    """A log with slow signals at some steps, and a column with another policy's probabilities.

    The best candidate of a step is offered by chance. Some answers and judgements of need are unknown.
    """
    rng, n, k = np.random.default_rng(seed), people * streams * steps, candidates
    accept, need, thought = rng.beta(1.5, 1.5, (n, k)), rng.beta(2, 1.2, n), rng.random(n) < 0.3
    offered, best = np.zeros((2, n, k), bool), accept.argmax(axis=1)
    e = 0.2 + 0.7 * accept.max(axis=1)
    offered[0, np.arange(n), best], offered[1, np.arange(n), best] = rng.random(n) < e, True
    made, possible = offered.reshape(2, -1)
    answer = np.where(rng.random(n * k) < accept.ravel(), 1.0, 0.0)
    stream = np.repeat(np.arange(people * streams), steps * k)
    columns = {
        "stream": [f"s{number}" for number in stream],
        "step": np.tile(np.repeat(np.arange(steps), k), people * streams),
        "candidate": np.tile(np.arange(k), n),
        "person": [f"p{number // streams}" for number in stream],
        "p_need_fast": np.repeat(need, k),
        "p_accept_fast": accept.ravel(),
        "p_need_slow": np.where(np.repeat(thought, k), np.repeat(need**2, k), np.nan),
        "p_accept_slow": np.where(np.repeat(thought, k), np.sqrt(accept.ravel()), np.nan),
        "y_need": np.repeat(np.where(rng.random(n) < 0.1, np.nan, rng.random(n) < need), k),
        "y_accept": np.where(made & (rng.random(n * k) > 0.05), answer, np.nan),
        "logged": made,
        "propensity": np.where(possible, np.repeat(e, k), np.nan),
        "p_offer": list(np.repeat(np.where(e > 0.5, e**2, 0.0), k)),
    }
    columns |= {name: change(columns[name]) for name, change in changed.items()}
    return Scores.from_columns({name: column for name, column in columns.items() if column is not None})


def drop(_):
    return None


def silent_at(rows, e=np.nan, least=0.0):
    """Changes of a table: where nothing was offered, the propensity is `e`, and elsewhere at least `least`."""

    def at(values):
        return rows(np.arange(len(values)))

    return {
        "propensity": lambda p: np.where(at(p), e, np.maximum(p, least)),
        "logged": lambda made: made & ~at(made),
        "y_accept": lambda y: np.where(at(y), np.nan, y),
    }


WITHOUT_NEED = {"p_need_fast": drop, "p_need_slow": drop, "y_need": drop}
CASES = {
    "slow signals": ({}, {}),
    "a target": ({}, {"target": "p_offer"}),
    "without need": (WITHOUT_NEED, {}),
    "streams for people": ({"person": drop}, {}),
    "one candidate": ({"candidates": 1, "p_need_slow": drop, "p_accept_slow": drop}, {}),
    "an offer that could not be made": (
        {"candidates": 1, "p_offer": lambda p: list(np.maximum(p, 0.3))} | silent_at(lambda row: row % 191 == 0),
        {"target": "p_offer"},
    ),
    "maps": ({}, {"maps": True}),
}


def case_of(name):
    changed, how = CASES[name]
    scores = table(**changed)
    fits = None
    if "maps" in how:
        labelled = dataclasses.replace(table(seed=5), logged=None)
        labelled = dataclasses.replace(labelled, propensity=None, split=np.full(len(labelled), "calibration", object))
        fits = calibrate(labelled)
    return scores, Reading(SETTINGS, how.get("target"), fits)


def in_memory(scores, reading):
    steps, facts = logged_steps.decided(scores)
    logged_steps.check(facts)
    found = estimate(over_log(logged_steps.decisions(steps, reading)), reading)
    return found._replace(notes=logged_steps.notes(facts, reading))


def in_parts(scores, reading, number):
    """By parts of some streams each, in an order that is not that of the table."""
    stream = scores.numbered("stream")[1]
    order = np.random.default_rng(number).permutation(stream.max() + 1)
    place = order[stream] * number // len(order)
    taken = [np.flatnonzero(place == i) for i in range(number)]
    return estimate(over([scores.take(rows) for rows in taken if len(rows)]), reading)


def assert_same(ours, theirs):
    assert (ours.notes, ours.level_unknown, ours.level.keys()) == (
        theirs.notes,
        theirs.level_unknown,
        theirs.level.keys(),
    )
    for name in ("rows", "offers", "people", "everywhere"):
        assert getattr(ours.support, name) == getattr(theirs.support, name)
    assert [of.where for of in ours.drawn] == [of.where for of in theirs.drawn]
    for mine, other in zip(ours.drawn, theirs.drawn, strict=True):
        assert (*mine.weight, *mine.offers) == pytest.approx((*other.weight, *other.offers), rel=1e-9, nan_ok=True)
    assert tuple(ours.support) == pytest.approx(tuple(theirs.support), rel=1e-10)
    pairs = [(ours.difference, theirs.difference), *((ours.level[name], theirs.level[name]) for name in theirs.level)]
    for mine, other in pairs:
        for name in off_policy.ESTIMATORS:
            assert tuple(mine[name])[:5] == pytest.approx(tuple(other[name])[:5], rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("case", CASES)
def test_parts_say_what_the_table_in_memory_says(case):
    scores, reading = case_of(case)
    expected = in_memory(scores, reading)
    assert bool(expected.level) == (case != "an offer that could not be made")
    for number in (1, 2, 7, 64):
        assert_same(in_parts(scores, reading, number), expected)


@pytest.mark.parametrize("case", ["slow signals", "an offer that could not be made"])
def test_estimates_are_those_of_the_functions_for_rows(case):
    """Of the functions in `off_policy` that take all rows of a log at once."""
    scores, reading = case_of(case)
    log = logged_steps.decisions(logged_steps.decided(scores)[0], reading)
    found, fold = in_parts(scores, reading, 7), log.person % 5
    d = off_policy.savings(log.logged, 1.0, 3.0)
    silence = 3.0 * log.logged.needed * log.logged.accepted
    models = [off_policy.cross_fitted(log.features, outcome, log.logged, fold) for outcome in (d, silence)]
    how = {"resamples": 300, "seed": 0}
    assert tuple(found.support) == pytest.approx(
        tuple(off_policy.check_support(log.target, log.logged, log.person)), rel=1e-10
    )
    for name in off_policy.ESTIMATORS:
        expected = off_policy.difference(
            name, log.target, log.logged, log.person, c_fa=1.0, c_fn=3.0, model=models[0], **how
        )
        assert tuple(found.difference[name])[:4] == pytest.approx(tuple(expected)[:4], rel=1e-9)
        for policy, pi in (("target", log.target), ("always", log.target**0), ("never", 0 * log.target)):
            if not found.level:
                continue
            terms = off_policy.level_terms(name, pi, log.logged, d, silence, *models)
            expected = off_policy.mean_over_people(terms, log.person, **how)
            assert tuple(found.level[policy][name])[:4] == pytest.approx(tuple(expected)[:4], rel=1e-9)


def test_a_person_in_every_part_and_a_part_without_an_answer_are_no_special_case():
    scores, reading = table(people=40, streams=1), Reading(SETTINGS)
    number = scores.numbered("stream")[1]
    lost = number >= 36  # a part in which every offer was made and none has an answer
    scores = dataclasses.replace(
        scores,
        person=np.where(number % 4 == 0, "p0", scores.person).astype(object),
        y_accept=np.where(lost, np.nan, scores.y_accept),
        logged=np.where(lost, scores.candidate == 0, scores.logged),
        propensity=np.where(lost, np.where(scores.candidate == 0, 1.0, np.nan), scores.propensity),
    )
    chunks = [scores.take(number // 4 == i) for i in range(10)]
    assert all((chunk.person == "p0").any() for chunk in chunks)
    steps, facts = logged_steps.decided(chunks[9])
    assert facts["unanswered"] == len(steps)
    expected = in_memory(scores, reading)
    assert expected.support.people == 28  # three of the others have lost all their rows
    for order in (chunks, chunks[::-1]):
        assert_same(estimate(over(order), reading), expected)


def test_offers_without_an_answer_are_left_out_of_signals_that_are_calibrated_once(monkeypatch):
    scores, reading = case_of("maps")
    steps, facts = logged_steps.decided(scores)
    assert facts["unanswered"] > 0
    calls, calibrated = [], Calibration.calibrated
    monkeypatch.setattr(Calibration, "calibrated", lambda *given: calls.append(given[1:3]) or calibrated(*given))
    found = logged_steps.decisions(steps, reading)
    assert calls == list(itertools.product(("need", "accept"), ("fast", "slow")))
    assert len(found.target) == len(steps) - facts["unanswered"] and len(found.drawn.score) == len(steps)


REFUSALS = {
    "too little exploration": (
        {"candidates": 1} | silent_at(lambda row: row % 40 == 3, e=0.01, least=0.5),
        "a probability of at least 0.[0-9]+ for each of the target's offers would have been enough",
    ),
    "too few rows": ({"people": 9, "steps": 2, "candidates": 1}, "no exploration would have been enough"),
    "no propensities": ({"candidates": 1} | silent_at(lambda row: row % 9 == 3), "propensity: found none at "),
    "few people": ({"people": 7}, "people: found 7"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_a_log_cannot_tell_is_refused_with_the_same_words(case):
    changed, words = REFUSALS[case]
    scores, reading = table(**changed), Reading(SETTINGS)
    with pytest.raises(OverlapError, match=words) as expected:
        in_memory(scores, reading)
    log = logged_steps.decisions(logged_steps.decided(scores)[0], reading)
    for refused in (
        lambda: in_parts(scores, reading, 5),
        lambda: off_policy.check_support(log.target, log.logged, log.person),
    ):
        with pytest.raises(OverlapError) as found:
            refused()
        assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("place", [0, -1])
def test_a_weight_that_overflows_is_seen_in_whatever_part_it_stands(place):
    silent = silent_at(lambda row: row == row[place], e=1e-120)
    scores = table(candidates=1, p_offer=lambda p: list(np.full(len(p), 0.8)), **silent)
    settings = dataclasses.replace(SETTINGS, least_effective=0.0, least_changes=0.0)
    for number in (1, 7):
        with pytest.raises(OverlapError, match=r"^effective people: found 1\.0 of 24"):
            in_parts(scores, Reading(settings, "p_offer"), number)


FAULTS = {
    "no answers": ({"y_accept": lambda y: 0 * y + np.nan}, {}, "y_accept: found no value, expected the answers"),
    "no log": ({"logged": drop}, {}, "logged: found no value, expected some"),
    "no propensities": ({"propensity": drop}, {}, "propensity: found no value, expected some"),
    "no target": ({}, {"target": "p_other"}, "p_other: found no such column"),
    "a wrong target": ({"p_offer": lambda p: [*p[:-1], 1.5]}, {"target": "p_offer"}, "p_offer: found 1.5, expected"),
    "nothing of a step": (
        {
            "logged": lambda made: np.where(np.arange(len(made)) // 2 == 700 // 2, np.nan, made),
            "propensity": lambda e: np.where(np.arange(len(e)) // 2 == 700 // 2, np.nan, e),
            "y_accept": lambda y: np.where(np.arange(len(y)) // 2 == 700 // 2, np.nan, y),
        },
        {},
        "logged: found null at stream 's29', step 2, expected whether",
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_tables_without_a_log_are_refused_as_in_memory(case, tmp_path):
    changed, how, words = FAULTS[case]
    path, messages = str(tmp_path / "scores.parquet"), []
    write_scores(path, table(**changed))
    for most in (None, 0):
        with pytest.raises(ScoresError) as found:
            ask(path, most=most, **how)
        messages.append(str(found.value))
    assert messages[0] == messages[1] and words in messages[0]


def test_maps_of_the_fast_pass_alone_are_refused_where_the_slow_pass_decides():
    labelled = table(seed=5, logged=drop, propensity=drop, p_need_slow=drop, p_accept_slow=drop)
    maps = calibrate(dataclasses.replace(labelled, split=np.full(len(labelled), "calibration", object)))
    with pytest.raises(ScoresError, match="p_need_slow: found values, expected none: calibration has no map of them"):
        in_memory(table(), Reading(SETTINGS, fits=maps))


def test_an_offer_of_unknown_probability_is_refused_wherever_the_silence_stands():
    scores = table(candidates=1)
    made = scores.logged == 1
    shown = scores.take(made)
    shown = dataclasses.replace(shown, stream=shown.stream + "x", propensity=np.full(len(shown), np.nan))
    with pytest.raises(ScoresError, match=f"propensity: found null at {len(shown)} offers, expected a number, as"):
        estimate(over([scores.take(~made), shown]), Reading(SETTINGS))


def test_of_more_people_than_are_kept_resampled_sums_tell_nearly_the_same(monkeypatch):
    scores, reading = table(people=300, streams=1, steps=6, candidates=1), Reading(SETTINGS)
    exact = in_parts(scores, reading, 7)
    monkeypatch.setattr(states, "MOST_KEPT", 40)
    found = in_parts(scores, reading, 7)
    assert found.support[:7] == pytest.approx(exact.support[:7], rel=1e-10)
    assert (found.support.people, found.notes) == (300, exact.notes)
    assert found.support.effective_people == pytest.approx(exact.support.effective_people, rel=0.25)
    assert found.support.effective_people != exact.support.effective_people
    for mine, other in ((found.difference, exact.difference), (found.level["never"], exact.level["never"])):
        for name in ("ips", "snips"):
            assert mine[name].value == pytest.approx(other[name].value, rel=1e-9)
        assert mine["dr"].value == pytest.approx(other["dr"].value, abs=other["dr"].standard_error / 4)
        for name in off_policy.ESTIMATORS:
            width = other[name].high - other[name].low
            assert mine[name].low == pytest.approx(other[name].low, abs=width / 8)
            assert mine[name].high == pytest.approx(other[name].high, abs=width / 8)


def test_folds_hold_whole_people_and_do_not_depend_on_the_parts():
    log = logged_steps.decisions(logged_steps.decided(table())[0], Reading(SETTINGS))
    people = UnitSums.of(list(log.people), {"rows": np.bincount(log.person, log.target + 1)}, resamples=4, seed=0)
    np.testing.assert_array_equal(Folds.of(people).of_rows(log), log.person % 5)
    hashed = Folds.of(dataclasses.replace(people, most=3)._bounded())
    fold = hashed.of_rows(log)
    assert hashed.keys is None and set(fold) == set(range(5))
    assert len(set(zip(log.person.tolist(), fold.tolist(), strict=True))) == len(log.people)
    renamed = dataclasses.replace(log, people=[*log.people[::-1]], person=len(log.people) - 1 - log.person)
    np.testing.assert_array_equal(hashed.of_rows(renamed), fold)


def test_the_command_reads_parts_of_any_order_and_any_format(small_parts, tmp_path, capsys):
    scores = table()
    labelled = table(seed=5, logged=drop, propensity=drop)
    maps = calibrate(dataclasses.replace(labelled, split=np.full(len(labelled), "calibration", object)))
    write_calibration(tmp_path / "calibration.json", maps)
    (tmp_path / "many").mkdir()
    third = scores.numbered("stream")[1] % 3
    write(tmp_path / "many" / "a.parquet", scores.take(third == 0))
    write_scores(tmp_path / "many" / "b.jsonl", scores.take(third == 1))
    shuffled = np.random.default_rng(0).permutation(np.flatnonzero(third == 2))
    write(tmp_path / "many" / "c.parquet", scores.take(shuffled))
    for how in ({"target": "p_offer"}, {"calibration": str(tmp_path / "calibration.json")}):
        expected = ask(tmp_path / "many", tmp_path / "exact", most=None, **how)
        printed = capsys.readouterr().out
        names = {f"{name}.{kind}" for name in ("difference", "level", "support") for kind in ("csv", "md", "tex")}
        assert expected.keys() == names and "people" in printed
        assert ask(tmp_path / "many", tmp_path / "out", **how) == expected
        assert capsys.readouterr().out == printed


@pytest.mark.slow
def test_a_refused_run_keeps_nothing_and_other_limits_start_anew(small_parts, tmp_path):
    write(tmp_path / "scores.parquet", table())
    out = tmp_path / "out"
    for limit, words in ((1e9, "effective offers"), (0.0, "effective changes")):
        settings = dataclasses.replace(SETTINGS, least_effective=limit, least_changes=1e9)
        with pytest.raises(OverlapError, match=f"^{words}.* no exploration would have been enough"):
            ask(tmp_path / "scores.parquet", out, settings=settings)
        assert not list(out.iterdir())
