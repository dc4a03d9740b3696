"""Length penalties by hand; DAPO's soft punishment against the peers is in test_oracles.py."""

from __future__ import annotations

import pytest
import torch

from grpo_ablate.techniques import length_penalty

LENGTHS = torch.tensor([[0.0, 3, 4, 10, 20, 21, 30]], dtype=torch.float64)


def test_none_is_zero():
    assert (length_penalty.none(LENGTHS) == 0).all()


@pytest.mark.parametrize("coefficient", [0.01, 0.02, 0.05])
def test_target_interval_is_proportional_outside_and_free_inside(coefficient):
    """Article L1: distances to [4, 20] are 4, 1, 0, 0, 0, 1, 10 tokens."""
    found = length_penalty.target_interval(LENGTHS, coefficient=coefficient, low=4, high=20)
    expected = -coefficient * torch.tensor([[4.0, 1, 0, 0, 0, 1, 10]]).double()
    torch.testing.assert_close(found, expected)


def test_target_interval_of_one_length():
    found = length_penalty.target_interval(LENGTHS, coefficient=1.0, low=10, high=10)
    torch.testing.assert_close(found, -(LENGTHS - 10).abs())


def test_overlong_soft_by_hand():
    """DAPO eq. 13 with 20 tokens and a margin of 10: free up to 10, -1 from 20 on."""
    found = length_penalty.overlong_soft(LENGTHS, max_length=20, margin=10)
    torch.testing.assert_close(found, torch.tensor([[0.0, 0, 0, 0, -1, -1, -1]]).double())
    middle = length_penalty.overlong_soft(torch.tensor([[15.0]]), max_length=20, margin=10)
    assert middle.item() == -0.5
