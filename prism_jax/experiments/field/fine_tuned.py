"""A pretrained student whose upper blocks are trained on the streams of each fold, and which is read at its slots.

A quarter of a fold's training streams calibrate the slots, as in `prism_jax.streams.splits.folds`; the others train.
Every training is an ordinary run in a folder of its own, so an interrupted table resumes. Learning rate, labels and
number of trained blocks are those of `configs/smollm2_proactivebench.py`.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from prism_jax.experiments.field.interface import Baseline, Fold, Run, has_need
from prism_jax.scores import Scores
from prism_jax.streams.jsonl import encode_streams
from prism_jax.streams.splits import for_calibration

if TYPE_CHECKING:  # what trains is loaded once there are weights to start from
    from prism_jax.training.run_config import RunConfig

BLOCK, TRAINED = 18, 4
"""The block after which the student ends, and the number of blocks up to it that are trained.

After this one of five blocks the answer slot of a frozen SmolLM2 ranked offers best within streams, by inner folds of
the training streams, in each of ProactiveBench's four folds.
"""
STEPS = 48
"""Number of training steps on one stream each, set by time alone before any result was known."""


def training_on(fold: Fold, run: Run, block: int = BLOCK, steps: int = STEPS) -> RunConfig:
    """The training on a fold, whose streams are written into the run's folder, named by their content."""
    from prism_jax.training.loss_config import LossConfig
    from prism_jax.training.run_config import RunConfig, TrainingConfig
    from prism_jax.training.students import sources

    assert run.weights is not None, "the registry says what a baseline needs"
    calibration, train = for_calibration(fold.train)
    folder, paths = run.cache.resolve() / "fine_tuned" / "streams", list[str]()
    folder.mkdir(parents=True, exist_ok=True)
    for streams in (train, calibration, fold.test):
        content = encode_streams(streams)
        path = folder / f"{hashlib.sha256(content).hexdigest()[:24]}.jsonl"
        path.write_bytes(content)
        paths.append(str(path))
    lower = "|".join(map(str, range(block - TRAINED)))
    return RunConfig(
        data=sources(*paths),
        loss=LossConfig(response=0.0),
        training=TrainingConfig(
            start=run.weights,
            start_blocks=block,
            frozen=("embedding", *([f"layers/({lower})/.*"] if lower else [])),
            reuse_frozen=True,
            soft_labels=True,
            steps=steps,
            batch=1,
            learning_rate=1e-4,
            checkpoint_every=min(steps, 20),
        ),
    )


def score_fine_tuned(fold: Fold, run: Run) -> Scores:
    """The raw slots of the student that is trained on a fold; errors as of `prism_jax.runs.pipeline.train_run`."""
    from prism_jax.runs.store import Store

    scores = Store(run.cache / "fine_tuned").scores("fine_tuned", training_on(fold, run))
    return Scores.from_columns(scores.columns() | {"fold": np.full(len(scores), fold.number)})


FINE_TUNED = Baseline(
    "fine_tuned",
    "fine-tuned student",
    score_fine_tuned,
    needs=("weights",),
    misfit=lambda source: "" if has_need(source.streams) else "no need",
)
