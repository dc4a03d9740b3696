"""The forest plot: every arm's difference from its baseline, with all that belongs beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.axes import Axes

from grpo_ablate.analysis.figures.style import (
    BLUE,
    GREY,
    PALE,
    WORDS,
    counts,
    points,
    save,
    sheet,
    styled,
)


@dataclass(frozen=True)
class Difference:
    """One arm against its baseline."""

    arm: str
    word: str
    """The verdict."""
    delta: float | None = None
    """Mean difference in held-out accuracy; None where there is none yet."""
    low: float = math.nan
    high: float = math.nan
    """Of the interval."""
    per_seed: Mapping[int, float] = field(default_factory=dict)
    resolves: float | None = None
    """The smallest difference this study would see (MDE)."""


@styled
def forest(
    differences: Sequence[Difference],
    stem: Path,
    *,
    baseline: str,
    horizon: int,
    margin: float,
    level: float = 0.95,
) -> list[Path]:
    """Draw the differences, largest first, in points of accuracy.

    Args:
        differences: one an arm; those without numbers come last, with their verdict alone.
        stem: path without suffix.
        baseline: what they differ from.
        horizon: step at which they were scored.
        margin: half-width of the band of equivalence, in accuracy.
        level: of the intervals.

    Returns:
        The files written.
    """
    rows = sorted(
        differences, key=lambda d: (d.delta is None, -(d.delta if d.delta is not None else 0.0))
    )
    figure, (axis,) = sheet(1, 1, (9.0, 1.9 + 0.42 * len(rows)))
    axis.axvspan(-100 * margin, 100 * margin, color=BLUE, alpha=0.08, linewidth=0)
    axis.axvline(0.0, color=GREY, linewidth=1)
    for place, row in enumerate(rows):
        _row(axis, len(rows) - 1 - place, row)
    axis.set_yticks(range(len(rows)), [row.arm for row in reversed(rows)])
    axis.set_ylim(-0.6, len(rows) - 0.4)
    axis.grid(axis="y", visible=False)
    axis.set_xlabel("difference in held-out accuracy (points)")
    n = counts([len(row.per_seed) for row in rows])
    caption = (
        f"Difference from {baseline} at step {horizon}, {n} shared seeds. Square and bar: mean and"
        f" {level:.0%} interval; dots: seeds; ticks: smallest difference this study would see"
        f" (80 % power); band: ±{100 * margin:g} points, called equivalent. Pale: not to be judged."
    )
    return save(figure, stem, caption, f"Against {baseline}")


def _row(axis: Axes, y: int, row: Difference) -> None:
    colour = WORDS.get(row.word, PALE)
    text = row.word
    if row.delta is not None:
        axis.plot([100 * row.low, 100 * row.high], [y, y], color=colour, linewidth=2.2)
        axis.plot([100 * row.delta], [y], "s", color=colour, markersize=6)
        text += f"  {points(row.delta)}  [{points(row.low)}, {points(row.high)}]"
    dots = [100 * value for value in row.per_seed.values()]
    axis.plot(dots, [y - 0.26] * len(dots), "o", color=colour, markersize=3, alpha=0.9)
    if row.resolves is not None and math.isfinite(row.resolves):
        ticks = [-100 * row.resolves, 100 * row.resolves]
        axis.plot(ticks, [y, y], "|", color=GREY, markersize=11, markeredgewidth=1)
    axis.annotate(
        text,
        (1.01, y),
        xycoords=("axes fraction", "data"),
        va="center",
        fontsize=8,
        color=colour if colour != PALE else GREY,
        annotation_clip=False,
    )
