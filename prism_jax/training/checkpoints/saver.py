"""Saving checkpoints in the background (Orbax). The newest ones and the best ones on validation streams are kept."""

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

from prism_jax.runtime.dataclass_config import to_dict
from prism_jax.runtime.digests import write_digests
from prism_jax.training.checkpoints.checkpoint import SCORE, WRITTEN_LAST, CheckpointError, reason, steps
from prism_jax.training.optimization.step import TrainState
from prism_jax.training.run_config import RunConfig

_UNFINISHED = ocp.path.step.TMP_DIR_SUFFIX


class Saver:
    """Writes the checkpoints of a run in the background, one at a time; leaving its context waits for the last one."""

    def __init__(self, folder: epath.Path, config: RunConfig):
        """Opens or creates the folder, and deletes the remains of interrupted saves.

        The config is saved with every checkpoint. Its `training.keep` and `training.keep_best` say which are kept.
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
                async_options=ocp.AsyncOptions(post_finalization_callback=self._seal),
            ),
        )

    def save(self, step: int, state: TrainState, data: dict[str, Any], scores: Mapping[str, float]) -> None:
        """Starts saving a checkpoint, after waiting for the previous save to finish.

        The state is copied before this returns, so that the next step may donate it. The scores are those of validation
        streams, including `validation_nll`; empty if they were not scored.

        Raises:
          CheckpointError: naming the checkpoint that could not be written: this one or the previous one.
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

    def _seal(self) -> None:
        """Writes the digests of the current save; Orbax calls this in the first process before renaming the folder."""
        final = self._folder / str(self._begun)
        unfinished = list(self._folder.glob(f"{final.name}{_UNFINISHED}*"))
        write_digests(
            unfinished[0] if unfinished else final, WRITTEN_LAST
        )  # in a bucket Orbax writes to the final folder

    def wait(self) -> None:
        """Waits for the current save; raises CheckpointError, naming it, if it could not be written."""
        with self._named():
            self._manager.wait_until_finished()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Turns errors of the current save, which Orbax raises at the next call, into a one-line CheckpointError."""
        try:
            yield
        except Exception as error:  # from Orbax or a library below it: full disk, no permission, no network
            whole = steps(self._folder)
            left = f"step {whole[0]} is the newest complete one" if whole else "there is no earlier one"
            raise CheckpointError(
                f"{self._folder / str(self._begun)}: failed to write this checkpoint ({reason(error)}), expected "
                f"free space and permission; {left}, and the same command resumes from there once this is fixed"
            ) from error

    def __enter__(self) -> Saver:
        logging.get_absl_logger().addFilter(_not_by_orbax)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.wait()
        except CheckpointError as error:
            if kind is None or issubclass(kind, OSError):  # on a full disk logs fail too, with a vaguer error
                raise
            logging.error("%s", error)  # in addition to the error that ended training
        finally:
            with contextlib.suppress(Exception):  # any error has already been raised or logged
                self._manager.close()
            logging.get_absl_logger().removeFilter(_not_by_orbax)


def _not_by_orbax(record: LogRecord) -> bool:
    """Hides the tracebacks that Orbax logs, since it also raises these errors; --verbosity=1 shows both."""
    return logging.level_debug() or "/orbax/" not in record.pathname


def _rank(metrics: Mapping[str, float]) -> float:
    """The score by which checkpoints are ranked, lowest first; checkpoints of interrupted runs may have none."""
    return metrics.get(SCORE, math.inf)
