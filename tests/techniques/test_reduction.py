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
    "constant_skip": partial(reduction.constant, horizon=8, empty_rows="skip"),
    "group_token_mean": reduction.group_token_mean,
}
GROUP = torch.tensor([7, 9, 9])

each_variant = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("token_mean", 1 / 4, 1 / 4),
        ("sequence_mean", 1 / 9, 1 / 3),
        ("sequence_mean_skip", 1 / 6, 1 / 2),
        ("constant", 1 / 24, 1 / 24),
        ("constant_skip", 1 / 16, 1 / 16),
        ("group_token_mean", 1 / 6, 1 / 2),
    ],
)
def test_weights_by_hand(name, first, second):
    weights = VARIANTS[name](MASK, GROUP)
    assert weights[0].tolist() == pytest.approx([first] * 3 + [0])
    assert weights[1].tolist() == pytest.approx([second, 0, 0, 0])
    assert (weights[2] == 0).all()


def test_k1_token_mean_pools_tokens_not_micro_batches():
    """K1: +1 on 10 tokens and -1 on 1000 is -990/1010, where a mean of means would say 0."""
    mask = torch.zeros(2, 1000).bool()
    mask[0, :10], mask[1] = True, True
    losses = torch.tensor([[1.0], [-1.0]]).double().expand(2, 1000)
    weights = reduction.token_mean(mask, torch.tensor([0, 1]))
    assert (weights * losses).sum().item() == pytest.approx(-990 / 1010, rel=1e-12)


def test_k3_a_masked_row_leaves_the_token_mean_alone():
    """K3: one kept row of 10 tokens beside a masked one of 90."""
    mask = torch.zeros(2, 90).bool()
    mask[0, :10] = True
    for variant in (
        reduction.token_mean,
        partial(reduction.sequence_mean, empty_rows="skip"),
        partial(reduction.constant, horizon=90, empty_rows="skip"),
    ):
        both, alone = variant(mask, torch.zeros(2)), variant(mask[:1], torch.zeros(1))
        assert torch.equal(both[:1], alone)
        assert (both[1] == 0).all()


def test_empty_rows_count_in_the_papers_mean_and_in_no_other():
    """GRPO's 1 / G is over all outputs: the one row with tokens weighs a third, or all."""
    mask = torch.tensor([[1, 1], [0, 0], [0, 0]]).bool()
    group = torch.zeros(3)
    count = reduction.sequence_mean(mask, group, empty_rows="count")
    skip = reduction.sequence_mean(mask, group, empty_rows="skip")
    assert count.sum().item() == pytest.approx(1 / 3, rel=1e-12)
    assert skip.sum().item() == pytest.approx(1.0, rel=1e-12)


def test_dapo_as_printed_and_as_released_agree_on_groups_of_equal_length():
    """oracles.md: eq. 8 is per group, both peers pool; two groups of 3 tokens are both 1/6."""
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]]).bool()
    group = torch.tensor([0, 0, 1])
    torch.testing.assert_close(
        reduction.group_token_mean(mask, group), reduction.token_mean(mask, group)
    )


@each_variant
def test_k16_padding_columns_change_nothing(variant):
    padded = torch.nn.functional.pad(MASK, (0, 3))
    assert torch.equal(variant(padded, GROUP)[:, :4], variant(MASK, GROUP))


@each_variant
def test_k16_a_batch_twice_is_the_same_mean(variant):
    """The duplicated batch gives each copy half the weight, so the gradient is the same."""
    twice = variant(torch.cat([MASK, MASK]), torch.cat([GROUP, GROUP + 10]))
    torch.testing.assert_close(twice[:3], variant(MASK, GROUP) / 2)


@each_variant
@pytest.mark.parametrize("mask", [torch.zeros(2, 3).bool(), torch.zeros(0, 0).bool()])
def test_k4_nothing_to_train_gives_zeros(variant, mask):
    assert (variant(mask, torch.zeros(len(mask))) == 0).all()
