"""A log of answers: what the gate would have cost, the conversion to a scores file, and what is refused."""

import dataclasses

import forked
import numpy as np
import pytest
import scipy.stats
from sklearn.metrics import roc_auc_score

from prism_jax.decision.calibration import CalibrationConfig, Rule, expected_calibration_error, fit_map
from prism_jax.decision.score_maps import PLATT, Scale, maps_of_units, scale_of
from prism_jax.decision.uncertainty import SHARE, Cells, interval
from prism_jax.evaluation.answers.columns import LogColumns, LogError, parse_columns
from prism_jax.evaluation.answers.findings import Question
from prism_jax.evaluation.answers.log_scores import scale_of_log, scores_of_log
from prism_jax.evaluation.answers.logs import AcceptanceLog
from prism_jax.evaluation.answers.parts import Divided
from prism_jax.evaluation.answers.study import in_memory, study, study_parts
from prism_jax.people.layer import fit_population, prequential
from prism_jax.report.answers.sentences import promised, sentences
from prism_jax.runs.answers import evaluate_log
from prism_jax.scores import Scores

ROWS, PEOPLE = 60, 6


@pytest.fixture
def log():
    rng = np.random.default_rng(0)
    score = rng.random(ROWS)
    accepted = (rng.random(ROWS) < score).astype(float)
    score[::7] = np.nan
    person = rng.permutation(np.arange(ROWS, dtype=np.int32) % PEOPLE)
    names = tuple(f"person {number}" for number in range(PEOPLE))
    made = np.ones(ROWS, bool)
    return AcceptanceLog(names, person, accepted, rng.permutation(ROWS) * 1.0, True, made, score)


@pytest.fixture
def weighed(log):
    """The log with propensities."""
    return dataclasses.replace(log, propensity=np.random.default_rng(1).uniform(0.1, 1.0, ROWS))


def said(log, threshold=0.4, weighted=False):
    """What the log says at costs that ask for the threshold."""
    divided = Divided.of_log(log, weighted=weighted)
    columns = LogColumns("who", "took", score=None if log.score is None else "sure")
    question = Question(threshold, 1 - threshold, weighted=weighted)
    return study_parts(in_memory(divided), divided, columns, question, False)


