"""Who stands in the block, and whose seeds scatter too much to be judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grpo_ablate.analysis import power, stats
from grpo_ablate.analysis.evidence import Evidence
from grpo_ablate.analysis.stats import Floats
from grpo_ablate.study import Design

SPREAD_LEVEL = 0.01
"""Of the F test that asks whether an arm's seeds scatter more than everybody else's."""

_BEYOND_DOUBT = 0.001
"""An F test below it is no accident of a quiet rest."""


_FEWEST_TO_SCATTER = 3
"""Seeds. Two values have one difference: where another arm's two happen to lie close together,
the ratio is beyond any level and says nothing of this one."""


@dataclass(frozen=True)
class Flag:
    """Why an arm is unstable."""

    reason: str
    doubtful: bool = False
    """The evidence is thin enough for the other arms to be quiet by chance instead."""


def members(baseline: Evidence, arms: Sequence[Evidence]) -> tuple[list[Evidence], tuple[int, ...]]:
    """Choose the block: arms that share the same seeds with the baseline, as many as there are.

    An inert arm and an exact repetition stay out: they copy the baseline's noise and would make
    it look small.

    Returns:
        The arms, and the seeds that they and the baseline have finished; both empty where no arm
        shares two.
    """
    groups: dict[tuple[int, ...], list[Evidence]] = {}
    for arm in arms:
        shared = tuple(sorted(baseline.scores.keys() & arm.scores.keys()))
        if len(shared) >= 2 and not arm.inert and arm.repeat != "same_seed":
            groups.setdefault(shared, []).append(arm)
    if not groups:
        return [], ()
    seeds = max(groups, key=lambda shared: (len(groups[shared]) * (len(shared) - 1), shared))
    return groups[seeds], seeds


def table(arms: Sequence[Evidence], seeds: Sequence[int]) -> Floats:
    """Return scores, arms × seeds."""
    return np.array([[arm.scores[seed] for seed in seeds] for arm in arms])


def unstable(baseline: Evidence, arms: Sequence[Evidence], design: Design) -> dict[str, Flag]:
    """Return the unstable arms, the baseline among them.

    Args:
        baseline: what the arms are compared with.
        arms: those that have passed the ladder's first rungs.
        design: of the study.
    """
    found = {arm.arm: Flag(arm.unstable) for arm in (baseline, *arms) if arm.unstable}
    block, seeds = members(baseline, arms)
    if not block:
        return found
    scores_KS = table([baseline, *block], seeds)
    sigma = stats.block(scores_KS).sigma
    threshold = max(design.margin, power.screen_constant(len(seeds)) * sigma * 2**0.5)
    for row, arm in enumerate((baseline, *block)):
        flag = _scatter(scores_KS, row) or _disagreement(scores_KS[row] - scores_KS[0], threshold)
        if flag:
            found.setdefault(arm.arm, flag)
    return found


def _scatter(scores_KS: Floats, row: int) -> Flag | None:
    if scores_KS.shape[1] < _FEWEST_TO_SCATTER:
        return None
    p, spread_K = stats.spread_p(scores_KS, row), scores_KS.std(axis=1, ddof=1)
    # an arm may differ from what seeds share and yet be the steadiest: that is no fault
    if p >= SPREAD_LEVEL or spread_K[row] <= np.delete(spread_K, row).mean():
        return None
    reason = f"its seeds scatter more than the other arms' (F test p {p:.2g})"
    return Flag(reason, doubtful=p >= _BEYOND_DOUBT)


def _disagreement(d_S: Floats, threshold: float) -> Flag | None:
    if not d_S.min() < -threshold < threshold < d_S.max():
        return None
    return Flag(
        f"seeds disagree materially: {100 * d_S.min():+.1f} to {100 * d_S.max():+.1f} pt, both"
        f" beyond {100 * threshold:.1f} pt",
        doubtful=True,
    )
