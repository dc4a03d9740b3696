"""The transformers engine: what any engine must keep (K10, K12, K17)."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_ablate import assets
from grpo_ablate.engines.transformers import Transformers, _drawn, _uniforms
from grpo_ablate.loss import pack, token_stats
from grpo_ablate.models import causal_lm
from grpo_ablate.types import Advantages, Groups, Problem

PROMPTS = ["3+4:", "7+8-3:", "9-2+5+1:", "1+1+1+1+1:"]


@pytest.fixture(scope="module")
def engine(policy):
    return Transformers(policy, max_prompt_tokens=32, max_new_tokens=24, max_rows=256)


def generate(engine, prompts=PROMPTS, n=4, temperature=1.0, seeds=None):
    ids = [engine.policy.encode(prompt) for prompt in prompts]
    seeds = range(len(prompts)) if seeds is None else seeds
    return engine.generate(ids, n, temperature=temperature, seeds=list(seeds))


def logprobs_of_learner(engine, completions, n, temperature):
    """The learner's own forward pass over the same ids, padded on the other side."""
    problems = tuple(Problem(prompt, "", 1) for prompt in PROMPTS)
    shape = (len(problems), n)
    zeros, ones = torch.zeros(shape).double(), torch.ones(shape).bool()
    prompt_ids = [engine.policy.encode(prompt) for prompt in PROMPTS]
    groups = Groups(problems, prompt_ids, completions, [], zeros, zeros, zeros, ones, ones, ones)
    batch = pack(groups, Advantages(zeros), engine.policy.pad_id, torch.device("cpu"))
    return batch, token_stats(engine.policy.model, batch, temperature)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.3])
def test_k10_on_policy_ratio_is_one(engine, temperature):
    """K10: sampler and learner divide by the same temperature."""
    completions = generate(engine, temperature=temperature)
    with torch.no_grad():
        batch, stats = logprobs_of_learner(engine, completions, 4, temperature)
    ratio = (stats.logprobs_BL - batch.old_logprobs_BL)[batch.response_BL].exp()
    torch.testing.assert_close(ratio, torch.ones_like(ratio), rtol=0, atol=2e-6)


def test_k12_the_prompt_begins_once(policy):
    """K12: exactly one beginning-of-sequence token, ids in and ids out."""
    ids = policy.encode("7+8-3:")
    assert ids.count(policy.tokenizer.bos_token_id) == 1
    assert policy.decode(ids) == "7+8-3:"


def test_k17_seeds(engine):
    """K17: one seed twice is identical, two seeds differ, samples of a prompt are distinct."""
    first, again = generate(engine), generate(engine)
    assert first == again
    assert generate(engine, seeds=[10, 11, 12, 13]).ids != first.ids
    same_prompt = generate(engine, ["9-2+5+1:"], n=16)
    assert len({tuple(ids) for ids in same_prompt.ids}) > 1
    two = generate(engine, ["9-2+5+1:"] * 2, seeds=[0, 1])
    assert two.ids[:4] != two.ids[4:]


def test_a_response_does_not_depend_on_its_batch(engine):
    """Article X3 in the small: what an arm draws more of must not shift what others get."""
    together = generate(engine)
    alone = [generate(engine, [prompt], seeds=[i]) for i, prompt in enumerate(PROMPTS)]
    assert together.ids == [ids for part in alone for ids in part.ids]
    more = generate(engine, n=6)
    assert [more.ids[i * 6 : i * 6 + 4] for i in range(4)] == [
        together.ids[i * 4 : i * 4 + 4] for i in range(4)
    ]


def test_chunks_change_nothing(engine):
    small = Transformers(engine.policy, max_prompt_tokens=32, max_new_tokens=24, max_rows=3)
    assert generate(small).ids == generate(engine).ids


def test_end_of_sequence_is_kept_and_truncation_told(engine):
    short = Transformers(engine.policy, max_prompt_tokens=32, max_new_tokens=2, max_rows=99)
    for completions in (generate(engine), generate(short)):
        eos = engine.policy.eos_ids
        for ids, logprobs, truncated in zip(
            completions.ids, completions.logprobs, completions.truncated, strict=True
        ):
            assert len(ids) == len(logprobs) > 0
            assert truncated == (ids[-1] not in eos)
            assert not any(token in eos for token in ids[:-1])
    assert any(generate(short).truncated)


def test_greedy_takes_the_likeliest_token(engine):
    completions = generate(engine, n=1, temperature=0.0)
    with torch.no_grad():
        batch, _ = logprobs_of_learner(engine, completions, 1, 1.0)
        logits = engine.policy.model(input_ids=batch.ids_BL).logits
    best = logits[:, :-1].argmax(-1)
    inside = batch.response_BL[:, 1:]
    assert torch.equal(best[inside], batch.ids_BL[:, 1:][inside])


@settings(deadline=None)
@given(temperature=st.sampled_from([0.5, 1.0, 2.0]))
def test_samples_follow_the_distribution(temperature):
    """Inverse CDF over 20,000 uniforms against softmax(logits / T), within 5 standard errors."""
    logits = torch.tensor([[2.0, 1.0, 0.0, -3.0]]).expand(20000, 4)
    uniforms = torch.from_numpy(_uniforms([(7, i) for i in range(20000)], 1))
    chosen, logprobs = _drawn(logits, temperature, uniforms[:, 0])
    share = torch.bincount(chosen, minlength=4) / 20000
    wanted = (logits[0] / temperature).softmax(-1)
    assert ((share - wanted).abs() <= 5 * (wanted * (1 - wanted) / 20000).sqrt() + 1e-9).all()
    torch.testing.assert_close(logprobs, wanted[chosen].log())


def test_k11_a_models_own_generation_defaults_do_not_bend_the_sampler(tmp_path):
    """K10, K11: a repetition penalty that ships with a model would, unknown to the learner."""
    shutil.copytree(assets.folder("embedded:tiny"), tmp_path / "model")
    path = tmp_path / "model/generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"repetition_penalty": 1.5}))
    policy = causal_lm(path=str(tmp_path / "model"), base_lr=1e-4, dtype="float64")
    engine = Transformers(policy, max_prompt_tokens=32, max_new_tokens=24, max_rows=256)
    with torch.no_grad():
        batch, stats = logprobs_of_learner(engine, generate(engine), 4, 1.0)
    ratio = (stats.logprobs_BL - batch.old_logprobs_BL)[batch.response_BL].exp()
    torch.testing.assert_close(ratio, torch.ones_like(ratio), rtol=0, atol=2e-6)


def test_zero_probability_tokens_are_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf]]).expand(3, 3)
    chosen, _ = _drawn(logits, 1.0, torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64))
    assert chosen.tolist() == [1, 1, 1]
