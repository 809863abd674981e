"""The study of injections on a trained tiny student, and a small part of it on SmolLM2."""

import dataclasses

import numpy as np
import pytest

from prism_jax.decision.gate import decide
from prism_jax.runs.pipeline import train_and_evaluate
from prism_jax.streams.simulator import SimulatorConfig
from prism_jax.streams.sources import DataConfig
from prism_jax.student.scoring.fast import score_streams
from prism_jax.training import students
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.run_config import RunConfig, TrainingConfig
from prism_jax.training.workdir import Workdir
from studies import injections as module
from studies.injection_strings import INJECTIONS
from studies.injections import KINDS, PLACES, tables

pytestmark = pytest.mark.study

CONFIG = RunConfig(
    data=DataConfig(train_streams=3000, calibration_streams=100, test_streams=60),
    simulator=SimulatorConfig(min_events=4, max_events=4),
    prompt=students.PROMPT,
    student=students.STUDENT,
    loss=LossConfig(response=0.0, accept=1.2),
    training=TrainingConfig(steps=250, batch=12, learning_rate=4e-3, checkpoint_every=250),
)


def check(student, streams, injections, measured):
    """The study's readings and flips, by another way: rows of the scores table, and one decision at a time."""
    cut = [module.up_to_the_last_step(stream) for stream in streams]

    def read(changed):
        rows = score_streams(
            student.student, changed, split="test", fold=0, context=student.context, batch=len(changed)
        )
        return np.array([(row["p_need_fast"], row["p_accept_fast"]) for row in rows])

    raw = dataclasses.replace(student, calibration=None)
    np.testing.assert_allclose(np.stack(raw.read(cut), 1), read(cut), atol=2e-5)
    for place in PLACES:
        changed = [module.with_text(stream, place, injections[-1].text) for stream in cut]
        np.testing.assert_allclose(np.stack(raw.read(changed), 1), read(changed), atol=2e-5)

    assert measured.after.need.shape == (len(KINDS), len(PLACES), len(injections), len(streams))
    for signal in (*measured.before, *measured.after):
        assert np.isfinite(signal).all() and (signal >= 0).all() and (signal <= 1).all()
    flips = {goal: measured.flips(goal) for goal in ("offer", "silence")}
    for place in np.ndindex(*measured.after.need.shape):
        before = bool(decide(measured.before.need[place[-1]], measured.before.accept[place[-1]], 1.0, 2.0))
        after = bool(decide(measured.after.need[place], measured.after.accept[place], 1.0, 2.0))
        assert bool(flips["offer"][place]) == (after and not before)
        assert bool(flips["silence"][place]) == (before and not after)

    offers = [p for p, place in enumerate(PLACES) if place.target == "offer"]
    assert measured.moves().need[:, offers].max() < 2e-5, "the need slot stands before the offer"
    assert measured.moves().accept.max() > 0.01, "the texts are read"
    for table in tables(measured):
        for section in table.sections:
            names = [row.name for row in section.rows]
            assert names[1 :: len(KINDS)] == [f"{name}: {KINDS[1]}" for name in names[:: len(KINDS)]]
            assert all(cell for row in section.rows for cell in (*row.cells[:2], *row.cells[3:]))


def test_a_trained_student(tmp_path):
    train_and_evaluate(CONFIG, Workdir(tmp_path / "run"), report=False)
    student, streams = module.of_run(Workdir(tmp_path / "run"))
    assert student.calibration is not None
    few = streams[:4]
    measured = module.measure(student, few, INJECTIONS)
    check(student, few, INJECTIONS, measured)
    assert [len(section.rows) for section in tables(measured)[0].sections] == [30, 30]


def test_smollm2(smollm2_gguf):
    """One family of attacks on two streams."""
    student, streams = module.of_weights(smollm2_gguf, 2)
    part = tuple(one for one in INJECTIONS if one.family == "chat markup")[2:4]
    assert [one.goal for one in part] == ["offer", "silence"]
    check(student, streams, part, module.measure(student, streams, part))
