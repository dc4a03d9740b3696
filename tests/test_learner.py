"""The optimizer step: exact under any split into micro-batches, still where there is no signal."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from grpo_ablate import learner as learning
from grpo_ablate import loss
from grpo_ablate.learner import Learner, Objective
from grpo_ablate.models import Policy
from grpo_ablate.prefix import microbatches
from grpo_ablate.recompute import recomputed
from grpo_ablate.rows import minibatches
from grpo_ablate.techniques import clip, lr_batch, reduction, regularizer, tis
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
    return Batch(
        ids_BL=ids,
        attention_BL=attention,
        response_BL=response,
        old_logprobs_BL=old.masked_fill(~response, 0.0),
        ref_logprobs_BL=torch.zeros_like(old),
        weights_BL=torch.ones_like(old),
        advantages_B=advantages,
        group_B=group,
        rewards_B=torch.zeros(rows).double(),
    )


def objective(**changes):
    parts = {
        "clip": partial(clip.symmetric, eps=0.2, dual_clip=None),
        "reduction": reduction.token_mean,
        "regularizer": regularizer.none(),
        "correction": tis.none(),
        "temperature": 1.0,
        "reference": None,
    }
    return Objective(**(parts | changes))


def learner(policy, micro_tokens=10_000, **more):
    return Learner(
        policy, micro_tokens=micro_tokens, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.0, **more
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


def gradient_of(policy, monkeypatch, micro_tokens, rows, objective, **more):
    """The gradient that reaches the optimizer, as one flat vector."""
    caught = []
    parameters = list(policy.model.parameters())
    monkeypatch.setattr(
        torch.optim.AdamW,
        "step",
        lambda self: caught.append(torch.cat([p.grad.flatten() for p in parameters])),
    )
    order = np.random.default_rng(0)
    learner(policy, micro_tokens, **more).update(rows, objective, budget(), 10, 1e-3, order)
    return caught[0]


REDUCTIONS = {
    "token_mean": reduction.token_mean,
    "sequence_mean": partial(reduction.sequence_mean, empty_rows="count"),
    "constant": partial(reduction.constant, horizon=7, empty_rows="count"),
    "group_token_mean": reduction.group_token_mean,
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


@pytest.mark.parametrize("micro_tokens", [40, 10_000])
def test_layers_computed_twice_leave_the_gradient_alone(policy, monkeypatch, micro_tokens):
    """Exactly that of whole rows; each layer runs once more, and only while learning."""
    real, shares, calls = learning.views, [], []

    def whole_rows(*args, **more):
        shares.append(more["share"])
        return real(*args, **more | {"share": False})

    monkeypatch.setattr(learning, "views", whole_rows)
    inside = (
        policy.model.get_decoder()
        .layers[0]
        .mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    )
    goal = objective(regularizer=regularizer.entropy_bonus(coefficient=0.5))
    plain = gradient_of(policy, monkeypatch, micro_tokens, batch(), goal)
    once = len(calls)
    twice = gradient_of(
        policy, monkeypatch, micro_tokens, batch(), goal, gradient_checkpointing=True
    )
    assert shares == [True, False]
    assert plain.abs().max() > 1e-3
    assert torch.equal(twice, plain)
    assert len(calls) == 3 * once
    policy.model(torch.tensor([[1, 2]])).logits.sum().backward()
    assert len(calls) == 3 * once + 1, "the layer is its own again"
    inside.remove()
    policy.model.zero_grad()


def test_a_model_without_layers_cannot_compute_them_again():
    class Bare(torch.nn.Module):
        def get_decoder(self):
            return torch.nn.Linear(1, 1)

    with (
        pytest.raises(ValueError, match=r"Bare has no list.*gradient_checkpointing=false"),
        recomputed(Bare()),
    ):
        pass


@each_reduction
def test_k16_padding_leaves_the_gradient_alone(policy, monkeypatch, reduce):
    """K16: five columns of rubbish that attention masks."""
    rows = batch()
    pad = partial(torch.nn.functional.pad, pad=(0, 5))
    wide = replace(
        rows,
        ids_BL=pad(rows.ids_BL, value=7),
        attention_BL=pad(rows.attention_BL),
        response_BL=pad(rows.response_BL),
        old_logprobs_BL=pad(rows.old_logprobs_BL, value=50.0),
        ref_logprobs_BL=pad(rows.ref_logprobs_BL, value=50.0),
        weights_BL=pad(rows.weights_BL, value=50.0),
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
    rows = replace(rows, old_logprobs_BL=old)
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
    parts = list(minibatches(rows, count, np.random.default_rng(0)))
    assert len(parts) == count
    assert sorted(torch.cat(parts).tolist()) == list(range(ROWS))
    groups = [set(rows.group_B[part].tolist()) for part in parts]
    assert sum(map(len, groups)) == 4


def test_fewer_groups_than_mini_batches():
    parts = list(minibatches(batch(rows=2), 4, np.random.default_rng(0)))
    assert [part.tolist() for part in parts] == [[0, 1]]


@pytest.mark.parametrize("micro_tokens", [1, 15, 30, 1000])
def test_micro_batches_respect_the_budget(micro_tokens):
    rows = batch()
    lengths = rows.attention_BL.sum(1)
    parts = list(microbatches(lengths, micro_tokens))
    assert sorted(torch.cat(parts).tolist()) == list(range(ROWS))
    for part in parts:
        assert len(part) == 1 or len(part) * lengths[part].max() <= micro_tokens


def own_logprobs(policy, rows):
    from grpo_ablate.loss import token_stats

    with torch.no_grad():
        return token_stats(policy.model, rows, 1.0).logprobs_BL.masked_fill(~rows.response_BL, 0.0)


OBJECTIVES = {
    "entropy": {"regularizer": regularizer.entropy_bonus(coefficient=0.5)},
    "kl": {"regularizer": regularizer.kl(estimator="k3", coefficient=0.5)},
    "tis": {"correction": tis.sequence(mode="truncate", minimum=None, maximum=2, normalise=True)},
    "gspo": {
        "clip": partial(
            clip.gspo, eps_low=0.2, eps_high=0.2, length_normalised=True, dual_clip=None
        )
    },
    "cispo": {"clip": partial(clip.cispo, weight_min=None, weight_max=1.1)},
}


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("micro_tokens", [1, 25])
def test_k2_holds_for_every_kind_of_term(policy, monkeypatch, name, micro_tokens):
    """Regularizers and corrections share the step's one denominator: float64, 1e-12."""
    parts = OBJECTIVES[name]
    if name == "kl":
        shifted = copy.deepcopy(policy.model)
        with torch.no_grad():
            for parameter in shifted.parameters():
                parameter.mul_(1.1)
        parts = parts | {"reference": shifted}
    goal = objective(**parts)
    whole = gradient_of(policy, monkeypatch, 10_000, batch(), goal)
    plain = gradient_of(policy, monkeypatch, 10_000, batch(), objective())
    assert (whole - plain).abs().max() > 1e-6, "the term has an effect"
    split = gradient_of(policy, monkeypatch, micro_tokens, batch(), goal)
    torch.testing.assert_close(split, whole, rtol=0, atol=1e-12)


