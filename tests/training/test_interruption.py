"""SIGTERM stops a run with a checkpoint, and the same command resumes it; validation streams are scored meanwhile."""

import dataclasses
import json
import os
import signal

import chex
import jax
import numpy as np
import pytest
import tiny

from prism_jax.student.scoring.fast import score_streams
from prism_jax.training.checkpoints.checkpoint import steps
from prism_jax.training.interruption import InterruptedTrainingError, Interruption
from prism_jax.training.job import plan
from prism_jax.training.loop import train
from prism_jax.training.run import resolve, trained_params
from prism_jax.training.workdir import Workdir

CONFIG = tiny.with_training(
    dataclasses.replace(tiny.CONFIG, data=dataclasses.replace(tiny.CONFIG.data, validation=0.25)),
    steps=8,
    checkpoint_every=4,
    evaluate_every=2,
    keep=1,
    keep_best=1,
    learning_rate=3e-2,
)


@pytest.fixture(scope="module")
def opened():
    return resolve(CONFIG)


def in_folder(job, folder):
    """Returns the job with another folder."""
    return dataclasses.replace(job, run=dataclasses.replace(job.run, workdir=Workdir(folder)))


@pytest.fixture(scope="module")
def whole(opened, tmp_path_factory):
    """The folder, the job and the parameters of a run that was not interrupted."""
    job, folder = plan(opened), tmp_path_factory.mktemp("whole")
    return folder, job, jax.device_get(train(in_folder(job, folder), progress=False))


def metrics(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_a_run_stopped_by_a_signal_saves_and_ends_bit_identical_when_started_again(whole, tmp_path):
    folder, job, expected = whole
    before = [signal.getsignal(which) for which in (signal.SIGTERM, signal.SIGINT)]

    def send_signal(step):
        if step == 4:  # noticed after the next step
            os.kill(os.getpid(), signal.SIGTERM)

    message = rf"^SIGTERM: saved step 5 of 8 in {tmp_path}; the same command resumes from there$"
    with pytest.raises(InterruptedTrainingError, match=message):
        train(in_folder(job, tmp_path), progress=False, after_step=send_signal)
    assert [signal.getsignal(which) for which in (signal.SIGTERM, signal.SIGINT)] == before
    assert steps(Workdir(tmp_path).checkpoints)[0] == 5
    seen = []
    params = train(in_folder(job, tmp_path), progress=False, after_step=seen.append)
    chex.assert_trees_all_equal(jax.device_get(params), expected)
    assert seen == [6, 7, 8]
    assert (tmp_path / "metrics.jsonl").read_bytes() == (folder / "metrics.jsonl").read_bytes()


def test_a_second_interrupt_does_not_wait():
    with Interruption() as interruption:
        os.kill(os.getpid(), signal.SIGINT)
        assert interruption.requested_by == "SIGINT"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.slow
def test_validation_streams_are_scored_on_schedule_and_never_trained_on(opened, whole):
    folder, job, _ = whole
    validation = {stream.id for stream in opened.splits.validation}
    assert len(validation) == 3
    assert not validation & set(job.names)
    scored = [line["step"] for line in metrics(folder) if "validation_nll" in line]
    assert scored == [2, 4, 6, 8]


def test_scores_are_the_log_likelihood_of_the_fast_pass(opened, whole):
    """The best checkpoint's score equals the one computed in NumPy from the probabilities of the fast pass."""
    folder, _, _ = whole
    lines = {line["step"]: line for line in metrics(folder)}
    step, params = trained_params(opened.config, Workdir(folder))
    assert step == min((4, 8), key=lambda saved: lines[saved]["validation_nll"])
    rows = list(
        score_streams(opened.student(params), opened.splits.validation, split="validation", fold=0, context=2048)
    )

    def cross_entropy(p, y):
        return -(y * np.log(p) + (1 - y) * np.log(1 - p))

    needs = {(row["stream"], row["step"]): cross_entropy(row["p_need_fast"], row["y_need"]) for row in rows}
    made = [row for row in rows if row["logged"]]
    weights = [min(1 / max(row["propensity"], 0.05), 20.0) for row in made]
    assert len(made) < len(rows) and len(set(weights)) > 1
    accepts = [cross_entropy(row["p_accept_fast"], row["y_accept"]) for row in made]
    expected = np.mean(list(needs.values())), np.average(accepts, weights=weights)
    found = lines[step]
    np.testing.assert_allclose([found["validation_need"], found["validation_accept"]], expected, rtol=1e-5)
    assert found["validation_nll"] == found["validation_need"] + found["validation_accept"]
