"""Smoothness against accuracy (article: C5): the smoothest curve among those that are not worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grpo_ablate.analysis.figures.style import BLUE, GREY, PALE, save, sheet


@dataclass(frozen=True)
class Smoothness:
    """One arm's place in the ranking."""

    arm: str
    accuracy: float
    """Mean score."""
    roughness: float
    """Mean interquartile range of first differences of the curve's last half."""
    ranked: bool
    """False where the arm is worse than the baseline: a flat curve is perfectly smooth."""
    per_seed: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """Seed → (accuracy, roughness)."""


def smoothness(
    arms: Sequence[Smoothness],
    stem: Path,
    *,
    baseline: str,
    horizon: int,
    floor: float | None = None,
) -> list[Path]:
    """Draw every arm's roughness over its accuracy, named at the right edge.

    Args:
        arms: with the baseline among them.
        stem: path without suffix.
        baseline: its name, drawn grey.
        horizon: step at which arms were scored.
        floor: roughness of a constant curve from sampling the held-out questions alone.

    Returns:
        The files written; none without an arm.
    """
    if not arms:
        return []
    figure, (axis,) = sheet(1, 1, (8.0, max(4.2, 1.6 + 0.24 * len(arms))))
    for arm in arms:
        colour = GREY if arm.arm == baseline else BLUE if arm.ranked else PALE
        points = [(100 * a, 100 * r) for a, r in arm.per_seed.values()]
        for x, y in points:
            axis.plot([x], [y], "o", color=colour, markersize=2.5, alpha=0.6)
        face = colour if arm.ranked or arm.arm == baseline else "white"
        axis.plot(
            [100 * arm.accuracy],
            [100 * arm.roughness],
            "o",
            color=colour,
            markersize=7,
            markerfacecolor=face,
        )
    if floor is not None:
        axis.axhline(100 * floor, color=GREY, linewidth=0.8, linestyle=":")
    axis.set_ylim(bottom=0)
    axis.margins(x=0.06, y=0.08)
    low, high = axis.get_ylim()
    order = sorted(arms, key=lambda arm: arm.roughness)
    heights = spread([100 * arm.roughness for arm in order], 0.052 * (high - low), low, high)
    right = axis.get_xlim()[1]
    for arm, height in zip(order, heights, strict=True):
        axis.annotate(
            arm.arm,
            (100 * arm.accuracy, 100 * arm.roughness),
            xytext=(right, height),
            textcoords="data",
            fontsize=8,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": PALE, "linewidth": 0.5, "shrinkB": 4},
        )
    axis.set_xlabel("held-out accuracy (%)")
    axis.set_ylabel("roughness of the curve (points)")
    counts = sorted({len(arm.per_seed) for arm in arms if arm.per_seed})
    n = f"{counts[0]}–{counts[-1]}" if len(counts) > 1 else str(counts[0]) if counts else "no"
    caption = (
        "Roughness: interquartile range of the changes from one evaluation to the next over a"
        f" run's last half, up to step {horizon}; lower is smoother. Large: mean of {n} seeds;"
        f" small: seeds; no bars. Hollow: worse than {baseline}, not ranked."
    )
    if floor is not None:
        caption += " Dotted: what sampling the questions alone would give."
    return save(figure, stem, caption, "Smoothness (article: C5)")


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return heights at least `gap` apart, near the ascending ones wanted, within limits.

    Pushed up from below, then down from the top; more labels than fit share the range evenly.
    """
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    placed: list[float] = []
    for height in wanted:
        placed.append(max(height, placed[-1] + gap) if placed else max(height, low))
    limit = high
    for i in range(len(placed) - 1, -1, -1):
        placed[i] = min(placed[i], limit)
        limit = placed[i] - gap
    return placed
