"""The ProactiveBench study end to end on the real streams, with tiny students from random weights in every role."""

import dataclasses

import numpy as np
import pytest
from etils import epath
from real_checkout import CHECKOUT, needs_checkout

from prism_jax.experiments import proactivebench as module
from prism_jax.experiments import proactivebench_results as results
from prism_jax.runtime.dataclass_config import from_config_dict
from prism_jax.scores import read_scores
from prism_jax.student import StudentConfig
from prism_jax.training.run_config import RunConfig

pytestmark = pytest.mark.study


def small(config, **training):
    """The config with two folds, a very small student and two training steps."""
    return dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, source=str(CHECKOUT), folds=2),
        student=StudentConfig(hidden_dim=16, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=8, mlp_dim=32),
        training=dataclasses.replace(config.training, start="", steps=2, checkpoint_every=2, **training),
    )


@needs_checkout
def test_it_runs_and_a_repeated_study_does_not_train_again(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    plain = from_config_dict(RunConfig, {"data": {"name": "proactivebench"}, "loss": {"response": 0.0}})
    tiny = small(plain, batch=2)
    student = small(plain, batch=2, frozen=("embedding", "layers/0/.*"), reuse_frozen=True, soft_labels=True)
    workdir = epath.Path(tmp_path / "study")
    found = module.study(student, tiny, workdir)
    scores = read_scores(tmp_path / "study" / "scores.parquet")
    assert len(scores) == 1148 + sum(np.isnan(scores.y_accept))
    everything = found["parts"]["all folds"]
    assert everything["accept"]["labels"] == 1148 and everything["need"]["labels"] == 253
    for method in ("student", "words", "tiny"):
        estimate, low, high = everything["accept"]["methods"][method]["auroc"]
        assert 0.2 < low <= estimate <= high < 0.9
    assert everything["accept"]["methods"]["words"]["auroc"][0] > 0.6
    assert len(found["epoch_seconds"]["student"]) == 2

    def again(*_):
        raise AssertionError("trained a second time")

    monkeypatch.setattr("prism_jax.runs.pipeline.train_and_evaluate", again)
    assert results.tables(module.study(student, tiny, workdir)) == results.tables(found)
