"""What a gate or a named threshold saves against what is done today, in logs whose truth is known."""

import json

import numpy as np
import pytest

from prism_jax.acceptance.columns import LogError, parse_columns
from prism_jax.acceptance.findings import Question
from prism_jax.acceptance.log_tables import ContextColumn
from prism_jax.acceptance.logs import AcceptanceLog
from prism_jax.evaluation.logged_steps import EstimateSettings
from prism_jax.runs.answers import evaluate_log
from prism_jax.runs.counterfactual import column_of_target, estimate_decisions, of_log, pi_of_target

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
    found = evaluate_log(path, parse_columns(COLUMNS), tmp_path, Question(1.0, 2.0), target="sure>=59")
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
    decisions = of_log(str(path), COLUMNS.split(","), settings, target="sure>=59")
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
    found = evaluate_log(path, parse_columns(COLUMNS), tmp_path, Question(1.0, 2.0), target="sure>=10")
    assert found["today"]["sure>=10"]["minus_today"] is None and found["today"]["the gate"]["minus_today"]["value"] < 0
    assert "What sure>=10 would save against today is unknown: " in " ".join(capsys.readouterr().out.split())


@pytest.fixture
def few():
    """Three rows, whose score was read as a percentage."""
    context = (
        ContextColumn("pi", "number", np.array([0.5, 1.5, 0.0])),
        ContextColumn("surface", "category", np.array([0, 1, -1], np.int32), ("chat", "editor")),
    )
    ones, score = np.ones(3), np.array([0.589, 0.59, np.nan])
    return AcceptanceLog(("a",), np.zeros(3, np.int32), ones, ones, True, ones > 0, score=score, context=context)


def test_a_target_is_a_condition_on_any_column_or_a_column_of_probabilities(few):
    roles = parse_columns("person=user,score=sure%,accepted=taken")
    for target, column, expected in (
        ("sure>=59", [], [0.0, 1.0, 0.0]),
        ("sure!=59", [], [1.0, 0.0, 0.0]),
        ("surface==Editor", ["surface"], [0.0, 1.0, 0.0]),
        ("pi<1", ["pi"], [1.0, 0.0, 1.0]),
    ):
        assert column_of_target(target, roles) == column
        assert pi_of_target("log.csv", few, target, roles).tolist() == expected
    for target, message in {
        "pi": r"log\.csv, row 3, column 'pi': found 1\.5, expected the target's probab",
        "sure>=high": "found 'high' beside the numbers of 'sure', expected a number",
        "surface>=2": "column 'surface': found texts, expected numbers to compare, or == and a text",
        "user": r"found 'user', which has a role in --columns, .* such as 'user>=0\.5'",
    }.items():
        with pytest.raises(LogError, match=message):
            pi_of_target("log.csv", few, target, roles)
