"""Advantage variants: literal arrays, degenerate groups, invariances."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from grpo_ablate.techniques import advantage

VARIANTS = {
    "none": advantage.none,
    "group_std": partial(advantage.group_std, ddof=1, eps=1e-4),
    "constant": partial(advantage.constant, scale=0.5),
    "ema_std": partial(advantage.ema_std, decay=0.99, ddof=1, eps=1e-4),
    "smooth": partial(advantage.smooth, weight=0.5, ddof=1, eps=1e-4),
    "batch_std": partial(advantage.batch_std, ddof=1, eps=1e-4),
    "rloo": advantage.rloo,
    "length_buckets": partial(advantage.length_buckets, buckets=2),
}
BY_GROUP = {name: variant for name, variant in VARIANTS.items() if name != "length_buckets"}
by_group = pytest.mark.parametrize("variant", BY_GROUP.values(), ids=BY_GROUP.keys())
each_variant = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())

rewards = arrays("float64", (3, 4), elements=st.sampled_from([0.0, 0.25, 0.5, 1.0]))


def run(variant, rewards_PG, vote_PG=None, lengths_P=None, state=None):
    rewards_PG = torch.as_tensor(rewards_PG, dtype=torch.float64)
    vote_PG = torch.ones_like(rewards_PG).bool() if vote_PG is None else torch.tensor(vote_PG)
    if lengths_P is None:
        lengths_P = torch.arange(len(rewards_PG)).double()
    return variant(rewards_PG, vote_PG, torch.as_tensor(lengths_P).double(), state or {})


R2 = 0.5**0.5  # sample std of [1, 0]; 1 / sqrt(3) is that of [1, 0, 0], both by hand
R3 = 3**-0.5
LITERAL = [
    ("none", [[1, 0, 0, 0]], [[0.75, -0.25, -0.25, -0.25]]),
    ("none", [[0.1] * 8], [[0.0] * 8]),
    ("constant", [[1, 0, 0, 0]], [[1.5, -0.5, -0.5, -0.5]]),
    ("rloo", [[1, 0, 0, 0]], [[1.0, -1 / 3, -1 / 3, -1 / 3]]),
    ("rloo", [[1, 0], [1, 1]], [[1.0, -1.0], [0.0, 0.0]]),
    (
        "length_buckets",
        [[1, 1], [0, 0], [1, 0], [1, 1]],
        [[0.5, 0.5], [-0.5, -0.5], [0.25, -0.75], [0.25, 0.25]],
    ),
]


@pytest.mark.parametrize(("name", "rewards_PG", "expected"), LITERAL)
def test_literal(name, rewards_PG, expected):
    found = run(VARIANTS[name], rewards_PG).values_PG
    exact = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("ddof", "expected"), [(1, R2), (0, 1.0)])
def test_k6_group_of_one_and_zero(ddof, expected):
    """K6: [1, 0] gives ±0.7071 with the sample std and ±1 with the population's."""
    found = run(partial(advantage.group_std, ddof=ddof, eps=0.0), [[1, 0]]).values_PG
    torch.testing.assert_close(found, torch.tensor([[expected, -expected]]).double())


@pytest.mark.parametrize(("ddof", "variance"), [(1, 1 / 3), (0, 1 / 4)])
def test_batch_std_by_hand(ddof, variance):
    """Rewards 1, 0, 0, 1 have mean 1/2 and squares of 1 in all, over 3 or 4."""
    variant = partial(advantage.batch_std, ddof=ddof, eps=0.0)
    found = run(variant, [[1, 0], [0, 1]]).values_PG
    expected = 0.5 / variance**0.5
    torch.testing.assert_close(found[0], torch.tensor([expected, -expected]).double())


def test_batch_std_sees_the_spread_between_groups():
    """Group means 0.25 and 10.25: the step's std is far above either group's."""
    variant = partial(advantage.batch_std, ddof=1, eps=0.0)
    near = run(variant, [[1, 0, 0, 0], [1, 0, 0, 0]]).values_PG[0, 0]
    far = run(variant, [[1, 0, 0, 0], [11, 10, 10, 10]]).values_PG[0, 0]
    assert far < near / 5


@given(rewards_PG=rewards)
def test_rloo_is_a_change_of_scale_and_no_more(rewards_PG):
    """N / (n - 1) times `none`, n = 4."""
    torch.testing.assert_close(
        run(advantage.rloo, rewards_PG).values_PG,
        run(advantage.none, rewards_PG).values_PG * 4 / 3,
        rtol=0,
        atol=1e-12,
    )


def test_rloo_counts_voters_not_rows():
    """Two of three vote: each is compared with the other."""
    found = run(advantage.rloo, [[9, 1, 0]], [[False, True, True]]).values_PG
    torch.testing.assert_close(found, torch.tensor([[0, 1, -1]]).double())


def test_ema_std_by_hand():
    """First step: the mean of [1, 0]'s and [1, 0, 0]'s std over groups that vary (article A4)."""
    variant = partial(advantage.ema_std, decay=0.9, ddof=1, eps=0.0)
    keep = [[True, True, False], [True] * 3, [True] * 3]
    first = run(variant, [[1, 0, 7], [1, 0, 0], [1, 1, 1]], keep)
    assert first.state["std"] == pytest.approx((R2 + R3) / 2, rel=1e-12)
    second = run(variant, [[1, 0]], state=first.state)
    mean = 0.9 * (R2 + R3) / 2 + 0.1 * R2
    assert second.state["std"] == pytest.approx(mean, rel=1e-12)
    assert second.values_PG[0, 0].item() == pytest.approx(0.5 / mean, rel=1e-12)


