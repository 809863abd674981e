"""What a gate or a named threshold saves against what is done today, in logs whose truth is known."""

import dataclasses
import json

import numpy as np
import pytest

from prism_jax.decision.off_policy import EstimateSettings
from prism_jax.evaluation.answers.columns import LogError, parse_columns
from prism_jax.evaluation.answers.findings import Question
from prism_jax.evaluation.answers.logs import read_log
from prism_jax.runs.answers import evaluate_log
from prism_jax.runs.counterfactual import estimate_decisions, of_log

COLUMNS = "person=user,score=sure,accepted=taken,logged=shown,propensity=e"


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """4,000 offers to 100 people, of which a policy with known probabilities made half; and what any policy costs."""
    rng = np.random.default_rng(3)
    person, sure = np.repeat(np.arange(100), 40), np.round(rng.uniform(0, 100, 4000), 1)
    p = 1 / (1 + np.exp(-(0.06 * (sure - 60) + rng.normal(0, 0.6, 100)[person])))
    e = np.round(0.1 + 0.8 * sure / 100, 3)
    taken, shown = rng.random(4000) < p, rng.random(4000) < e
    lines = ["user,sure,shown,e,taken"]
    for i in range(4000):
        lines.append(f"u{person[i]},{sure[i]},{int(shown[i])},{e[i]},{int(taken[i]) if shown[i] else ''}")
    path = tmp_path_factory.mktemp("today") / "log.csv"
    path.write_text("\n".join(lines) + "\n")

    def truth(offers):
        return float(((offers - e) * ((1 - p) - 2 * p)).mean())  # C_FA = 1, C_FN = 2

    return path, sure, truth


@pytest.mark.slow
def test_the_first_table_has_what_the_gate_and_a_threshold_save_against_today(log, tmp_path, capsys):
    path, sure, truth = log
    found = evaluate_log(path, parse_columns(COLUMNS, target="sure>=59"), tmp_path, Question(1.0, 2.0))
    first = capsys.readouterr().out.split("Is the score a probability")[0]
    rule = found["gate"]["score"]["rules"]["score, Platt"]["value"]
    assert "minus" in first and "today" in first and "sure>=59" in first and f"sure ≥ {rule:.5g}" in first
    for name, offers in {"the gate": sure >= rule, "sure>=59": sure >= 59}.items():
        row = found["today"][name]
        assert row["speak_rate"] == pytest.approx(offers.mean(), abs=0.02) and row["unknown"] is None
        assert row["minus_today"]["low"] < truth(offers) < row["minus_today"]["high"] < 0
        assert f"{row['minus_today']['value']:.3f}".replace("-", "−") in first
    # The command for it says the same.
    settings = EstimateSettings(1.0, 2.0)
    decisions = of_log(str(path), parse_columns(COLUMNS, target="sure>=59"), settings)
    alone = estimate_decisions(decisions, settings).difference["ips"]
    assert found["today"]["sure>=59"]["minus_today"]["value"] == alone.value
    assert json.loads((tmp_path / "acceptance_log.json").read_text())["today"] == found["today"]


@pytest.mark.slow
def test_what_a_log_cannot_tell_is_said_and_the_rest_is_measured(log, tmp_path, capsys):
    """The policy that made this log never makes an offer in the lower third."""
    lines = log[0].read_text().splitlines()
    kept = [lines[0]]
    for line in lines[1:]:
        user, sure, shown, e, taken = line.split(",")
        kept.append(f"{user},{sure},0,0," if float(sure) < 33 else f"{user},{sure},{shown},{e},{taken}")
    path = tmp_path / "log.csv"
    path.write_text("\n".join(kept) + "\n")
    found = evaluate_log(path, parse_columns(COLUMNS, target="sure>=10"), tmp_path, Question(1.0, 2.0))
    assert found["today"]["sure>=10"]["minus_today"] is None and found["today"]["the gate"]["minus_today"]["value"] < 0
    assert "What sure>=10 would save against today is unknown: " in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("sign", ["", "%", " %"])
def test_a_target_is_a_condition_on_any_column_or_a_column_of_probabilities(tmp_path, sign):
    """Also on a score in percent, whose cells may have the sign."""
    path = tmp_path / "log.csv"
    rows = (f"a,57{sign},yes,chat,0.5,yes,ok", f"b,59{sign},no,editor,1.5,no,", "b,,yes,,0,yes,ok")
    path.write_text("\n".join(["user,sure,taken,surface,pi,told,note", *rows]) + "\n")
    roles = parse_columns("person=user,score=sure%,accepted=taken")

    def target(said):
        return read_log(path, dataclasses.replace(roles, target=said)).target

    assert read_log(path, roles).target is None
    for said, expected in {
        "sure>=57": [1.0, 1.0, 0.0],  # 100 * 0.57 is below 57
        "sure!=59": [1.0, 0.0, 0.0],
        "sure==null": [0.0, 0.0, 1.0],
        "surface==Editor": [0.0, 1.0, 0.0],
        "surface!=null": [1.0, 1.0, 0.0],
        "pi<1": [1.0, 0.0, 1.0],
        "taken==yes": [1.0, 0.0, 1.0],
        "told": [1.0, 0.0, 1.0],
    }.items():
        assert target(said).tolist() == expected, said
    for said, message in {
        "pi": r"log\.csv, row 3, column 'pi': found 1\.5, expected the target's probab",
        "note": r"log\.csv, row 2, column 'note': found a text of 2 characters, expected the target's probab",
        "sure>=high": "column 'sure': found the condition >= 'high', expected a number to compare with",
        "surface>=2": "row 2, column 'surface': found a text of 4 characters, expected a number to compare with 2",
        "user": r"found 'user', which has a role in --columns, .* such as 'user>=0\.5'",
        "sur>=2": r"found no column 'sur' \(did you mean 'sure'\?\)",
    }.items():
        with pytest.raises(LogError, match=message):
            target(said)
