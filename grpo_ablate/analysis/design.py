"""What a study can expect before it runs; no torch."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

GROUP_SIZES = (4, 8, 16, 32)
"""For which the share of dead groups is foretold."""


def dead_share(pass_rate: float, group_size: int) -> float:
    """Return the expected share of groups whose responses are all right or all wrong.

    p^G + (1 - p)^G, for G independent responses that are each right with probability p

    A dead group has no gradient; a larger group is dead more rarely. Source: article: G3, S7; K25.

    Args:
        pass_rate: p, in [0, 1]; of one prompt, or the mean over prompts as an optimistic guess,
            since prompts that differ in difficulty are dead more often than their mean.
        group_size: G, at least 1; a group of one is always dead.

    Returns:
        In [0, 1].

    Raises:
        ValueError: pass_rate or group_size out of range.
    """
    if not 0 <= pass_rate <= 1 or group_size < 1:
        raise ValueError(
            f"pass_rate={pass_rate} must lie in [0, 1] and group_size={group_size} be at least 1"
        )
    return float(pass_rate**group_size + (1 - pass_rate) ** group_size)


def dead_shares(pass_rates: Sequence[float]) -> dict[int, float]:
    """Return the expected share of dead groups for each of GROUP_SIZES: mean over the prompts.

    Args:
        pass_rates: p of each prompt.
    """
    return {size: fmean(dead_share(p, size) for p in pass_rates) for size in GROUP_SIZES}
