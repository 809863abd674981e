"""From a run to the job that trains it: the packed data and the settings of every step; nothing is allocated here."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from absl import logging
from etils import epath
from jax.sharding import Mesh

from prism_jax.streams import Stream
from prism_jax.student.prompting.packing import Sizes, empty_row
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.scoring.slots import Slots
from prism_jax.student.sharding import make_mesh
from prism_jax.training.input_pipeline import PackedSplit, pack_split
from prism_jax.training.optimization.frozen import FrozenFeatures, Partition
from prism_jax.training.optimization.objective import Objective
from prism_jax.training.optimization.step import StepShape
from prism_jax.training.pathways.logged import mean_a_over_e
from prism_jax.training.pathways.supervision import supervise
from prism_jax.training.run import Run, resolve
from prism_jax.training.run_config import MeshConfig, PackingConfig, RunConfig, TrainingConfig
from prism_jax.training.start import from_hub

LEAST_WARMUP = 3
"""Fewer warm-up steps than this raise the learning rate by more than a third of its peak at once."""
MANY_EPOCHS = 10
"""Labels that are read more often are learned by heart rather than learned from, unless a checkpoint is chosen."""


@dataclasses.dataclass(frozen=True)
class Job:
    """One training job: a run, its packed data, and what every step depends on."""

    run: Run  # the run, whose config is saved with every checkpoint
    shape: StepShape  # objective, updates and devices of every step
    split: PackedSplit  # packed training streams
    names: Sequence[str]  # ids of the streams in each row of the split, for messages
    # summary of how the pathway changed the data, for the start-up report
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # packed validation streams, which are scored but not trained on; None if the config has none
    validation: PackedSplit | None = None


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
    partition = Partition.of(model, config.training.frozen)  # raises for a pattern that matches nothing
    mesh = _mesh(config.mesh)
    check_processes(mesh, jax.process_count())
    supervised = supervise(streams, config, template)
    validation = run.splits.validation
    split = pack_split(supervised.streams, template, config.packing, config.training.batch)
    sizes = tuple(bucket.size for bucket in split.buckets)
    slots = Slots(model, template.yes, template.no, split.size.window, split.size.visible, buckets=sizes)
    largest = max(split.buckets, key=lambda bucket: bucket.size.trunk + bucket.size.branches)
    shape = StepShape(
        objective=Objective(slots, supervised.loss, config.decision),
        training=config.training.over(split.epoch),
        row=split.rows[largest.rows[0]],
        mesh=mesh,
    )
    if config.training.reuse_frozen:
        FrozenFeatures(slots, partition)  # raises if there is no frozen block to reuse
    warn_of_short_warmup(shape.training, split.epoch)
    warn_of_many_epochs(shape.training, split.epoch)
    return Job(
        run=run,
        shape=shape,
        split=split,
        names=[", ".join(supervised.streams[number].id for number in row) for row in split.streams],
        facts=supervised.facts | _check_log(streams),
        validation=pack_split(validation, template, PackingConfig(config.packing.context)) if validation else None,
    )


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


def _mesh(config: MeshConfig) -> Mesh:
    return make_mesh(config.data, config.fsdp, config.tensor)


def check_processes(mesh: Mesh, processes: int) -> None:
    """Raises ValueError for a mesh that so many processes cannot share.

    Each loads rows of its own, so that no row may be split between two. Nor may parameters be sharded across CPU
    processes: the collectives of a step run in no fixed order there, and would deadlock.
    """
    sharded = {name: size for name, size in mesh.shape.items() if name != "data" and size > 1}
    if processes > 1 and sharded and mesh.devices.flat[0].platform == "cpu":
        name, size = next(iter(sharded.items()))
        raise ValueError(
            f"mesh.{name}: found {size} on {processes} CPU processes, expected 1: CPU processes can shard a batch "
            "(mesh.data), but not parameters"
        )
    if (rows := mesh.shape["data"] * mesh.shape["fsdp"]) % processes:
        raise ValueError(
            f"mesh.tensor: found {mesh.shape['tensor']} with data x fsdp = {rows} on {processes} processes, expected "
            "data x fsdp to be a multiple of the processes, each of which loads rows of its own"
        )


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


def describe(job: Job) -> dict[str, Any]:
    """Describes the student, the devices and the data of a job, for the start-up report."""
    params = job.shape.slots.model.abstract_params()
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    split = job.split
    return {
        **job.facts,
        "device": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        "parameters": f"{count:,} ({job.shape.student.param_dtype}), {job.shape.training.start or 'random'}",
        **({"adapters": _adapters(job)} if job.run.config.lora.rank else {}),
        "rows": f"{len(split.rows):,} of {split.stream_count:,} streams, {split.padding:.0%} padding; at most "
        + ", ".join(f"{bucket.size.trunk} + {bucket.size.branches} tokens" for bucket in split.buckets),
        "labels": f"{split.need:,} of need and {split.accept:,} of acceptance per epoch, {split.supervised:,} "
        "supervised tokens",
        "packing": f"{split.tokens:,} tokens per epoch, {split.tokens_alone / split.tokens:.1f} times fewer than "
        f"{split.tokens_alone:,} with one decision per row",
        "steps": updates(job.shape.training, split.epoch),
        **({} if job.validation else {"validation": "none (data.validation = 0): the newest checkpoint is the result"}),
    }


def _adapters(job: Job) -> str:
    """Describes what trains beside a frozen base."""
    lora, partition = job.run.config.lora, job.shape.partition
    head = {"frozen": "", "slots": ", and the answers' rows of the head", "all": ", and the head"}[lora.head]
    return (
        f"{partition.trained:,} values train (float32): rank {lora.rank}, alpha {lora.alpha:g}, dropout "
        f"{lora.dropout:g} on {', '.join(lora.targets)}{head}; base {job.run.config.training.start_sha256[:12]}"
    )


def step_shape(config: RunConfig) -> tuple[StepShape, str]:
    """The shape of the step of a config, and a description of where the sizes of its rows come from.

    If weights or streams that the config names are not present, the student is that of the config, and a row is assumed
    to have `packing.context` tokens, of which an eighth are branches.

    Raises:
      ValueError, OSError: in one line, if the config cannot be used.
    """
    absent = _absent(config)
    if not absent:
        return plan(resolve(config)).shape, "the streams"
    if not config.student.vocab_size:
        raise ValueError(f"student.vocab_size: found 0, expected the tokenizer's size, since {absent} is not present")
    size = _assumed(config.packing.context)
    model = Qwen3(
        config.student, dataclasses.replace(config.lora, tokens=(0, 1) if config.lora.head == "slots" else ())
    )
    slots = Slots(model, 0, 1, size.window, size.visible)
    objective = Objective(slots, config.pathway.objective(config.loss), config.decision)
    return (
        StepShape(objective, config.training, empty_row(size), _mesh(config.mesh)),
        f"packing.context, assumed to be {size.trunk} + {size.branches} tokens: {absent} is not present",
    )


def _absent(config: RunConfig) -> str:
    """The first path in a config that does not exist, or the archive that the run would download; otherwise empty."""
    try:
        start = from_hub(config.training.start)
    except FileNotFoundError:
        start = config.training.start
    missing = [path for path in (start, *config.data.paths) if path and not epath.Path(path).exists()]
    if not missing and config.data.name == "proactivebench" and not config.data.source:
        return "ProactiveBench (data.source)"
    return missing[0] if missing else ""


def _assumed(context: int) -> Sizes:
    """Sizes of rows of `packing.context` tokens, of which an eighth are branches; half of these are supervised."""
    branches = -(-context // 64) * 8
    trunk = max(8, context // 8 * 8 - branches)
    return Sizes(trunk, branches, branches, 8, 8, max(8, branches // 2))
