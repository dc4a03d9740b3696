"""What a design can see: resolution, seeds needed, and the constants of the screens."""

from __future__ import annotations

import math

from scipy import optimize, special

from grpo_ablate.analysis.stats import t_critical

POWER = 0.8
"""Probability with which an effect of the resolution's size is found."""


def resolution(sigma: float, seeds: int, df: float, alpha: float = 0.05) -> float:
    """Return the minimum detectable effect of a comparison: (t.975 + t.80)·σ√(2/n).

    Args:
        sigma: noise of one run, from the block fit.
        seeds: n, of each arm.
        df: of sigma.
        alpha: two-sided.
    """
    reach = t_critical(df, 1 - alpha / 2) + t_critical(df, POWER)
    return reach * sigma * math.sqrt(2 / seeds)


def seeds_needed(
    sigma: float, effect: float, arms: int, alpha: float = 0.05, most: int = 1000
) -> int | None:
    """Return the smallest number of seeds whose resolution is `effect`; None beyond `most`.

    Args:
        sigma: noise of one run.
        effect: difference to be seen.
        arms: K of the block, the baseline included, which sets df = (K−1)(n−1).
        alpha: two-sided.
        most: where to stop looking.
    """

    def sees(n: int) -> bool:
        return resolution(sigma, n, (arms - 1) * (n - 1), alpha) <= effect

    low, high = 2, 2
    while not sees(high):
        low, high = high, high * 2
        if low > most:
            return None
    while low < high:  # the resolution falls with n, so halving finds the first that suffices
        middle = (low + high) // 2
        low, high = (low, middle) if sees(middle) else (middle + 1, high)
    return low if low <= most else None


def mde_paired(seeds: int, alpha: float = 0.05, power: float = POWER) -> float:
    """Return the effect a paired t test finds with `power`, in sds of the seeds' differences.

    By the noncentral t: P(T > t(1−alpha/2)) = power with noncentrality d·√n. The wrong tail, below
    1e-6 at this power, is left out.
    """
    df, critical = seeds - 1, t_critical(seeds - 1, 1 - alpha / 2)

    def missing(d: float) -> float:
        return 1 - float(special.nctdtr(df, d * math.sqrt(seeds), critical)) - power

    # a rough guess first: far beyond the root the noncentral t has no digits left
    guess = (critical + t_critical(df, power)) / math.sqrt(seeds)
    return float(optimize.brentq(missing, guess / 8, guess * 2))


def breakeven_rho(seeds: int, alpha: float = 0.05) -> float:
    """Return the seed correlation above which pairing narrows the interval.

    1 − (t(2n−2) / t(n−1))²: below it, the degrees of freedom that pairing costs weigh more.
    """
    q = 1 - alpha / 2
    return 1 - (t_critical(2 * seeds - 2, q) / t_critical(seeds - 1, q)) ** 2


def null_signs(seeds: int) -> float:
    """Return the probability that all seeds agree in sign when there is no effect: 2^(1−n)."""
    return float(2.0 ** (1 - seeds))


def screen_constant(seeds: int, false_flags: float = 0.025) -> float:
    """Return c_n: how far seeds must disagree, in sds of a difference, to be called unstable.

    P(some d > c and some d < −c) = 1 − 2Φ(c)^n + (2Φ(c) − 1)^n = false_flags, for n independent
    standard normal d. c_3 = 1.50, c_5 = 1.78.

    Args:
        seeds: n, at least 2.
        false_flags: share of arms without any disagreement that may be flagged.
    """

    def excess(c: float) -> float:
        phi = float(special.ndtr(c))
        return 1 - 2 * phi**seeds + (2 * phi - 1) ** seeds - false_flags

    return float(optimize.brentq(excess, 0.0, 10.0))
