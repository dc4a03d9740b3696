"""How token losses become one number (Hydra group `reduction`).

Every variant takes, of one *whole* optimizer step,

    mask_BT  bool, True on trained tokens
    group_B  which group each row belongs to

and returns weights_BT with loss = sum(weights * token losses). Weights are computed once, before
any split into micro-batches, so the gradient cannot depend on the split. Where nothing is trained
the weights are all 0. Padding columns and their number change nothing. A row without a trained
token (one that `masking` masks) is an *empty row*.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from grpo_ablate.knobs import Count


def token_mean(mask_BT: Tensor, group_B: Tensor) -> Tensor:
    """Average over all tokens of the step: long responses weigh more.

    weight = 1 / tokens

    Source: Yu et al. 2025 (DAPO), eq. 8, pooled over the batch as in its released code, TRL and
    verl; `group_token_mean` is the equation to the letter.

    Returns:
        Weights, float64; they sum to 1.
    """
    return mask_BT / mask_BT.sum().clamp(min=1).double()


def group_token_mean(mask_BT: Tensor, group_B: Tensor) -> Tensor:
    """Average over each group's tokens, then over groups.

    weight = 1 / (groups * tokens of the group)

    Source: Yu et al. 2025 (DAPO), eq. 8 as printed. Equals `token_mean` where all groups have the
    same number of tokens.

    Returns:
        Weights, float64; they sum to 1, or to the share of groups that have a token.
    """
    groups, index_B = torch.unique(group_B, return_inverse=True)
    tokens = torch.zeros(len(groups), dtype=torch.float64, device=mask_BT.device)
    tokens.index_add_(0, index_B, mask_BT.sum(1).double())
    return mask_BT / tokens.clamp(min=1)[index_B][:, None] / max(1, len(groups))


def sequence_mean(
    mask_BT: Tensor, group_B: Tensor, *, empty_rows: Literal["count", "skip"]
) -> Tensor:
    """Average over each response's tokens, then over responses: every response weighs the same.

    weight = 1 / (rows * tokens of the row)

    Source: Shao et al. 2024 (GRPO), eq. 3.

    Knobs:
        empty_rows: does an empty row count as a row? `count` is the paper's 1 / G over all
            outputs (and TRL), `skip` is verl.

    Returns:
        Weights, float64; they sum to 1, or to the share of rows that have a token.
    """
    tokens_B1 = mask_BT.sum(1, keepdim=True).clamp(min=1).double()
    return mask_BT / tokens_B1 / _rows(mask_BT, empty_rows)


def constant(
    mask_BT: Tensor, group_B: Tensor, *, horizon: Count, empty_rows: Literal["count", "skip"]
) -> Tensor:
    """Divide by a constant number of tokens a row: no length bias at all.

    weight = 1 / (rows * horizon)

    Source: Liu et al. 2025 (Dr. GRPO), whose horizon is the longest response allowed. A horizon
    of 1 is verl's seq-mean-token-sum.

    Knobs:
        horizon: tokens.
        empty_rows: see `sequence_mean`.

    Returns:
        Weights, float64.
    """
    return mask_BT.double() / (_rows(mask_BT, empty_rows) * horizon)


def _rows(mask_BT: Tensor, empty_rows: str) -> int:
    counted = mask_BT.any(1).sum() if empty_rows == "skip" else len(mask_BT)
    return max(1, int(counted))
