"""Which checkpoint of a run to read: a damaged one gives way to the next, and is named."""

from __future__ import annotations

import math
from collections.abc import Iterable

import jax
from absl import logging
from etils import epath
from jax.experimental import multihost_utils

from prism_jax.training.checkpoints.checkpoint import CheckpointError, Restored, read, score, steps
from prism_jax.training.config import RunConfig
from prism_jax.training.optimization.step import TrainState

Damaged = dict[int, CheckpointError]


def restore_latest(folder: epath.Path, abstract: TrainState, config: RunConfig) -> Restored | None:
    """The newest checkpoint that can be read, to go on from; None in a run without any.

    Damaged ones are renamed to `STEP.damaged` once a whole one is found: they count no more, and nothing is lost.

    Raises:
      CheckpointError: when there are checkpoints and none can be read; nothing is renamed.
      ConfigError: naming the first key that differs, for a checkpoint of another config.
    """
    restored, broken = _first(folder, steps(folder), abstract, config)
    if restored is None:
        return None
    _, unscored = _scores(folder, [step for step in steps(folder) if step < restored.step])
    for step, error in (broken | unscored).items():
        aside = _set_aside(folder / str(step))
        logging.warning("%s; set aside as %s, going on from step %d", error, aside.name, restored.step)
    return restored


def restore_best(folder: epath.Path, abstract: TrainState, config: RunConfig) -> Restored:
    """The checkpoint that stands for a trained run; changes nothing in its folder.

    With `training.keep_best` that is the one of lowest held-out loss, else the newest; of those that can be read.

    Raises:
      FileNotFoundError: when there is no checkpoint.
      CheckpointError: when none can be read.
      ConfigError: naming the first key that differs, for a checkpoint of another config.
    """
    order, broken = steps(folder), Damaged()
    if config.training.keep_best:
        scores, broken = _scores(folder, order)
        order = sorted((step for step in order if step not in broken), key=lambda step: scores.get(step, math.inf))
    restored, more = _first(folder, order, abstract, config, broken)
    if restored is None:
        raise FileNotFoundError(f"{folder}: found no checkpoint, expected a run that trained")
    for error in (broken | more).values():
        logging.warning("%s; reading step %d in its place", error, restored.step)
    return restored


def _first(
    folder: epath.Path, order: Iterable[int], abstract: TrainState, config: RunConfig, broken: Damaged | None = None
) -> tuple[Restored | None, Damaged]:
    """The first checkpoint in `order` that can be read, and the damaged ones before it."""
    broken = dict(broken or {})
    for step in order:
        try:
            return read(folder / str(step), abstract, config), broken
        except CheckpointError as error:
            broken[step] = error
    if broken:
        raise CheckpointError(
            f"{folder}: found no readable checkpoint among {len(broken)} (newest: {broken[max(broken)]}), expected "
            "one; move the folder away and train again from the start"
        )
    return None, broken


def _scores(folder: epath.Path, order: Iterable[int]) -> tuple[dict[int, float], Damaged]:
    """Held-out losses of those checkpoints that have one, and what damaged ones are."""
    scores: dict[int, float] = {}
    broken: Damaged = {}
    for step in order:
        try:
            found = score(folder / str(step))
        except CheckpointError as error:
            broken[step] = error
        else:
            if found is not None:
                scores[step] = found
    return scores, broken


def _set_aside(path: epath.Path) -> epath.Path:
    """Renames a checkpoint so that it counts no more; one of several processes does."""
    names = [f"{path.name}.damaged", *(f"{path.name}.damaged-{i}" for i in range(2, 1000))]
    aside = next(there for name in names if not (there := path.parent / name).exists())
    multihost_utils.sync_global_devices(f"before {aside.name}")
    if jax.process_index() == 0:
        path.rename(aside)
    multihost_utils.sync_global_devices(f"after {aside.name}")
    return aside
