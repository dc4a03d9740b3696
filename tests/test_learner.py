"""The optimizer step: exact under any split into micro-batches, still where there is no signal."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from grpo_ablate.learner import Learner, Objective, _microbatches, _minibatches
from grpo_ablate.models import Policy
from grpo_ablate.techniques import clip, lr_batch, reduction
from grpo_ablate.types import Batch

ROWS, WIDTH = 8, 10


@pytest.fixture
def policy():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=11,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config).double().eval()
    return Policy(model, None, 1e-3, (2,), 0)


def batch(advantages=None, rows=ROWS):
    """Ragged rows of 3 prompt tokens and 1 to 7 response tokens, two rows a group."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.tensor([4, 10, 5, 9, 6, 8, 7, 10])[:rows]
    columns = torch.arange(WIDTH)[None]
    attention = columns < lengths[:, None]
    ids = torch.randint(3, 11, (rows, WIDTH), generator=generator).masked_fill(~attention, 0)
    response = attention & (columns >= 3)
    old = torch.randn(rows, WIDTH, generator=generator).double() * 0.1 - 2.4
    if advantages is None:
        advantages = torch.randn(rows, generator=generator).double()
    group = torch.arange(rows) // 2
    return Batch(ids, attention, response, old.masked_fill(~response, 0.0), advantages, group)


def objective(**changes):
    parts = {
        "clip": partial(clip.symmetric, eps=0.2),
        "reduction": reduction.token_mean,
        "temperature": 1.0,
    }
    return Objective(**(parts | changes))


def learner(policy, micro_tokens=10_000):
    return Learner(
        policy, micro_tokens=micro_tokens, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.0
    )


def budget(minibatches=1, epochs=1, max_grad_norm=1e9):
    return lr_batch.constant(
        lr_scale=1.0,
        warmup=0,
        prompts=4,
        minibatches=minibatches,
        epochs=epochs,
        max_grad_norm=max_grad_norm,
    )


def gradient_of(policy, monkeypatch, micro_tokens, rows, objective):
    """The gradient that reaches the optimizer, as one flat vector."""
    caught = []
    parameters = list(policy.model.parameters())
    monkeypatch.setattr(
        torch.optim.AdamW,
        "step",
        lambda self: caught.append(torch.cat([p.grad.flatten() for p in parameters])),
    )
    order = np.random.default_rng(0)
    learner(policy, micro_tokens).update(rows, objective, budget(), 10, 1e-3, order)
    return caught[0]


REDUCTIONS = {
    "token_mean": reduction.token_mean,
    "sequence_mean": partial(reduction.sequence_mean, empty_rows="count"),
    "constant": partial(reduction.constant, horizon=7, empty_rows="count"),
}
each_reduction = pytest.mark.parametrize("reduce", REDUCTIONS.values(), ids=REDUCTIONS.keys())


@each_reduction
@pytest.mark.parametrize("micro_tokens", [1, 20, 40, 100])
def test_k2_micro_batches_leave_the_gradient_alone(policy, monkeypatch, micro_tokens, reduce):
    """K2: float64, 1e-12, from row-by-row to the whole batch."""
    goal = objective(reduction=reduce)
    whole = gradient_of(policy, monkeypatch, 10_000, batch(), goal)
    split = gradient_of(policy, monkeypatch, micro_tokens, batch(), goal)
    assert whole.abs().max() > 1e-3
    torch.testing.assert_close(split, whole, rtol=0, atol=1e-12)


@each_reduction
def test_k16_padding_leaves_the_gradient_alone(policy, monkeypatch, reduce):
    """K16: five columns of rubbish that attention masks."""
    rows = batch()
    pad = partial(torch.nn.functional.pad, pad=(0, 5))
    wide = Batch(
        pad(rows.ids_BL, value=7),
        pad(rows.attention_BL),
        pad(rows.response_BL),
        pad(rows.old_logprobs_BL, value=50.0),
        rows.advantages_B,
        rows.group_B,
    )
    goal = objective(reduction=reduce)
    plain = gradient_of(policy, monkeypatch, 10_000, rows, goal)
    torch.testing.assert_close(
        gradient_of(policy, monkeypatch, 10_000, wide, goal), plain, rtol=0, atol=1e-12
    )


