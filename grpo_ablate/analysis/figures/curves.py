"""Held-out accuracy, one panel an arm with its baseline behind: by step, by tokens, by seconds.

One panel an arm stays legible at fifteen arms, where one panel for all would not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from grpo_ablate.analysis.cost import spent_by
from grpo_ablate.analysis.figures.style import BLUE, GREY, save, seeds, sheet, styled
from grpo_ablate.analysis.load import Run

AXES: Mapping[str, tuple[str, str]] = {
    "steps": ("", "training step"),
    "tokens": ("perf/generated_tokens", "generated tokens (thousands)"),
    "seconds": ("perf/seconds", "seconds of training"),
}
"""Name → the column summed up along the run, and the axis's label."""

_ACCURACY = "eval/accuracy"
_TITLE = 36
"""Letters that fit above one panel."""
_SCALE = {"tokens": 1e-3}
_NOT_BEFORE = 300
"""No trick is judged before this step (article: X4)."""


@styled
def accuracy(
    arms: Mapping[str, Sequence[Run]],
    baseline: str,
    stem: Path,
    *,
    horizon: int,
    against: str = "steps",
) -> list[Path]:
    """Draw held-out accuracy: seeds thin, their mean thick, the baseline behind in grey.

    Args:
        arms: name → runs, the baseline among them.
        baseline: its name.
        stem: path without suffix.
        horizon: step at which arms are scored.
        against: a name of AXES.

    Returns:
        The files written; none where no arm has an evaluation.
    """
    shown = {arm: [r for r in runs if not r.evals.empty] for arm, runs in arms.items()}
    others = [arm for arm, runs in shown.items() if runs and arm != baseline]
    others = others or [arm for arm, runs in shown.items() if runs]
    if not others:
        return []
    columns = min(4, len(others))
    rows = math.ceil(len(others) / columns)
    size = (max(5.5, 3.1 * columns), 1.3 + 2.3 * rows)
    figure, axes = sheet(rows, columns, size, sharex=True, sharey=True)
    for axis, arm in zip(axes, others, strict=False):
        if arm != baseline:
            _seeds(axis, shown.get(baseline, []), against, GREY, baseline)
        _seeds(axis, shown[arm], against, GREY if arm == baseline else BLUE, arm)
        _marks(axis, [*shown.get(baseline, []), *shown[arm]], against, horizon)
        title = f"{arm} ({_count(shown[arm])})"
        # a stack's name is longer than its axes are wide
        axis.set_title(title.replace("+", "+\n") if len(title) > _TITLE else title)
    for axis in axes[len(others) :]:
        axis.set_axis_off()
    for place, axis in enumerate(axes[: len(others)]):
        if place % columns == 0:
            axis.set_ylabel("held-out accuracy")
        if place + columns >= len(others):
            axis.set_xlabel(AXES[against][1])
            axis.tick_params(labelbottom=True)
    return save(figure, stem, _caption(shown, baseline, horizon, against), "Held-out accuracy")


def _count(runs: Sequence[Run]) -> str:
    failed = sum(run.state == "failed" for run in runs)
    return seeds(len(runs)) + (f", {failed} failed" if failed else "")


def _caption(arms: Mapping[str, Sequence[Run]], baseline: str, horizon: int, against: str) -> str:
    grey = f" Grey: {baseline} ({_count(arms[baseline])})." if baseline in arms else ""
    lines = "Dotted: step 300, before which nothing is judged; dashed: the horizon"
    if against != "steps":
        lines = "Open and full circle on the means: step 300 and the horizon"
    if against == "tokens":
        lines = f"Tokens count dropped responses too. {lines}"
    return (
        "Thin: one seed; thick: the mean of those that did not fail, over the steps that all of"
        " them have; no bars, no smoothing."
        f"{grey} {lines}, step {horizon}."
    )


def along(run: Run, against: str) -> pd.Series[float]:
    """Return accuracy over steps, or over what had been spent at each evaluation.

    What was spent between two rows of metrics.csv is taken as spent evenly.
    """
    scores = run.evals[_ACCURACY].dropna()
    column = AXES[against][0]
    if not column:
        return scores
    if column not in run.metrics:
        return scores.iloc[:0]
    scores = scores[scores.index <= max(run.metrics.index, default=-1)]
    at = spent_by(run.metrics[column], scores.index) * _SCALE.get(against, 1.0)
    return pd.Series(scores.to_numpy(), index=at)


def _mean(runs: Sequence[Run], against: str) -> tuple[pd.Index[Any], np.ndarray, np.ndarray]:
    """Return steps, mean abscissa and mean accuracy over the evaluations that all runs have."""
    steps = None
    for run in runs:
        own = run.evals[_ACCURACY].dropna().index[: len(along(run, against))]
        steps = own if steps is None else steps.intersection(own)
    assert steps is not None
    curves = [along(run, against).iloc[: len(steps)] for run in runs]
    x = np.mean([curve.index.to_numpy(dtype=float) for curve in curves], axis=0)
    return steps, x, np.mean([curve.to_numpy() for curve in curves], axis=0)


def _seeds(axis: Axes, runs: Sequence[Run], against: str, colour: str, label: str) -> None:
    for run in runs:
        curve = along(run, against)
        axis.plot(curve.index, curve, color=colour, linewidth=0.7, alpha=0.55)
    whole = [run for run in runs if run.state != "failed"]
    if len(whole) > 1:
        _, x, y = _mean(whole, against)
        axis.plot(x, y, color=colour, linewidth=1.9, label=label)


def _marks(axis: Axes, runs: Sequence[Run], against: str, horizon: int) -> None:
    if against == "steps":
        axis.axvline(_NOT_BEFORE, color=GREY, linewidth=0.8, linestyle=":")
        axis.axvline(horizon, color=GREY, linewidth=0.8, linestyle="--")
        return
    for colour, arm in ((GREY, runs[0].baseline), (BLUE, runs[-1].arm)):
        whole = [run for run in runs if run.arm == arm and run.state != "failed"]
        if not whole:
            continue
        steps, x, y = _mean(whole, against)
        for step, fill in ((_NOT_BEFORE, "white"), (horizon, colour)):
            here = np.flatnonzero(steps == step)
            axis.plot(x[here], y[here], "o", color=colour, markersize=5, markerfacecolor=fill)
