"""Truncated importance sampling: weights by hand, bounds, masks; peers' in test_oracles.py."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo_ablate.techniques import tis

PLAIN = {"minimum": None, "maximum": 2.0, "normalise": False}
NORMED = {"minimum": None, "maximum": 2.0, "normalise": True}
BOTH = {"minimum": 0.5, "maximum": 2.0, "normalise": False}
LEVELS = {"token": tis.token, "sequence": tis.sequence}
each_level = pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS.keys())
each_mode = pytest.mark.parametrize("mode", ["truncate", "mask"])
MASK = torch.tensor([[1, 1, 1], [1, 1, 0], [0, 0, 0]]).bool()


def weights(correction, ratios, mask):
    learner = torch.tensor(ratios, dtype=torch.float64).log()
    return correction.weights(learner, torch.zeros_like(learner), torch.tensor(mask).bool())


def test_none_asks_for_no_forward_pass():
    assert tis.none().weights is None


# ratios 3, 0.25, 1 whose product is 0.75; 4 and 1 whose product is 4; the last token is masked
@pytest.mark.parametrize(
    ("correction", "expected"),
    [
        (tis.token(mode="truncate", **PLAIN), [[2, 0.25, 1], [2, 1, 0]]),
        (tis.token(mode="truncate", **BOTH), [[2, 0.5, 1], [2, 1, 0]]),
        (tis.token(mode="mask", **BOTH), [[0, 0, 1], [0, 1, 0]]),
        (tis.token(mode="mask", **PLAIN), [[0, 0.25, 1], [0, 1, 0]]),
        (tis.sequence(mode="truncate", **PLAIN), [[0.75] * 3, [2, 2, 0]]),
        (tis.sequence(mode="mask", **PLAIN), [[0.75] * 3, [0, 0, 0]]),
        (tis.sequence(mode="mask", **BOTH), [[0.75] * 3, [0, 0, 0]]),
        (tis.token(mode="truncate", **NORMED), [[1.6, 0.2, 0.8], [1.6, 0.8, 0]]),
        (tis.sequence(mode="truncate", **NORMED), [[6 / 11] * 3, [16 / 11, 16 / 11, 0]]),
    ],
)
def test_by_hand(correction, expected):
    """Token weights 2, .25, 1, 2, 1 have mean 1.25; sequence weights .75 and 2 have 1.375."""
    found = weights(correction, [[3, 0.25, 1], [4, 1, 7]], [[1, 1, 1], [1, 1, 0]])
    torch.testing.assert_close(found, torch.tensor(expected).double())


@each_level
@each_mode
@pytest.mark.parametrize("normalise", [True, False])
def test_one_model_gives_exactly_one(level, mode, normalise):
    same = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    correction = level(mode=mode, minimum=0.5, maximum=2.0, normalise=normalise)
    assert torch.equal(correction.weights(same, same, MASK), MASK.double())


@each_level
@each_mode
@given(ratio=st.floats(0.01, 100))
def test_weights_stay_within_their_bounds(level, mode, ratio):
    found = weights(level(mode=mode, **BOTH), [[ratio]], [[1]]).item()
    assert 0.5 - 1e-12 <= found <= 2 + 1e-12 or (mode == "mask" and found == 0)


@each_level
@each_mode
@pytest.mark.parametrize("junk", [torch.nan, torch.inf, -torch.inf, 1e30])
def test_nothing_under_the_mask_counts(level, mode, junk):
    correction = level(mode=mode, minimum=None, maximum=2.0, normalise=True)
    learner = torch.full((3, 3), math.log(1.5)).double()
    clean = correction.weights(learner, torch.zeros_like(learner), MASK)
    dirty = correction.weights(
        learner.masked_fill(~MASK, junk), torch.zeros_like(learner).masked_fill(~MASK, -junk), MASK
    )
    assert torch.equal(clean, dirty)
    assert (dirty[~MASK] == 0).all()


@each_level
@each_mode
def test_extremes_are_finite_and_nothing_kept_is_zero_not_nan(level, mode):
    correction = level(mode=mode, minimum=None, maximum=2.0, normalise=True)
    for extreme in (-1e4, 1e4):
        learner = torch.full((1, 2), extreme)
        found = correction.weights(learner, torch.zeros(1, 2), torch.ones(1, 2).bool())
        assert torch.isfinite(found).all()
    assert (correction.weights(learner, learner, torch.zeros(1, 2).bool()) == 0).all()


def test_weights_carry_no_gradient():
    learner = torch.zeros(1, 2, requires_grad=True)
    for level in LEVELS.values():
        correction = partial(level, mode="truncate", **PLAIN)()
        found = correction.weights(learner, torch.zeros(1, 2), torch.ones(1, 2).bool())
        assert not found.requires_grad
