"""The tiny run, opened and packed once, and a function that runs steps of it with other settings."""

import dataclasses
import functools

import jax
import numpy as np
import tiny

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.scoring.slots import Slots
from prism_jax.student.sharding import make_mesh
from prism_jax.training.checkpoints.saver import Saver
from prism_jax.training.input_pipeline import pack_split
from prism_jax.training.optimization.objective import Objective
from prism_jax.training.optimization.step import StepShape, init_state, make_step
from prism_jax.training.run import resolve
from prism_jax.training.run_config import PackingConfig
from prism_jax.training.workdir import Workdir

RUN = resolve(tiny.CONFIG)
SPLIT = pack_split(RUN.splits.train, RUN.template, PackingConfig(512))
POINT = OperatingPoint()
MESH = make_mesh()
LOSS = tiny.CONFIG.loss

# These programs run only a few times, so compiling them takes most of the time.
QUICK = {"xla_backend_optimization_level": 0}
jit = functools.partial(jax.jit, compiler_options=QUICK)


@functools.cache
def params():
    """Returns parameters as fresh as those of the tiny student, which NumPy draws: nothing is compiled."""
    rng, spread = np.random.default_rng(0), RUN.model.config.initializer_range

    def one(path, leaf):
        drawn = np.ones(leaf.shape) if path[-1].key == "weight" else spread * rng.normal(size=leaf.shape)
        return jax.device_put(drawn.astype(leaf.dtype))

    return jax.tree_util.tree_map_with_path(one, RUN.model.abstract_params())


def saved_start(folder, config=RUN.config, scale=1):
    """A workdir of the tiny run that has saved its initial state, enlarged by a scale; gives its parameters, too."""
    workdir = Workdir(folder)
    workdir.claim(config)
    RUN.template.tokenizer.save(workdir.tokenizer)
    state = init_state(RUN.model, config.training, MESH, jax.random.key(5))
    state = state._replace(params=jax.tree.map(lambda leaf: scale * leaf, state.params))
    with Saver(workdir.checkpoints, config) as saver:
        saver.save(1, state, {}, {})
    return workdir.path, jax.device_get(state.params)


def stacked(rows):
    """Returns rows as one batch."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)


def batch_of(*rows):
    """Returns the training rows with these indices as one batch."""
    return stacked([SPLIT.rows[row] for row in rows])


def slots(**student):
    """Returns the slots of the tiny student, with some of its settings changed."""
    model = Qwen3(dataclasses.replace(RUN.model.config, **student))
    return Slots(model, RUN.template.yes, RUN.template.no, SPLIT.size.window)


def shape(where=None, training=tiny.CONFIG.training, loss=LOSS, split=SPLIT):
    """Returns what a step of the tiny student depends on, with some of its settings changed."""
    return StepShape(Objective(where or slots(), loss, POINT), training, split.rows[0], MESH)


def steps(count, training, loss=LOSS, **student):
    """Runs `count` steps; returns the states before and after each step, on the host, and the metrics of each step."""
    where = slots(**student)
    state = init_state(where.model, training, MESH, jax.random.key(training.seed))
    step = make_step(shape(where, training, loss))
    states, metrics = [jax.device_get(state)], []
    for number in range(count):
        rows = [(number * training.batch + row) % len(SPLIT.rows) for row in range(training.batch)]
        state, found = step(state, batch_of(*rows))
        states.append(jax.device_get(state))
        metrics.append({name: float(value) for name, value in found.items()})
    return states, metrics
