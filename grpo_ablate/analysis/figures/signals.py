"""Training signals of one arm, its baseline behind, with the alarms marked (article: M1-M7)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from grpo_ablate.analysis.figures.style import (
    BLUE,
    GREY,
    RED,
    file_name,
    save,
    seeds,
    sheet,
    styled,
)
from grpo_ablate.analysis.load import Run

PANELS: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (("reward/mean",), (), "training reward"),
    (("policy/entropy",), (), "entropy (nats per token)"),
    (("completion/length_mean",), ("completion/length_std",), "response length (tokens)"),
    (("ratio/p01", "ratio/p99"), (), "importance ratio: p01 solid, p99 dashed"),
    (
        ("ratio/clip_frac_low", "ratio/clip_frac_high"),
        (),
        "clipped tokens (share): low solid, high dashed",
    ),
    (("optim/grad_norm",), ("optim/grad_norm_max",), "gradient norm before clipping"),
)
"""Signals drawn, signals whose alarms are marked there too, and the panel's title."""


@styled
def signals(
    runs: Sequence[Run], behind: Sequence[Run], stem_folder: Path, *, horizon: int
) -> list[Path]:
    """Draw one arm's training signals with the alarms marked, the baseline behind.

    Args:
        runs: of the arm.
        behind: of its baseline; empty for the baseline itself.
        stem_folder: where `signals_ARM.png` goes.
        horizon: step at which arms are scored.

    Returns:
        The files written; none where no run has a row.
    """
    known = [run for run in runs if not run.metrics.empty]
    if not known:
        return []
    arm = known[0].arm
    figure, axes = sheet(2, 3, (11.0, 5.6), sharex=True)
    total = 0
    for place, (axis, (names, more, title)) in enumerate(zip(axes, PANELS, strict=True)):
        for name, style in zip(names, ("-", "--"), strict=False):
            _signal(axis, behind, name, GREY, style)
            _signal(axis, known, name, BLUE, style)
        alarms = sum(_alarms(axis, run, (*names, *more), names[0]) for run in known)
        total += alarms
        axis.set_title(f"{title}{f' · {alarms} alarms' if alarms else ''}")
        axis.axvline(horizon, color=GREY, linewidth=0.8, linestyle="--")
        if place >= 3:
            axis.set_xlabel("training step")
    grey = f" Grey: {behind[0].arm} ({seeds(len(behind))})." if behind else ""
    caption = (
        f"Thin: one of {seeds(len(known))}; thick: their mean; each row of metrics.csv as it is, no"
        f" bars, no smoothing.{grey} Red triangles: steps at which an alarm went off"
        f" ({total}). Dashed: the horizon, step {horizon}."
    )
    return save(figure, stem_folder / f"signals_{file_name(arm)}", caption, arm)


def _signal(axis: Axes, runs: Sequence[Run], name: str, colour: str, style: str) -> None:
    have = [run.metrics[name].dropna() for run in runs if name in run.metrics]
    for values in have:
        axis.plot(values.index, values, color=colour, linewidth=0.7, alpha=0.5, linestyle=style)
    if len(have) > 1:
        mean = pd.concat(have, axis=1, join="inner").mean(axis=1)
        axis.plot(mean.index, mean, color=colour, linewidth=1.7, linestyle=style)


def _alarms(axis: Axes, run: Run, names: Sequence[str], first: str) -> int:
    """Mark alarms at their signal's own height; return how many there were."""
    events = [event for event in run.events if event["signal"] in names]
    for event in events:
        name = event["signal"] if event["signal"] in run.metrics else first
        name = first if name not in names[:2] else name
        values = run.metrics[name].dropna() if name in run.metrics else pd.Series(dtype=float)
        row = int(values.index.searchsorted(event["step"]))
        if row < len(values):
            axis.plot([event["step"]], [values.iloc[row]], "v", color=RED, markersize=5, zorder=5)
    return len(events)
