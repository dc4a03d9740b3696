"""The recorded runs, judged; and which arms the article's table has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from grpo_ablate import study
from grpo_ablate.analysis import report
from grpo_ablate.analysis.load import Run, read_study

TAIL = 5  # logged rows, of ten steps each, that an end value is the mean of

BASE = "standard"
CLIP, DYNAMIC, NO_STD = (f"{BASE}+{name}" for name in ("clip_higher", "dynamic_sampling", "no_std"))
STACK = f"{CLIP}+dynamic_sampling"


@dataclass(frozen=True)
class Study:
    """One folder of runs, judged."""

    runs: list[Run]
    found: dict[str, Any]

    def end(self, arm: str, column: str) -> dict[int, float]:
        """Return seed → mean of the last rows of a metric, of an arm's complete runs."""
        members = [run for run in self.runs if run.arm == arm and run.state == "complete"]
        return {run.seed: float(run.metrics[column].tail(TAIL).mean()) for run in members}

    def start(self, arm: str, column: str) -> float:
        """Return the first logged row's mean over seeds."""
        done = [run for run in self.runs if run.arm == arm and run.state == "complete"]
        return fmean(float(run.metrics[column].iloc[0]) for run in done)

    def scores(self, arm: str) -> dict[int, float]:
        """Return seed → held-out score, of finished runs."""
        rows = self.found["runs"]
        return {row["seed"]: row["score"] for row in rows if row["arm"] == arm and row["finished"]}

    def arm(self, name: str) -> dict[str, Any]:
        """Return the report's row of an arm."""
        return next(row for row in self.found["arms"] if row["arm"] == name)


def judged(folder: Path) -> Study | None:
    """Read and judge one study; None where it has not been run."""
    runs = read_study(folder) if folder.is_dir() else []
    return Study(runs, report.build(runs, study.read(folder))) if runs else None
