"""What filters, advantages and metrics all ask of a group."""

from __future__ import annotations

import torch
from torch import Tensor


def varies(rewards_PG: Tensor, vote_PG: Tensor) -> Tensor:
    """Tell which groups have anything to learn from: do their voters disagree?

    Exact comparison, no tolerance: rewards that differ by a rounding differ.

    Args:
        rewards_PG: of P groups of G responses.
        vote_PG: bool; who counts. A group with fewer than two voters does not vary.

    Returns:
        bool [P].
    """
    highest_P = rewards_PG.masked_fill(~vote_PG, -torch.inf).amax(1)
    lowest_P = rewards_PG.masked_fill(~vote_PG, torch.inf).amin(1)
    return highest_P > lowest_P
