"""From a run's files to W&B, live or afterwards: the only module that logs to it.

One W&B row a step, in the order of the steps, so that what the server has is told by one number,
the last `train/step`; rows up to it are never sent again. `python -m grpo_ablate.publish FOLDER
MODE INIT_TIMEOUT FINISH_TIMEOUT` follows a run until its standard input closes.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import re
import select
import signal
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_ablate.files import read_json, read_jsonl, whole_lines
from grpo_ablate.manifest import deviated, load_config
from grpo_ablate.track import later, note

STEP = "train/step"
"""The x-axis of everything: our own, because `wandb sync` renumbers W&B's."""

FILES = (
    "config.yaml",
    "delta.yaml",
    "manifest.json",
    "metrics.csv",
    "eval.csv",
    "samples.jsonl",
    "histograms.jsonl",
    "events.jsonl",
    "curves.png",
    "curves.svg",
)
"""What a run uploads, as SEED/NAME: W&B has a config.yaml of its own."""

_POLL = 2.0
"""Seconds between looks at the files."""

_SETTLED = ("complete", "paused", "interrupted")
"""States in which the last step's rows are all there; a crash may fall between two of them."""


@dataclass
class Row:
    """All that a run's files say about one step."""

    step: int
    scalars: dict[str, float] = field(default_factory=dict)
    histograms: dict[str, dict[str, Any]] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)


def read_rows(folder: Path) -> list[Row]:
    """Return a run's rows by step; a line cut short by a crash is left out."""
    rows: dict[int, Row] = {}

    def at(record: dict[str, Any]) -> Row:
        step = int(record.pop("step"))
        return rows.setdefault(step, Row(step))

    for name in ("metrics.csv", "eval.csv"):
        for record in csv.DictReader(whole_lines(folder / name)):
            at(record).scalars.update({k: float(v) for k, v in record.items() if v})
    for record in read_jsonl(folder / "histograms.jsonl"):
        at(record).histograms.update(record)
    for record in read_jsonl(folder / "samples.jsonl"):
        at(record).samples.append(record)
    return [rows[step] for step in sorted(rows)]


def settled(folder: Path) -> list[Row]:
    """Return the rows to which nothing will be added.

    A run at work has written all of a step once metrics.csv has a later one, so state and last
    step are looked at before the rows are read.
    """
    state = read_json(folder / "status.json").get("state")
    steps = [int(row["step"]) for row in csv.DictReader(whole_lines(folder / "metrics.csv"))]
    rows = read_rows(folder)
    return [row for row in rows if state in _SETTLED or row.step < max(steps, default=0)]


def identity(folder: Path) -> dict[str, Any]:
    """Return what a run is to W&B: the arguments of `wandb.init` that name and describe it.

    Project = study, group = arm; the id depends on study, arm, seed and configuration hash alone,
    so that a resumed or pushed run is the same run.
    """
    manifest = read_json(folder / "manifest.json")
    config, arm, seed = load_config(folder), manifest["arm"], manifest["seed"]
    moved = {key: now for key, (_, now) in manifest["delta"].items() if now is not None}
    axes = sorted({key.split(".")[0] for key in moved})
    named = [str(now) for key, now in moved.items() if key.endswith(".name")]
    knobs = [f"{key}={now}" for key, now in moved.items() if not key.endswith(".name")]
    axis, value = "+".join(axes) or "baseline", "+".join(named or knobs) or "baseline"
    facts = {"arm": arm, "axis": axis, "value": value, "is_baseline": arm == manifest["baseline"]}
    return {
        "project": project(config["study"]),
        "group": arm,
        "job_type": "train",
        "name": f"{arm}/s{seed}",
        "id": run_id(config["study"], arm, seed, manifest["hash"]),
        "config": {**deviated(folder, config), "ablation": facts},
        "tags": sorted({text[:64] for text in (*axes, *named, *knobs, axis, value)}),
    }


def project(study: str) -> str:
    """Return a study's name as W&B allows it for a project."""
    return re.sub(r"[/\\#?%:]", "-", study)[:128]


