"""What a mean hides: histograms of one step, written at the evaluation interval."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from grpo_ablate.rollout import Rollout
from grpo_ablate.types import Advantages, Update

BINS = 32

HISTOGRAMS = (
    "ratio/histogram",
    "completion/length_histogram",
    "advantage/histogram",
    "reward/histogram",
)
"""Meaning and units: docs/metrics.md."""


def distributions(rollout: Rollout, advantages: Advantages, update: Update) -> dict[str, Any]:
    """Return a histogram for each of HISTOGRAMS, ready for `histograms.jsonl`.

    Args:
        rollout: as sampled.
        advantages: of rollout.groups.
        update: the optimizer steps taken on it.

    Returns:
        name → {low, high, counts}: BINS counts of equal width from low to high; a name without
        finite values is left out.
    """
    groups = rollout.groups
    values = (
        update.trace.log_ratio_N.double().exp(),
        groups.lengths_PG,
        advantages.values_PG[groups.vote_PG],
        groups.rewards_PG,
    )
    found = {name: _histogram(x) for name, x in zip(HISTOGRAMS, values, strict=True)}
    return {name: histogram for name, histogram in found.items() if histogram}


def _histogram(values: Tensor) -> dict[str, Any] | None:
    """Count values in equal bins from the smallest to the largest."""
    finite = values[values.isfinite()].double().cpu().numpy()
    if not len(finite):
        return None
    low, high = finite.min(), finite.max()
    if high - low < BINS * np.spacing(max(abs(low), abs(high))):  # too near for edges between them
        finite = np.full_like(finite, low)
    counts, edges = np.histogram(finite, bins=BINS)
    return {"low": float(edges[0]), "high": float(edges[-1]), "counts": counts.tolist()}
