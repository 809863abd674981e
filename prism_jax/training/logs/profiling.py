"""Profiler traces of a few steps (`--profile=STEP`), readable by xprof, TensorBoard and Perfetto."""

from __future__ import annotations

from typing import Any

import jax
from etils import epath

STEPS = 3
"""Number of steps in a trace."""


class Profile:
    """Traces `STEPS` consecutive steps."""

    def __init__(self, folder: epath.Path, first: int | None, start: int, last: int):
        """Plans a trace from step `first` on, or none; raises ValueError unless it lies after `start`, up to `last`."""
        if first is not None and not start < first <= last:
            raise ValueError(f"profile: found step {first}, expected one from {start + 1} to {last}")
        self._folder, self._first, self._last = folder, first, last
        self._running = False

    def before(self, step: int) -> None:
        """Begins the trace if `step` is its first step."""
        if step == self._first:
            jax.profiler.start_trace(str(self._folder))
            self._running = True

    def after(self, step: int, result: Any) -> None:
        """Ends the trace if `step` is its last step, after waiting for the result of the step."""
        if self._running and (step == self._last or step + 1 == (self._first or 0) + STEPS):
            jax.block_until_ready(result)
            self.close()

    def close(self) -> None:
        """Ends the trace if it is still running."""
        if self._running:
            self._running = False
            jax.profiler.stop_trace()