def test_kl_needs_distance_to_pull(policy, monkeypatch):
    """At the reference itself the KL is 0 and so is its gradient; the log says so."""
    goal = objective(**OBJECTIVES["kl"], reference=copy.deepcopy(policy.model))
    still = gradient_of(policy, monkeypatch, 10_000, batch(), goal)
    plain = gradient_of(policy, monkeypatch, 10_000, batch(), objective())
    torch.testing.assert_close(still, plain, rtol=0, atol=1e-12)
    update = learner(policy).update(batch(), goal, budget(), 10, 1e-3, np.random.default_rng(0))
    assert update.trace.kl_N.abs().max() < 1e-12
    assert len(update.trace.kl_N) == len(update.trace.log_ratio_N)


def test_tis_moves_the_ratio_to_the_learners_own_and_weights_the_rest(policy):
    """The sampler is off by a factor of e^0.5 a token: the ratio is 1 all the same."""
    rows = batch()
    own = own_logprobs(policy, rows)
    off = replace(rows, old_logprobs_BL=(own - 0.5).masked_fill(~rows.response_BL, 0.0))
    goal = objective(
        correction=tis.token(mode="truncate", minimum=None, maximum=2.0, normalise=False)
    )
    found = learner(policy).update(off, goal, budget(), 10, 1e-3, np.random.default_rng(0))
    assert found.trace.log_ratio_N.abs().max() < 1e-12
    torch.testing.assert_close(
        found.trace.weight_N, torch.full_like(found.trace.weight_N, np.exp(0.5))
    )


