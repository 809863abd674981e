"""Checkpoints: the state and the position in the data, saved together, written whole or not at all (Orbax)."""

from __future__ import annotations

from typing import Any

import orbax.checkpoint as ocp
from etils import epath

from prism_jax.training.step import TrainState


class Checkpoints:
    """The `checkpoints/` folder of a run; keeps the newest two."""

    def __init__(self, workdir: epath.PathLike, keep: int = 2):
        self.folder = epath.Path(workdir) / "checkpoints"
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
        """The state, placed as `abstract` says, and the position in the data."""
        restored = self._manager.restore(
            step, args=ocp.args.Composite(state=ocp.args.StandardRestore(abstract), data=ocp.args.JsonRestore())
        )
        return restored.state, restored.data

    def params(self, step: int, abstract: TrainState) -> Any:
        """The student's parameters alone."""
        return self.restore(step, abstract)[0].params

    def close(self) -> None:
        """Waits for the last save."""
        self._manager.wait_until_finished()
        self._manager.close()
