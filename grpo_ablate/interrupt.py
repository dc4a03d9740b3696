"""SIGTERM and Ctrl-C as a request: finish the step, save, go. A second one ends at once."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType

_ECHO = 0.3
"""Seconds in which a second signal is the same request: a terminal and a parent both send one."""


class Interrupt:
    """Remembers that somebody wants the run to end; call it to ask."""

    def __init__(self) -> None:
        """Take over both signals."""
        self._asked = 0.0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)

    def __call__(self) -> bool:
        """Tell whether the run is to end after this step."""
        return self._asked > 0

    def _receive(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._asked and now - self._asked > _ECHO:
            os._exit(128 + number)  # checkpoints are whole at any instant: nothing to clean up
        self._asked = self._asked or now
