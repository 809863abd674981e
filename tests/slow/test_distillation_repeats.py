"""The study of distillation, shrunk: its rows are what direct calls give, and a second call repeats nothing."""

import dataclasses

import numpy as np
import pytest
from etils import epath

from prism_jax.evaluation.protocol import calibrate, evaluate
from prism_jax.experiments import distillation
from prism_jax.experiments.distill_report import costs
from prism_jax.experiments.distillation import ARMS, Files, Sizes, study
from prism_jax.experiments.distillation_tables import FAST, MARGIN, curve_table, difference_table, rows_table
from prism_jax.experiments.students import DISTILLED
from prism_jax.scores import read_scores
from prism_jax.streams.jsonl import read_streams
from prism_jax.student.model_config import StudentConfig
from prism_jax.training.pathways.curated import curate
from prism_jax.training.workdir import Workdir

pytestmark = [pytest.mark.study, pytest.mark.usefixtures("compile_quickly")]
SMALL = Sizes(train=24, calibration=12, held_out=12, steps=2, seeds=(5,), curve=("fair",))
CONFIG = dataclasses.replace(
    DISTILLED,
    student=StudentConfig(hidden_dim=16, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=8, mlp_dim=32),
    writing=dataclasses.replace(DISTILLED.writing, field_tokens=2),
)


def test_the_study_is_what_direct_calls_give_and_repeats_nothing(tmp_path, monkeypatch):
    found = study(epath.Path(tmp_path), SMALL, CONFIG)
    [seed], files = found.seeds, Files(epath.Path(tmp_path) / "seed-5-fair")
    everything, point = read_streams(files.of("all")), CONFIG.decision

    curated = curate(everything, CONFIG.pathway)
    assert read_streams(files.of("curated")) == list(curated.streams)
    kept = {arm: found.trained_on[0][arm].rows for arm in ARMS}
    assert kept["curated"] == kept["random"] == curated.total("kept") < kept["all"]
    for arm in ARMS:
        config = Workdir(files.folder / arm).load_config()
        assert (config.training.seed, config.training.steps) == (5, 2)
        assert config.data.train_source == str(files.of(arm))
        scores = read_scores(files.folder / arm / "scores.parquet")
        rows = {
            row.policy: row for row in evaluate(scores, calibrate(scores), point).policies if row.form == "calibrated"
        }
        for key, policy in ((FAST, "dynamic"), (MARGIN, "slow_on_margin")):
            own = np.mean(costs(seed.systems[arm, key], seed.truth, point))
            assert own == pytest.approx(rows[policy].realised_cost, abs=1e-9)

    monkeypatch.setattr(distillation, "train_run", None)  # a call would fail
    monkeypatch.setattr(distillation, "population", None)
    again = study(epath.Path(tmp_path), SMALL, CONFIG)
    assert rows_table(again.trained_on) == rows_table(found.trained_on)
    assert difference_table(again.seeds, point) == difference_table(found.seeds, point)
    first, second = (curve_table(one.curve, distillation.TEACHERS, point) for one in (found, again))
    assert first == second
    with pytest.raises(ValueError, match="--workdir: found"):
        study(epath.Path(tmp_path), dataclasses.replace(SMALL, steps=3), CONFIG)
