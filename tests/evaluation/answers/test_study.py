"""The protocol on small simulated logs, its measures, and the command."""

import contextlib
import dataclasses
import io
import json

import numpy as np
import pytest

from prism_jax.decision.person import Population
from prism_jax.evaluation.answers.columns import LogError, parse_columns
from prism_jax.evaluation.answers.findings import Question
from prism_jax.evaluation.answers.logs import AcceptanceLog, read_log
from prism_jax.evaluation.answers.measures import pairs_by_person
from prism_jax.evaluation.answers.study import study
from prism_jax.experiments.people_demo import COLUMNS, CONTEXT, simulate_log
from prism_jax.people.layer import prequential
from prism_jax.runs.answers import evaluate_log


@pytest.fixture(scope="module", autouse=True)
def few_settings():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prism_jax.evaluation.answers.context.RIDGES", (50.0,))
        patch.setattr("prism_jax.evaluation.answers.context.PIECES", (3,))
        yield


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    log = simulate_log(people=4, answers=40)
    path = tmp_path_factory.mktemp("log") / "log.csv"
    path.write_bytes(log.to_csv())
    return path, log.truth


@pytest.fixture(scope="module")
def ran(simulated, tmp_path_factory):
    path, truth = simulated
    workdir = tmp_path_factory.mktemp("people")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        columns = parse_columns(COLUMNS)
        value = evaluate_log(path, columns, workdir, Question(1.0, 2.0, CONTEXT), truth=truth)
    return workdir, printed.getvalue(), value


def test_the_command_prints_and_writes_every_row(ran):
    workdir, printed, value = ran
    written = json.loads((workdir / "acceptance_log.json").read_text())
    assert written == value
    rows = written["rows"]
    assert {"constant", "score", "context", "person", "context+person"} <= set(rows)
    for row in rows.values():
        for name in ("auroc", "within_person", "brier", "ece"):
            low, high = row[name]["low"], row[name]["high"]
            assert 0 <= row[name]["value"] <= 1
            assert low is None or 0 <= low <= high <= 1
    assert rows["truth"]["brier"]["value"] < rows["context+person"]["brier"]["value"]
    assert set(written["costs"]) == {"always", "never", *rows} - {"truth"}  # no gate knows the truth
    assert written["protocol"]["context"] == list(CONTEXT) and written["protocol"]["timed"]
    assert "context+person" in printed and "user 0" not in printed
    assert (workdir / "predictions.csv").read_text().count("\n") == len(rows) + 1
    parts = written["by_answers"]
    assert sum(part["answers"] for part in parts) == written["log"]["answers"]
    assert (workdir / "by_answers.csv").read_text().count("\n") == len(parts) + 1
    cold, warm = parts[0]["difference"]["brier"], parts[-1]["difference"]["brier"]
    assert cold["value"] == pytest.approx(0.0, abs=1e-12)  # no loss at a first offer
    assert cold["low"] is cold["high"] is None
    brier = parts[-1]["brier"]
    assert warm["value"] == pytest.approx(brier["context+person"] - brier["context"], abs=1e-12)
    assert warm["low"] is None or warm["low"] <= warm["value"] <= warm["high"]
    assert "0.000" in printed and "[0.000, 0.000]" not in printed


@pytest.mark.parametrize(
    ("columns", "pair"),
    [(COLUMNS, ("score+person", "score, Platt")), ("person=user,accepted=taken", ("person", "constant"))],
)
def test_without_context_the_layer_is_compared_on_the_score_or_alone(simulated, tmp_path, columns, pair):
    value = evaluate_log(simulated[0], parse_columns(columns), tmp_path, Question(1.0, 2.0))
    assert not {"context", "context+person"} & {*value["rows"], *value["costs"], *value["by_answers"][0]["brier"]}
    for part in value["by_answers"]:
        assert (part["difference"]["row"], part["difference"]["minus"]) == pair


def test_the_order_of_rows_and_the_names_of_columns_change_nothing(simulated):
    path, _ = simulated
    log = read_log(path, parse_columns("person=user,time=shown_at,accepted=taken"), CONTEXT[:1])
    found = study(log)
    mixed = np.random.default_rng(0).permutation(len(log))
    columns = tuple(dataclasses.replace(column, values=column.values[mixed]) for column in log.context)
    arrays = {name: getattr(log, name)[mixed] for name in ("person", "accepted", "time", "logged")}
    again = study(dataclasses.replace(log, context=columns, **arrays))
    np.testing.assert_array_equal(mixed[again.row], found.row)
    for name, p in found.predictions.items():
        np.testing.assert_allclose(again.predictions[name], p, rtol=1e-6)


