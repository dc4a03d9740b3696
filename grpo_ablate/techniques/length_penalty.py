"""What a response's length costs (Hydra group `length_penalty`; article: L1-L3, L5).

Every variant takes lengths_PG, the response lengths in tokens with the end-of-sequence token,
and returns what is *added* to the reward: 0 or negative, same shape. It changes the reward's
distribution, so learning rate and clip may want a new sweep (article: L5).
"""

from __future__ import annotations

import torch
from torch import Tensor

from grpo_ablate.knobs import Count, Index, NonNegative


def none(lengths_PG: Tensor) -> Tensor:
    """Add nothing.

    Source: article: X1.

    Args:
        lengths_PG: see the module.

    Returns:
        Zeros.
    """
    return torch.zeros_like(lengths_PG)


def target_interval(
    lengths_PG: Tensor, *, coefficient: NonNegative, low: Index, high: Count
) -> Tensor:
    """Cost in proportion to the distance outside a target interval; free inside it.

    penalty = -coefficient * (max(low - length, 0) + max(length - high, 0))

    Too large a coefficient suppresses normal long answers, too small a one does nothing. Source:
    article: L1 (0.01-0.05 a token, preset 0.02), L2.

    Args:
        lengths_PG: see the module.
        coefficient: reward per token of distance.
        low: shortest free length, tokens; at most high (`rules.py` refuses the rest at start).
        high: longest free length, tokens.

    Returns:
        The penalty, in units of reward; it has no floor.
    """
    distance_PG = (low - lengths_PG).clamp(min=0) + (lengths_PG - high).clamp(min=0)
    return -coefficient * distance_PG


def overlong_soft(lengths_PG: Tensor, *, max_length: Count, margin: Count) -> Tensor:
    """Cost that grows from 0 to 1 over the last tokens before the limit: DAPO's soft punishment.

    penalty = 0                                        length <= max_length - margin
              ((max_length - margin) - length)/margin  up to max_length
              -1                                       beyond

    Source: Yu et al. 2025 (DAPO), eq. 13.

    Args:
        lengths_PG: see the module.
        max_length: tokens at which the penalty is complete.
        margin: tokens over which it grows; at most max_length (checked in `rules.py`).

    Returns:
        The penalty, in [-1, 0].
    """
    return ((max_length - margin - lengths_PG) / margin).clamp(-1, 0)
