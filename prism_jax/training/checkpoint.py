"""Checkpoints: the state and the position in the data, saved together, written whole or not at all (Orbax)."""

from __future__ import annotations

import textwrap
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath

from prism_jax.training.step import TrainState

ITEMS = ("state", "data")


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be read; the message names it, says what is wrong and what deleting it leads to."""


class Checkpoints:
    """The `checkpoints/` folder of a run; keeps the newest two."""

    def __init__(self, workdir: epath.PathLike, keep: int = 2):
        """Opens the folder, or makes it.

        Raises:
          NotADirectoryError: when there is something else in its place.
        """
        self.folder = epath.Path(workdir) / "checkpoints"
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(f"{self.folder}: found a file, expected a folder of checkpoints or nothing")
        self._manager = ocp.CheckpointManager(
            self.folder.resolve(),
            options=ocp.CheckpointManagerOptions(max_to_keep=keep, create=True, enable_async_checkpointing=True),
        )

    def latest(self) -> int | None:
        """Step of the newest complete checkpoint, None if there is none."""
        return self._manager.latest_step()

    def save(self, step: int, state: TrainState, data: dict[str, Any]) -> None:
        """Starts saving; the previous save has finished when this returns."""
        self._manager.save(
            step, args=ocp.args.Composite(state=ocp.args.StandardSave(state), data=ocp.args.JsonSave(data))
        )

    def restore(self, step: int, abstract: TrainState) -> tuple[TrainState, dict[str, Any]]:
        """The state, placed as `abstract` says, and the position in the data.

        Raises:
          CheckpointError: for a damaged checkpoint; no other one is read in its place.
        """
        missing = [item for item in ITEMS if not _holds_something(self._path(step) / item)]
        if missing:
            raise self._damaged(step, f"no {missing[0]}/ in it")
        try:
            restored = self._manager.restore(
                step, args=ocp.args.Composite(state=ocp.args.StandardRestore(abstract), data=ocp.args.JsonRestore())
            )
        except (MemoryError, PermissionError, jax.errors.JaxRuntimeError):
            raise  # nothing that deleting the checkpoint would mend
        except Exception as error:  # whatever Orbax and the libraries below it make of a damaged file
            reason = str(error).split(" [tensorstore_spec")[0]
            shown = textwrap.shorten(reason, 300, placeholder=" ...")
            raise self._damaged(step, f"what cannot be restored ({type(error).__name__}: {shown})") from error
        if not isinstance(restored.data, dict):
            raise self._damaged(step, f"{restored.data!r} in data/, no position in the data")
        return restored.state, restored.data

    def _path(self, step: int) -> epath.Path:
        return self.folder / str(step)

    def _damaged(self, step: int, found: str) -> CheckpointError:
        before = [other for other in self._manager.all_steps() if other < step]
        then = f"goes on from step {max(before)}" if before else "starts from the beginning"
        return CheckpointError(
            f"{self._path(step)}: found {found}, expected a whole checkpoint; delete it, and training {then}"
        )

    def params(self, step: int, abstract: TrainState) -> Any:
        """The student's parameters alone."""
        return self.restore(step, abstract)[0].params

    def close(self) -> None:
        """Waits for the last save."""
        self._manager.wait_until_finished()
        self._manager.close()


def _holds_something(folder: epath.Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())
