"""SIGTERM and Ctrl-C as a request: finish the step, save, go. A second one ends at once.

A scheduler's warning before the time limit (SIGUSR1 or SIGUSR2) is the same request, however often
it comes. A worker hears it as `Interrupt`; a sweep passes it on to its workers with `stop_workers`,
a launcher's process with `warned_first`.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from grpo_ablate.files import is_locked, lock, read_json

_ECHO = 0.3
"""Seconds in which a second signal is the same request: a terminal and a parent both send one."""

_STOPPING = ".stopping"

_WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)
"""What SLURM (`--signal`) and submitit send before the time limit. SLURM sends it to each process
of the job, and submitit's own may pass it on: to hear it twice is no second request."""


class Interrupt:
    """Remembers that somebody wants the run to end; call it to ask."""

    def __init__(self) -> None:
        """Take over these signals."""
        self._asked = 0.0
        for number in (signal.SIGTERM, signal.SIGINT, *_WARNINGS):
            signal.signal(number, self._receive)

    def __call__(self) -> bool:
        """Tell whether the run is to end after this step."""
        return self._asked > 0

    def _receive(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._asked and now - self._asked > _ECHO and number not in _WARNINGS:
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


@contextmanager
def warned_first(pid: int) -> Iterator[None]:
    """Let a child save and go before this process acts on a scheduler's warning itself.

    submitit's handler requeues the job, and SLURM then kills what is left of it within seconds:
    a worker in the midst of a long step would lose that step. So its turn comes first.

    Args:
        pid: of a child, which is not waited for here but by its owner.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # no thread but the main one may take over signals
        return
    before = {number: signal.getsignal(number) for number in _WARNINGS}

    def warn(number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        # WNOWAIT: whoever owns the child is in the midst of waiting for it, and reaps it
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for number in _WARNINGS:
        signal.signal(number, warn)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