def test_ema_std_ignores_a_step_without_a_varying_group():
    found = run(VARIANTS["ema_std"], [[1, 1], [0, 0]], state={"std": 0.3})
    assert found.state == {"std": 0.3}
    assert (found.values_PG == 0).all()


def test_smooth_by_hand():
    """Stds R2 and R3: half-way between 1/2 and the mean variance (1/2 + 1/3) / 2.

    The third group does not vary, and has no say in the mean.
    """
    variant = partial(advantage.smooth, weight=0.5, ddof=1, eps=0.0)
    keep = [[True, True, False], [True] * 3, [True] * 3]
    found = run(variant, [[1, 0, 7], [1, 0, 0], [1, 1, 1]], keep).values_PG
    pooled = (1 / 2 + 1 / 3) / 2
    assert found[0, 0].item() == pytest.approx(0.5 / (0.25 + pooled / 2) ** 0.5, rel=1e-12)
    assert found[1, 0].item() == pytest.approx((2 / 3) / (1 / 6 + pooled / 2) ** 0.5, rel=1e-12)


@given(rewards_PG=rewards)
def test_smooth_spans_group_std_and_one_scale(rewards_PG):
    none, whole = (partial(advantage.smooth, weight=w, ddof=1, eps=1e-4) for w in (0.0, 1.0))
    torch.testing.assert_close(
        run(none, rewards_PG).values_PG, run(VARIANTS["group_std"], rewards_PG).values_PG
    )
    centred = run(advantage.none, rewards_PG).values_PG
    ratio = run(whole, rewards_PG).values_PG[centred != 0] / centred[centred != 0]
    assert ratio.numel() == 0 or (ratio - ratio[0]).abs().max() < 1e-9


@by_group
@given(rewards_PG=rewards)
def test_every_group_sums_to_zero(variant, rewards_PG):
    assert run(variant, rewards_PG).values_PG.sum(1).abs().max() < 1e-12


@each_variant
@given(rewards_PG=rewards, shift=st.floats(-3, 3))
def test_shift_invariance(variant, rewards_PG, shift):
    torch.testing.assert_close(
        run(variant, rewards_PG + shift).values_PG,
        run(variant, rewards_PG).values_PG,
        rtol=0,
        atol=1e-9,
    )


@each_variant
@given(rewards_PG=rewards, order=st.permutations(range(4)))
def test_responses_may_come_in_any_order(variant, rewards_PG, order):
    torch.testing.assert_close(
        run(variant, rewards_PG[:, order]).values_PG, run(variant, rewards_PG).values_PG[:, order]
    )


@given(rewards_PG=rewards, scale=st.floats(0.1, 10))
def test_scale(rewards_PG, scale):
    """Division by a std takes the reward's scale out; without it the scale goes through."""
    invariant = partial(advantage.group_std, ddof=1, eps=0.0)
    torch.testing.assert_close(
        run(invariant, rewards_PG * scale).values_PG, run(invariant, rewards_PG).values_PG
    )
    torch.testing.assert_close(
        run(advantage.none, rewards_PG * scale).values_PG,
        run(advantage.none, rewards_PG).values_PG * scale,
    )


@by_group
@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 1e6])
def test_agreeing_group_gets_exact_zeros(variant, value):
    """G3. 0.1 * 8 / 8 misses 0.1 by a rounding, which a tiny std would blow up."""
    assert (run(variant, [[value] * 7, [1, 0, 0, 0, 0, 0, 0]]).values_PG[0] == 0).all()


@each_variant
def test_group_of_one_is_zero_not_nan(variant):
    """K7: at run time; `rules.py` refuses the configuration at start."""
    assert (run(variant, [[1.0]]).values_PG == 0).all()


@each_variant
def test_dropped_responses_do_not_vote(variant):
    """K5: rewards [1, 0, 0, 0] with the first truncated: siblings get 0, and so does it."""
    keep = [[False, True, True, True]]
    assert (run(variant, [[1, 0, 0, 0]], keep).values_PG == 0).all()
    part = run(variant, [[5, 1, 0]], [[False, True, True]]).values_PG
    torch.testing.assert_close(part[:, 1:], run(variant, [[1, 0]]).values_PG)
    assert part[0, 0] == 0


def test_length_buckets_never_split_a_length():
    found = run(
        partial(advantage.length_buckets, buckets=4), [[1], [0], [1], [0]], None, [5, 5, 5, 5]
    )
    torch.testing.assert_close(found.values_PG.sum(), torch.tensor(0.0).double())
    assert (found.values_PG.abs() == 0.5).all(), "one bucket: the mean of the step"


@each_variant
def test_inputs_are_left_alone(variant):
    """A technique is a pure function: its state is returned, never written to."""
    state = {"std": 0.5}
    rewards_PG = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    before = rewards_PG.clone()
    run(variant, rewards_PG, state=state)
    assert state == {"std": 0.5}
    assert torch.equal(rewards_PG, before)
