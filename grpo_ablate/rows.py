"""Which rows of a rollout belong together: in a mini-batch, and to a rank."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from grpo_ablate import ranks
from grpo_ablate.types import Batch


def own_rows(batch: Batch) -> Tensor:
    """Return the rows with a trained token that are this rank's: whole groups, dealt in turn."""
    live_R = batch.response_BL.any(1).nonzero()[:, 0]  # an empty row has no gradient
    groups = torch.unique(batch.group_B[live_R])
    own = groups[ranks.mine(len(groups))]
    return live_R[torch.isin(batch.group_B[live_R], own)]


def minibatches(batch: Batch, count: int, order: np.random.Generator) -> Iterator[Tensor]:
    """Yield row numbers of up to `count` parts of near-equal group count; no group is split."""
    groups = order.permutation(torch.unique(batch.group_B).cpu().numpy())
    for part in np.array_split(groups, count):
        if len(part):
            chosen = torch.from_numpy(part).to(batch.group_B.device)
            yield torch.isin(batch.group_B, chosen).nonzero()[:, 0]
