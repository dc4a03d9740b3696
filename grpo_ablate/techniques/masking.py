"""Which sampled responses are trained, and which vote (Hydra group `masking`).

Every variant takes truncated_PG (bool, True where the token limit ended the response) and returns
`Roles`: who votes in the group's baseline, and whose tokens carry the loss. A response that is
not trained stays in the batch as an empty row, so that `reduction` can say whether it counts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grpo_ablate.plans import Roles


def none(truncated_PG: Tensor) -> Roles:
    """Train every response and let it vote.

    everybody votes, everybody is trained

    Source: article: X1, which names no masking.

    Returns:
        All True.
    """
    return Roles(torch.ones_like(truncated_PG), torch.ones_like(truncated_PG))


def overlong(truncated_PG: Tensor, *, vote: bool) -> Roles:
    """Take truncated responses out of the loss: their reward judges the limit, not the answer.

    trained = not truncated;  votes = not truncated, or everybody with vote = true

    Source: Yu et al. 2025 (DAPO), section 3.4, overlong filtering; TRL's
    mask_truncated_completions, where masked rows do vote.

    Knobs:
        vote: do masked responses count in their group's mean and std, and in the filter? false,
            the shipped value, treats them as if never sampled: rewards [1, 0, 0, 0] with the
            first one truncated leave a dead group (K5).

    Returns:
        Roles; a group whose responses are all truncated trains nothing.
    """
    whole_PG = ~truncated_PG
    return Roles(vote_PG=whole_PG | vote, train_PG=whole_PG)
