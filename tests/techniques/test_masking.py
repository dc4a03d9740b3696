"""Masking: who votes and who is trained."""

from __future__ import annotations

import pytest
import torch

from grpo_ablate.techniques import masking

TRUNCATED = torch.tensor([[True, False, False], [True, True, True]])


def test_none_trains_and_counts_everybody():
    roles = masking.none(TRUNCATED)
    assert roles.vote_PG.all()
    assert roles.train_PG.all()


@pytest.mark.parametrize("vote", [True, False])
def test_overlong_trains_what_ended_by_itself(vote):
    """DAPO section 3.4; K5: voting is a knob of its own."""
    roles = masking.overlong(TRUNCATED, vote=vote)
    assert torch.equal(roles.train_PG, ~TRUNCATED)
    assert torch.equal(roles.vote_PG, TRUNCATED | ~TRUNCATED if vote else ~TRUNCATED)
    assert roles.vote_PG.dtype == roles.train_PG.dtype == torch.bool
