"""What report.html shows, as plain values: runs as curves and samples, verdicts where there are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd

from grpo_ablate.analysis import columns
from grpo_ablate.analysis.cost import spent_by
from grpo_ablate.analysis.load import Run, read_study
from grpo_ablate.files import read_jsonl
from grpo_ablate.text import one_line, visible

PANELS: tuple[dict[str, Any], ...] = (
    {"title": "held-out accuracy (greedy)", "source": "evals", "series": ["eval/accuracy"]},
    {"title": "training reward", "source": "metrics", "series": ["reward/mean"], "all": True},
    {"title": "entropy (nats per token)", "source": "metrics", "series": ["policy/entropy"]},
    {
        "title": "response length (tokens)",
        "source": "metrics",
        "series": ["completion/length_mean"],
    },
    {
        "title": "importance ratio: p99, and p01 dotted",
        "source": "metrics",
        "series": ["ratio/p99", "ratio/p01"],
    },
    {
        "title": "clipped tokens: high, and low dotted",
        "source": "metrics",
        "series": ["ratio/clip_frac_high", "ratio/clip_frac_low"],
    },
    {
        "title": "gradient norm, before clipping",
        "source": "metrics",
        "series": ["optim/grad_norm"],
    },
    {
        "title": "dead groups, and dropped ones dotted",
        "source": "metrics",
        "series": ["reward/frac_zero_std", "sampling/filter_ratio"],
    },
    {
        "title": "activity of the lever the arm moves",
        "source": "metrics",
        "series": ["technique/activity"],
    },
)
"""What is drawn; an alarm whose signal is in no panel is marked where `all` is."""

_FIRST_JUDGED = 300
"""Steps before which nothing is judged (article: X4)."""

_DIGITS = 5
"""Significant digits of a drawn value: beyond what a screen shows."""


def gather(
    output_dir: Path,
    report: Mapping[str, Any] | None = None,
    runs: Sequence[Run] | None = None,
) -> dict[str, Any]:
    """Return all that the page shows.

    Args:
        output_dir: of the study.
        report: the verdicts, as `analysis.report.build` returns them; without it the page has
            curves, samples and end values only.
        runs: of the study, where they have been read already.
    """
    runs = read_study(output_dir) if runs is None else runs
    judged = {row["arm"]: row for row in (report or {}).get("baselines", [])}
    judged |= {row["arm"]: row for row in (report or {}).get("arms", [])}
    design = (report or {}).get("study", {"earliest": _FIRST_JUDGED})
    stopped = [run for run in runs if run.state not in ("complete", "running", "waiting")]
    missing = [f"{run.arm}, seed {run.seed}: {run.state}. {run.reason}" for run in stopped]
    deviated = [
        f"{run.arm}, seed {run.seed} was resumed with other settings: no clean arm"
        for run in runs
        if run.deviated
    ]
    data = {
        "study": one_line(_study(runs, output_dir)),
        "summary": _summary(runs),
        "columns": columns.of(report),
        "arms": [
            _arm(name, list(members), judged.get(name))
            for name, members in groupby(runs, lambda run: run.arm)
        ],
        "runs": [_run(run) for run in runs],
        "panels": [dict(panel) for panel in PANELS],
        "marks": sorted({int(design[key]) for key in ("earliest", "horizon") if key in design}),
        "log_every": max((_gap(run.metrics) for run in runs), default=1),
        "caption": _caption(runs),
        "forest": columns.forest(report),
        "tables": columns.tables(report),
        "missing": [one_line(text, 600) for text in (_lacking(report) if report else missing)],
        "warnings": [one_line(text, 600) for text in (report or {}).get("warnings", deviated)],
    }
    return data


def _lacking(report: Mapping[str, Any]) -> list[str]:
    rows = report["missing"]
    return [f"{row['what']}: {row['command']}" if row["command"] else row["what"] for row in rows]


def _arm(name: str, runs: Sequence[Run], judged: Mapping[str, Any] | None) -> dict[str, Any]:
    done = sum(run.state == "complete" for run in runs)
    delta = runs[0].manifest.get("delta", {})
    cells = {
        "finished": f"{done}/{len(runs)}",
        "accuracy": _last([run.evals for run in runs], "eval/accuracy"),
        "reward": _last([run.metrics for run in runs], "reward/mean"),
        "entropy": _last([run.metrics for run in runs], "policy/entropy"),
        "length": _last([run.metrics for run in runs], "completion/length_mean"),
        "alarms": sum(len(run.events) for run in runs),
    }
    return {
        "name": one_line(name),
        "baseline": one_line(runs[0].baseline),
        "is_baseline": name == runs[0].baseline,
        "cells": cells | (columns.cells(judged) if judged else {}),
        "notes": columns.notes(judged) if judged else [],
        "delta": [
            [one_line(key), *(one_line("–" if v is None else str(v)) for v in pair)]
            for key, pair in delta.items()
        ],
    }


def _last(frames: Sequence[pd.DataFrame], name: str) -> float | None:
    """Return the mean of the frames' last values; None where there is none."""
    values = [frame[name].iloc[-1] for frame in frames if name in frame]
    finite = [float(value) for value in values if math.isfinite(value)]
    return _rounded(sum(finite) / len(finite)) if finite else None


