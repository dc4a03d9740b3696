"""Clip variants: hand-computed values, then properties; peers' numbers are in test_oracles.py."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo_ablate.techniques import clip

VARIANTS = {
    "symmetric": partial(clip.symmetric, eps=0.2, dual_clip=None),
    "clip_higher": partial(clip.clip_higher, eps_low=0.2, eps_high=0.28, dual_clip=None),
    "two_sided": partial(clip.two_sided, eps_low=0.15, eps_high=0.15, dual_clip=None),
    "asymmetric": partial(clip.asymmetric, eps_low=0.3, eps_high=0.15, dual_clip=None),
    "gspo": partial(clip.gspo, eps_low=3e-4, eps_high=4e-4, length_normalised=True, dual_clip=None),
    "dual": partial(clip.symmetric, eps=0.2, dual_clip=3.0),
    "hard": partial(clip.hard, eps_low=0.15, eps_high=0.15),
    "cispo": partial(clip.cispo, weight_min=None, weight_max=5.0),
    "cispo_both": partial(clip.cispo, weight_min=0.8, weight_max=1.28),
}
PPO = {name: variant for name, variant in VARIANTS.items() if not name.startswith("cispo")}
ppo_form = pytest.mark.parametrize("variant", PPO.values(), ids=PPO.keys())
each_variant = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())


def term_at(variant, ratio, advantage):
    """One row of one token whose importance ratio is `ratio`; returns term and d loss / d new."""
    new = torch.tensor([[ratio]], dtype=torch.float64).log().requires_grad_()
    old, mask = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1).bool()
    term = variant(new, old, torch.tensor([advantage], dtype=torch.float64), mask)
    (grad,) = torch.autograd.grad(term.loss_BT.sum(), new)
    return term, grad.item()


# (variant, ratio, advantage) -> loss, gradient: by hand from -min(r A, clip(r) A)
TABLE = [
    ("symmetric", 1.1, 2.0, -2.2, -2.2),
    ("symmetric", 1.3, 2.0, -2.4, 0.0),
    ("symmetric", 1.3, -2.0, 2.6, 2.6),
    ("symmetric", 0.7, 2.0, -1.4, -1.4),
    ("symmetric", 0.7, -2.0, 1.6, 0.0),
    ("clip_higher", 1.25, 1.0, -1.25, -1.25),
    ("clip_higher", 1.3, 1.0, -1.28, 0.0),
    ("clip_higher", 0.79, -1.0, 0.8, 0.0),
    ("two_sided", 1.16, 1.0, -1.15, 0.0),
    ("two_sided", 0.84, -1.0, 0.85, 0.0),
    ("asymmetric", 1.16, 1.0, -1.15, 0.0),
    ("asymmetric", 0.75, -1.0, 0.75, 0.75),
    ("asymmetric", 0.65, -1.0, 0.7, 0.0),
    ("gspo", 1.0005, 1.0, -1.0004, 0.0),
    ("gspo", 1.0003, 1.0, -1.0003, -1.0003),
    ("gspo", 0.9996, -1.0, 0.9997, 0.0),
    ("dual", 2.9, -2.0, 5.8, 5.8),
    ("dual", 3.1, -2.0, 6.0, 0.0),
    ("dual", 3.1, 2.0, -2.4, 0.0),
    ("hard", 1.2, 1.0, -1.15, 0.0),
    ("hard", 1.2, -1.0, 1.15, 0.0),
    ("hard", 0.8, 1.0, -0.85, 0.0),
    ("hard", 1.1, -1.0, 1.1, 1.1),
]


@pytest.mark.parametrize(("name", "ratio", "advantage", "loss", "gradient"), TABLE)
def test_value_and_gradient_by_hand(name, ratio, advantage, loss, gradient):
    term, grad = term_at(VARIANTS[name], ratio, advantage)
    assert term.loss_BT.item() == pytest.approx(loss, rel=1e-12)
    assert grad == pytest.approx(gradient, rel=1e-12)
    clipped = term.clipped_low_BT | term.clipped_high_BT | term.capped_BT
    assert clipped.item() == (gradient == 0), "the flags say exactly where there is no gradient"


@ppo_form
@given(advantage=st.floats(-5, 5))
def test_on_policy_loss_and_gradient_are_minus_the_advantage(variant, advantage):
    term, grad = term_at(variant, 1.0, advantage)
    assert term.loss_BT.item() == pytest.approx(-advantage, rel=1e-15)
    assert grad == pytest.approx(-advantage, rel=1e-15)


@given(
    eps=st.floats(0.01, 0.9),
    ratio=st.floats(0.01, 5),
    advantage=st.floats(-3, 3),
)
def test_equal_bounds_make_every_token_variant_symmetric(eps, ratio, advantage):
    knobs = {"eps_low": eps, "eps_high": eps, "dual_clip": None}
    reference, grad = term_at(partial(clip.symmetric, eps=eps, dual_clip=None), ratio, advantage)
    for function in (clip.clip_higher, clip.two_sided, clip.asymmetric):
        term, same = term_at(partial(function, **knobs), ratio, advantage)
        assert (term.loss_BT.item(), same) == (reference.loss_BT.item(), grad)


@each_variant
@pytest.mark.parametrize("log_ratio", [-1000.0, -50.0, 50.0, 1000.0])
@pytest.mark.parametrize("advantage", [-1.0, 0.0, 1.0])
def test_extreme_ratios_stay_finite(variant, log_ratio, advantage):
    new = torch.tensor([[log_ratio]]).requires_grad_()
    term = variant(new, torch.zeros(1, 1), torch.tensor([advantage]), torch.ones(1, 1).bool())
    (grad,) = torch.autograd.grad(term.loss_BT.sum(), new)
    assert torch.isfinite(term.loss_BT).all()
    assert torch.isfinite(grad).all()


@each_variant
@pytest.mark.parametrize("junk", [torch.nan, torch.inf, -torch.inf, 1e30])
def test_nothing_under_the_mask_reaches_loss_or_gradient(variant, junk):
    """K16, padding: columns of rubbish change neither loss nor gradient."""
    generator = torch.Generator().manual_seed(0)
    new, old = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64).mul(0.2)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]]).bool()
    advantages = torch.tensor([1.0, -1.0, 2.0], dtype=torch.float64)

    def run(fill):
        leaf = new.masked_fill(~mask, fill).requires_grad_()
        term = variant(leaf, old.masked_fill(~mask, -fill), advantages, mask)
        return term.loss_BT.detach(), torch.autograd.grad(term.loss_BT.sum(), leaf)[0]

    clean, dirty = run(0.0), run(junk)
    assert torch.equal(clean[0], dirty[0])
    assert torch.equal(clean[1], dirty[1])
    assert (dirty[0][~mask] == 0).all()
    assert (dirty[1][~mask] == 0).all()


def test_gspo_ratio_is_the_exponential_of_the_mean_log_ratio():
    """Article C7: one ratio a response. mean(0.1, 0.3) = 0.2, so every token has exp(0.2)."""
    new = torch.tensor([[0.1, 0.3, 9.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False]])
    wide = partial(clip.gspo, eps_low=0.5, eps_high=0.5, dual_clip=None)
    arrays = (new, torch.zeros_like(new), torch.tensor([1.0]).double(), mask)
    expected = -torch.tensor([[0.2, 0.2]]).double().exp()
    torch.testing.assert_close(wide(*arrays, length_normalised=True).loss_BT[:, :2], expected)
    summed = -torch.tensor([[0.4, 0.4]]).double().exp()
    torch.testing.assert_close(wide(*arrays, length_normalised=False).loss_BT[:, :2], summed)


def test_gspo_at_a_token_scale_width_never_clips():
    """K14: a mean log-ratio of 0.003 is inside 0.2 and outside 3e-4."""
    new = torch.full((1, 5), 0.003)
    arrays = (new, torch.zeros_like(new), torch.tensor([1.0]), torch.ones(1, 5).bool())
    gspo = partial(clip.gspo, length_normalised=True, dual_clip=None)
    assert not gspo(*arrays, eps_low=0.2, eps_high=0.2).clipped_high_BT.any()
    assert gspo(*arrays, eps_low=3e-4, eps_high=4e-4).clipped_high_BT.all()


def test_k24_the_unclipped_branch_is_unbounded_and_counted():
    """K24: a ratio of 1000 with A = -1 costs 1000 without dual clip, and 3 with it."""
    free, _ = term_at(VARIANTS["two_sided"], 1000.0, -1.0)
    assert free.loss_BT.item() == pytest.approx(1000)
    assert free.unbounded_BT.item() and not free.capped_BT.item()
    capped, grad = term_at(VARIANTS["dual"], 1000.0, -1.0)
    assert (capped.loss_BT.item(), grad) == (3.0, 0.0)
    assert capped.capped_BT.item() and not capped.unbounded_BT.item()
    for ratio, advantage in [(1000.0, 1.0), (1.1, -1.0), (0.1, -1.0), (1000.0, 0.0)]:
        assert not term_at(VARIANTS["two_sided"], ratio, advantage)[0].unbounded_BT.item()


@given(ratio=st.floats(0.01, 50), advantage=st.floats(-3, 3), cap=st.floats(1.2, 10))
def test_dual_clip_only_ever_lowers_the_loss_of_bad_tokens(ratio, advantage, cap):
    plain, _ = term_at(VARIANTS["symmetric"], ratio, advantage)
    dual, _ = term_at(partial(clip.symmetric, eps=0.2, dual_clip=cap), ratio, advantage)
    bound = cap * -advantage if advantage < 0 else plain.loss_BT.item()
    assert dual.loss_BT.item() == pytest.approx(min(plain.loss_BT.item(), bound), rel=1e-12)


@pytest.mark.parametrize(
    ("ratio", "advantage", "weight", "low", "high"),
    [(6.0, 1.0, 1.28, False, True), (0.5, -2.0, 0.8, True, False), (1.1, 3.0, 1.1, False, False)],
)
def test_cispo_clips_the_weight_and_keeps_the_gradient(ratio, advantage, weight, low, high):
    """Gradient -w A; loss -w A log r, by hand from the paper's eq. 4."""
    term, grad = term_at(VARIANTS["cispo_both"], ratio, advantage)
    assert grad == pytest.approx(-weight * advantage, rel=1e-12)
    assert term.loss_BT.item() == pytest.approx(-weight * advantage * math.log(ratio), rel=1e-12)
    assert (term.clipped_low_BT.item(), term.clipped_high_BT.item()) == (low, high)


def test_hard_does_not_call_back_what_moved_the_wrong_way():
    """A = 1 at ratio 0.5: the min form pulls it up, the hard clip leaves it."""
    assert term_at(VARIANTS["two_sided"], 0.5, 1.0)[1] == pytest.approx(-0.5)
    assert term_at(VARIANTS["hard"], 0.5, 1.0)[1] == 0.0
