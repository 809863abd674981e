"""The choice of the checkpoint to read. Damaged checkpoints are skipped, with a warning that names them."""

from __future__ import annotations

import math
from collections.abc import Iterable

import jax
from absl import logging
from etils import epath
from jax.experimental import multihost_utils

from prism_jax.training.checkpoints.checkpoint import CheckpointError, Restored, read, score, steps
from prism_jax.training.optimization.step import TrainState
from prism_jax.training.run_config import RunConfig

Damaged = dict[int, CheckpointError]


def restore_latest(folder: epath.Path, abstract: TrainState, config: RunConfig) -> Restored | None:
    """The newest checkpoint that can be read, from which training resumes; None if the run has no checkpoint.

    Once a readable checkpoint is found, damaged ones are renamed to `STEP.damaged`: they are ignored from then on, but
    not deleted.

    Raises:
      CheckpointError: if there are checkpoints but none can be read; nothing is renamed then.
      ConfigError: naming the first key that differs, if the checkpoint has another config.
    """
    restored, broken = _first(folder, steps(folder), abstract, config)
    if restored is None:
        return None
    _, unscored = _scores(folder, [step for step in steps(folder) if step < restored.step])
    for step, error in (broken | unscored).items():
        renamed = _rename(folder / str(step))
        logging.warning("%s; renamed to %s, resuming from step %d", error, renamed.name, restored.step)
    return restored._replace(damaged=tuple(sorted(broken)))


def restore_best(folder: epath.Path, abstract: TrainState, config: RunConfig) -> Restored:
    """The checkpoint to evaluate or export; changes nothing in the folder.

    With `training.keep_best` this is the readable checkpoint with the lowest validation loss, otherwise the newest
    readable one.

    Raises:
      FileNotFoundError: if there is no checkpoint.
      CheckpointError: if no checkpoint can be read.
      ConfigError: naming the first key that differs, if the checkpoint has another config.
    """
    order, broken = best_first(folder, config)
    restored, more = _first(folder, order, abstract, config, broken)
    if restored is None:
        raise FileNotFoundError(f"{folder}: found no checkpoint, expected a run that trained")
    for error in (broken | more).values():
        logging.warning("%s; reading step %d instead", error, restored.step)
    return restored._replace(damaged=tuple(sorted(broken | more)))


def best_first(folder: epath.Path, config: RunConfig) -> tuple[list[int], Damaged]:
    """The steps of the checkpoints in the order in which `restore_best` tries them, and those with damaged scores."""
    order, broken = steps(folder), Damaged()
    if config.training.keep_best:
        scores, broken = _scores(folder, order)
        order = sorted((step for step in order if step not in broken), key=lambda step: scores.get(step, math.inf))
    return order, broken


def _first(
    folder: epath.Path, order: Iterable[int], abstract: TrainState, config: RunConfig, broken: Damaged | None = None
) -> tuple[Restored | None, Damaged]:
    """The first checkpoint in `order` that can be read, and the errors of the damaged ones before it."""
    broken = dict(broken or {})
    for step in order:
        try:
            return read(folder / str(step), abstract, config), broken
        except CheckpointError as error:
            broken[step] = error
    if broken:
        raise CheckpointError(
            f"{folder}: found no readable checkpoint among {len(broken)} (newest: {broken[max(broken)]}), expected "
            "one; move the folder away and train again from the beginning"
        )
    return None, broken


def _scores(folder: epath.Path, order: Iterable[int]) -> tuple[dict[int, float], Damaged]:
    """The validation losses of the checkpoints that have one, and the errors of damaged checkpoints."""
    scores: dict[int, float] = {}
    broken: Damaged = {}
    for step in order:
        try:
            loss = score(folder / str(step))
        except CheckpointError as error:
            broken[step] = error
        else:
            if loss is not None:
                scores[step] = loss
    return scores, broken


def _rename(path: epath.Path) -> epath.Path:
    """Renames a damaged checkpoint so that it is ignored from now on; only the first process renames it."""
    names = [f"{path.name}.damaged", *(f"{path.name}.damaged-{i}" for i in range(2, 1000))]
    renamed = next(free for name in names if not (free := path.parent / name).exists())
    multihost_utils.sync_global_devices(f"before {renamed.name}")
    if jax.process_index() == 0:
        path.rename(renamed)
    multihost_utils.sync_global_devices(f"after {renamed.name}")
    return renamed