def _run(run: Run) -> dict[str, Any]:
    drawn: dict[str, list[str]] = {"metrics": [], "evals": []}
    for panel in PANELS:
        drawn[panel["source"]] += panel["series"]
    return {
        "arm": one_line(run.arm),
        "seed": run.seed,
        "state": run.state,
        "reason": one_line(run.reason),
        "metrics": _series(run.metrics, drawn["metrics"], run.metrics),
        "evals": _series(run.evals, drawn["evals"], run.metrics),
        "alarms": [
            {
                "step": event["step"],
                "signal": event["signal"],
                "message": one_line(f"{event['monitor']} ({event['action']}) {event['message']}"),
            }
            for event in run.events
        ],
        "samples": _samples(run.folder / "samples.jsonl"),
    }


def _series(frame: pd.DataFrame, names: Sequence[str], metrics: pd.DataFrame) -> dict[str, Any]:
    """Return a table's columns with three x-axes: step, tokens and seconds used up to it."""
    steps = [int(step) for step in frame.index]
    there = [name for name in names if name in frame]
    return {
        "step": steps,
        "tokens": _used(metrics, "perf/generated_tokens", steps),
        "seconds": _used(metrics, "perf/seconds", steps),
        "values": {name: [_rounded(value) for value in frame[name]] for name in there},
    }


def _used(metrics: pd.DataFrame, name: str, steps: Sequence[int]) -> list[float | None]:
    """Return what had been used at each step, between two rows in proportion to the steps."""
    if name not in metrics:
        return [0.0 if step == 0 else None for step in steps]
    return [_rounded(float(v), 8) for v in spent_by(metrics[name], steps, beyond=math.nan)]


def _rounded(value: float, digits: int = _DIGITS) -> float | None:
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def _samples(path: Path) -> list[dict[str, Any]]:
    """Return the answers of the first and the last evaluation."""
    records = read_jsonl(path)
    steps = sorted({record["step"] for record in records})
    return [
        {
            "step": step,
            "rows": [
                {key: visible(str(record[key])) for key in ("prompt", "answer", "completion")}
                | {"reward": _rounded(float(record["reward"]))}
                for record in records
                if record["step"] == step
            ],
        }
        for step in sorted({*steps[:1], *steps[-1:]})
    ]


def _study(runs: Sequence[Run], output_dir: Path) -> str:
    names = {run.manifest.get("study", "") for run in runs}
    return ", ".join(sorted(filter(None, names))) or output_dir.name


def _summary(runs: Sequence[Run]) -> str:
    states: dict[str, int] = {}
    for run in runs:
        states[run.state] = states.get(run.state, 0) + 1
    arms, seeds = len({run.arm for run in runs}), len({run.seed for run in runs})
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return f"{arms} arms × {seeds} seeds: {counts}"


def _caption(runs: Sequence[Run]) -> str:
    counts = sorted({len({r.seed for r in runs if r.arm == run.arm}) for run in runs})
    n = "–".join(str(count) for count in sorted({*counts[:1], *counts[-1:]})) or "0"
    horizon = max((int(run.evals.index[-1]) for run in runs if not run.evals.empty), default=0)
    return (
        f"Thick: mean over the seeds of an arm (n = {n}), at steps that all of them have; thin: one"
        f" seed; [ ]: least and greatest seed; to step {horizon}. No smoothing. Upright dots: the"
        " step before which nothing is judged, and the horizon. ▲ an alarm."
    )


def _gap(frame: pd.DataFrame) -> int:
    return int(frame.index[-1] - frame.index[-2]) if len(frame) > 1 else 1
