"""Prompts computed once a group: the same loss and gradient, fewer tokens through the model."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from grpo_ablate import logprobs, loss, prefix
from grpo_ablate.learner import Learner, Objective
from grpo_ablate.models import Policy, _adapted
from grpo_ablate.techniques import clip, lr_batch, reduction, regularizer, tis
from grpo_ablate.types import Batch

SIZES = {
    "vocab_size": 23,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 2,
}
CONTINUE = {
    "llama": LlamaConfig(**SIZES),
    "qwen2, tied": Qwen2Config(**SIZES, num_key_value_heads=1, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SIZES, num_key_value_heads=1, head_dim=8),
    "gpt2": GPT2Config(vocab_size=23, n_embd=16, n_layer=2, n_head=2, pad_token_id=0),
}


def made(config, attention="sdpa"):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    return model.double().eval()


def batch(prompts=(3, 6, 5), group=4, longest=9):
    """Groups with prompts of given lengths, ragged responses; the last row carries no loss."""
    draw = torch.Generator().manual_seed(1)
    rows = []
    for number, length in enumerate(prompts):
        prompt = torch.randint(3, 23, (length,), generator=draw).tolist()
        for _ in range(group):
            size = int(torch.randint(1, longest + 1, (1,), generator=draw))
            response = torch.randint(3, 23, (size,), generator=draw).tolist()
            rows.append((number, prompt, response))
    width = max(len(p) + len(r) for _, p, r in rows)
    shape = (len(rows), width)
    ids, attention = torch.zeros(shape).long(), torch.zeros(shape).bool()
    response = torch.zeros(shape).bool()
    for i, (_, p, r) in enumerate(rows):
        ids[i, : len(p) + len(r)] = torch.tensor(p + r)
        attention[i, : len(p) + len(r)] = True
        response[i, len(p) : len(p) + len(r)] = True
    response[-1] = False
    old = torch.randn(shape, generator=draw).double() * 0.1 - 3.1
    return Batch(
        ids_BL=ids,
        attention_BL=attention,
        response_BL=response,
        old_logprobs_BL=old.masked_fill(~response, 0.0),
        ref_logprobs_BL=torch.zeros(shape).double(),
        weights_BL=torch.ones(shape).double(),
        advantages_B=torch.randn(len(rows), generator=draw).double(),
        group_B=torch.tensor([number for number, _, _ in rows]),
        rewards_B=torch.zeros(len(rows)).double(),
    )


PLAIN = {
    "clip": partial(clip.symmetric, eps=0.2, dual_clip=None),
    "reduction": reduction.token_mean,
    "regularizer": regularizer.none(),
    "correction": tis.none(),
    "temperature": 0.7,
    "reference": None,
}
GOALS = {
    "plain": {},
    "entropy": {"regularizer": regularizer.entropy_bonus(coefficient=0.5)},
    "kl": {"regularizer": regularizer.kl(estimator="k3", coefficient=0.5)},
    "own log-probabilities": {"trust_sampler": False},
    "gspo": {
        "clip": partial(
            clip.gspo, eps_low=0.2, eps_high=0.2, length_normalised=True, dual_clip=None
        ),
        "reduction": partial(reduction.sequence_mean, empty_rows="count"),
    },
}


def learned(model, rows, share, monkeypatch, micro_tokens=10_000, **changes):
    """Train one step on a copy; return gradient, trace, and tokens that went through the model."""
    own = copy.deepcopy(model)
    goal = PLAIN | changes
    if goal["regularizer"].reference:
        goal["reference"] = made(own.config)
    student = Learner(
        Policy(own, None, 1e-3, (2,), 0),
        micro_tokens=micro_tokens, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.0,
    )  # fmt: skip
    tokens, gradient = [], []
    own.get_input_embeddings().register_forward_hook(
        lambda module, given, out: tokens.append(given[0].numel())
    )
    monkeypatch.setattr(
        "grpo_ablate.learner.views", lambda *args, **_: prefix.views(*args, share=share)
    )
    monkeypatch.setattr(
        torch.optim.AdamW,
        "step",
        lambda self: gradient.append(
            torch.cat([p.grad.flatten() for p in own.parameters() if p.grad is not None])
        ),
    )
    plan = lr_batch.constant(
        lr_scale=1.0, warmup=0, prompts=3, minibatches=1, epochs=1, max_grad_norm=1e9
    )
    update = student.update(rows, Objective(**goal), plan, 10, 1e-3, np.random.default_rng(0))
    return gradient[0], update, sum(tokens)


def assert_same(model, rows, monkeypatch, **changes):
    prefix.continues(model)
    # transformers computes rotary angles in float32, whose cosine may end in another digit
    # in another place of a tensor
    atol = 1e-12 if model.config.model_type == "gpt2" else 1e-8
    whole, update, tokens = learned(model, rows, False, monkeypatch, **changes)
    shared, other, fewer = learned(model, rows, True, monkeypatch, **changes)
    assert whole.abs().max() > 1e-3
    assert fewer < 0.9 * tokens
    torch.testing.assert_close(shared, whole, rtol=0, atol=atol)
    assert other.losses == pytest.approx(update.losses, abs=atol)
    for name in ("log_ratio_N", "entropy_N"):
        ours, theirs = (getattr(u.trace, name).sort().values for u in (other, update))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)


@pytest.mark.parametrize("name", CONTINUE)
def test_gradient_is_that_of_whole_rows(name, monkeypatch):
    model = made(CONTINUE[name])
    assert prefix.continues(model)
    assert_same(model, batch(), monkeypatch)


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("micro_tokens", [24, 60])
def test_whatever_is_learned_and_however_it_is_split(goal, micro_tokens, monkeypatch):
    """K2 with shared prompts: groups, and rows of one group, in several passes."""
    rows = batch()
    assert_same(
        made(CONTINUE["llama"]), rows, monkeypatch, micro_tokens=micro_tokens, **GOALS[goal]
    )


def test_eager_attention(monkeypatch):
    assert_same(made(CONTINUE["llama"], "eager"), batch(), monkeypatch)


def test_large_vocabularies_never_hold_all_logits(monkeypatch):
    monkeypatch.setattr(loss, "FULL_ELEMENTS", 0)
    model = made(CONTINUE["qwen2, tied"])
    assert logprobs.plain_head(model) is not None
    assert_same(model, batch(), monkeypatch)


def test_an_adapter_learns_the_same(monkeypatch):
    pytest.importorskip("peft")
    model = _adapted(made(CONTINUE["llama"]), rank=2, alpha=4.0).double().eval()
    assert_same(model, batch(), monkeypatch)


def test_prompts_of_all_lengths_at_once(monkeypatch):
    assert_same(made(CONTINUE["llama"]), batch(prompts=(2, 30, 7, 11)), monkeypatch)


@pytest.mark.parametrize(
    ("prompts", "group", "why"),
    [((1, 1), 4, "the last token of a prompt predicts"), ((9, 9, 9, 9), 1, "nobody to share with")],
)
def test_nothing_to_share(prompts, group, why, monkeypatch):
    rows = batch(prompts=prompts, group=group)
    *_, tokens = learned(made(CONTINUE["llama"]), rows, True, monkeypatch)
    *_, whole = learned(made(CONTINUE["llama"]), rows, False, monkeypatch)
    assert tokens == whole, why


def test_rows_of_a_group_that_differ_share_what_they_have_in_common(monkeypatch):
    """A group's number is no promise about its tokens."""
    rows = batch(prompts=(6, 6), group=4)
    ids = rows.ids_BL.clone()
    ids[1, 3] = 22 if ids[1, 3] != 22 else 21
    rows = replace(rows, ids_BL=ids)
    assert_same(made(CONTINUE["llama"]), rows, monkeypatch)
    live = torch.arange(len(rows) - 1)
    starts = {
        view.start_R[0].item() for view in prefix.views(made(CONTINUE["llama"]), rows, live, 8)
    }
    assert starts == {3, 5}


@pytest.mark.parametrize(
    "config",
    [
        MistralConfig(**SIZES, num_key_value_heads=1, sliding_window=4),
        Gemma3TextConfig(**SIZES, num_key_value_heads=1, head_dim=8, sliding_window=4),
    ],
    ids=["mistral", "gemma3"],
)
def test_sliding_windows_are_left_to_whole_rows(config):
    assert not prefix.continues(made(config))


def test_a_model_that_goes_on_otherwise_is_left_to_whole_rows(monkeypatch):
    model = made(CONTINUE["llama"])
    original = prefix.Prefix.inputs
    monkeypatch.setattr(
        prefix.Prefix,
        "inputs",
        lambda self, ids, mask: original(self, ids, mask) | {"position_ids": ids * 0},
    )
    assert not prefix.continues(model)
