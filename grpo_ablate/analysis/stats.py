"""Estimators of the judgement: seeds are blocks, arms are treatments (docs/judging.md).

Axes: K arms, the baseline first; n seeds. Every score is one run's mean of its last evaluations
before the horizon. Quantiles come from scipy.special, which is exact and quick, and which unlike
`scipy.stats` does not ask for torch when it is imported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A difference with its interval. Example: +.04, se .0058, df 2, p .020, .015 … .065."""

    delta: float
    se: float
    df: float
    t: float
    """delta / se; infinite where the seeds agree to the last bit, NaN where delta is 0 as well."""
    p: float
    """Two-sided; 1 for a difference of exactly 0 without spread."""
    lo: float
    hi: float

    @property
    def half(self) -> float:
        """Half the interval's width."""
        return (self.hi - self.lo) / 2


@dataclass(frozen=True)
class Block:
    """A table arms × seeds, fitted: common noise, and each arm's difference from the baseline."""

    sigma: float
    """Noise of one run beyond its arm's and its seed's level."""
    df: int
    arms: int
    seeds: int
    icc: float
    """Share of the variance that the seeds explain: what pairing bought."""
    contrasts: tuple[Estimate, ...]
    """One an arm, the baseline's own left out."""


def t_critical(df: float, probability: float = 0.975) -> float:
    """Return the quantile of Student's t below which `probability` of its mass lies."""
    return float(special.stdtrit(df, probability))


def estimate(delta: float, se: float, df: float, alpha: float = 0.05) -> Estimate:
    """Return a difference with its two-sided t test and its 1 − alpha interval.

    delta ± t(1 − alpha/2, df) · se
    """
    if se > 0:
        t = delta / se
        p = 2 * float(special.stdtr(df, -abs(t)))
    else:
        t, p = (math.nan, 1.0) if delta == 0 else (math.copysign(math.inf, delta), 0.0)
    half = t_critical(df, 1 - alpha / 2) * se
    return Estimate(delta, se, df, t, p, delta - half, delta + half)


def one_sample(values: ArrayLike, alpha: float = 0.05) -> Estimate:
    """Estimate the mean of at least two independent values against 0, by Student's t."""
    x = _row(values, "values", 2)
    return estimate(float(x.mean()), sample_sd(x) / math.sqrt(len(x)), len(x) - 1, alpha)


def paired(arm: ArrayLike, base: ArrayLike, alpha: float = 0.05) -> Estimate:
    """Compare two arms seed by seed: Student's t on the differences.

    Args:
        arm: n scores.
        base: n scores of the same seeds in the same order.
        alpha: of the interval.

    Raises:
        ValueError: fewer than two seeds, or lengths that differ.
    """
    return one_sample(differences(arm, base), alpha)


def differences(arm: ArrayLike, base: ArrayLike) -> Floats:
    """Return arm − base, seed by seed."""
    x, y = _row(arm, "arm", 1), _row(base, "base", 1)
    if len(x) != len(y):
        raise ValueError(f"arm has {len(x)} seeds and base {len(y)}; pair them first")
    return x - y


def welch(arm: ArrayLike, base: ArrayLike, alpha: float = 0.05) -> Estimate:
    """Compare two arms whose seeds have nothing in common and whose spreads may differ.

    se² = v/n + w/m;  df = se⁴ / ((v/n)²/(n−1) + (w/m)²/(m−1))        (Welch–Satterthwaite)
    """
    x, y = _row(arm, "arm", 2), _row(base, "base", 2)
    a, b = sample_sd(x) ** 2 / len(x), sample_sd(y) ** 2 / len(y)
    weight = a**2 / (len(x) - 1) + b**2 / (len(y) - 1)
    df = (a + b) ** 2 / weight if weight > 0 else float(len(x) + len(y) - 2)
    return estimate(float(x.mean() - y.mean()), math.sqrt(a + b), df, alpha)


def block(scores_KS: ArrayLike, alpha: float = 0.05) -> Block:
    """Fit arms and seeds together, so that all arms share one estimate of the noise.

    r = Y − row − column + grand;  σ² = Σr² / ((K−1)(n−1));  SE(Δ) = σ√(2/n)

    With K = 2 this is the paired t test.

    Args:
        scores_KS: K arms × n seeds, the baseline in row 0; K, n ≥ 2.
        alpha: of the intervals.

    Raises:
        ValueError: another shape, or a score that is not a number.
    """
    y = np.asarray(scores_KS, dtype=np.float64)
    if y.ndim != 2 or min(y.shape) < 2 or not np.isfinite(y).all():
        raise ValueError(f"need numbers for at least 2 arms × 2 seeds, got shape {y.shape}")
    k, n = y.shape
    row, column, grand = y.mean(1, keepdims=True), y.mean(0, keepdims=True), y.mean()
    df = (k - 1) * (n - 1)
    ms_e = float(((y - row - column + grand) ** 2).sum()) / df
    ms_seed = k * float(((column - grand) ** 2).sum()) / (n - 1)
    se = math.sqrt(2 * ms_e / n)
    deltas = row[1:, 0] - row[0, 0]
    return Block(
        sigma=math.sqrt(ms_e),
        df=df,
        arms=k,
        seeds=n,
        icc=icc(ms_seed, ms_e, k),
        contrasts=tuple(estimate(float(d), se, df, alpha) for d in deltas),
    )


