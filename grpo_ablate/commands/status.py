"""`python -m grpo_ablate status [FOLDER]`: where each run stands, live on a terminal."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from grpo_ablate import liveness
from grpo_ablate.text import one_line

_COLUMNS = ("arm", "seed", "state", "step", "seconds", "accuracy", "entropy", "alarms", "why")


def main(argv: list[str]) -> int:
    """Show a table of runs; on a terminal until Ctrl-C, elsewhere or with --once one time.

    Returns:
        0 all complete, 2 no runs there, 3 otherwise.
    """
    parser = argparse.ArgumentParser(prog="python -m grpo_ablate status")
    parser.add_argument("folder", nargs="?", default="multirun_outputs", type=Path)
    parser.add_argument("--once", action="store_true", help="print once and leave")
    args = parser.parse_args(argv)
    if not liveness.run_folders(args.folder):
        print(f"grpo_ablate: no runs under {args.folder}; name the output_dir of a study")
        return 2
    console = Console(file=sys.stdout)
    if args.once or not console.is_terminal:
        Console(file=sys.stdout, width=140).print(table(args.folder))
    else:
        _watch(console, args.folder)
    states = [liveness.status(folder)["state"] for folder in liveness.run_folders(args.folder)]
    return 0 if all(state == "complete" for state in states) else 3


def table(output_dir: Path) -> Table:
    """Return a row for each run."""
    shown = Table(box=None, pad_edge=False)
    for name in _COLUMNS:
        shown.add_column(name)
    for folder in liveness.run_folders(output_dir):
        shown.add_row(*_row(folder, liveness.status(folder)))
    return shown


def _row(folder: Path, status: dict[str, Any]) -> list[str]:
    latest = status.get("latest", {})
    reason = str(status.get("reason", "")) if status["state"] != "complete" else ""
    return [
        folder.parent.name,
        folder.name.removeprefix("seed="),
        status["state"],
        f"{status.get('step', 0)}/{status.get('steps', '?')}",
        f"{status.get('seconds', 0):.0f}",
        *(f"{latest[key]:.3f}" if key in latest else "-" for key in ("accuracy", "entropy")),
        str(status.get("alarms", 0)),
        escape(one_line(reason.splitlines()[0])) if reason else "",
    ]


def _watch(console: Console, output_dir: Path) -> None:
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                live.update(table(output_dir), refresh=True)
                time.sleep(1.0)
        except KeyboardInterrupt:
            return
