"""SIGTERM and the first SIGINT end training after the step under way, with a checkpoint."""

from __future__ import annotations

import os
import signal
import threading
import types
from typing import Any

EXIT_STATUS = os.EX_TEMPFAIL
"""75: what a run that was asked to stop exits with; the same command goes on where it stopped."""


class InterruptedTrainingError(RuntimeError):
    """Training was asked to stop and has saved; the message says by what and where."""


class Interruption:
    """Watches for requests to stop. Use as a context, on the main thread; elsewhere it watches nothing."""

    def __init__(self) -> None:
        self.asked: str | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def message(self, step: int, steps: int, workdir: object) -> str:
        """What to say of a run that stopped after `step` of `steps`, in one line."""
        by = self.asked or "another process"
        return f"{by}: saved step {step} of {steps} in {workdir}; the same command resumes from there"

    def _note(self, number: int, _: types.FrameType | None) -> None:
        self.asked = signal.Signals(number).name
        if number == signal.SIGINT:  # the second one does not wait
            signal.signal(number, signal.default_int_handler)
