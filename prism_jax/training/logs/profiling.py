"""A trace of a few steps: `--profile=STEP` writes what xprof, TensorBoard and Perfetto read."""

from __future__ import annotations

from typing import Any

import jax
from etils import epath

STEPS = 3
"""Steps that a trace holds."""


class Profile:
    """Traces `STEPS` steps from one on."""

    def __init__(self, folder: epath.Path, first: int | None, start: int, last: int):
        """Plans a trace.

        Args:
          folder: Where to write the trace.
          first: Step to begin with; None traces nothing.
          start: Steps done before.
          last: The run's last step.

        Raises:
          ValueError: for a step that the run doesn't come to.
        """
        if first is not None and not start < first <= last:
            raise ValueError(f"profile: found step {first}, expected one from {start + 1} to {last}")
        self._folder, self._first, self._last = folder, first, last
        self._running = False

    def before(self, step: int) -> None:
        """Begins the trace where `step` is its first."""
        if step == self._first:
            jax.profiler.start_trace(str(self._folder))
            self._running = True

    def after(self, step: int, result: Any) -> None:
        """Ends the trace where `step` is its last, once its result is there."""
        if self._running and (step == self._last or step + 1 == (self._first or 0) + STEPS):
            jax.block_until_ready(result)
            self.close()

    def close(self) -> None:
        """Ends a trace that still runs."""
        if self._running:
            self._running = False
            jax.profiler.stop_trace()
