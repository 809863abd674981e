"""Saving while training goes on, and which checkpoints stay: the newest, and the best on held-out streams (Orbax)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from logging import LogRecord
from typing import Any

import orbax.checkpoint as ocp
from absl import logging
from etils import epath
from orbax.checkpoint import checkpoint_managers as policies

from prism_jax.runtime.config import to_dict
from prism_jax.training.checkpoints.checkpoint import OLD_SCORE, SCORE, CheckpointError, reason, steps
from prism_jax.training.config import RunConfig
from prism_jax.training.optimization.step import TrainState


class Saver:
    """Writes a run's checkpoints, one at a time, in the background. Use as a context: leaving it waits for the last."""

    def __init__(self, folder: epath.Path, config: RunConfig):
        """Opens the folder, or makes it, and clears away what saves that were cut off have left.

        Args:
          folder: The run's folder of checkpoints.
          config: Saved with every checkpoint; its `training.keep` and `training.keep_best` say which ones stay.
        """
        self._folder = folder
        self._config = config
        self._begun: int | None = None
        newest = policies.LatestN(config.training.keep)
        best = policies.BestN(
            n=config.training.keep_best, get_metric_fn=_rank, reverse=True, keep_checkpoints_without_metrics=False
        )
        self._manager = ocp.CheckpointManager(
            self._folder.resolve(),
            options=ocp.CheckpointManagerOptions(
                preservation_policy=policies.AnyPreservationPolicy([newest, best]),
                best_fn=_rank,
                best_mode="min",
                cleanup_tmp_directories=True,
                enable_async_checkpointing=True,
            ),
        )

    def save(self, step: int, state: TrainState, data: dict[str, Any], scores: Mapping[str, float]) -> None:
        """Starts saving; the save before has finished when this returns.

        Args:
          step: Updates done.
          state: Copied before this returns, so that the next step may take it.
          data: Position in the data.
          scores: What held-out streams gave, `validation_nll` among them; empty where they were not scored.

        Raises:
          CheckpointError: naming the checkpoint, this one or the one before, that could not be written.
        """
        self.wait()
        self._begun = step
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state),
            data=ocp.args.JsonSave(data),
            config=ocp.args.JsonSave(to_dict(self._config)),
        )
        with self._named():
            self._manager.save(step, args=items, metrics=dict(scores), force=True)

    def wait(self) -> None:
        """Waits for the save under way.

        Raises:
          CheckpointError: naming the checkpoint that could not be written.
        """
        with self._named():
            self._manager.wait_until_finished()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Errors of the save under way, which Orbax raises at the next call, as one line."""
        try:
            yield
        except Exception as error:  # of Orbax and the libraries below it: no room, no permission, no network
            whole = steps(self._folder)
            left = f"step {whole[0]} is the newest that can be read" if whole else "there is none before it"
            raise CheckpointError(
                f"{self._folder / str(self._begun)}: found no way to write this checkpoint ({reason(error)}), expected "
                f"room and permission; {left}, and the same command goes on from there once that is mended"
            ) from error

    def __enter__(self) -> Saver:
        logging.get_absl_logger().addFilter(_not_by_orbax)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.wait()
        except CheckpointError as error:
            if kind is None or issubclass(kind, OSError):  # logs of a full disk fail too, and say less
                raise
            logging.error("%s", error)  # beside the error that ended training
        finally:
            with contextlib.suppress(Exception):  # what there was to say has been said
                self._manager.close()
            logging.get_absl_logger().removeFilter(_not_by_orbax)


def _not_by_orbax(record: LogRecord) -> bool:
    """What Orbax logs, with tracebacks, it raises too, and then it is one line; --verbosity=1 shows both."""
    return logging.level_debug() or "/orbax/" not in record.pathname


def _rank(metrics: Mapping[str, float]) -> float:
    """What the best checkpoint has the lowest of; a checkpoint of an interrupted run was not scored."""
    return metrics.get(SCORE, metrics.get(OLD_SCORE, math.inf))
