"""What a run writes: tables, samples, histograms, events and status.json."""

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
from grpo_ablate.files import Table, append_jsonl, cut, write_atomic, write_json
from grpo_ablate.metrics import METRICS, Weighted
from grpo_ablate.text import visible

_LIVE = {
    "reward": "reward/mean",
    "entropy": "policy/entropy",
    "length": "completion/length_mean",
}
"""What `status.json` shows of the latest step."""

_GROWING = ("metrics.csv", "eval.csv", "samples.jsonl", "histograms.jsonl", "events.jsonl")
"""Files that a resume cuts to the length they had at its checkpoint."""


class Records:
    """A run's folder. The CSVs are the truth; status.json says where the run stands."""

    def __init__(
        self, folder: Path, config_hash: str, source_hash: str, steps: int, *, device: str = ""
    ) -> None:
        """Take over the folder: status becomes `running`.

        Args:
            folder: of the run.
            config_hash: of its configuration.
            source_hash: of the code that runs it, which a report holds against the manifest's.
            steps: of the whole run.
            device: what it computes on; runs of two kinds are not compared.
        """
        self.folder = folder
        self.hash = config_hash
        self._began = time.monotonic()
        self._earlier = 0.0
        self._written = 0.0
        self._status: dict[str, Any] = {
            "state": "running",
            "hash": config_hash,
            "source": source_hash,
            "device": device,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "step": 0,
            "steps": steps,
            "latest": {},
        }
        self._write_status()

    def start(self, score_columns: Sequence[str], *, anew: bool = True) -> None:
        """Begin the tables anew, or go on with those there are."""
        self._metrics = Table(self.folder / "metrics.csv", ["step", *METRICS], anew=anew)
        self._eval = Table(self.folder / "eval.csv", ["step", *score_columns], anew=anew)
        if anew:
            for name in _GROWING[2:]:
                write_atomic(self.folder / name, "")

    def position(self) -> dict[str, Any]:
        """Return how much is written so far: what `go_back` takes."""
        lengths = {name: (self.folder / name).stat().st_size for name in _GROWING}
        return {"lengths": lengths, "seconds": self._seconds(), "latest": self._status["latest"]}

    def go_back(self, position: Mapping[str, Any], step: int, *, events: bool = True) -> None:
        """Cut the files to what they held at a checkpoint: no row is lost, none doubled.

        Args:
            position: of the checkpoint.
            step: of the checkpoint.
            events: False leaves events.jsonl whole: a rollback is to stay on record.
        """
        for name, length in position["lengths"].items():
            if events or name != "events.jsonl":
                cut(self.folder / name, length)
        if events:
            self._began, self._earlier = time.monotonic(), position["seconds"]
        self._status |= {"step": step, "latest": dict(position["latest"])}
        self._write_status()

    def event(self, line: Mapping[str, Any]) -> None:
        """Append an alarm to events.jsonl."""
        append_jsonl(self.folder / "events.jsonl", [line])
        self._status["alarms"] = self._status.get("alarms", 0) + 1

    def dump(self, name: str, text: str) -> Path:
        """Write a file for a person to read under dumps/."""
        path = self.folder / "dumps" / name
        path.parent.mkdir(exist_ok=True)
        write_atomic(path, text)
        return path

    def progress(self, step: int, row: Mapping[str, Weighted]) -> None:
        """Note the step reached; to disk at most once a second."""
        self._status["step"] = step
        live = {short: row[name] for short, name in _LIVE.items()}
        self._status["latest"] |= {k: value for k, (value, weight) in live.items() if weight > 0}
        if abs(time.time() - self._written) >= 1.0:
            self._write_status()

    def metrics(self, step: int, row: Mapping[str, float]) -> None:
        """Append a row to metrics.csv."""
        self._metrics.append({"step": step, **row})

    def histograms(self, step: int, found: Mapping[str, Any]) -> None:
        """Append a step's histograms to histograms.jsonl."""
        append_jsonl(self.folder / "histograms.jsonl", [{"step": step, **found}])

    def evaluation(self, step: int, evaluation: Evaluation) -> None:
        """Append a row to eval.csv and the answers to samples.jsonl."""
        self._eval.append({"step": step, **evaluation.scores})
        samples = self.folder / "samples.jsonl"
        append_jsonl(samples, ({"step": step, **asdict(s)} for s in evaluation.samples))
        self._status["latest"]["accuracy"] = evaluation.scores["eval/accuracy"]
        self._write_status()

    def end(self, state: str, reason: str = "", best: Mapping[str, Any] | None = None) -> str:
        """Declare the run complete, paused or interrupted, and why; return the state."""
        self._status |= {"state": state} | ({"reason": reason} if reason else {})
        if best:
            self._status["best"] = dict(best)
        self._write_status()
        return state

    def failed(self, error: BaseException) -> None:
        """Declare the run failed, and why."""
        self._status["state"] = "failed"
        # an error may quote a response; whoever prints the reason may be at a terminal
        self._status["reason"] = visible(f"{type(error).__name__}: {error}")
        self._status["traceback"] = "".join(traceback.format_exception(error))
        self._write_status()

    def _write_status(self) -> None:
        self._written = time.time()
        self._status["heartbeat"] = self._written
        self._status["seconds"] = round(self._seconds(), 3)
        write_json(self.folder / "status.json", self._status)

    def _seconds(self) -> float:
        """Return the time at work, by a clock that nobody sets back."""
        return self._earlier + time.monotonic() - self._began


class Silent(Records):
    """What a rank other than 0 records: nothing."""

    def __init__(self, folder: Path, config_hash: str) -> None:
        """Name the folder, whose checkpoints every rank reads."""
        self.folder, self.hash = folder, config_hash

    def start(self, score_columns: Sequence[str], *, anew: bool = True) -> None:
        """Leave the tables to rank 0."""

    def position(self) -> dict[str, Any]:
        """Return nothing: rank 0 saves."""
        return {}

    def go_back(self, position: Mapping[str, Any], step: int, *, events: bool = True) -> None:
        """Leave the files to rank 0."""

    def event(self, line: Mapping[str, Any]) -> None:
        """Leave it to rank 0."""

    def dump(self, name: str, text: str) -> Path:
        """Leave it to rank 0."""
        return self.folder / "dumps" / name

    def progress(self, step: int, row: Mapping[str, Weighted]) -> None:
        """Leave it to rank 0."""

    def metrics(self, step: int, row: Mapping[str, float]) -> None:
        """Leave it to rank 0."""

    def histograms(self, step: int, found: Mapping[str, Any]) -> None:
        """Leave it to rank 0."""

    def evaluation(self, step: int, evaluation: Evaluation) -> None:
        """Leave it to rank 0."""

    def end(self, state: str, reason: str = "", best: Mapping[str, Any] | None = None) -> str:
        """Return the state."""
        return state

    def failed(self, error: BaseException) -> None:
        """Leave it to rank 0, which hears of it."""