def icc(ms_seed: float, ms_e: float, arms: int) -> float:
    """Return the intraclass correlation of seeds: (MS_seed − MS_e) / (MS_seed + (K−1) MS_e)."""
    total = ms_seed + (arms - 1) * ms_e
    return (ms_seed - ms_e) / total if total > 0 else 0.0


def spread_p(scores_KS: ArrayLike, arm: int) -> float:
    """Return the p-value of "this arm is no noisier than the others"; one-sided F test.

    Three arms or more: z = the arm's scores minus the others' mean, seed by seed, has variance
    σ²(1 + 1/(K−1)); against the σ² that the others show among themselves, F with n−1 and
    (K−2)(n−1) degrees. Two arms: the ratio of their variances, with n−1 and n−1.

    Args:
        scores_KS: K arms × n seeds; K, n ≥ 2.
        arm: row of the one in question.
    """
    y = np.asarray(scores_KS, dtype=np.float64)
    k, n = y.shape
    others = np.delete(y, arm, axis=0)
    if k == 2:
        own, rest, df = sample_sd(y[arm]) ** 2, sample_sd(others[0]) ** 2, n - 1
    else:
        own = sample_sd(y[arm] - others.mean(0)) ** 2 / (1 + 1 / (k - 1))
        fit = block(others)
        rest, df = fit.sigma**2, fit.df
    # others that agree to the last bit, as few questions make them, are no yardstick
    return float(special.fdtrc(n - 1, df, own / rest)) if rest > 0 else 1.0


def interaction(
    base: ArrayLike, a: ArrayLike, b: ArrayLike, ab: ArrayLike, alpha: float = 0.05
) -> tuple[Floats, Estimate]:
    """Estimate what two levers do together beyond the sum of what each does alone.

    AB − A − B + base, seed by seed; Student's t on these n values. With a block's σ and df,
    `estimate(mean, 2σ/√n, df)` is the sharper interval.

    Args:
        base: n scores without either lever.
        a: n scores of the same seeds with the first lever.
        b: with the second.
        ab: with both.
        alpha: of the interval.

    Returns:
        The n values, and their mean with its interval.
    """
    rows = [_row(x, name, 2) for x, name in ((base, "base"), (a, "a"), (b, "b"), (ab, "ab"))]
    if len({len(row) for row in rows}) > 1:
        raise ValueError("base, a, b and ab must have the same seeds")
    values = rows[3] - rows[1] - rows[2] + rows[0]
    return values, one_sample(values, alpha)


def logit(shares: ArrayLike, smallest: float = 1e-3) -> Floats:
    """Return log odds, with shares kept `smallest` away from 0 and 1, where they are infinite."""
    x = np.clip(np.asarray(shares, dtype=np.float64), smallest, 1 - smallest)
    return np.log(x / (1 - x))


def holm(p_values: ArrayLike) -> Floats:
    """Adjust p-values so that *any* false alarm among them has probability alpha (Holm 1979).

    In ascending order, p(i)·(m − i + 1), running maximum, at most 1.
    """
    p = _row(p_values, "p_values", 0)
    order = np.argsort(p, kind="stable")
    raised = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return _in_order(np.minimum(raised, 1.0), order)


def benjamini_hochberg(p_values: ArrayLike) -> Floats:
    """Adjust p-values so that the expected share of false alarms among the alarms is alpha.

    In descending order, p(i)·m / i, running minimum (1995).
    """
    p = _row(p_values, "p_values", 0)
    order = np.argsort(p, kind="stable")
    shared = p[order] * len(p) / np.arange(1, len(p) + 1)
    return _in_order(np.minimum.accumulate(shared[::-1])[::-1], order)


def equivalence_p(found: Estimate, margin: float) -> float:
    """Return the p-value of "the difference is at least as large as the margin".

    Two one-sided tests (Schuirmann 1987): below alpha exactly where the 1 − 2·alpha interval lies
    inside (−margin, margin).
    """
    if found.se == 0:
        return 0.0 if abs(found.delta) < margin else 1.0
    return float(special.stdtr(found.df, (abs(found.delta) - margin) / found.se))


def _row(values: ArrayLike, name: str, least: int) -> Floats:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or len(x) < least or not np.isfinite(x).all():
        raise ValueError(f"{name} must be a list of at least {least} numbers, got {values!r}")
    return x


def sample_sd(values: ArrayLike) -> float:
    """Return the sample standard deviation (n − 1), exactly 0 where all values are equal."""
    x = np.asarray(values, dtype=np.float64)
    return float(x.std(ddof=1)) if np.ptp(x) > 0 else 0.0


def _in_order(values: Floats, order: NDArray[np.intp]) -> Floats:
    out = np.empty_like(values)
    out[order] = values
    return out
