"""From run folders to data frames, in whatever state the runs are."""

from __future__ import annotations

from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from grpo_ablate import liveness
from grpo_ablate.files import read_json, read_jsonl, whole_lines
from grpo_ablate.manifest import load_config
from grpo_ablate.monitor import CHANGING
from grpo_ablate.text import one_line


@dataclass(frozen=True)
class Run:
    """One arm × seed as its folder tells it."""

    folder: Path
    arm: str
    seed: int
    baseline: str
    """The arm it is to be compared with."""
    conditions: tuple[str, ...]
    """What was typed beside arm and seed."""
    state: str
    """complete, running, waiting, failed, interrupted, paused or stale; see `liveness`."""
    reason: str
    """Why it is not complete; empty otherwise."""
    code_changed: bool
    """The source changed between the freeze and the start of this run."""
    deviated: bool
    """Resumed with another configuration, or an alarm changed its learning rate: no clean arm."""
    seconds: float
    metrics: pd.DataFrame
    """metrics.csv, indexed by step; empty before the first row."""
    evals: pd.DataFrame
    """eval.csv, indexed by step."""
    events: list[dict[str, Any]] = field(default_factory=list)
    """events.jsonl: the alarms."""
    config: dict[str, Any] = field(default_factory=dict)
    """config.yaml as it was frozen; empty where the folder has none."""
    manifest: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return arm and seed as their folders are named, wherever the study lies."""
        return f"{self.arm}/seed={self.seed}"


def read_run(folder: Path) -> Run:
    """Read one run folder; missing or half-written files give empty frames."""
    status, manifest = liveness.status(folder), read_json(folder / "manifest.json")
    events = read_jsonl(folder / "events.jsonl")
    return Run(
        folder=folder,
        arm=manifest["arm"],
        seed=manifest["seed"],
        baseline=manifest["baseline"],
        conditions=tuple(manifest.get("conditions", ())),
        state=status.get("state", "waiting"),
        reason=_first_line(status.get("reason", "")),
        code_changed=status.get("source") not in (None, manifest.get("code", {}).get("source")),
        deviated=bool(manifest.get("deviations"))
        or any(event["action"] in CHANGING for event in events),
        seconds=float(status.get("seconds", 0.0)),
        metrics=_frame(folder / "metrics.csv"),
        evals=_frame(folder / "eval.csv"),
        events=events,
        config=load_config(folder) if (folder / "config.yaml").is_file() else {},
        manifest=manifest,
        status=status,
    )


def read_study(output_dir: Path) -> list[Run]:
    """Read every run under an output folder, by arm and seed."""
    runs = [read_run(folder) for folder in liveness.run_folders(output_dir)]
    return sorted(runs, key=lambda run: (run.arm != run.baseline, run.arm, run.seed))


def _frame(path: Path) -> pd.DataFrame:
    """Read a CSV by step; empty before its first row."""
    lines = whole_lines(path)
    if len(lines) < 2:
        return pd.DataFrame()
    return pd.read_csv(StringIO("".join(lines)), index_col="step")


def _first_line(text: Any) -> str:
    """Return what fits a table, with nothing in it that acts on a terminal."""
    return one_line(str(text).splitlines()[0]) if text else ""
