"""Smoothness against accuracy (article: C5): the smoothest curve among those that are not worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.axes import Axes

from grpo_ablate.analysis.figures.style import BLUE, GREY, PALE, counts, save, sheet, styled


@dataclass(frozen=True)
class Smoothness:
    """One arm's place in the ranking."""

    arm: str
    accuracy: float
    """Mean score."""
    roughness: float
    """Mean interquartile range of first differences of the curve's last half."""
    ranked: bool
    """False where the arm is worse than the baseline, or not to be judged."""
    per_seed: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """Seed → (accuracy, roughness)."""


@styled
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
    figure, (axis,) = sheet(1, 1, (7.8, max(4.4, 1.6 + 0.22 * len(arms))))
    if floor is not None:
        axis.axhline(100 * floor, color=GREY, linewidth=0.8, linestyle=":")
    order = sorted(arms, key=lambda arm: (not arm.ranked, arm.roughness))
    ranks, letters = iter(range(1, len(arms) + 1)), iter("abcdefghijklmnopqrstuvwxyz" * 9)
    for place, arm in enumerate(order):
        colour = GREY if arm.arm == baseline else BLUE if arm.ranked else PALE
        mark = str(next(ranks)) if arm.ranked else next(letters)
        _arm(axis, arm, colour, mark)
        label = f"{mark}  {arm.arm}  {100 * arm.roughness:.1f}"
        height = 1 - 0.055 * place if len(order) < 18 else 1 - place / len(order)
        axis.annotate(
            label, (1.02, height), xycoords="axes fraction", fontsize=8, va="top", color=colour
        )
    axis.set_ylim(bottom=0)
    axis.margins(x=0.06)
    axis.set_xlabel("held-out accuracy (%)")
    axis.set_ylabel("roughness of the curve (points)")
    n = counts([len(arm.per_seed) for arm in arms])
    caption = (
        "Roughness: interquartile range of the changes from one evaluation to the next over a"
        f" run's last half, up to step {horizon}; lower is smoother. Large: mean of {n} seeds,"
        " numbered from the smoothest; small: seeds; no bars. Pale, with letters: not ranked,"
        f" since worse than {baseline} or not to be judged."
    )
    if floor is not None:
        caption += " Dotted: what sampling the questions alone would give."
    return save(figure, stem, caption, "Smoothness (article: C5)")


def _arm(axis: Axes, arm: Smoothness, colour: str, mark: str) -> None:
    for accuracy, roughness in arm.per_seed.values():
        axis.plot([100 * accuracy], [100 * roughness], "o", color=colour, markersize=2.5, alpha=0.6)
    place = (100 * arm.accuracy, 100 * arm.roughness)
    axis.plot(*([value] for value in place), "o", color=colour, markersize=11)
    axis.annotate(mark, place, fontsize=7, color="white", ha="center", va="center_baseline")
