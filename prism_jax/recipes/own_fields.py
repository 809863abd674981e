"""A second stage for the slots: slow branches that read the fields of the student itself, as deployment does."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from etils import epath

from prism_jax.policy.slow import write_fields
from prism_jax.policy.writing import Writer
from prism_jax.prompting.supervised import supervised_step
from prism_jax.runtime.config import ConfigError
from prism_jax.streams import Step, Stream
from prism_jax.streams.edit import map_steps
from prism_jax.training.pathways.stages import is_run
from prism_jax.training.pathways.supervision import reads_own_fields
from prism_jax.training.run import Run, untrained_params
from prism_jax.training.workdir import Workdir


def with_own_fields(run: Run) -> tuple[Stream, ...]:
    """The training streams, with the fields that the student of `training.start` writes at the chosen steps.

    Without `pathway.own_fields` these are the training streams themselves.

    Raises:
      ConfigError: if `training.start` is no run with slow branches.
      ValueError, OSError, RuntimeError: if its parameters cannot be read, or a decision does not fit into the context.
    """
    config, streams = run.config, run.splits.train
    if not config.pathway.own_fields:
        return streams
    _check_start(config.training.start)
    batch = config.training.batch
    writer = Writer(run.model, untrained_params(run.model, config), run.template.tokenizer, batch)
    chosen = [stream for stream in (_only_chosen(stream, run) for stream in streams) if stream.steps]
    context, limit = config.packing.context, config.writing.field_tokens
    thought = write_fields(writer, run.template, chosen, context=context, limit=limit)
    fields = {(stream.id, step.event): step.rationale for stream in thought for step in stream.steps}
    return tuple(_attach(stream, fields) for stream in streams)


def _check_start(start: str) -> None:
    if not is_run(start):
        raise ConfigError(f"training.start: found {start}, expected the workdir of a run, whose student writes them")
    if not Workdir(epath.Path(start)).load_config().pathway.slow:
        raise ConfigError(
            f"training.start: found {start}, a run with pathway.slow = 0, expected one with slow branches: its student "
            "writes the fields"
        )


def _only_chosen(stream: Stream, run: Run) -> Stream:
    """The stream with only the steps whose slow branch reads the student's own fields."""
    pathway, seed = run.config.pathway, run.config.training.seed
    kept = tuple(step for step in stream.steps if reads_own_fields(stream, step, pathway, seed))
    return dataclasses.replace(stream, steps=kept)


def _attach(stream: Stream, fields: Mapping[tuple[str, int], Mapping[str, str] | None]) -> Stream:
    def attach(step: Step) -> Step:
        own = fields.get((stream.id, step.event))
        return step if own is None else dataclasses.replace(supervised_step(step), own_fields=own)

    return map_steps(stream, attach)
