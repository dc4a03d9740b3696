"""Which runs are there, and is one that says so really at work? From files alone; torch-free."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

from grpo_ablate.files import is_locked, read_json

STALE_AFTER = 900.0
"""Seconds without a sign of life after which a run on another machine counts as dead."""


def run_folders(output_dir: Path) -> list[Path]:
    """Return the run folders of a study, by arm and seed."""
    return sorted(path.parent for path in output_dir.glob("*/seed=*/manifest.json"))


def status(folder: Path) -> dict[str, Any]:
    """Return status.json, its state corrected where its writer could not.

    On this machine the kernel knows: a run whose lock nobody holds has died. On another one only
    the heartbeat tells, and an old one makes the run `stale`. A heartbeat from the future (a clock
    set back) counts as now.
    """
    found = read_json(folder / "status.json")
    if not found:
        return {"state": "waiting"}
    if found.get("state") != "running":
        return found
    if found.get("host") == socket.gethostname():
        if not is_locked(folder / ".lock"):
            found |= {"state": "failed", "reason": "its process died without a word"}
        return found
    silent = time.time() - float(found.get("heartbeat", time.time()))
    if silent > STALE_AFTER:
        reason = f"no sign of life from {found.get('host')} for {silent / 60:.0f} minutes"
        found |= {"state": "stale", "reason": reason}
    return found


def elsewhere(folder: Path) -> bool:
    """Tell whether another machine is at work in this folder: its lock may not reach us."""
    found = status(folder)
    return found["state"] == "running" and found.get("host") != socket.gethostname()
