"""The study of decision models: the costs of its policies are those of their definitions."""

import dataclasses
import re

import numpy as np
import pytest
from etils import epath
from scipy import special

from prism_jax.scores import write_scores
from studies import decision_models
from studies.decision_models import GATE, HALF, MODELS, RATIOS, RAW, TRUTH, cost_table, scores_table


def costs(table):
    rows = {row.name: row.cells for row in table.sections[0].rows}
    return {name: [float(re.match(r"[\d.]+", cell)[0]) for cell in cells] for name, cells in rows.items()}


@pytest.fixture(scope="module")
def eager():
    factor, shift = MODELS["too eager (log-odds + 1.5)"]
    return decision_models.simulated_scores(60, factor, shift)


def test_a_simulated_model_misstates_the_truth_as_it_says(eager):
    assert not np.isnan(eager.y_accept).any() and not np.isnan(eager.y_need).any()
    shift = special.logit(eager.p_accept_fast) - special.logit(eager.p_accept_true)
    np.testing.assert_allclose(shift, 1.5, atol=1e-9)


def test_costs_are_those_of_the_definitions(eager):
    found, steps = costs(scores_table("eager", eager)), eager.steps()
    missed = steps.y_need * steps.y_accept
    half = (steps.p_need_fast >= 0.5) & (steps.p_accept_fast >= 0.5)
    truth = steps.p_need_true, steps.p_accept_true
    for place, ratio in enumerate(RATIOS):
        raw = 1 - steps.p_accept_fast <= ratio * steps.p_need_fast * steps.p_accept_fast
        best = 1 - truth[1] <= ratio * truth[0] * truth[1]
        for name, offers in ((HALF, half), (RAW, raw), (TRUTH, best), ("always", np.ones_like(half))):
            cost = np.where(offers, 1 - steps.y_accept, ratio * missed).mean()
            assert found[name][place] == pytest.approx(cost, abs=1e-4), (name, ratio)
        assert abs(found[GATE][place] - found[TRUTH][place]) < 0.03 < found[RAW][place] - found[GATE][place] + 0.03


def test_the_loser_is_named_where_it_is_ours():
    rng = np.random.default_rng(0)
    y, units = (rng.random(400) < 0.5).astype(float), np.repeat(np.arange(100), 4)
    noise = rng.random(400) < 0.1
    right, wrong = (np.broadcast_to(one, (len(RATIOS), 400)) for one in ((y > 0.5) ^ noise, (y < 0.5) ^ noise))
    lost = cost_table("x", {HALF: right, GATE: wrong}, y, y, units, np.ones(400))
    assert lost.note.count(f"the {GATE} by ") == len(RATIOS) and f"to {HALF} at 4" in lost.note
    assert "No gate of ours loses." in cost_table("x", {HALF: wrong, GATE: right}, y, y, units, np.ones(400)).note


def test_the_scores_of_a_folder_are_one_model(eager, tmp_path):
    number = eager.numbered("stream")[1]
    for i in range(2):
        write_scores(tmp_path / f"{i}.parquet", eager.take(number % 2 == i))
    *_, found = decision_models.tables(4, epath.Path(tmp_path / "no_logs"), [f"eager={tmp_path}"])
    assert costs(found).keys() == costs(scores_table("eager", eager)).keys()


def test_a_model_whose_truth_nobody_knows_has_no_row_of_it(eager):
    unknown = dict.fromkeys(("p_need_true", "p_accept_true"), np.full(len(eager.stream), np.nan))
    found = costs(scores_table("eager", dataclasses.replace(eager, **unknown)))
    assert TRUTH not in found
    assert {name: found[name] for name in (RAW, GATE)} == {
        name: costs(scores_table("eager", eager))[name] for name in (RAW, GATE)
    }