def weights(policy):
    return copy.deepcopy(policy.model.state_dict())


@pytest.mark.parametrize("rows", [batch(torch.zeros(ROWS).double()), batch(rows=0)])
def test_k4_k9_no_signal_no_step(policy, rows):
    """K4, K9: all advantages 0, or nothing kept: weights, Adam and schedule stand still."""
    student = learner(policy)
    moving = student.update(batch(), objective(), budget(2), 10, 1e-3, np.random.default_rng(0))
    assert (moving.applied, student.applied) == (2, 1)
    before, adam = weights(policy), copy.deepcopy(student.optimizer.state_dict()["state"])
    still = student.update(rows, objective(), budget(2), 10, 1e-3, np.random.default_rng(0))
    assert (still.applied, student.applied) == (0, 1)
    torch.testing.assert_close(weights(policy), before, rtol=0, atol=0)
    torch.testing.assert_close(student.optimizer.state_dict()["state"], adam, rtol=0, atol=0)


def test_a_loss_that_is_no_number_leaves_the_weights_alone(policy):
    before = weights(policy)
    rows = batch(torch.full((ROWS,), torch.nan).double())
    with pytest.raises(FloatingPointError, match=r"lower lr_batch\.lr_scale"):
        learner(policy).update(rows, objective(), budget(), 10, 1e-3, np.random.default_rng(0))
    torch.testing.assert_close(weights(policy), before, rtol=0, atol=0)


def test_gradient_norm_is_reported_before_clipping(policy):
    """Article B4."""
    loose = learner(copy.deepcopy(policy))
    args = (batch(), objective())
    free = loose.update(*args, budget(), 10, 1e-3, np.random.default_rng(0))
    tight = learner(policy).update(
        *args, budget(max_grad_norm=1e-3), 10, 1e-3, np.random.default_rng(0)
    )
    assert tight.grad_norms == pytest.approx(free.grad_norms, rel=1e-12)


def test_first_update_is_on_policy_and_later_ones_are_not(policy):
    """K15: the ratios of the first mini-batch are 1; only the later ones can leave it."""
    rows = batch()
    from grpo_ablate.loss import token_stats

    with torch.no_grad():
        logprobs = token_stats(policy.model, rows, 1.0).logprobs_BL
    old = logprobs.masked_fill(~rows.response_BL, 0.0)
    rows = Batch(**{**vars(rows), "old_logprobs_BL": old})
    once = learner(copy.deepcopy(policy)).update(
        rows, objective(), budget(1), 10, 1e-3, np.random.default_rng(0)
    )
    assert once.trace.log_ratio_N.abs().max() < 1e-12
    twice = learner(policy).update(
        rows, objective(), budget(1, epochs=2), 10, 1e-3, np.random.default_rng(0)
    )
    assert twice.trace.log_ratio_N.abs().max() > 1e-4
    assert len(twice.trace.log_ratio_N) == 2 * len(once.trace.log_ratio_N)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_mini_batches_never_split_a_group_and_cover_all_rows(count):
    rows = batch()
    parts = list(_minibatches(rows, count, np.random.default_rng(0)))
    assert len(parts) == count
    assert sorted(torch.cat(parts).tolist()) == list(range(ROWS))
    groups = [set(rows.group_B[part].tolist()) for part in parts]
    assert sum(map(len, groups)) == 4


def test_fewer_groups_than_mini_batches():
    parts = list(_minibatches(batch(rows=2), 4, np.random.default_rng(0)))
    assert [part.tolist() for part in parts] == [[0, 1]]


@pytest.mark.parametrize("micro_tokens", [1, 15, 30, 1000])
def test_micro_batches_respect_the_budget(micro_tokens):
    rows = batch()
    lengths = rows.attention_BL.sum(1)
    parts = list(_microbatches(rows, micro_tokens))
    assert sorted(torch.cat(parts).tolist()) == list(range(ROWS))
    for part in parts:
        assert len(part) == 1 or len(part) * lengths[part].max() <= micro_tokens
