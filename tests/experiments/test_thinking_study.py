"""The study of thinking: its config is the recipe's, its pooled scores are valid, and its tables have every row."""

import dataclasses
import importlib

import numpy as np
import pytest
from etils import epath

from prism_jax.experiments.students import THINKING
from prism_jax.experiments.thinking import (
    ScoredStudent,
    accuracy_table,
    evaluations,
    pass_table,
    second_stage,
    study,
)
from prism_jax.runs.store import Store
from prism_jax.runtime.dataclass_config import from_config_dict
from prism_jax.scores import Scores
from prism_jax.scores.joining import joined
from prism_jax.streams.edit import map_steps
from prism_jax.streams.types import SLOW_FIELDS
from prism_jax.student.scoring.slow import field_accuracy
from prism_jax.training.run_config import RunConfig


def table(seed, streams=12):
    """A valid table of both splits whose slow signals know more than the fast ones."""
    rng, rows = np.random.default_rng(seed), []
    for stream in range(streams):
        for step in range(6):
            fast, slow = rng.normal(size=2), rng.normal(size=2)
            need, accept = (rng.random(2) < 1 / (1 + np.exp(-(fast + 2 * slow)))).astype(float)
            p = 1 / (1 + np.exp(-np.concatenate([fast, fast + 2 * slow])))
            names = ("p_need_fast", "p_accept_fast", "p_need_slow", "p_accept_slow")
            rows.append(
                {"stream": f"{seed}/{stream}", "step": step, "candidate": 0, "tokens_slow": 10}
                | {"split": "test" if stream % 2 else "calibration", "y_need": need, "y_accept": accept}
                | {"p_need_true": p[2], "p_accept_true": p[3], "p_both_true": p[2] * p[3]}
                | dict(zip(names, p.tolist(), strict=True))
            )
    return Scores.from_rows(rows)


def test_the_config_is_the_recipes():
    recipe = importlib.import_module("configs.thinking").get_config()
    assert from_config_dict(RunConfig, recipe) == THINKING


def test_pooled_scores_hold_every_row_of_every_seed():
    tables = [table(0), table(1)]
    pooled = joined(tables)
    assert len(pooled) == sum(map(len, tables))
    assert len(set(pooled.stream)) == 24
    np.testing.assert_array_equal(pooled.p_need_slow, np.concatenate([one.p_need_slow for one in tables]))


def test_the_tables_have_both_passes_at_every_ratio():
    students = [ScoredStudent(table(seed), dict.fromkeys((*SLOW_FIELDS, "all"), 0.5)) for seed in (0, 1)]
    found = pass_table("first stage", evaluations(students, (1.0, 4.0)))
    assert [(section.title, [row.name for row in section.rows]) for section in found.sections] == [
        ("r = 1", ["fast only", "slow only"]),
        ("r = 4", ["fast only", "slow only"]),
    ]
    fast, slow = (float(row.cells[1]) for row in found.sections[0].rows)
    assert slow < fast, "the slow signals are the truth here"
    shown = accuracy_table({"first stage": students})
    assert [row.cells for row in shown.sections[0].rows] == [("50.0",) * 5] * 2


def test_field_accuracy_counts_fields_and_whole_steps(simulated):
    def wrong(step):
        fields = dict(step.rationale)
        if step.event % 2:
            fields["risk"] = "something else"
        return dataclasses.replace(step, rationale=fields)

    written = [map_steps(stream, wrong) for stream in simulated[:4]]
    found = field_accuracy(written, simulated[:4])
    odd = [step.event % 2 for stream in simulated[:4] for step in stream.steps]
    assert found["risk"] == found["all"] == pytest.approx(1 - np.mean(odd))
    assert found["if_silent"] == found["evidence"] == 1.0
    bare = [map_steps(stream, lambda step: dataclasses.replace(step, rationale=None)) for stream in simulated[:2]]
    with pytest.raises(ValueError, match="rationale: found no step that has one"):
        field_accuracy(written[:2], bare)


@pytest.mark.study
def test_both_stages_train_on_the_studys_config(tmp_path):
    """With a small part of the budget. That a second call resumes is what tests/training/test_loop.py shows."""
    small = dataclasses.replace(
        THINKING,
        data=dataclasses.replace(THINKING.data, train_streams=24, calibration_streams=12, test_streams=12),
        training=dataclasses.replace(THINKING.training, steps=2),
        writing=dataclasses.replace(THINKING.writing, field_tokens=4),
    )
    assert second_stage(small, epath.Path("first")).pathway.own_fields == 1.0
    found = study(small, (3,), Store(tmp_path))
    assert [*found] == ["first stage", "second stage"]
    for students in found.values():
        [one] = students
        assert set(one.accuracy) == {*SLOW_FIELDS, "all"}
        assert one.scores.p_need_slow is not None and all(name.startswith("3/") for name in one.scores.stream)
