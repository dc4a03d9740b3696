"""Where each run stands, for a person at a terminal or a log file: read from status.json alone.

So it works the same whatever launcher started the runs, on this machine or another.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from grpo_ablate.files import read_json

_POLL = 0.5
"""Seconds between looks."""


class Display:
    """Shows runs while the block lasts: live lines on a terminal, plain lines elsewhere."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Prepare; nothing is shown yet."""
        self._folders = list(folders)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Display:
        """Start watching."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Show the last state once more and stop."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        console = Console(file=sys.stdout)
        if console.is_terminal:
            self._watch_live(console)
        else:
            self._watch_plain()

    def _watch_live(self, console: Console) -> None:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                stopped = self._stop.wait(_POLL)
                lines = [line(folder) for folder in self._folders]
                text = Text("\n".join(lines), no_wrap=True, overflow="ellipsis")
                live.update(text, refresh=True)
                if stopped:
                    return

    def _watch_plain(self) -> None:
        """Print a run's line at its start, at each tenth of its steps, and at its end."""
        shown: dict[Path, tuple[Any, int]] = {}
        while True:
            stopped = self._stop.wait(_POLL)
            for folder in self._folders:
                status = read_json(folder / "status.json")
                mark = (status.get("state"), 10 * status.get("step", 0) // status.get("steps", 1))
                if status and shown.get(folder) != mark:
                    shown[folder] = mark
                    print(line(folder), flush=True)
            if stopped:
                return


def line(folder: Path) -> str:
    """Return one run's state in one line.

    Example: `clip_higher/seed=1  running  step 120/300  48 s  accuracy 0.441  entropy 0.252`.
    """
    status = read_json(folder / "status.json")
    name = f"{folder.parent.name}/{folder.name}"
    if not status:
        return f"{name:<24}  waiting"
    parts = [
        f"{name:<24}  {status['state']:<8}",
        f"step {status.get('step', 0)}/{status.get('steps', '?')}",
        f"{status.get('seconds', 0):.0f} s",
        *(f"{key} {value:.3f}" for key, value in status.get("latest", {}).items()),
    ]
    if status["state"] not in ("running", "complete"):
        parts.append(str(status.get("reason", "")).splitlines()[0])
    return "  ".join(parts)
