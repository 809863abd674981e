"""A gate on a score of one's own: its file, its decisions, and what it refuses."""

import json
import pathlib
import re

import numpy as np
import pytest

from prism_jax import Gate
from prism_jax.agent.serving import gate_of
from prism_jax.decision.calibration import Platt, Temperature
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.score_maps import Scale, ScoreColumn

ROOT = pathlib.Path(__file__).parents[1]
POINT = OperatingPoint(c_fa=1.0, c_fn=2.0)
PERCENT, RAW = Scale().in_unit("%"), Scale(6.0, 2.5)


def gate_on(scale, fitted=None):
    return Gate(POINT, fitted, score=ScoreColumn("sure", scale))


@pytest.mark.parametrize("page", ["README.md", "docs/scores.md", "docs/acceptance_logs.md"])
def test_the_pages_call_it_as_it_is_called(tmp_path, monkeypatch, page):
    (tmp_path / "out").mkdir()
    gate_on(PERCENT, Platt(1.0, 0.0)).save(tmp_path / "out" / "gate.json")
    monkeypatch.chdir(tmp_path)
    (call,) = re.findall(r"`(?:prism_jax\.)?(Gate\.load\(.*?\)\(score=\d+\))`", (ROOT / page).read_text())
    assert eval(call, {"Gate": Gate}).speak is True


@pytest.mark.parametrize("scale", [Scale(), PERCENT, RAW])
@pytest.mark.parametrize("fitted", [Platt(0.7, -0.2), Platt(-0.7, 0.2), Temperature(1.5), Platt(0.0, 3.0), None])
def test_the_file_decides_as_the_gate_and_as_its_map(tmp_path, scale, fitted):
    if fitted is None and scale is RAW:
        return  # a score that is no probability has a map
    gate = gate_on(scale, fitted)
    gate.save(tmp_path / "gate.json")
    block = json.loads((tmp_path / "gate.json").read_text())["score"]
    assert (block["column"], block["unit"]) == ("sure", "%" if scale is PERCENT else "")
    assert (block["offer"], block["value"]) == tuple(gate.rule)
    loaded = Gate.load(tmp_path)
    assert loaded == gate
    score = np.linspace(0, 1 if scale == Scale() else 100, 97)
    verdicts = loaded(score=score)
    np.testing.assert_array_equal(verdicts.speak, gate.rule.offers(score))
    np.testing.assert_array_equal(verdicts.speak, verdicts.p_accept >= 1 / 3)
    one = loaded(score=float(score[40]))
    assert bool(one) is bool(verdicts.speak[40]) and one.p_accept == pytest.approx(verdicts.p_accept[40])
    assert loaded(score=list(score)).speak.tolist() == verdicts.speak.tolist()


def test_other_costs_move_the_threshold_on_the_score(tmp_path):
    gate_on(PERCENT).save(tmp_path / "gate.json")
    assert Gate.load(tmp_path)(score=33.4) and not Gate.load(tmp_path)(score=33.3)
    assert Gate.load(tmp_path, c_fn=9.0)(score=10.1) and not Gate.load(tmp_path, c_fn=9.0)(score=9.9)


def test_a_person_has_a_rate_on_top_of_the_score():
    ada = gate_on(PERCENT, Platt(1.0, 0.0)).person("ada")
    for _ in range(4):
        ada.learn(ada(score=80), accepted=False)
    assert ada(score=60).p_accept < 0.6


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "score: found none, expected score=NUMBER alone: the gate decides on sure"),
        ({"p_accept": 0.5, "score": 5}, "score: found it with probabilities, expected score=NUMBER alone"),
        ({"score": "59"}, "score: found '59', expected a number from 0 to 100 %, as sure has"),
        ({"score": True}, "score: found True, expected a number"),
        ({"score": float("nan")}, "score: found nan, expected a number"),
        ({"score": 140}, "score: found 140, expected a number from 0 to 100 %"),
        ({"score": []}, "score: found an empty array, expected a number from 0 to 100 %"),
        ({"score": [5, None]}, r"score\[1\]: found nan, expected a number"),
    ],
)
def test_what_is_no_score_is_refused(given, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        gate_on(PERCENT)(**given)


def test_probabilities_need_another_gate_and_models_too(tmp_path):
    with pytest.raises(ValueError, match=r"score: found one, expected p_accept: the gate decides on probabilities"):
        Gate(POINT)(score=0.5)
    path = str(tmp_path / "gate.json")
    gate_on(RAW, Platt(1.0, 0.0)).save(path)
    with pytest.raises(ValueError, match=rf"^{re.escape(path)}: found a gate on the score 'sure'.*as") as error:
        gate_of({"gate": path})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"value": 40.0}, "score.value: found ≥ 40, expected ≥ 33.333, by its map and costs"),
        ({"width": 7.0}, "score.width: found 7 of a probability .middle is null., expected 1, or 100 in %"),
    ],
)
def test_a_damaged_block_is_refused(tmp_path, changed, said):
    path = tmp_path / "gate.json"
    gate_on(PERCENT).save(path)
    tree = json.loads(path.read_text())
    tree["score"] |= changed
    path.write_text(json.dumps(tree))
    with pytest.raises(ValueError, match=f"gate.json: {said}"):
        Gate.load(path)
