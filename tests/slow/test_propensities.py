"""Does weighting by inverse propensities bring p_accept closer to the truth? Only where a variable is hidden.

In the simulator's log, offers depend on a variable that the prompt hides and that changes acceptance. A student trained
on the logged acceptances without weights learns a biased p_accept; one trained with SNIPS does not (docs/maths.md,
section 4).
"""

import dataclasses

import jax
import numpy as np
import pytest

from prism_jax.experiments.intervals import mean_over_seeds
from prism_jax.runs.pipeline import score_run
from prism_jax.runs.store import of_seed
from prism_jax.streams.simulator import SimulatorConfig
from prism_jax.streams.sources import DataConfig
from prism_jax.student.scoring.passes import Passes
from prism_jax.training import students
from prism_jax.training.job import plan
from prism_jax.training.loop import train
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.run import resolve
from prism_jax.training.run_config import RunConfig, TrainingConfig
from prism_jax.training.workdir import Workdir


def squared_distance(folder, hidden_effect, estimator, seed):
    """Of p_accept to the truth on test streams: short ones and a tiny student, so that what remains is the bias."""
    config = RunConfig(
        data=DataConfig(train_streams=19_200, calibration_streams=1, test_streams=600),
        simulator=SimulatorConfig(min_events=3, max_events=3, responses=0, hidden_effect=hidden_effect),
        prompt=students.PROMPT,
        student=students.STUDENT,
        loss=LossConfig(response=0.0, burden=0.0, estimator=estimator),
        training=TrainingConfig(steps=600, batch=32, learning_rate=3e-3, checkpoint_every=600),
    )
    run = dataclasses.replace(resolve(of_seed(config, seed)), workdir=Workdir(folder))
    scores = score_run(run, jax.device_get(train(plan(run), progress=False)), ("test",), batch=50, passes=Passes())
    return np.mean((scores.p_accept_fast - scores.p_accept_true) ** 2)


@pytest.mark.study
def test_weights_help_where_a_variable_is_hidden_and_only_there(tmp_path):
    """Over six seeds; without a hidden variable, the variance of the weights may cost a little."""
    on, off = (
        np.array(
            [
                -np.diff([squared_distance(tmp_path / f"{h}{e}{seed}", h, e, seed) for e in ("none", "snips")])[0]
                for seed in range(6)
            ]
        )
        for h in (1.0, 0.0)
    )
    assert mean_over_seeds(on).low > 0
    assert mean_over_seeds(off).low <= 0
    assert abs(mean_over_seeds(off).value) < mean_over_seeds(on).value / 2
    assert mean_over_seeds(on - off).low > 0
