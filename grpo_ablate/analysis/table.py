"""The table at the end of a sweep, and where to look next."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from grpo_ablate.analysis.load import Run

_COLUMNS = ("arm", "seed", "state", "accuracy", "reward", "entropy", "length", "seconds")


def render(runs: Sequence[Run]) -> str:
    """Return a table arm × seed: first and last held-out accuracy, last logged metrics.

    Reward, entropy and length are of the last row of metrics.csv: the mean of its window.
    """
    table = Table(box=None, pad_edge=False)
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name in ("arm", "state") else "right")
    for run in runs:
        table.add_row(*_row(run))
    return plain(table, 110)


def plain(table: Table, width: int) -> str:
    """Return a table as text without colours, lines cut at their last character."""
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(text.rstrip() for text in capture.get().splitlines())


def _row(run: Run) -> list[str]:
    accuracy = "-"
    if not run.evals.empty:
        first, last = run.evals["eval/accuracy"].iloc[[0, -1]]
        accuracy = f"{first:.3f} → {last:.3f}"
    last_row = {} if run.metrics.empty else run.metrics.iloc[-1].to_dict()
    numbers = (
        _number(last_row.get("reward/mean"), 3),
        _number(last_row.get("policy/entropy"), 3),
        _number(last_row.get("completion/length_mean"), 1),
    )
    return [run.arm, str(run.seed), run.state, accuracy, *numbers, f"{run.seconds:.0f}"]


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def advice(runs: Sequence[Run], study: Sequence[Run]) -> list[str]:
    """Return what to look at or type next: failures, and comparisons that lack a baseline."""
    lines = [
        f"{run.state}: {run.arm} seed {run.seed}: {run.reason} ({run.folder / 'worker.log'})"
        for run in runs
        if run.state != "complete"
    ]
    lines += [
        f"code changed during the sweep: {run.arm} seed {run.seed} ran on other source than its"
        f" manifest names; remove {run.folder} and run it again"
        for run in runs
        if run.code_changed
    ]
    lines += [
        f"deviated: {run.arm} seed {run.seed} went on with other settings (manifest.json,"
        " or an alarm's in events.jsonl): no clean arm"
        for run in runs
        if run.deviated
    ]
    have = {(run.arm, run.seed) for run in study if run.state == "complete"}
    missing: dict[tuple[str, ...], set[int]] = {}
    for run in runs:
        if (run.baseline, run.seed) not in have:
            missing.setdefault(run.conditions, set()).add(run.seed)
    for conditions, seeds in missing.items():
        typed = "".join(f" {shlex.quote(text)}" for text in conditions)
        listed = ",".join(str(seed) for seed in sorted(seeds))
        lines.append(
            f"nothing to compare with yet: run the baseline on the same seeds:\n"
            f"  python -m grpo_ablate{typed} -m seed={listed}"
        )
    return lines
