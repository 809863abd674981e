"""The whole path of a log as products keep them: odd names of columns, unshown rows, scores from 0 to 10."""

import json

import forked
import numpy as np
import pytest

from prism_jax import Gate
from prism_jax.decision.calibration import Rule
from prism_jax.decision.off_policy import EstimateSettings
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation.answers.columns import LogError, parse_columns
from prism_jax.evaluation.answers.findings import Question
from prism_jax.evaluation.answers.logs import read_log
from prism_jax.runs.answers import evaluate_log
from prism_jax.runs.counterfactual import estimate_decisions, of_log, tables
from prism_jax.runs.promising import promise_scores
from prism_jax.scores import read_scores

COLUMNS = "person=User ID,time=Shown at,score=Confidence (0-10),accepted=Taken?"
LOGGED = f"{COLUMNS},logged=Was it shown?"
PEOPLE, ROWS = 12, 600


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """600 offers to 12 people, one in twelve not shown; acceptance rises with the score and differs by person."""
    rng = np.random.default_rng(7)
    person, score = rng.integers(0, PEOPLE, ROWS), np.round(rng.uniform(0, 10, ROWS), 1)
    own = rng.normal(0, 0.8, PEOPLE)
    taken = rng.random(ROWS) < 1 / (1 + np.exp(-(0.6 * (score - 6.5) + own[person])))
    shown = np.arange(ROWS) % 12 != 5
    lines = ['User ID,"Session, nr",Shown at,Confidence (0-10),Was it shown?,Taken?']
    for i in range(ROWS):
        answer = ("yes" if taken[i] else "no") if shown[i] else ""
        time = f"2025-03-{1 + i // 40:02d} {8 + i % 12:02d}:{i % 60:02d}:00"
        lines.append(f"user-{person[i]:03d}@mail,{i},{time},{score[i]},{'yes' if shown[i] else 'no'},{answer}")
    path = tmp_path_factory.mktemp("ordinary") / "offers export.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def run(command, *arguments, cwd):
    done = forked.run("prism_jax", command, *arguments, cwd=cwd)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_a_log_with_unshown_rows_is_evaluated_on_the_shown_ones_where_asked(log, tmp_path):
    given = (f"--scores={log}", f"--workdir={tmp_path / 'out'}")
    code, _, error = run("evaluate", *given, f"--columns={COLUMNS}", cwd=tmp_path)
    assert code == 1 and "logged=COLUMN" in error and "--shown_only" in error
    code, _, error = run("evaluate", *given, f"--columns={LOGGED}", cwd=tmp_path)
    assert code == 1 and "found 50 of 600 offers that were not made" in error and "--shown_only" in error
    code, _, error = run("evaluate", *given, f"--columns={COLUMNS}", "--shown_only", cwd=tmp_path)
    assert code == 1 and "logged=COLUMN" in error
    assert not (tmp_path / "out").exists()
    code, printed, error = run("evaluate", *given, f"--columns={LOGGED}", "--shown_only", cwd=tmp_path)
    assert code == 0, error
    assert "of shown offers only" in printed
    value = json.loads((tmp_path / "out" / "acceptance_log.json").read_text())
    assert value["log"]["answers"] == value["log"]["rows"] == 550 and value["log"]["not_made"] == 50


