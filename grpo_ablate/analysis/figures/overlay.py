"""One picture a run, and few arms over each other with every seed drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpo_ablate.analysis.figures.style import sheet, styled, write
from grpo_ablate.analysis.load import Run

_COLOURS = ("#4d4d4d", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's palette, safe for colour-blind readers; the baseline comes first, in grey."""

_PANELS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("eval", ("eval/accuracy",), "held-out accuracy (greedy)"),
    ("metrics", ("reward/mean",), "training reward"),
    ("metrics", ("policy/entropy",), "entropy (nats per token)"),
    ("metrics", ("completion/length_mean",), "response length (tokens)"),
    ("metrics", ("ratio/p01", "ratio/p99"), "importance ratio: p01 solid, p99 dashed"),
    ("metrics", ("ratio/clip_frac_low", "ratio/clip_frac_high"), "clipped: low solid, high dashed"),
    (
        "metrics",
        ("reward/frac_zero_std", "sampling/filter_ratio"),
        "dead groups solid, dropped dashed",
    ),
    ("metrics", ("optim/grad_norm",), "gradient norm, before clipping"),
)
_STYLES = ("-", "--")


@styled
def draw_run(run: Run) -> Path:
    """Draw one run's curves into `curves.png` in its folder, dotted red where alarms went off."""
    figure, axes = _grid(f"{run.arm}, seed {run.seed}")
    for axis, (source, names, title) in zip(axes, _PANELS, strict=True):
        frame = run.evals if source == "eval" else run.metrics
        for name, style in zip(names, _STYLES, strict=False):
            _line(axis, frame, name, color=_COLOURS[1], linestyle=style, label=name)
        for event in run.events:
            if event["signal"] in names:
                axis.axvline(event["step"], color="firebrick", linewidth=0.8, linestyle=":")
        _finish(axis, title, legend=len(names) > 1)
    return _save(figure, run.folder / "curves.png")


@styled
def draw_comparison(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Draw arms over each other, one figure for each baseline: seeds thin, their mean thick.

    No band and no smoothing: with three seeds a band would pretend to know a spread. More arms
    than there are colours are not drawn over each other: `accuracy` has a panel for each.

    Args:
        runs: of a study, in the order of their legend.
        folder: where `comparison[_BASELINE].png` goes; made if need be.

    Returns:
        The files written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for baseline in sorted({run.baseline for run in runs}):
        arms: dict[str, list[Run]] = {}
        for run in runs:
            if run.baseline == baseline and not run.evals.empty:
                arms.setdefault(run.arm, []).append(run)
        if 0 < len(arms) <= len(_COLOURS):
            suffix = "" if baseline == "baseline" else f"_{baseline}"
            paths.append(_draw_arms(arms, baseline, folder / f"comparison{suffix}.png"))
    return paths


def _draw_arms(arms: dict[str, list[Run]], baseline: str, path: Path) -> Path:
    seeds = {arm: len(members) for arm, members in arms.items()}
    counts = ", ".join(f"{arm} ({n} seed{'s' * (n > 1)})" for arm, n in seeds.items())
    figure, axes = _grid(f"against {baseline}: {counts}\nthin: one seed; thick: their mean")
    others = iter((*_COLOURS[1:], _COLOURS[0]))
    colours = {arm: _COLOURS[0] if arm == baseline else next(others) for arm in arms}
    for axis, (source, names, title) in zip(axes, _PANELS, strict=True):
        for arm, members in arms.items():
            for name, style in zip(names, _STYLES, strict=False):
                _arm(axis, members, source, name, colours[arm], style)
        _finish(axis, title, legend=axis is axes[0])
    return _save(figure, path)


def _arm(axis: Axes, runs: list[Run], source: str, name: str, colour: str, style: str) -> None:
    known = []
    for run in runs:
        frame = run.evals if source == "eval" else run.metrics
        _line(axis, frame, name, color=colour, linewidth=0.7, alpha=0.5, linestyle=style)
        if name in frame and run.state != "failed":
            known.append(frame[name])
    if known:
        # inner: the mean of fewer seeds is another mean
        mean = pd.concat(known, axis=1, join="inner").mean(axis=1)
        axis.plot(mean.index, mean, color=colour, linewidth=2, linestyle=style, label=runs[0].arm)


def _line(axis: Axes, frame: pd.DataFrame, name: str, **style: Any) -> None:
    if name in frame:
        axis.plot(frame.index, frame[name], **style)


def _grid(title: str) -> tuple[Figure, list[Axes]]:
    figure, axes = sheet(2, 4, (18, 8))
    figure.suptitle(title, fontsize=12)
    return figure, axes


def _finish(axis: Axes, title: str, legend: bool) -> None:
    axis.set_title(title, fontsize=10)
    axis.set_xlabel("step")
    axis.grid(alpha=0.25)
    if legend and axis.lines:
        axis.legend(fontsize=8)


def _save(figure: Figure, path: Path) -> Path:
    return write(figure, path.with_suffix(""), "png", dpi=80)
