"""Regularizers: values by hand, K19's expected gradients, finiteness, masks."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo_ablate.loss import from_logits
from grpo_ablate.techniques import regularizer

KL = {name: regularizer.kl(estimator=name, coefficient=1.0) for name in ("k1", "k2", "k3")}
TERMS = {
    "none": regularizer.none(),
    "entropy_bonus": regularizer.entropy_bonus(coefficient=0.03),
    **KL,
}
each_term = pytest.mark.parametrize("term", TERMS.values(), ids=TERMS.keys())
ONE = torch.ones(1, 1).bool()


def value(term, new, ref, entropy=0.0):
    arrays = (torch.tensor([[float(x)]], dtype=torch.float64) for x in (new, ref, entropy))
    return term.loss(*arrays, ONE).item()


# d = log(0.8 / 0.5) = 0.4700036
D = math.log(0.8 / 0.5)
HAND = [("k1", D), ("k2", D * D / 2), ("k3", 0.5 / 0.8 - 1 + D)]


@pytest.mark.parametrize(("name", "expected"), HAND)
def test_kl_by_hand(name, expected):
    assert value(KL[name], math.log(0.8), math.log(0.5)) == pytest.approx(expected, rel=1e-12)


def test_entropy_bonus_by_hand():
    """Article B5, P2: 0.03 of reward a nat."""
    assert value(TERMS["entropy_bonus"], -1.0, -2.0, entropy=2.0) == pytest.approx(-0.06)


@pytest.mark.parametrize(("name", "expected"), [("k1", 0.0), ("k2", 0.2218), ("k3", 0.300)])
def test_k19_expected_gradient_of_kl_in_the_loss(name, expected):
    """K19: policy 0.8/0.2, reference 0.5/0.5, gradient with respect to the first logit.

    The exact gradients are p(1 - p)(log(p/q) - log((1 - p)/(1 - q))) = 0.2218 of
    KL(policy || reference) and p - q = 0.3 of KL(reference || policy).
    """
    logit = torch.tensor(math.log(0.8 / 0.2), dtype=torch.float64, requires_grad=True)
    logprobs = torch.stack([logit, torch.zeros_like(logit)]).log_softmax(0)
    reference = torch.full((2, 1), math.log(0.5), dtype=torch.float64)
    term = KL[name].loss(logprobs[:, None], reference, reference, torch.ones(2, 1).bool())
    # sampled from the policy: each token's gradient weighted by its probability, not through it
    (logprobs.exp().detach() * term[:, 0]).sum().backward()
    assert logit.grad.item() == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("difference", [-1000.0, -50.0, 50.0, 1000.0])
@pytest.mark.parametrize("name", KL)
def test_k19_extreme_log_ratios_stay_finite(name, difference):
    new = torch.tensor([[difference]]).requires_grad_()
    loss = KL[name].loss(new, torch.zeros(1, 1), torch.zeros(1, 1), ONE)
    (grad,) = torch.autograd.grad(loss.sum(), new)
    assert torch.isfinite(loss).all()
    assert torch.isfinite(grad).all()


@given(new=st.floats(-20, 0), ref=st.floats(-20, 0))
def test_k2_and_k3_are_never_negative_and_zero_at_the_reference(new, ref):
    for name in ("k2", "k3"):
        assert value(KL[name], new, ref) >= 0
        assert value(KL[name], new, new) == 0


def test_k3_keeps_its_digits_near_the_reference():
    """D = 1e-9: exp(-d) - 1 + d is d^2 / 2 = 5e-19, which plain subtraction rounds to 0."""
    new = torch.tensor([[1e-5]], dtype=torch.float64)
    zero = torch.zeros_like(new)
    assert KL["k3"].loss(new, zero, zero, ONE).item() == pytest.approx(5e-11, rel=1e-4)


@each_term
@pytest.mark.parametrize("junk", [torch.nan, torch.inf, -torch.inf, 1e30])
def test_nothing_under_the_mask_reaches_loss_or_gradient(term, junk):
    mask = torch.tensor([[True, False]])
    new = torch.tensor([[-1.0, junk]]).requires_grad_()
    loss = term.loss(new, torch.tensor([[-2.0, -junk]]), torch.tensor([[0.5, junk]]), mask)
    assert loss[0, 1] == 0
    if loss.requires_grad:
        (grad,) = torch.autograd.grad(loss.sum(), new)
        assert torch.isfinite(grad).all()
        assert grad[0, 1] == 0


@each_term
def test_the_coefficient_is_a_factor(term):
    arrays = [torch.tensor([[x]]).double() for x in (-1.0, -2.0, 0.7)]
    if term is TERMS["none"]:
        assert term.loss(*arrays, ONE).item() == 0
        return
    if term is TERMS["entropy_bonus"]:
        half = regularizer.entropy_bonus(coefficient=0.015)
    else:
        name = next(key for key, value in KL.items() if value is term)
        half = regularizer.kl(estimator=name, coefficient=0.5)
    whole = term.loss(*arrays, ONE).item()
    assert half.loss(*arrays, ONE).item() == pytest.approx(whole / 2, rel=1e-12)


def test_entropy_bonus_pulls_towards_uniform():
    """Its gradient with respect to logits [1, 0] lowers the first and lifts the second."""
    logits = torch.tensor([[[1.0, 0.0]]]).double().requires_grad_()
    stats = from_logits(logits, torch.zeros(1, 1).long(), 1.0, entropy_gradient=True)
    loss = TERMS["entropy_bonus"].loss(stats.logprobs_BL, stats.logprobs_BL, stats.entropy_BL, ONE)
    (grad,) = torch.autograd.grad(loss.sum(), logits)
    assert grad[0, 0, 0] > 0 > grad[0, 0, 1]


def test_each_says_what_it_needs():
    needs = {name: (term.entropy, term.reference) for name, term in TERMS.items()}
    assert needs == {
        "none": (False, False),
        "entropy_bonus": (True, False),
        "k1": (False, True),
        "k2": (False, True),
        "k3": (False, True),
    }
