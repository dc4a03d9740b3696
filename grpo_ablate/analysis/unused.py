"""Statistics that the verdict does not use, and why; kept so that the reasons can be checked.

- A percentile bootstrap of three values is [min, max]: an interval with 25 % false alarms.
- The interquartile mean of three values trims nothing: it is the mean.
- With n seeds an exact sign-flip test cannot pass below 2^(1−n), a permutation test of n against
  n not below 2/C(2n, n): at three seeds .25 and .10, whatever the effect.
- The probability of improvement says how often, not by how much.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

_MOST = 10
"""Values of which all resamples can still be counted (92,378 multisets)."""


def signflip_floor(seeds: int) -> float:
    """Return the smallest two-sided p of an exact sign-flip test: 2 / 2^n."""
    return float(2.0 ** (1 - seeds))


def permutation_floor(seeds: int) -> float:
    """Return the smallest two-sided p of a permutation (or rank-sum) test of n against n values."""
    return 2 / math.comb(2 * seeds, seeds)


def bootstrap_interval(values: Sequence[float], alpha: float = 0.05) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a mean, exactly, over all n^n resamples.

    Raises:
        ValueError: more than ten values, whose resamples cannot be counted out.
    """
    n = len(values)
    if not 1 <= n <= _MOST:
        raise ValueError(f"need 1 to {_MOST} values, got {n}")
    means, weights = [], []
    for chosen in itertools.combinations_with_replacement(range(n), n):
        counts = np.bincount(chosen, minlength=n)
        means.append(float(counts @ np.asarray(values, dtype=np.float64)) / n)
        weights.append(math.factorial(n) / math.prod(math.factorial(c) for c in counts))
    order = np.argsort(means)
    below = np.cumsum(np.asarray(weights)[order]) / float(n) ** n
    ends = np.searchsorted(below, (alpha / 2, 1 - alpha / 2))
    return means[order[ends[0]]], means[order[min(ends[1], len(means) - 1)]]


def iqm(values: ArrayLike) -> float:
    """Return the mean of the middle half; below four values, the mean."""
    ordered = np.sort(np.asarray(values, dtype=np.float64).ravel())
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def probability_of_improvement(x: ArrayLike, y: ArrayLike) -> float:
    """Return P(X > Y) over all pairs, ties counting half."""
    a, b = np.asarray(x, dtype=np.float64)[:, None], np.asarray(y, dtype=np.float64)[None, :]
    return float(np.mean((a > b) + 0.5 * (a == b)))


def repeat_reduction(repeats: int) -> float:
    """Return how much of an evaluation's variance K answers a question remove (Miller 2024).

    1 − Var(K)/Var(1), with Var(K)/Var(1) = (1 + 2/K)/3 where difficulty is uniform: at most two
    thirds, since the rest is which questions were asked.
    """
    return 1 - (1 + 2 / repeats) / 3
