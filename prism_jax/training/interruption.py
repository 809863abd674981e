"""On SIGTERM or the first SIGINT, training finishes the current step, saves a checkpoint and stops."""

from __future__ import annotations

import os
import signal
import threading
import types
from typing import Any

EXIT_STATUS = os.EX_TEMPFAIL
"""Exit status 75 of a run that a signal stopped; the same command resumes it."""


class InterruptedTrainingError(RuntimeError):
    """Training stopped on request after saving a checkpoint; the message names the signal and the workdir."""


class Interruption:
    """Context manager that records which signal requested a stop, if any; it only works on the main thread."""

    def __init__(self) -> None:
        self.requested_by: str | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def message(self, step: int, steps: int, workdir: object) -> str:
        """Returns the line that reports a run stopped after `step` of `steps`."""
        by = self.requested_by or "another process"
        return f"{by}: saved step {step} of {steps} in {workdir}; the same command resumes from there"

    def _note(self, number: int, _: types.FrameType | None) -> None:
        self.requested_by = signal.Signals(number).name
        if number == signal.SIGINT:  # a second SIGINT stops at once
            signal.signal(number, signal.default_int_handler)