@pytest.fixture(scope="module")
def evaluated(log, tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluated")
    given = (f"--scores={log}", f"--columns={LOGGED}", "--shown_only", f"--workdir={folder / 'out'}")
    code, printed, error = run("evaluate", *given, f"--scores_out={folder / 'out' / 'scores.jsonl'}", cwd=folder)
    assert code == 0, error
    return folder, printed, json.loads((folder / "out" / "acceptance_log.json").read_text())


def test_the_answer_is_a_threshold_on_the_score_from_0_to_10(evaluated):
    _, printed, value = evaluated
    on_score = value["gate"]["score"]
    assert on_score["column"] == "Confidence (0-10)" and on_score["best"] == "score, Platt"
    rule = on_score["rules"]["score, Platt"]
    # The true rule: sigmoid(0.6 (s - 6.5)) = 1/3 at s = 5.34, averaged over people a little lower.
    assert rule["offer"] == "at_least" and 4.0 < rule["value"] < 6.5
    assert f"On your own score: offer where Confidence (0-10) ≥ {rule['value']:.5g}." in printed
    assert "Platt's map" in printed and "not fitted on" not in printed  # there is no other map to compare
    assert f"≥ {rule['value']:.5g}" in (evaluated[0] / "out" / "gate.md").read_text()
    page = (evaluated[0] / "out" / "report.html").read_text()
    assert page.count("<svg") == 2 and f"Offer where Confidence (0-10) ≥ {rule['value']:.5g}<" in page
    assert "How people differ" in page and "user-" not in page
    # What a reader wants to know first is printed first: what the gate saves, whether the score is a probability.
    assert printed.startswith("What the gate saves, per offer, p_accept alone, of shown offers only")
    assert "Confidence (0-10) is no probability: it goes from 0 to 10; Platt's map makes one." in printed
    costs = value["costs"]["score, Platt"]
    for constant in ("always", "never"):
        difference = costs["cost"]["value"] - value["costs"][constant]["cost"]["value"]
        assert costs[f"minus_{constant}"]["value"] == pytest.approx(difference, abs=1e-12)


def test_the_gate_of_the_file_decides_on_the_score_as_the_evaluation_says(evaluated, log):
    folder, printed, value = evaluated
    gate = Gate.load(folder / "out")
    read = read_log(log, parse_columns(LOGGED), shown_only=True)
    rule = Rule(**value["gate"]["score"]["rules"]["score, Platt"])
    np.testing.assert_array_equal(gate(score=read.score).speak, rule.offers(read.score))
    share = next(row["speak_rate"] for name, row in value["costs"].items() if name == "score, Platt")
    assert gate(score=read.score).speak.mean() == pytest.approx(share, abs=0.02)  # whose folds have rules of their own
    assert "(score=...)" in printed


def test_people_differ_under_numbers(evaluated):
    folder, printed, value = evaluated
    people = value["people"]
    assert [one["number"] for one in people] == list(range(1, PEOPLE + 1))
    assert sum(one["answers"] for one in people) == 550
    for one in people:
        assert one["low"] < one["accepted"] < one["high"] and one["rule"]["offer"] == "at_least"
    # Who accepts more gets offers from a lower score on.
    assert np.corrcoef([one["accepted"] for one in people], [one["rule"]["value"] for one in people])[0, 1] < -0.7
    assert "How people differ" in printed and "p12" in printed
    table = (folder / "out" / "people_by_number.csv").read_text()
    assert len(table.splitlines()) == 1 + PEOPLE
    assert not any("user-" in text for text in (printed, table, json.dumps(value)))


def test_the_exported_scores_keep_the_best_map_and_evaluate_reads_them(evaluated):
    folder, told, _ = evaluated
    given = (f"--scores={folder / 'out' / 'scores.jsonl'}", "--shown_only", f"--workdir={folder / 'again'}")
    assert f"python -m prism_jax evaluate {given[0]} --shown_only --workdir=DIR reads it" in told
    code, printed, error = run("evaluate", *given, cwd=folder)
    assert code == 0, error
    calibration = json.loads((folder / "again" / "calibration.json").read_text())
    maps = [calibration["accept_fast"], *(fold["accept_fast"] for fold in calibration["folds"].values())]
    assert [fitted["temperature"] for fitted in maps] == [1.0] * len(maps)  # the export is calibrated already
    assert "with probabilities as they are" in printed
    assert "of shown offers only" in printed


def test_a_promise_is_a_threshold_on_the_same_score(log, tmp_path):
    given = (f"--scores={log}", f"--columns={LOGGED}", "--shown_only", f"--out={tmp_path / 'promise.json'}")
    code, printed, error = run("promise", *given, "--promise=false_alarms<=0.5", cwd=tmp_path)
    assert code == 0, error
    found = json.loads((tmp_path / "promise.json").read_text())["on_score"]
    rule = found["rules"][""]
    assert rule["offer"] == "at_least" and 0 < rule["value"] < 10
    assert f"On your own score: offer where Confidence (0-10) ≥ {rule['value']:.5g}." in printed


def of_one_person(log, folder, timed):
    """Writes the log of one person into the folder, and returns its roles."""
    header, *rows = log.read_text().splitlines()
    (folder / "log.csv").write_text("\n".join([header, *(f"me,{row.partition(',')[2]}" for row in rows)]))
    return LOGGED if timed else LOGGED.replace("time=Shown at,", "")


@pytest.mark.parametrize("timed", [True, False])
def test_one_persons_log_has_intervals_over_days_or_answers(log, tmp_path, capsys, timed):
    columns = parse_columns(of_one_person(log, tmp_path, timed))
    read = read_log(tmp_path / "log.csv", columns, shown_only=True, one_person=True)
    with pytest.raises(LogError, match=r"found answers of 1 person, expected at least 2; .* by the days that time="):
        read_log(tmp_path / "log.csv", columns, shown_only=True)
    how = {"shown_only": True, "scores_out": str(tmp_path / "scores.parquet")}
    value = evaluate_log(tmp_path / "log.csv", columns, tmp_path / "out", Question(1.0, 2.0), **how)
    unit, units = ("days", 15) if timed else ("answers", 550)
    assert value["log"]["people"] == 1 and value["log"][unit] == units
    assert set(value["rows"]) == {"constant", "score", "score, Platt"} and not value["people"]
    assert value["rows"]["score, Platt"]["within_person"] is None and value["protocol"]["folds"] == 10
    # The interval is that of a mean over the units, left out one after the other.
    cost = value["costs"]["always"]["cost"]
    day = (read.time // 86400 if timed else np.arange(550)).astype(int)
    rejected, size = (np.bincount(day - day.min(), weights) for weights in (1 - read.accepted, np.ones(550)))
    assert cost["value"] == pytest.approx(rejected.sum() / 550)
    error = np.sqrt(np.square(rejected - cost["value"] * size).sum()) / 550
    assert cost["high"] - cost["low"] == pytest.approx(4 * error, rel=0.25)
    printed = " ".join(capsys.readouterr().out.split())
    assert f"550 answers of one person{' on 15 days' if timed else ''}, " in printed
    assert f"95 % intervals over {units} {unit}" in printed and "a person's own rate, and how an answer" in printed
    assert f"fitted on other {unit}" in printed
    # The scores file has these units as streams, and no fold divides one.
    scores = read_scores(tmp_path / "scores.parquet")
    assert scores.person is None and set(scores.stream) == {f"{unit[0]}{i + 1}" for i in range(units)}
    assert len(set(zip(scores.stream, scores.fold, strict=True))) == units


@pytest.mark.parametrize("timed", [True, False])
def test_the_other_commands_take_one_persons_days(log, tmp_path, capsys, timed):
    roles = of_one_person(log, tmp_path, timed)
    path, settings = str(tmp_path / "log.csv"), EstimateSettings(1.0, 2.0)
    decisions = of_log(path, parse_columns(roles, target="Confidence (0-10)>=5"), settings, shown_only=True)
    difference = tables(estimate_decisions(decisions, settings), settings)[0]
    assert f"Where people are spoken of, {'days' if timed else 'answers'} stand: one person" in difference.note
    assert len(set(decisions.person)) == (15 if timed else 550)
    given = {"level": 0.9, "columns": roles.split(","), "shown_only": True}
    if not timed:
        with pytest.raises(LogError, match="found answers of one person, expected time=COLUMN with several days"):
            promise_scores(path, ["false_alarms<=0.9"], OperatingPoint(), **given)
        return
    promise_scores(path, ["false_alarms<=0.9"], OperatingPoint(), **given)
    printed = " ".join(capsys.readouterr().out.split())
    assert "Certified on 15 days" in printed and "about new days of theirs, if days are independent" in printed


@pytest.mark.slow
def test_context_adds_predictions_and_leaves_the_threshold(log, evaluated):
    folder, _, value = evaluated
    arguments = (f"--scores={log}", f"--columns={LOGGED}", "--shown_only", '--context="Session, nr"')
    code, printed, error = run("evaluate", *arguments, f"--workdir={folder / 'context'}", cwd=folder)
    assert code == 0, error
    with_context = json.loads((folder / "context" / "acceptance_log.json").read_text())
    assert with_context["gate"] == value["gate"] and with_context["people"] == value["people"]
    assert set(with_context["rows"]) == {*value["rows"], "context", "context+person"}
    assert {name: with_context["rows"][name] for name in value["rows"]} == value["rows"]
    assert {name: with_context["costs"][name] for name in value["costs"]} == value["costs"]
    assert "On your own score: offer where Confidence (0-10)" in printed and "How people differ" in printed