@each_reduction
def test_k3_a_masked_row_is_an_empty_row(policy, monkeypatch, reduce):
    """K3: overlong filtering. The gradient is the kept rows' own, times what the rows count."""
    rows = batch()
    response = rows.response_BL.clone()
    response[-2:] = False
    goal = objective(reduction=reduce)
    masked = replace(rows, response_BL=response)
    found = gradient_of(policy, monkeypatch, 30, masked, goal)
    kept = gradient_of(policy, monkeypatch, 10_000, rows.rows(torch.arange(ROWS - 2)), goal)
    counted = 1.0 if reduce is reduction.token_mean else (ROWS - 2) / ROWS
    # the model's RMSNorm computes in float32, so its gradient is linear to 1e-8 only
    torch.testing.assert_close(found, kept * counted, rtol=0, atol=1e-7)


def test_k4_every_row_masked(policy):
    """K4: loss 0, no step of optimizer or schedule, nothing to measure rather than NaN."""
    rows = replace(batch(), response_BL=torch.zeros(ROWS, WIDTH).bool())
    before, student = weights(policy), learner(policy)
    update = student.update(rows, objective(), budget(2), 10, 1e-3, np.random.default_rng(0))
    assert update.losses == [0.0, 0.0]
    assert (update.applied, student.applied, len(update.trace.log_ratio_N)) == (0, 0, 0)
    torch.testing.assert_close(weights(policy), before, rtol=0, atol=0)


@each_reduction
def test_k16_a_batch_twice_has_the_same_gradient(policy, monkeypatch, reduce):
    """K16: other groups with the same rows."""
    rows = batch()
    twice = rows.rows(torch.arange(ROWS).repeat(2))
    twice = replace(twice, group_B=torch.arange(2 * ROWS) // 2)
    goal = objective(reduction=reduce)
    torch.testing.assert_close(
        gradient_of(policy, monkeypatch, 10_000, twice, goal),
        gradient_of(policy, monkeypatch, 10_000, rows, goal),
        rtol=0,
        atol=1e-12,
    )


@pytest.mark.parametrize("name", ["entropy", "kl", "gspo"])
def test_chunked_log_probabilities_leave_the_gradient_alone(policy, monkeypatch, name):
    """The path of large vocabularies, on a small one: float64, 1e-10."""
    parts = OBJECTIVES[name]
    goal = objective(**parts, reference=copy.deepcopy(policy.model) if name == "kl" else None)
    full = gradient_of(policy, monkeypatch, 30, batch(), goal)
    monkeypatch.setattr("grpo_ablate.loss.FULL_ELEMENTS", 0)
    asked = []
    plain_head = loss.plain_head
    monkeypatch.setattr(loss, "plain_head", lambda m: asked.append(plain_head(m)) or asked[-1])
    chunked = gradient_of(policy, monkeypatch, 30, batch(), goal)
    assert asked and all(asked)
    torch.testing.assert_close(chunked, full, rtol=0, atol=1e-10)
