"""The interaction matrix: what two tricks do together beyond the sum of what each does alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib import colormaps
from matplotlib.patches import Rectangle

from grpo_ablate.analysis.figures.style import points, save, sheet, styled

_LIMIT = 0.03
"""Interaction, in accuracy, at which the colour is full where none is larger."""


@dataclass(frozen=True)
class Interaction:
    """AB - A - B + base for one pair of tricks."""

    first: str
    second: str
    value: float
    """In accuracy."""
    low: float
    high: float
    word: str
    """synergy, interference, additive, undetermined or scale-dependent."""


@styled
def interactions(
    pairs: Sequence[Interaction], stem: Path, *, n: int, horizon: int, level: float = 0.95
) -> list[Path]:
    """Draw one cell a pair, blue for synergy, red for interference.

    Args:
        pairs: measured ones; a pair that was not run stays empty.
        stem: path without suffix.
        n: seeds.
        horizon: step at which arms were scored.
        level: of the intervals.

    Returns:
        The files written; none without a pair.
    """
    if not pairs:
        return []
    rows = list(dict.fromkeys(pair.first for pair in pairs))
    columns = list(dict.fromkeys(pair.second for pair in pairs))
    size = (2.6 + 1.75 * len(columns), 1.9 + 0.85 * len(rows))
    figure, (axis,) = sheet(1, 1, size)
    full = max(_LIMIT, *(abs(pair.value) for pair in pairs))
    for pair in pairs:
        x, y = columns.index(pair.second), rows.index(pair.first)
        shade = colormaps["RdBu"](0.5 + 0.28 * pair.value / full)
        axis.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=shade, edgecolor="white"))
        interval = f"[{points(pair.low)}, {points(pair.high)}]"
        text = f"{points(pair.value)}\n{interval}\n{pair.word}"
        axis.text(x, y, text, ha="center", va="center", fontsize=8)
    axis.set_xlim(-0.5, len(columns) - 0.5)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xticks(range(len(columns)), columns)
    axis.set_yticks(range(len(rows)), rows)
    axis.grid(visible=False)
    caption = (
        f"Mean over {n} seeds of (both) − (first alone) − (second alone) + (baseline), in points of"
        f" held-out accuracy at step {horizon}, with its {level:.0%} interval. Below 0: the two"
        " together give less than their sum."
    )
    return save(figure, stem, caption, "Interactions")
