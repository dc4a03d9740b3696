"""`python -m grpo_ablate push [FOLDER]`: send finished runs to W&B, from their own files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from grpo_ablate import liveness, publish

_INIT, _FINISH = 30.0, 120.0
"""Seconds; a push is waited for."""


def main(argv: list[str]) -> int:
    """Send every run that is not at work, each row and file once, then the study's report.

    Returns:
        0 everything is there, 2 bad input, 3 some runs could not be sent.
    """
    parser = argparse.ArgumentParser(prog="python -m grpo_ablate push")
    parser.add_argument("folder", nargs="?", default="multirun_outputs", type=Path)
    folder = parser.parse_args(argv).folder
    folders = liveness.run_folders(folder)
    problem = f"no runs under {folder}; name the output_dir of a study"
    if folders:
        problem = publish.problem() or publish.no_key()
    if problem:
        print(f"grpo_ablate: {problem}", file=sys.stderr)
        return 2
    failed = 0
    for run in folders:
        try:
            print(f"{run.parent.name}/{run.name}: {push(run)}", flush=True)
        except Exception as error:  # a server and an SDK of somebody else: this run's end only
            failed += 1
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"{run.parent.name}/{run.name}: not sent: {reason[:300]}", flush=True)
    if not failed and (folder / "report").is_dir():
        print(f"report: {push_report(folder, publish.identity(folders[0])['project'])}")
    return 3 if failed else 0


def push(folder: Path) -> str:
    """Send what the server lacks of one run; say what that was.

    Raises:
        Exception: whatever the SDK raises.
    """
    if liveness.status(folder)["state"] == "running":
        return "at work; left to its own process"
    who = publish.identity(folder)
    rows, remote = publish.settled(folder), _find(who)
    sent = 0
    if remote is None or _last_step(remote) < max((row.step for row in rows), default=-1):
        sent, remote = _send(who, folder, rows), None
    remote = remote or _find(who)
    paths = [folder / name for name in publish.FILES]
    files = _upload(remote, (path for path in paths if path.is_file()), folder.parent)
    return f"{sent} rows, {files} files sent" if sent or files else "up to date"


def push_report(output_dir: Path, project: str) -> str:
    """Send a study's report, as files of a run called `report`; say what was sent."""
    who = {
        "project": project,
        "name": "report",
        "job_type": "eval",
        "id": publish.run_id(project, "report"),
    }
    remote = _find(who)
    if remote is None:
        _send(who, output_dir, [])
        remote = _find(who)
    paths = sorted(path for path in (output_dir / "report").rglob("*") if path.is_file())
    count = _upload(remote, paths, output_dir)
    return f"{count} files sent" if count else "up to date"


def _send(who: dict[str, Any], folder: Path, rows: Iterable[publish.Row]) -> int:
    run, why = publish.connect(who, folder, "auto", _INIT, _FINISH)
    if why:
        run.finish()
        raise ConnectionError(why)
    sent = publish.Publisher(run, folder).send(rows)
    state = liveness.status(folder)["state"]
    run.finish(exit_code=0 if state in ("complete", "waiting") else 1)
    return sent


def _find(who: dict[str, Any]) -> Any:
    """Return the run as the server has it; None where it does not."""
    import wandb

    try:
        return wandb.Api(timeout=int(_INIT)).run(f"{who['project']}/{who['id']}")
    except wandb.CommError as error:
        if "Could not find" in str(error):
            return None
        raise


def _last_step(remote: Any) -> int:
    return int(remote.summary.get(publish.STEP, -1))


def _upload(remote: Any, paths: Iterable[Path], root: Path) -> int:
    """Send files of which the server has none, or one of another size; return their number."""
    there = {file.name: file.size for file in remote.files()}
    new = [p for p in paths if there.get(p.relative_to(root).as_posix()) != p.stat().st_size]
    for path in new:
        remote.upload_file(str(path), root=str(root))
    return len(new)
