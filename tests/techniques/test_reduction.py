"""Reductions: one denominator for the whole optimizer step."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from grpo_ablate.techniques import reduction

MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]).bool()
VARIANTS = {
    "token_mean": reduction.token_mean,
    "sequence_mean": partial(reduction.sequence_mean, empty_rows="count"),
    "sequence_mean_skip": partial(reduction.sequence_mean, empty_rows="skip"),
    "constant": partial(reduction.constant, horizon=8, empty_rows="count"),
}
each_variant = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("token_mean", 1 / 4, 1 / 4),
        ("sequence_mean", 1 / 9, 1 / 3),
        ("sequence_mean_skip", 1 / 6, 1 / 2),
        ("constant", 1 / 24, 1 / 24),
    ],
)
def test_weights_by_hand(name, first, second):
    weights = VARIANTS[name](MASK)
    assert weights[0].tolist() == pytest.approx([first] * 3 + [0])
    assert weights[1].tolist() == pytest.approx([second, 0, 0, 0])
    assert (weights[2] == 0).all()


def test_k1_token_mean_pools_tokens_not_micro_batches():
    """K1: +1 on 10 tokens and -1 on 1000 is -990/1010, where a mean of means would say 0."""
    mask = torch.zeros(2, 1000).bool()
    mask[0, :10], mask[1] = True, True
    losses = torch.tensor([[1.0], [-1.0]]).double().expand(2, 1000)
    assert (reduction.token_mean(mask) * losses).sum().item() == pytest.approx(
        -990 / 1010, rel=1e-12
    )


def test_k3_a_masked_row_leaves_the_token_mean_alone():
    """K3: one kept row of 10 tokens beside a masked one of 90."""
    mask = torch.zeros(2, 90).bool()
    mask[0, :10] = True
    assert torch.equal(reduction.token_mean(mask)[:1], reduction.token_mean(mask[:1]))


@each_variant
def test_k16_padding_columns_change_nothing(variant):
    padded = torch.nn.functional.pad(MASK, (0, 3))
    assert torch.equal(variant(padded)[:, :4], variant(MASK))


@each_variant
def test_k16_a_batch_twice_is_the_same_mean(variant):
    """The duplicated batch gives each copy half the weight, so the gradient is the same."""
    torch.testing.assert_close(variant(torch.cat([MASK, MASK]))[:3], variant(MASK) / 2)


@each_variant
@pytest.mark.parametrize("mask", [torch.zeros(2, 3).bool(), torch.zeros(0, 0).bool()])
def test_k4_nothing_to_train_gives_zeros(variant, mask):
    assert (variant(mask) == 0).all()
