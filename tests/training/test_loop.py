"""The training loop: interrupted runs end bit-identical, logs match checkpoints, and invalid runs are errors."""

import dataclasses
import functools
import json

import chex
import jax
import numpy as np
import pytest
import tiny
from tiny_step import shape

from prism_jax.training.checkpoints import recovery
from prism_jax.training.checkpoints.checkpoint import read
from prism_jax.training.job import plan
from prism_jax.training.logs import progress
from prism_jax.training.logs.progress import TrainingError
from prism_jax.training.loop import train
from prism_jax.training.run import resolve, trained_params
from prism_jax.training.workdir import Workdir


def job(folder, config=tiny.CONFIG):
    """Returns a run and a function that trains it in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    run = resolve(config, Workdir(folder))
    return run, functools.partial(train, plan(run))


@pytest.mark.slow
def test_a_run_stopped_twice_ends_bit_identical_to_one_that_was_not(tmp_path, monkeypatch, capsys):
    run, whole = job(tmp_path / "whole")
    expected = whole(progress=False)
    _, parts = job(tmp_path / "parts")
    for step in (4, 7):  # one step after the checkpoints at 3 and 6
        with pytest.raises(tiny.StoppedError):
            parts(progress=False, after_step=tiny.stop_after(step))
    seen = []
    capsys.readouterr()
    chex.assert_trees_all_equal(parts(progress=True, after_step=seen.append), expected)
    assert seen == [7, 8]
    assert capsys.readouterr().out == "resumed from step 6 of 8\n"
    metrics, timings = ((tmp_path / "whole" / f"{name}.jsonl").read_bytes() for name in ("metrics", "timings"))
    assert (tmp_path / "parts" / "metrics.jsonl").read_bytes() == metrics
    lines = [json.loads(line) for line in metrics.splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 9))
    speeds = {"seconds", "tokens_per_second", "labels_per_second"}
    assert json.loads(timings.splitlines()[0]).keys() == speeds | {"step"} and not speeds & lines[0].keys()
    assert {"loss", "need", "accept", "burden", "response", "learning_rate", "gradient_norm"} <= lines[0].keys()
    requested = []
    monkeypatch.setattr(
        recovery, "read", lambda path, abstract, config: requested.append(abstract) or read(path, abstract, config)
    )
    step, restored = trained_params(run.config, Workdir(tmp_path / "whole"))
    assert step == 8
    assert set(jax.tree.leaves(requested[0].optimizer)) == {...}  # the optimizer state is not read
    chex.assert_trees_all_equal(jax.device_get(restored), jax.device_get(expected))


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"master": "split", "second_moment": "bfloat16", "accumulation": 2},
        {"master": "stochastic", "second_moment": "factored", "frozen": ("embedding", "layers/0/.*")},
    ],
    ids=lambda settings: settings["master"],
)
def test_every_kind_of_state_resumes_bit_identical(tmp_path, settings):
    student = dataclasses.replace(tiny.CONFIG.student, param_dtype="bfloat16")
    config = tiny.with_training(dataclasses.replace(tiny.CONFIG, student=student), steps=5, **settings)
    _, whole = job(tmp_path / "whole", config)
    expected = whole(progress=False)
    _, parts = job(tmp_path / "parts", config)
    with pytest.raises(tiny.StoppedError):
        parts(progress=False, after_step=tiny.stop_after(4))
    chex.assert_trees_all_equal(parts(progress=False), expected)
    metrics = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "parts")]
    assert metrics[0] == metrics[1]


def test_a_finished_run_started_again_trains_no_further(tmp_path):
    _, this = job(tmp_path, tiny.with_training(steps=3))
    first, seen = this(progress=False), []
    chex.assert_trees_all_equal(this(progress=False, after_step=seen.append), first)
    assert seen == []


def test_a_pattern_that_freezes_nothing_is_an_error_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"^training\.frozen: found 'layers/7/\.\*', which matches no parameter"):
        job(tmp_path, tiny.with_training(frozen=("layers/7/.*",)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("start", "why"), [(6, "the newest checkpoint's"), (0, "since there is no checkpoint")])
def test_a_warning_reports_a_log_that_is_ahead_of_the_newest_checkpoint(tmp_path, monkeypatch, start, why):
    (tmp_path / "metrics.jsonl").write_text('{"step": 6}\n{"step": 7}\n{"step": 8}\n')
    told = []
    monkeypatch.setattr(progress.logging, "warning", lambda text, *values: told.append(text % values))
    for _ in range(2):  # the first one truncates the log, so the second one does not warn
        with progress.Log(Workdir(tmp_path), (), shape(), start, False):
            pass
    assert told == [f"{tmp_path}/metrics.jsonl: found steps up to 8, resuming from step {start}, {why}"]


@pytest.mark.slow
def test_a_value_that_is_not_finite_stops_the_run_and_the_error_names_step_term_and_streams(tmp_path):
    config = dataclasses.replace(
        tiny.with_training(learning_rate=1e30, warmup=0.0, clip=1e30),
        loss=dataclasses.replace(tiny.CONFIG.loss, burden=0.0),
    )
    run, this = job(tmp_path, config)
    with pytest.raises(TrainingError, match=r"step [234]: found \w+ = (nan|inf), expected finite numbers") as caught:
        this(progress=False)
    named = str(caught.value).rsplit("streams ", 1)[1].split(", ")
    assert len(named) == config.training.batch
    assert set(named) <= {stream.id for stream in run.splits.train}
    kept = [int(path.name) for path in (tmp_path / "checkpoints").iterdir() if path.name.isdigit()]
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        assert np.isfinite(list(json.loads(line).values())).all()
    assert all(step < 4 for step in kept)


@pytest.mark.slow
def test_training_lowers_every_term(tmp_path):
    _, this = job(tmp_path, tiny.with_training(steps=24, checkpoint_every=24))
    this(progress=False)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    for term in ("need", "accept", "response", "loss"):
        first, last = (np.mean([line[term] for line in part]) for part in (lines[:3], lines[-3:]))
        assert last < first, term
