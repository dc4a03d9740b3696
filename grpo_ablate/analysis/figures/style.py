"""How every figure looks and is saved: the same bytes for the same data, PNG and SVG.

No smoothing and no bands: below five seeds a band would pretend to know a spread, so seeds are
drawn as they are, thin, and their mean thick. Every figure has a caption: seeds, horizon, and what
bars mean.
"""

from __future__ import annotations

import functools
import io
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure

GREY, BLUE, ORANGE, GREEN, RED = "#4d4d4d", "#0072b2", "#e69f00", "#009e73", "#b2182b"
"""Of Okabe and Ito's palette, safe for colour-blind readers; the baseline is grey everywhere."""

WORDS = {
    "helps": GREEN,
    "hurts": RED,
    "unstable": ORANGE,
    "equivalent": BLUE,
    "underpowered": GREY,
}
"""Colour of a verdict; a word that is not here is drawn pale: its numbers are not to be read."""

PALE = "#a6a6a6"

_RC: Any = {  # a plain dict; its stub wants every legal key spelled out
    "svg.hashsalt": "grpo_ablate",
    "svg.fonttype": "none",  # text stays text: small files that can be searched
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "lines.solid_capstyle": "butt",
}
_METADATA: Mapping[str, Mapping[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
}
_LETTERS = 14.5
"""Of a caption, to the inch."""


_P = ParamSpec("_P")
_T = TypeVar("_T")


def styled(draw: Callable[_P, _T]) -> Callable[_P, _T]:
    """Draw in this module's style, whatever the reader's own settings are."""

    @functools.wraps(draw)
    def inner(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        with matplotlib.rc_context(_RC):
            return draw(*args, **kwargs)

    return inner


def sheet(
    rows: int, columns: int, size: tuple[float, float], **axes: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure of rows × columns panels, `size` inches in all."""
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, **axes)
    for panel in grid.flat:
        panel.locator_params(nbins=6)
    return figure, list(grid.flat)


def save(figure: Figure, stem: Path, caption: str, title: str = "") -> list[Path]:
    """Write a figure as PNG and SVG, each whole or not at all.

    Args:
        figure: to write.
        stem: path without suffix; its folder is made if need be.
        caption: below the panels.
        title: above them.

    Returns:
        The files, PNG first.
    """
    width = int(figure.get_figwidth() * _LETTERS)
    if title:
        figure.suptitle(textwrap.fill(title, int(width * 0.8)), fontsize=11)
    figure.supxlabel(textwrap.fill(caption, width), x=0.01, ha="left", fontsize=8, color=GREY)
    stem.parent.mkdir(parents=True, exist_ok=True)
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # laid out once: it is most of a figure's time
    return [write(figure, stem, kind) for kind in _METADATA]


def write(figure: Figure, stem: Path, kind: str, dpi: int = 110) -> Path:
    """Write one file, whole or not at all; no date and no version in it."""
    # not with_suffix: an arm's name may hold a dot
    path = stem.with_name(f"{stem.name}.{kind}")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=dpi, metadata=_METADATA[kind])
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(buffer.getvalue())
    os.replace(temporary, path)
    return path


def points(value: float) -> str:
    """Return a difference in accuracy as points with a sign and a true minus."""
    return f"{100 * value:+.1f}".replace("-", "−")


def seeds(count: int) -> str:
    """Return `1 seed`, `3 seeds`."""
    return f"{count} seed{'s' * (count != 1)}"


def counts(numbers: Sequence[int]) -> str:
    """Return `3`, or `2–3` where arms differ; `no` where there are none."""
    known = sorted({number for number in numbers if number})
    return "–".join(str(n) for n in dict.fromkeys(known[:1] + known[-1:])) or "no"


def file_name(arm: str) -> str:
    """Return an arm's name as a file's: an ad-hoc arm's may hold what a path must not."""
    return "".join(letter if letter.isalnum() or letter in "._+=-" else "_" for letter in arm)