@pytest.mark.parametrize("weighted", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_every_number_follows_from_the_predictions_of_each_row(weighed, weighted):
    found, studied = said(weighed, weighted=weighted), study(weighed, weighted=weighted)
    y, person, weight = studied.accepted, studied.person, studied.weight
    clipped = np.minimum(1 / np.maximum(weighed.propensity[studied.row], 0.05), 20)
    assert weight.tolist() == (clipped.tolist() if weighted else [1.0] * ROWS)
    assert list(found.measured) == list(studied.predictions) and len(found.measured) == 6

    def auroc_of(counts, p):
        """With each person as often as it is said: the interval leaves out one after the other."""
        kept = [roc_auc_score(y, p, sample_weight=weight * one[person]) for one in np.atleast_2d(counts)]
        return np.reshape(kept, counts.shape[:-1])

    def mean(values, by=weight):
        return np.average(values, weights=by)

    for name, measures in found.measured.items():
        p = studied.predictions[name]
        ranks = np.zeros(ROWS) if name == "constant" else p
        assert measures.auroc.value == pytest.approx(roc_auc_score(y, ranks, sample_weight=weight), abs=1e-12)
        if name != "constant":
            whole = interval(Cells.of_units(np.eye(PEOPLE)), lambda n, p=ranks: auroc_of(n, p), bounds=SHARE)
            assert measures.auroc[:3] == pytest.approx(whole[:3], abs=1e-9)
        assert measures.brier.value == pytest.approx(mean((p - y) ** 2), abs=1e-12)
        expected = float(expected_calibration_error(p, y, weight, bins=15))
        assert measures.ece.value == pytest.approx(expected, abs=1e-12)
        mine = [np.flatnonzero(person == one) for one in range(PEOPLE)]
        right, pairs = 0.0, 0.0
        for rows in mine:
            one, zero = rows[y[rows] == 1], rows[y[rows] == 0]
            above = (ranks[one][:, None] > ranks[zero]) + (ranks[one][:, None] == ranks[zero]) / 2
            of_pairs = weight[one][:, None] * weight[zero]
            right, pairs = right + (above * of_pairs).sum(), pairs + of_pairs.sum()
        assert measures.within_person.value == pytest.approx(right / pairs, abs=1e-12)

    costs = {"always": np.where(y == 1, 0, 0.4), "never": np.where(y == 1, 0.6, 0)}
    for name, p in studied.predictions.items():
        costs[name] = np.where(p >= 0.4, costs["always"], costs["never"])
    better = min(("always", "never"), key=lambda name: mean(costs[name], clipped))
    assert list(found.costs) == list(costs)
    for name, cost in costs.items():
        said_of = found.costs[name]
        assert said_of.cost.value == pytest.approx(mean(cost, clipped), abs=1e-12)
        assert said_of.gain.value == pytest.approx(mean(cost - costs[better], clipped), abs=1e-12)
        assert said_of.cost.low < said_of.cost.value < said_of.cost.high
    assert np.isnan([found.costs[better].gain.low, found.costs[better].gain.high]).all()  # of no difference
    offered = studied.predictions["score"] >= 0.4
    assert found.costs["score"].speak_rate == pytest.approx(mean(offered, clipped))
    assert found.costs["score"].wrong == pytest.approx(mean(1 - y[offered], clipped[offered]))
    assert np.isnan(found.costs["never"].wrong) and found.costs["never"].as_dict()["wrong_offers"] is None

    known = ~np.isnan(weighed.score[studied.row])
    errors = {name: (p - y) ** 2 for name, p in studied.predictions.items()}
    score, constant = (mean(errors[name][known], weight[known]) for name in ("score", "constant"))
    compared = [found.compared[name].value for name in ("score", "constant", "difference")]
    assert compared == pytest.approx([score, constant, score - constant], abs=1e-12)
    means = {"said": mean(weighed.score[studied.row][known], weight[known]), "accepted": mean(y[known], weight[known])}
    assert found.own.means == pytest.approx(means)
    for name, brier in found.own.brier.items():
        assert brier == pytest.approx(mean(errors[name][known], weight[known]), abs=1e-12)
    assert found.own.best == min(found.own.maps, key=found.own.brier.get)
    for part in found.parts:
        rows = (studied.seen >= part.low) & (studied.seen <= (part.high or np.inf if part.low else 0))
        assert (part.answers, part.people) == (rows.sum(), len(set(person[rows])))
        for name, brier in part.brier.items():
            assert brier == pytest.approx(mean(errors[name][rows], weight[rows]), abs=1e-12)
        gain = part.brier["score+person"] - part.brier["score, Platt"]
        assert part.difference.value == pytest.approx(gain, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("stretch", [1.0, 30.0])
def test_predictions_are_fitted_on_the_people_of_other_folds(weighed, stretch):
    """By hand, fold by fold."""
    log = dataclasses.replace(weighed, score=weighed.score * stretch)
    studied = study(log, weighted=True)
    y, person, weight, score = studied.accepted, studied.person, studied.weight, log.score[studied.row]
    known = ~np.isnan(score)
    assert studied.folds == PEOPLE
    for out in range(PEOPLE):
        held, train = person == out, person != out
        base = np.average(y[train], weights=weight[train])
        fitting = train & known
        each = weight[fitting] / weight[train].mean()
        scale = scale_of(score[fitting], stretch == 1.0)
        maps = maps_of_units(scale, scale.unit(score[fitting]), y[fitting], each)
        platt = np.where(known, maps["score, Platt"](np.where(known, score, 0.5)), base)
        expected = {"constant": np.full(ROWS, base), "score, Platt": platt}
        if stretch == 1.0:
            expected["score, temperature"] = np.where(known, maps["score, temperature"](np.nan_to_num(score)), base)
        for name, below in (("person", "constant"), ("score+person", "score, Platt")):
            z = scipy.special.logit(expected[below])
            population = fit_population(z, y, person, train, calibrated=True, weight=weight)
            expected[name] = scipy.special.expit(prequential(z, y, person, population).log_odds)
        for name, p in expected.items():
            np.testing.assert_allclose(studied.predictions[name][held], p[held], atol=1e-9, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("stretch", [1.0, 10.0, -10.0])
def test_the_rule_on_the_score_is_where_the_fitted_map_reaches_the_gates(log, stretch):
    log = dataclasses.replace(log, score=log.score * stretch)
    own = said(log).own
    score = log.score[~np.isnan(log.score)]
    assert len(own.maps) == (3 if stretch == 1 else 1)
    for fitted in own.maps.values():
        rule = fitted.rule(0.4)
        assert rule.offer == ("at_most" if stretch < 0 else "at_least")
        assert fitted(np.array([rule.value])) == pytest.approx(0.4, abs=1e-6)
        np.testing.assert_array_equal(rule.offers(score), fitted(score) >= 0.4)
    assert own.rule.in_words() in " ".join(sentences(own)) and "sure" in sentences(own)[0]


@pytest.mark.slow
def test_a_rule_per_person_is_where_their_own_prediction_reaches_the_gates(log):
    people = said(log).people
    assert [person.number for person in people] == list(range(1, PEOPLE + 1))
    named = {f"p{number}": name for number, name in zip(log.numbers, log.names, strict=True)}
    for person in people:
        mine = log.accepted[log.person == log.names.index(named[f"p{person.number}"])]
        assert (person.answers, person.accepted) == (len(mine), pytest.approx(mine.mean()))
        wilson = scipy.stats.binomtest(int(mine.sum()), len(mine)).proportion_ci(method="wilson")
        assert (person.low, person.high) == pytest.approx((wilson.low, wilson.high), abs=1e-6)
    # Who accepts more is offered more: the two orders agree.
    order = np.argsort([person.p for person in people])
    assert (np.diff([people[i].rule.value for i in order]) < 0).all()
    rules = [person.rule.offer for person in said(dataclasses.replace(log, score=None), 0.5).people]
    assert set(rules) <= {"always", "never"}


def test_a_log_becomes_a_scores_table_of_whole_people(log):
    best = said(log).own.best
    scores = scores_of_log(log, best, keep_names=True)
    assert isinstance(scores, Scores) and not scores.has_need and len(scores) == ROWS
    missing = np.isnan(log.score[log.order])
    score, y = log.score[log.order], scores.y_accept
    for number in range(PEOPLE):  # by hand, on the people of the other folds
        held, others = scores.fold == number, scores.fold != number
        maps = maps_of_units(
            Scale(), score[others & ~missing], y[others & ~missing], np.ones((others & ~missing).sum())
        )
        np.testing.assert_allclose(scores.p_accept_fast[held & ~missing], maps[best](score[held & ~missing]))
        np.testing.assert_allclose(scores.p_accept_fast[held & missing], y[others].mean())
    np.testing.assert_allclose(scores.p_accept_fast, study(log).predictions[best])
    plain = scores_of_log(log, None, keep_names=True)
    np.testing.assert_allclose(plain.p_accept_fast[~missing], log.score[log.order][~missing])
    far = dataclasses.replace(log, score=log.score * 10)
    order = np.argsort(scores_of_log(far, None, keep_names=True).p_accept_fast[~missing])
    np.testing.assert_array_equal(order, np.argsort(far.score[far.order][~missing]))
    for name in log.names:
        mine = scores.person == name
        assert scores.step[mine].tolist() == list(range(mine.sum())) and (np.diff(scores.time[mine]) > 0).all()
        assert len(set(scores.fold[mine])) == 1
    bare = AcceptanceLog(log.names, log.person, log.accepted, log.time, True, log.logged)
    with pytest.raises(LogError, match="columns: found no score, expected score=COLUMN"):
        scores_of_log(bare, None)


def test_a_scores_table_says_which_offers_were_made_and_how_likely(log):
    made = np.arange(ROWS) % 5 > 0
    accepted, propensity = np.where(made, log.accepted, np.nan), np.linspace(0.1, 0.9, ROWS)
    log = dataclasses.replace(log, logged=made, accepted=accepted, propensity=propensity)
    scores = scores_of_log(log, PLATT, keep_names=True)
    np.testing.assert_array_equal(scores.logged, made[log.order])
    np.testing.assert_array_equal(scores.propensity, propensity[log.order])


def test_people_are_numbered_as_the_log_first_mentions_them_unless_names_are_kept(log):
    named, numbered = scores_of_log(log, PLATT, keep_names=True), scores_of_log(log, PLATT)
    met = [log.names[code] for code in dict.fromkeys(log.person.tolist())]
    assert list(dict.fromkeys(numbered.person.tolist())) == [f"p{i + 1}" for i in range(len(met))]
    for i, name in enumerate(met):
        mine, theirs = (table.take(table.person == one) for table, one in ((numbered, f"p{i + 1}"), (named, name)))
        for column in ("step", "fold", "time", "p_accept_fast", "y_accept"):
            np.testing.assert_array_equal(getattr(mine, column), getattr(theirs, column))
    np.testing.assert_array_equal(numbered.stream, numbered.person)


BAD = {
    "not 0 or 1": ("person=user,accepted=stars", "column 'stars': found 4, expected true or false, or 1 or 0"),
    "one class": ("person=user,accepted=yes", "answers that all accepted the offer, expected both kinds"),
    "an offer not made": ("person=user,accepted=taken,logged=shown", "not made and no propensity"),
}


@pytest.fixture
def csv(tmp_path):
    rows = ["user,app,taken,stars,yes,shown", "a,x,1,4,1,1", "a,x,0,2,1,1", "b,x,1,5,1,1", "b,x,0,1,1,0"]
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    return tmp_path / "log.csv"


@pytest.mark.parametrize("case", BAD)
def test_bad_logs_are_refused_and_nothing_is_written(csv, case):
    columns, message = BAD[case]
    with pytest.raises(LogError) as refused:
        evaluate_log(csv, parse_columns(columns), csv.parent / "out", Question(1.0, 2.0))
    assert message in str(refused.value) and "\n" not in str(refused.value)
    assert not (csv.parent / "out").exists()


def test_a_log_without_roles_is_shown_with_the_command_to_type(csv):
    done = forked.run("prism_jax.evaluate", f"--scores={csv}", f"--workdir={csv.parent / 'out'}", cwd=csv.parent)
    said = "--columns=person=user,accepted=taken,logged=shown --shown_only --workdir="
    assert done.returncode == 1 and said in done.stderr and "person=user" in done.stdout
    assert not (csv.parent / "out").exists()


@pytest.mark.parametrize("calibrator", ["temperature", "platt", "isotonic"])
def test_a_promised_gate_is_a_rule_on_the_logs_score(log, calibrator):
    log = dataclasses.replace(log, score=log.score * 10)
    table = scores_of_log(log, None, keep_names=True)
    known = ~np.isnan(log.score[log.order])
    score, p = log.score[log.order][known], table.p_accept_fast[known]
    fitted = fit_map(CalibrationConfig(calibrator), p, table.y_accept[known])
    for ratio in (0.5, 1.0, 2.0):
        found = promised(fitted, ratio, scale_of_log(log), "sure")
        rule = Rule(**found["rules"][""])
        np.testing.assert_array_equal(rule.offers(score), fitted(p) >= 1 / (1 + ratio))
        assert found["sentences"][0].startswith("On your own score: ") and "sure" in found["sentences"][0]
