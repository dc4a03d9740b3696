"""The engine's own sampling loop against transformers' `generate`: the same tokens, less work."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from transformers import MistralConfig

from grpo_ablate.engines import _sampler, transformers
from tests.test_prefix import CONTINUE, SIZES, made

PROMPTS = [[3, 4, 5, 6, 7], [8, 9], [5, 5, 5], [9, 8, 7, 6, 5, 4, 3, 22]]


def engine(model, tokens=12, rows=256, eos=(2, 9, 11)):
    """An engine over ids alone; three words end a response, so lengths differ much."""
    policy = SimpleNamespace(model=model, eos_ids=eos, pad_id=0)
    return transformers.Transformers(
        policy, max_prompt_tokens=16, max_new_tokens=tokens, max_rows=rows
    )


def sampled(model, **settings):
    seeds = range(len(PROMPTS))
    return engine(model, **settings).generate(PROMPTS, 6, temperature=1.3, seeds=seeds)


@pytest.mark.parametrize("kind", CONTINUE)
def test_it_draws_what_generate_draws(kind, monkeypatch):
    model = made(CONTINUE[kind])
    own = sampled(model)
    monkeypatch.setattr(transformers, "able", lambda *_: False)
    theirs = sampled(model)
    assert own.ids == theirs.ids and own.truncated == theirs.truncated
    assert len({len(ids) for ids in own.ids}) > 4
    for mine, other in zip(own.logprobs, theirs.logprobs, strict=True):
        # generate turns logits into float32
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-6)


def test_a_batch_in_parts_gives_the_same(monkeypatch):
    model = made(CONTINUE["llama"])
    assert sampled(model).ids == sampled(model, rows=5).ids


def test_prompts_are_computed_once_and_ended_rows_leave(monkeypatch):
    model = made(CONTINUE["llama"])
    assert _sampler.able(model, PROMPTS)
    seen = []
    model.model.register_forward_pre_hook(
        lambda _, args, inputs: seen.append(tuple(inputs["input_ids"].shape)), with_kwargs=True
    )
    lengths = [len(ids) for ids in sampled(model).ids]
    assert seen[0] == (len(PROMPTS), max(map(len, PROMPTS)) - 1)
    rows = [shape[0] for shape in seen[1:]]
    assert rows[0] == 6 * len(PROMPTS) and rows == sorted(rows, reverse=True)
    assert len(rows) == max(lengths)
    for position, count in enumerate(rows):
        going = sum(length > position for length in lengths)
        assert going <= count and (going > _sampler.KEPT * count or going == count)


def test_what_it_cannot_do_is_left_to_generate():
    windowed = made(MistralConfig(**SIZES, num_key_value_heads=1, sliding_window=4))
    assert not _sampler.able(windowed, PROMPTS)
    assert not _sampler.able(made(CONTINUE["llama"]), [[3], [4, 5]])
    own = engine(windowed).generate(PROMPTS, 2, temperature=1.0, seeds=range(len(PROMPTS)))
    assert all(own.ids)