def test_later_answers_of_a_person_change_no_earlier_prediction_of_theirs(simulated):
    path, _ = simulated
    log = read_log(path, parse_columns("person=user,accepted=taken"))
    found = study(log)
    who = found.person[0]
    mine = np.flatnonzero(found.person == who)
    late = found.row[mine[len(mine) // 2 :]]
    changed = study(
        dataclasses.replace(log, accepted=np.where(np.isin(np.arange(len(log)), late), 1 - log.accepted, log.accepted))
    )
    until = mine[: len(mine) // 2 + 1]
    for name, p in found.predictions.items():
        np.testing.assert_array_equal(changed.predictions[name][until], p[until])
    assert not np.array_equal(changed.predictions["person"], found.predictions["person"])


def test_answers_that_come_too_late_tell_nothing_of_their_person(simulated):
    path, _ = simulated
    log = read_log(path, parse_columns("person=user,time=shown_at,accepted=taken"))
    found = study(dataclasses.replace(log, answered=log.time + 1e9))
    assert not found.seen.any()
    np.testing.assert_allclose(found.predictions["person"], found.predictions["constant"], rtol=1e-12)


def test_a_log_that_teaches_nothing_is_refused(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("p,a\nx,1\nx,0\ny,1\ny,1\n")
    with pytest.raises(ValueError, match=r"log\.csv: found people, or days of one person, whose removal"):
        study(read_log(path, parse_columns("person=p,accepted=a")))


@pytest.mark.parametrize("scores", [("0.9", "", "0.8", ""), ("0.9", "0.2", "0.8", "")])  # at all, and outside a fold
def test_scores_of_answers_of_one_kind_are_refused_as_such(tmp_path, scores):
    path = tmp_path / "log.csv"
    path.write_text("p,a,s\nx,1,{}\nx,0,{}\ny,1,{}\ny,0,{}\n".format(*scores))
    with pytest.raises(LogError, match=r"log\.csv: score: found it on answers of one kind only among the people"):
        study(read_log(path, parse_columns("person=p,accepted=a,score=s")))


@pytest.mark.slow
def test_inverse_propensities_undo_a_policy_that_saw_more():
    """Offers are made where a hidden reason to accept is strong; the log knows how likely each was."""
    rng = np.random.default_rng(0)
    rows = 4000
    hidden = rng.normal(size=rows)
    would = (rng.random(rows) < 1 / (1 + np.exp(-hidden))).astype(float)
    propensity = np.clip(1 / (1 + np.exp(-2 * hidden)), 0.1, 0.9)
    made = rng.random(rows) < propensity
    person = (np.arange(rows) % 8).astype(np.int32)
    log = AcceptanceLog(
        tuple("abcdefgh"), person, np.where(made, would, np.nan), np.arange(rows) * 1.0, False, made,
        propensity=propensity,
    )  # fmt: skip
    plain, weighted = study(log), study(log, weighted=True)
    assert plain.predictions["constant"].mean() > would.mean() + 0.1
    assert weighted.predictions["constant"].mean() == pytest.approx(would.mean(), abs=0.03)
    with pytest.raises(ValueError, match="columns: found no propensity, expected propensity=COLUMN"):
        study(dataclasses.replace(log, propensity=None), weighted=True)


@pytest.mark.parametrize(("answers", "low", "high"), [(2, 0.0, 0.0), (20, 0.2, 0.4), (100, 0.35, 0.48)])
def test_a_layer_that_learns_ranks_below_chance_within_people_of_constant_rates(answers, low, high):
    """An answer raises the next prediction and leaves one fewer of its kind: chance is below 1/2, and 0 for two."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(2000 // answers), answers)
    y = (rng.random(len(person)) < rng.uniform(0.2, 0.6, len(person) // answers)[person]).astype(float)
    run = prequential(np.zeros(len(person)), y, person, Population(1.0, 0.0, 0.5, 0.0))
    right, pairs = pairs_by_person(run.log_odds, y, person, np.ones(len(y))).sum(axis=0)
    assert low <= right / pairs <= high
