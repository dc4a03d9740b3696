"""SIGTERM and Ctrl-C as a request: finish the step, save, go. A second one ends at once.

A worker hears it as `Interrupt`; a sweep passes it on to its workers with `stop_workers`.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from grpo_ablate.files import is_locked, lock, read_json

_ECHO = 0.3
"""Seconds in which a second signal is the same request: a terminal and a parent both send one."""

_STOPPING = ".stopping"


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


def stop_workers(output_dir: Path, folders: Iterable[Path]) -> None:
    """Ask each worker of this machine to save and go, and wait until all have.

    A launcher with processes of its own (joblib) kills them and all they started as soon as the
    sweep ends: without the wait a worker would die in the middle of its step.

    Args:
        output_dir: of the study; while we wait, `stopping(output_dir)` keeps jobs from starting.
        folders: the runs of the sweep.
    """
    with lock(output_dir / _STOPPING, patience=1.0):
        asked = [folder for folder in folders if _ask(folder)]
        while any(is_locked(folder / ".lock") for folder in asked):
            time.sleep(0.05)


def stopping(output_dir: Path) -> bool:
    """Tell whether a sweep in this folder is being stopped."""
    return is_locked(output_dir / _STOPPING)


def _ask(folder: Path) -> bool:
    """Send SIGTERM to the process at work in a run folder of this machine, if there is one."""
    status = read_json(folder / "status.json")
    here = status.get("state") == "running" and status.get("host") == socket.gethostname()
    if not (here and is_locked(folder / ".lock")):
        return False
    with suppress(ProcessLookupError):  # it has just ended
        os.kill(status["pid"], signal.SIGTERM)
    return True
