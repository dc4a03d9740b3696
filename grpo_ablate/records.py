"""What a run writes: metrics.csv, eval.csv, samples.jsonl and status.json."""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grpo_ablate.evaluation import Evaluation
from grpo_ablate.files import Table, append_jsonl, write_atomic, write_json
from grpo_ablate.metrics import METRICS, Weighted

_LIVE = {
    "reward": "reward/mean",
    "entropy": "policy/entropy",
    "length": "completion/length_mean",
}
"""What `status.json` shows of the latest step."""


class Records:
    """A run's folder. The CSVs are the truth; status.json says where the run stands."""

    def __init__(self, folder: Path, config_hash: str, source_hash: str, steps: int) -> None:
        """Take over the folder: status becomes `running`.

        Args:
            folder: of the run.
            config_hash: of its configuration.
            source_hash: of the code that runs it, which a report holds against the manifest's.
            steps: of the whole run.
        """
        self.folder = folder
        self._began = time.time()
        self._written = 0.0
        self._status: dict[str, Any] = {
            "state": "running",
            "hash": config_hash,
            "source": source_hash,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "step": 0,
            "steps": steps,
            "latest": {},
        }
        self._write_status()

    def start(self, score_columns: Sequence[str]) -> None:
        """Begin the tables anew."""
        self._metrics = Table(self.folder / "metrics.csv", ["step", *METRICS])
        self._eval = Table(self.folder / "eval.csv", ["step", *score_columns])
        write_atomic(self.folder / "samples.jsonl", "")

    def progress(self, step: int, row: Mapping[str, Weighted]) -> None:
        """Note the step reached; to disk at most once a second."""
        self._status["step"] = step
        live = {short: row[name] for short, name in _LIVE.items()}
        self._status["latest"] |= {k: value for k, (value, weight) in live.items() if weight > 0}
        if time.time() - self._written >= 1.0:
            self._write_status()

    def metrics(self, step: int, row: Mapping[str, float]) -> None:
        """Append a row to metrics.csv."""
        self._metrics.append({"step": step, **row})

    def evaluation(self, step: int, evaluation: Evaluation) -> None:
        """Append a row to eval.csv and the answers to samples.jsonl."""
        self._eval.append({"step": step, **evaluation.scores})
        samples = self.folder / "samples.jsonl"
        append_jsonl(samples, ({"step": step, **asdict(s)} for s in evaluation.samples))
        self._status["latest"]["accuracy"] = evaluation.scores["eval/accuracy"]
        self._write_status()

    def complete(self) -> None:
        """Declare the run finished."""
        self._status["state"] = "complete"
        self._write_status()

    def failed(self, error: BaseException) -> None:
        """Declare the run failed, and why."""
        self._status["state"] = "failed"
        self._status["reason"] = f"{type(error).__name__}: {error}"
        self._status["traceback"] = "".join(traceback.format_exception(error))
        self._write_status()

    def _write_status(self) -> None:
        self._written = time.time()
        self._status["heartbeat"] = self._written
        self._status["seconds"] = round(self._written - self._began, 3)
        write_json(self.folder / "status.json", self._status)
