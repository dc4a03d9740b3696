"""What a learning curve tells beside its end: area, speed, falls, smoothness.

A curve is its steps t_E and its values y_E, E evaluations, in order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

IQR_OF_NORMAL = 1.3489795003921634
"""Interquartile range of a standard normal variable: 2·Φ⁻¹(.75)."""


@dataclass(frozen=True)
class Collapse:
    """A fall that was not made good: where it began to stay down, from what, to what."""

    step: float
    peak: float
    end: float


def auc(t: ArrayLike, y: ArrayLike) -> float:
    """Return the curve's mean height: trapezoids divided by the stretch; NaN for one point."""
    x, v = np.asarray(t, dtype=np.float64), np.asarray(y, dtype=np.float64)
    return float(np.trapezoid(v, x) / (x[-1] - x[0])) if len(x) > 1 else math.nan


def drawdown(y: ArrayLike) -> float:
    """Return the largest fall from a peak to a later valley; 0 for a curve that only climbs."""
    v = np.asarray(y, dtype=np.float64)
    return float((np.maximum.accumulate(v) - v).max())


def time_to(t: Sequence[float], y: Sequence[float], threshold: float, run: int = 2) -> float | None:
    """Return where the curve first holds a threshold; None where it never did (censored).

    Args:
        t: steps, tokens or seconds of the evaluations.
        y: their values.
        threshold: to be reached.
        run: evaluations in a row at or above it; one alone may be luck.
    """
    above = [value >= threshold for value in y]
    for i in range(len(above) - run + 1):
        if all(above[i : i + run]):
            return float(t[i])
    return None


def smoothness(y: ArrayLike) -> float:
    """Return the interquartile range of first differences over the curve's last half.

    Small is smooth; a flat curve is perfectly smooth, so rank only arms that are not worse.
    Source: article: C5.

    Returns:
        NaN below three evaluations in the last half.
    """
    v = np.asarray(y, dtype=np.float64)
    steps = np.diff(v[len(v) // 2 :])
    if len(steps) < 2:
        return math.nan
    return float(np.subtract(*np.quantile(steps, (0.75, 0.25))))


def smoothness_floor(accuracy: float, questions: int) -> float:
    """Return the smoothness of a policy that does not change, asked fresh questions each time.

    1.349·√(2·p(1−p)/N): what sampling alone makes of first differences. The held-out questions
    stay the same, so a real curve may lie below it.
    """
    return IQR_OF_NORMAL * math.sqrt(2 * accuracy * (1 - accuracy) / questions)


def collapse(t: Sequence[float], y: Sequence[float], margin: float) -> Collapse | None:
    """Tell whether a curve fell by more than half its gain and stayed down.

    Peak: the highest mean of two evaluations in a row. Gain: the peak above the first evaluation.
    It has collapsed where the last two evaluations both lie more than
    max(gain / 2, margin, 4·jitter) below the peak; jitter, the robust sd of one evaluation from
    the second differences (variance 6σ², blind to a trend), keeps a flat noisy curve from
    "collapsing" from its luckiest point.

    Args:
        t: steps.
        y: held-out accuracy.
        margin: a fall within it does not matter.

    Returns:
        None for a curve that holds, or is too short to tell (below four evaluations).
    """
    v = np.asarray(y, dtype=np.float64)
    if len(v) < 4:
        return None
    pairs = (v[1:] + v[:-1]) / 2
    top = int(pairs.argmax())
    peak = float(max(pairs[top], v[0]))
    quartiles = np.quantile(np.diff(v, n=2), (0.75, 0.25))
    jitter = float(np.subtract(*quartiles)) / IQR_OF_NORMAL / math.sqrt(6)
    down = v < peak - max((peak - v[0]) / 2, margin, 4 * jitter)
    if not down[-2:].all():
        return None
    stays = len(v) - int(np.argmin(down[::-1])) if not down.all() else 0
    return Collapse(float(t[stays]), peak, float(v[-2:].mean()))


def sigmoid(
    compute: ArrayLike, start: float, top: float, steepness: float, middle: float
) -> list[float]:
    """Return the saturating curve that reinforcement learning's scaling is fitted with.

    R(C) = R0 + (A − R0) / (1 + (C_mid/C)^B), so that R(C_mid) = (R0 + A)/2. Source: ScaleRL.

    Args:
        compute: C > 0.
        start: R0.
        top: A, the asymptote.
        steepness: B.
        middle: C_mid.
    """
    c = np.asarray(compute, dtype=np.float64)
    values = start + (top - start) / (1 + (middle / c) ** steepness)
    return [float(value) for value in np.atleast_1d(values)]