def run_id(*parts: Any) -> str:
    """Return an id that depends on these parts alone."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def problem() -> str:
    """Say why W&B cannot be used here; empty where it can."""
    os.environ.setdefault("WANDB_SILENT", "true")  # we say what there is to say, in one line
    try:
        import wandb  # noqa: F401
        import wandb_workspaces  # noqa: F401
    except ImportError as error:
        return f"W&B is not installed ({error}); pip install 'grpo-ablate[wandb]'"
    except Exception as error:  # half installed, or of a version that does not fit
        return f"wandb cannot be imported ({type(error).__name__}: {error}); install it anew"
    return ""


def no_key() -> str:
    """Say that there is no API key or no server to take it; empty where there is. Never asks."""
    import wandb as sdk

    try:
        # asks at a terminal unless told not to
        return "" if sdk.login(prompt=False) else "no W&B API key; set WANDB_API_KEY"
    except sdk.Error as error:
        return _first_line(error)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"


def connect(
    who: dict[str, Any], folder: Path, mode: str, init_timeout: float, finish_timeout: float
) -> tuple[Any, str]:
    """Start or resume a W&B run; offline where there is no key, or no answer in time.

    Args:
        who: see `identity`.
        folder: W&B keeps its own files under it.
        mode: auto or offline.
        init_timeout: seconds.
        finish_timeout: seconds for `run.finish()`.

    Returns:
        The run, and why it is offline; empty where it is online.
    """
    import wandb as sdk

    settings = sdk.Settings(
        init_timeout=init_timeout,
        finish_timeout=finish_timeout,
        console="off",
        silent=True,
        save_code=False,
        disable_git=True,
        disable_job_creation=True,
    )
    why = "tracker.mode=offline"
    if mode == "auto":
        why = no_key()
    if not why:
        try:
            return sdk.init(**who, dir=folder, mode="online", resume="allow", settings=settings), ""
        except sdk.Error as error:
            why = _first_line(error)
    sdk.teardown()  # what waits for an answer that will not come would keep us waiting too
    return sdk.init(**who, dir=folder, mode="offline", settings=settings), why


class Publisher:
    """Sends a run's rows to one W&B run, each once."""

    def __init__(self, run: Any, folder: Path) -> None:
        """Find out what the server has."""
        self.run, self._folder = run, folder
        self.step = int(run.summary.get(STEP, -1)) if run.resumed else -1
        """The last step sent."""
        run.define_metric(STEP)
        run.define_metric("*", step_metric=STEP)

    def send(self, rows: Iterable[Row]) -> int:
        """Log the rows that are new; return their number."""
        new = [row for row in rows if row.step > self.step]
        for row in new:
            self.run.log({STEP: row.step, **_logged(row)})
            self.step = row.step
        return len(new)

    def alert(self, events: Iterable[dict[str, Any]]) -> None:
        """Send alarms as alerts."""
        for event in events:
            level = "INFO" if event["action"] == "warn" else "WARN"
            title = f"{event['monitor']} ({event['action']}), step {event['step']}"
            self.run.alert(title, f"{self.run.name}: {event['message']}", level=level)


def _logged(row: Row) -> dict[str, Any]:
    import wandb as sdk

    logged: dict[str, Any] = {k: v for k, v in row.scalars.items() if math.isfinite(v)}
    for name, bins in row.histograms.items():
        width = (bins["high"] - bins["low"]) / len(bins["counts"])
        edges = [bins["low"] + width * i for i in range(len(bins["counts"]) + 1)]
        logged[name] = sdk.Histogram(np_histogram=(bins["counts"], edges))
    if row.samples:
        columns = list(row.samples[0])
        data = [[sample[name] for name in columns] for sample in row.samples]
        logged["eval/samples"] = sdk.Table(columns=columns, data=data)
    return logged


def events(folder: Path) -> list[dict[str, Any]]:
    """Return a run's alarms."""
    return read_jsonl(folder / "events.jsonl")


def follow(folder: Path, mode: str, init_timeout: float, finish_timeout: float) -> None:
    """Publish a run as it grows, until standard input closes: its process ended."""
    run, why = connect(identity(folder), folder, mode, init_timeout, finish_timeout)
    url = None if why else run.url
    note(folder, why=why, url=url)
    print(f"W&B: {url or f'offline, {why}; later: {later(folder)}'}", flush=True)
    publisher = Publisher(run, folder)
    before, told, over = publisher.step, 0, False
    while not over:
        over = bool(select.select([sys.stdin], [], [], _POLL)[0])
        publisher.send(settled(folder))
        alarms = [event for event in events(folder) if event["step"] > before]
        publisher.alert(alarms[told:])
        told = len(alarms)
    # orphans of a killed worker end themselves, even inside the SDK
    signal.alarm(math.ceil(finish_timeout) + 1)
    for name in FILES:
        if (folder / name).is_file():
            run.save(folder / name, base_path=folder.parent, policy="now")
    state = read_json(folder / "status.json").get("state")
    run.finish(exit_code=0 if state == "complete" else 1)
    note(folder, sent=publisher.step)


def main(argv: list[str]) -> int:
    """Follow a run; whatever goes wrong with W&B is noted in one line.

    Returns:
        0, or 1 where W&B failed.
    """
    folder, mode, *timeouts = argv
    os.environ.setdefault("WANDB_SILENT", "true")
    try:
        follow(Path(folder), mode, *map(float, timeouts))
    except Exception as error:  # a sink of somebody else's code: anything may come out of it
        note(Path(folder), error=" ".join(f"{type(error).__name__}: {error}".split())[:300])
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
