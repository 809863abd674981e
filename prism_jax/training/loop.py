"""The training loop: resumes, runs steps, logs each step while the next one runs, and saves checkpoints."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grain
import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding

from prism_jax.decision.losses import AcceptSums, Sums
from prism_jax.student import sharding
from prism_jax.student.lora import joined
from prism_jax.student.prompting.packing import Packed
from prism_jax.student.qwen3 import Params
from prism_jax.training.checkpoints.recovery import restore_latest
from prism_jax.training.checkpoints.saver import Saver
from prism_jax.training.input_pipeline import PackedSplit, batches
from prism_jax.training.interruption import InterruptedTrainingError, Interruption
from prism_jax.training.job import Job
from prism_jax.training.logs.flops import Work, work
from prism_jax.training.logs.profiling import Profile
from prism_jax.training.logs.progress import Log
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.memory import fitted_here
from prism_jax.training.optimization.frozen import FrozenFeatures
from prism_jax.training.optimization.objective import Objective
from prism_jax.training.optimization.step import (
    StepShape,
    TrainState,
    init_state,
    make_shares,
    make_step,
    saved_part,
)
from prism_jax.training.run import base_params, first_params


def place(batch: Packed, mesh: Mesh) -> Packed:
    """Returns the batch of all processes, sharded over the mesh, from the consecutive rows that this process loaded."""
    if jax.process_count() == 1:
        return batch
    where = NamedSharding(mesh, sharding.BATCH)
    return jax.tree.map(lambda column: jax.make_array_from_process_local_data(where, np.asarray(column)), batch)


def any_process(flag: bool) -> bool:
    """Whether the flag is set in any process. All processes must stop at the same step.

    With several processes the call waits until the current step has finished.
    """
    return flag if jax.process_count() == 1 else bool(np.any(multihost_utils.process_allgather(np.array(flag))))


def train(
    job: Job,
    *,
    progress: bool = True,
    after_step: Callable[[int], None] | None = None,
    profile: int | None = None,
) -> Params:
    """Trains to the last step, from the newest checkpoint of the workdir or from the beginning.

    A run that is killed at any moment and started again ends with the same parameters and the same metrics.jsonl, bit
    for bit on the same kind of device. The checkpoint holds the state and the position in the data, and the logs are
    truncated to it.

    `after_step` is called with the number of each finished step. `profile` is the step at which a trace of a few steps
    starts, written to `profile/` in the workdir.

    Raises:
      TrainingError: if a loss term or the gradient is NaN or infinite; nothing is saved from that step on.
      InterruptedTrainingError: after SIGTERM or SIGINT, once a checkpoint of the current step is saved.
      CheckpointError: if a checkpoint cannot be written, or none of the existing ones can be read.
      ConfigError: if the checkpoint belongs to a different config; the message names the key.
    """
    shape = fitted_here(job.shape)
    config, workdir, model = shape.training, job.run.files, shape.slots.model
    iterator = batches(job.split, config.batch, config.seed)
    start, state = _begin(job, iterator)
    if start and progress and jax.process_index() == 0:
        print(f"resumed from step {start:,} of {config.steps:,}", flush=True)
    features = FrozenFeatures(shape.slots, shape.partition) if config.reuse_frozen else lambda params, batch: batch
    score = make_score(shape, job.validation, job.run.config.loss) if job.validation else None
    shares = make_shares(shape) if config.share_every else None
    step_fn = make_step(shape)
    trace = Profile(workdir.profile, profile, start, config.steps)
    pending: tuple[int, np.ndarray, Mapping[str, Any], Work] | None = None
    with (
        Log(workdir, job.names, shape, start, progress) as log,
        contextlib.closing(trace),
        Interruption() as interruption,
        Saver(workdir.checkpoints, job.run.config) as saver,
    ):
        for step in range(start + 1, config.steps + 1):
            # Run one step.
            batch = next(iterator)
            trace.before(step)
            read = place(features(state.params, batch), shape.mesh)
            term_shares = shares(state, read) if shares and step % config.share_every == 0 else {}
            state, metrics = step_fn(state, read)
            trace.after(step, metrics)
            # Log the previous step, which has finished by now, so that reading its metrics does not wait.
            if pending is not None:
                log.write(*pending)
            scores = score(state.params) if score and config.evaluates(step) else {}
            pending = (step, batch.row, {**metrics, **term_shares, **scores}, work(batch))
            # Save, and stop if a signal requested it.
            stopping = any_process(interruption.requested_by is not None)
            if config.saves(step) or stopping:
                log.write(*pending)
                log.flush()
                pending = None
                saver.save(step, saved_part(state, model), iterator.get_state(), scores)
            if after_step is not None:
                after_step(step)
            if stopping:
                saver.wait()
                raise InterruptedTrainingError(interruption.message(step, config.steps, workdir))
    return state.params


def _begin(job: Job, iterator: grain.DatasetIterator) -> tuple[int, TrainState]:
    """How many steps are done, and the state after them; moves the iterator to its position in the data."""
    config, model, mesh = job.run.config, job.shape.slots.model, job.shape.mesh
    restored = restore_latest(job.run.files.checkpoints, saved_part(job.shape.state, model), config)
    if restored is None:
        return 0, init_state(model, job.shape.training, mesh, first_params(config, model, mesh))
    iterator.set_state(restored.data)
    step, state, *_ = restored
    if model.lora.rank:
        state = state._replace(params=joined(base_params(config, model, mesh), state.params))
    return step, state


Score = Callable[[Params], dict[str, float]]


def make_score(shape: StepShape, split: PackedSplit, loss: LossConfig) -> Score:
    """Makes a function of parameters that returns the mean negative log-likelihood of validation labels, in nats.

    Its result has the keys validation_need, validation_accept and their sum, validation_nll; without labels of need or
    of acceptance the score is 0 there. Acceptances are always weighted by self-normalised inverse propensities
    (docs/maths.md, section 4), bounded by the e_min and w_max of the loss config, so that the scores of runs are
    comparable. A forward pass takes as many rows as a microbatch.
    """
    slots = dataclasses.replace(shape.slots, window=split.size.window, visible=split.size.visible, buckets=())
    objective = Objective(slots, dataclasses.replace(loss, estimator="snips"), shape.objective.point)
    batch, placed = shape.training.batch // shape.training.accumulation, NamedSharding(shape.mesh, sharding.BATCH)

    @jax.jit
    def sums(params: Params, rows: Packed) -> tuple[Sums, AcceptSums]:
        with jax.sharding.use_abstract_mesh(shape.mesh.abstract_mesh):
            terms = objective.sums(params, rows, loss.width_end)
        return terms.need, terms.accept  # XLA drops the other terms

    groups = [_group(split.rows[start : start + batch], batch, placed) for start in range(0, len(split.rows), batch)]

    def score(params: Params) -> dict[str, float]:
        sums_by_group = jax.device_get([sums(params, rows) for rows in groups])
        need, accept = (
            sum(float(part.numerator) for part in parts) / (sum(float(part.denominator) for part in parts) or 1.0)
            for parts in zip(*sums_by_group, strict=True)
        )
        return {"validation_need": need, "validation_accept": accept, "validation_nll": need + accept}

    return score


def _group(rows: Sequence[Packed], count: int, placed: NamedSharding) -> Packed:
    """Stacks rows into a batch of `count` rows, padded with copies of the first row that have weight 0."""
    silent = rows[0]._replace(
        need_weight=np.zeros_like(rows[0].need_weight), accept_weight=np.zeros_like(rows[0].accept_weight)
    )

    def place(*leaves: np.ndarray) -> jax.Array:
        column = np.stack(leaves)
        return jax.make_array_from_callback(column.shape, placed, lambda index: column[index])

    return jax.tree.map(place, *rows, *[silent] * (count - len(rows)))
