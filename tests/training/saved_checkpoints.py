"""States of the tiny student that hold random numbers, and checkpoints of them, saved without a training."""

import dataclasses
import functools

import jax
import numpy as np
import tiny

from prism_jax.student.sharding import make_mesh
from prism_jax.training.checkpoints.recovery import restore_best, restore_latest
from prism_jax.training.checkpoints.saver import Saver
from prism_jax.training.optimization.step import abstract_state
from prism_jax.training.run import resolve
from prism_jax.training.workdir import Workdir

CONFIG = dataclasses.replace(
    tiny.with_training(steps=6, checkpoint_every=2, keep=3), data=dataclasses.replace(tiny.CONFIG.data, validation=0.25)
)
BEST = tiny.with_training(CONFIG, keep_best=1)


@functools.cache
def abstract():
    """The shapes, dtypes and shardings of the state."""
    return abstract_state(resolve(tiny.CONFIG).model, tiny.CONFIG.training, make_mesh())


def state_of(step):
    """The state of a step, in which a changed byte changes a number."""
    rng = np.random.default_rng(step)

    def draw(leaf):
        return jax.device_put((100 * rng.normal(size=leaf.shape)).astype(leaf.dtype), leaf.sharding)

    return jax.tree.map(draw, abstract())


def save(folder, scores, config=CONFIG):
    """Saves a checkpoint per step, with its score on the validation streams where there is one."""
    names = ("validation_need", "validation_accept", "validation_nll")
    with Saver(Workdir(folder).checkpoints, config) as saver:
        for step, score in scores.items():
            found = {} if score is None else dict(zip(names, (0.0, score, score), strict=True))
            saver.save(step, state_of(step), {"position": step}, found)


def best(folder, config=CONFIG, of=None):
    """The checkpoint that is evaluated; of it `of`, or the whole state."""
    return restore_best(Workdir(folder).checkpoints, of or abstract(), config)


def latest(folder, config=CONFIG):
    """The checkpoint from which training resumes."""
    return restore_latest(Workdir(folder).checkpoints, abstract(), config)
