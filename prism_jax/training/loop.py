"""The training loop: resumes, runs steps, logs each step while the next one runs, and saves checkpoints."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grain
import jax
import numpy as np
from absl import logging
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding

from prism_jax.decision.losses import AcceptSums, Sums
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.streams import Stream
from prism_jax.student import sharding
from prism_jax.student.dispatch import platform
from prism_jax.student.lora import joined
from prism_jax.student.prompting.packing import Packed
from prism_jax.student.qwen3 import Params
from prism_jax.student.scoring.slots import Slots
from prism_jax.student.sharding import make_mesh
from prism_jax.training.checkpoints.recovery import restore_latest
from prism_jax.training.checkpoints.saver import Saver
from prism_jax.training.input_pipeline import PackedSplit, batches, pack_split
from prism_jax.training.interruption import InterruptedTrainingError, Interruption
from prism_jax.training.logs.flops import Work, work
from prism_jax.training.logs.profiling import Profile
from prism_jax.training.logs.progress import Log, Rates
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.memory.estimate import fitted
from prism_jax.training.memory.shapes import StepShape, device_memory
from prism_jax.training.optimization.frozen import FrozenFeatures, Partition
from prism_jax.training.optimization.objective import term_sums
from prism_jax.training.optimization.step import (
    TrainState,
    abstract_state,
    init_state,
    make_shares,
    make_step,
    saved_part,
)
from prism_jax.training.pathways.logged import mean_a_over_e
from prism_jax.training.pathways.supervision import supervise
from prism_jax.training.run import Run, base_params, first_params
from prism_jax.training.run_config import RunConfig, TrainingConfig

LEAST_WARMUP = 3
"""Fewer warm-up steps than this raise the learning rate by more than a third of its peak at once."""


def updates(training: TrainingConfig, epoch: float) -> str:
    """Describes the updates of a run in one line; its settings have epochs converted into steps (`over`)."""
    return (
        f"{training.steps:,} updates of {training.batch} rows each, {training.steps / epoch:.1f} epochs of "
        f"{epoch:,.1f} updates, {training.warmup_steps if training.warmup else 0:,} of them to warm up"
    )


def warn_of_short_warmup(training: TrainingConfig, epoch: float) -> None:
    """Warns if the schedule has fewer than `LEAST_WARMUP` warm-up steps although it asks for a warm-up."""
    if training.warmup and training.warmup_steps < LEAST_WARMUP:
        logging.warning(
            "training.warmup: found %g of %d updates (%.1f per epoch), which is %d, expected at least %d updates "
            "to warm up; lower packing.max_decisions or training.batch, or raise training.epochs or training.steps",
            training.warmup,
            training.steps,
            epoch,
            training.warmup_steps,
            LEAST_WARMUP,
        )


MANY_EPOCHS = 10
"""Labels that are read more often are learned by heart rather than learned from, unless a checkpoint is chosen."""


def warn_of_many_epochs(training: TrainingConfig, epoch: float) -> None:
    """Warns if the rows are read more than `MANY_EPOCHS` times and the last checkpoint is taken, good or not."""
    if not training.keep_best and training.steps > math.ceil(MANY_EPOCHS * epoch):
        logging.warning(
            "training.steps: found %d updates, which are %.1f epochs, expected at most %d, or validation streams that "
            "choose the checkpoint: --config.data.validation=0.1 --config.training.keep_best=1",
            training.steps,
            training.steps / epoch,
            MANY_EPOCHS,
        )


def check_processes(mesh: Mesh, processes: int) -> None:
    """Raises ValueError if parameters are sharded across CPU processes, in which collectives would deadlock.

    The collectives of a step run in no fixed order there.
    """
    sharded = {name: size for name, size in mesh.shape.items() if name != "data" and size > 1}
    if processes > 1 and sharded and mesh.devices.flat[0].platform == "cpu":
        name, size = next(iter(sharded.items()))
        raise ValueError(
            f"mesh.{name}: found {size} on {processes} CPU processes, expected 1: CPU processes can shard a batch "
            "(mesh.data), but not parameters"
        )


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


@dataclasses.dataclass(frozen=True)
class Job:
    """One training job: the packed data, the student and the devices. All settings are read from the config."""

    run: Run  # the run, whose config is saved with every checkpoint
    slots: Slots  # the student and the token ids of the answers, which read its decisions
    split: PackedSplit  # packed training streams
    names: Sequence[str]  # ids of the streams in each row of the split, for messages
    mesh: Mesh  # device mesh, as `sharding.make_mesh` builds it for the config
    # summary of how the pathway changed the data, for the start-up report
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # packed validation streams, which are scored but not trained on; None if the config has none
    validation: PackedSplit | None = None

    @property
    def config(self) -> RunConfig:
        """The config of the run."""
        return self.run.config

    @property
    def training(self) -> TrainingConfig:
        """The training settings, with epochs converted into steps."""
        return self.config.training.over(self.split.epoch)

    @property
    def loss(self) -> LossConfig:
        """The weights and estimators that the pathway trains with."""
        return self.config.pathway.objective(self.config.loss)

    @property
    def shape(self) -> StepShape:
        """The shape of the largest step."""
        largest = max(self.split.buckets, key=lambda bucket: bucket.size.trunk + bucket.size.branches)
        row = self.split.rows[largest.rows[0]]
        return StepShape(self.slots, largest.size, row, self.training, self.loss, self.config.decision, self.mesh)

    def fitted(self) -> Job:
        """The job with the remat policy that fits these devices, where the config says `auto`."""
        limit = device_memory(self.mesh.devices.flat[0])
        return dataclasses.replace(self, slots=fitted(self.shape, platform(), limit).slots)

    def features(self) -> Callable[[Params, Packed], Packed]:
        """The function that prepares a batch for the step.

        With `training.reuse_frozen` it replaces the token ids by the features of the frozen blocks, which must exist.
        """
        if not self.config.training.reuse_frozen:
            return lambda params, batch: batch
        return FrozenFeatures(self.slots, Partition.of(self.slots.model, self.config.training.frozen))


def plan(run: Run, streams: Sequence[Stream] | None = None) -> Job:
    """Builds the training job of a run and packs its training split; writes nothing.

    `streams` are the training streams with what a second stage adds to their steps; None are those of the run.

    Raises:
      ValueError: for a decision longer than the context, a split without labels, a mesh that the devices cannot form,
        a pattern of frozen parameters that matches nothing, or `training.reuse_frozen` without frozen blocks; the
        message is one line.
    """
    config, template, streams = run.config, run.template, run.splits.train if streams is None else streams
    model = run.with_adapters
    Partition.of(model, config.training.frozen)  # raises for a pattern that matches nothing
    mesh = make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
    check_processes(mesh, jax.process_count())
    supervised = supervise(streams, config, template)
    packing, validation = config.packing, run.splits.validation
    split = pack_split(
        supervised.streams,
        template,
        packing.context,
        unit=packing.unit,
        max_decisions=packing.max_decisions,
        row_tokens=packing.row_tokens,
        buckets=packing.buckets,
        batch=config.training.batch,
    )
    shapes = tuple(bucket.size for bucket in split.buckets)
    job = Job(
        run=run,
        slots=Slots(model, template.yes, template.no, split.size.window, split.size.visible, buckets=shapes),
        split=split,
        names=[", ".join(supervised.streams[number].id for number in row) for row in split.streams],
        mesh=mesh,
        facts=supervised.facts | _check_log(streams),
        validation=pack_split(validation, template, packing.context) if validation else None,
    )
    job.features()  # raises if there is no frozen block to reuse
    warn_of_short_warmup(job.training, split.epoch)
    warn_of_many_epochs(job.training, split.epoch)
    return job


def _check_log(streams: Sequence[Stream]) -> dict[str, str]:
    """The mean(A / e) of the training split for the start-up report; warns if its interval does not contain 1."""
    statistic = mean_a_over_e(streams)
    if statistic is None:
        return {}
    if not statistic.plausible:
        logging.warning(
            "data: found mean(A/e) %s; expected the propensities with which the offers were made", statistic
        )
    return {"mean(A/e)": str(statistic)}


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
    config, job = job.training, job.fitted()
    workdir = job.run.files
    iterator = batches(job.split, config.batch, config.seed)
    start, state = _begin(job, iterator)
    if start and progress and jax.process_index() == 0:
        print(f"resumed from step {start:,} of {config.steps:,}", flush=True)
    features, score = job.features(), _score(job)
    shares = make_shares(job.slots, config, job.loss, job.config.decision, job.mesh) if config.share_every else None
    step_fn = make_step(job.slots, config, job.loss, job.config.decision, job.mesh)
    model = job.slots.model
    whole = not config.frozen and not model.lora.rank
    rates = Rates.on(model.config, job.mesh.devices.flatten().tolist(), whole)
    trace = Profile(workdir.profile, profile, start, config.steps)
    pending: tuple[int, np.ndarray, Mapping[str, Any], Work] | None = None
    with (
        Log(workdir, job.names, rates, config.steps, start, progress) as log,
        contextlib.closing(trace),
        Interruption() as interruption,
        Saver(workdir.checkpoints, job.config) as saver,
    ):
        for step in range(start + 1, config.steps + 1):
            # Run one step.
            batch = next(iterator)
            trace.before(step)
            read = place(features(state.params, batch), job.mesh)
            term_shares = shares(state, read) if shares and step % config.share_every == 0 else {}
            state, metrics = step_fn(state, read)
            trace.after(step, metrics)
            # Log the previous step, which has finished by now, so that reading its metrics does not wait.
            if pending is not None:
                log.write(*pending)
            scores = score(state.params) if config.evaluates(step) else {}
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
    model, config = job.slots.model, job.training
    abstract = saved_part(abstract_state(model, config, job.mesh), model)
    restored = restore_latest(job.run.files.checkpoints, abstract, job.config)
    if restored is None:
        return 0, init_state(model, config, job.mesh, first_params(job.config, model, job.mesh))
    iterator.set_state(restored.data)
    step, state, *_ = restored
    if model.lora.rank:
        state = state._replace(params=joined(base_params(job.config, model, job.mesh), state.params))
    return step, state


def _score(job: Job) -> Callable[[Params], dict[str, float]]:
    """The function that scores the validation streams; it returns no scores if there are none."""
    if job.validation is None:
        return lambda params: {}
    rows = job.training.batch // job.training.accumulation
    return make_score(job.slots, job.validation, job.config.loss, job.config.decision, rows, job.mesh)


def describe(job: Job) -> dict[str, Any]:
    """Describes the student, the devices and the data of a job, for the start-up report."""
    params = job.slots.model.abstract_params()
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    split = job.split
    return {
        **job.facts,
        "device": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        "parameters": f"{count:,} ({job.slots.model.config.param_dtype}), {job.training.start or 'random'}",
        **({"adapters": _adapters(job)} if job.config.lora.rank else {}),
        "rows": f"{len(split.rows):,} of {split.stream_count:,} streams, {split.padding:.0%} padding; at most "
        + ", ".join(f"{bucket.size.trunk} + {bucket.size.branches} tokens" for bucket in split.buckets),
        "labels": f"{split.need:,} of need and {split.accept:,} of acceptance per epoch, {split.supervised:,} "
        "supervised tokens",
        "packing": f"{split.tokens:,} tokens per epoch, {split.tokens_alone / split.tokens:.1f} times fewer than "
        f"{split.tokens_alone:,} with one decision per row",
        "steps": updates(job.training, split.epoch),
        **({} if job.validation else {"validation": "none (data.validation = 0): the newest checkpoint is the result"}),
    }


def _adapters(job: Job) -> str:
    """Describes what trains beside a frozen base."""
    lora, partition = job.config.lora, Partition.of(job.slots.model, job.config.training.frozen)
    head = {"frozen": "", "slots": ", and the answers' rows of the head", "all": ", and the head"}[lora.head]
    return (
        f"{partition.trained:,} values train (float32): rank {lora.rank}, alpha {lora.alpha:g}, dropout "
        f"{lora.dropout:g} on {', '.join(lora.targets)}{head}; base {job.config.training.start_sha256[:12]}"
    )


Score = Callable[[Params], dict[str, float]]


def make_score(
    slots: Slots, split: PackedSplit, loss: LossConfig, point: OperatingPoint, batch: int, mesh: Mesh
) -> Score:
    """Makes a function of parameters that returns the mean negative log-likelihood of validation labels, in nats.

    Its result has the keys validation_need, validation_accept and their sum, validation_nll; without labels of need or
    of acceptance the score is 0 there. Acceptances are always weighted by self-normalised inverse propensities
    (docs/maths.md, section 4), bounded by the e_min and w_max of the loss config, so that the scores of runs are
    comparable. The costs of `point` do not affect the result. A forward pass takes `batch` rows, which must divide
    evenly over the mesh.
    """
    slots = dataclasses.replace(slots, window=split.size.window, visible=split.size.visible, buckets=())
    loss = dataclasses.replace(loss, estimator="snips")
    placed = NamedSharding(mesh, sharding.BATCH)

    @jax.jit
    def sums(params: Params, rows: Packed) -> tuple[Sums, AcceptSums]:
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            terms = term_sums(params, rows, slots, loss, point, loss.width_end)
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
