"""What the tests of engines share: an engine on a model, its samples, the learner's view."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import replace

import pytest
import torch

from grpo_ablate import assets
from grpo_ablate.learner import Objective
from grpo_ablate.loss import pack, token_stats
from grpo_ablate.models import causal_lm
from grpo_ablate.plans import Correction
from grpo_ablate.types import Advantages, Groups, Problem
from grpo_ablate.variants import bind
from tests.conftest import ROOT, composed
from tests.test_models import load

PROMPTS = ["3+4:", "7+8-3:", "9-2+5+1:", "1+" * 25 + "1:"]
"""The last one is longer than a block of the prefix cache."""
TINY = assets.folder("embedded:tiny")
SMOLLM2 = ROOT / "models/smollm2_135m"


def require_vllm():
    if importlib.util.find_spec("vllm") is None:
        assert not os.environ.get("GRPO_ABLATE_REQUIRE_VLLM"), "vllm is not installed"
        pytest.skip("vllm is not installed")


def require_smollm2():
    require_vllm()
    if not SMOLLM2.is_dir():
        assert not os.environ.get("GRPO_ABLATE_REQUIRE_SMOLLM2"), "no models/smollm2_135m"
        pytest.skip("python scripts/make_smollm2.py makes the model")


def make(name, knobs, folder, **changes):
    """An engine on a model's files, with the model's own weights pushed."""
    if name == "vllm":
        require_vllm()
    if folder == SMOLLM2:
        require_smollm2()
        policy = load(folder)  # in its chat template
        # a second end token, as chat models have, and one it gets to within a test's few tokens
        (newline,) = policy.tokenizer.encode("\n", add_special_tokens=False)
        policy = replace(policy, eos_ids=(*policy.eos_ids, newline))
        assert policy.model.config.tie_word_embeddings
    else:
        policy = causal_lm(path=str(folder), base_lr=1e-4, dtype="float32")
    node = composed(f"engine={name}")["engine"]
    node |= {"max_prompt_tokens": 64, **knobs, **changes}
    engine = bind("engine", node, policy)()
    engine.push(policy.model)
    return engine


def generate(engine, prompts=PROMPTS, n=4, temperature=1.0, seeds=None):
    ids = [engine.policy.encode(prompt) for prompt in prompts]
    seeds = range(len(prompts)) if seeds is None else seeds
    return engine.generate(ids, n, temperature=temperature, seeds=list(seeds))


def as_batch(engine, completions, advantages=None):
    count = len(completions.ids) // len(PROMPTS)
    problems = tuple(Problem(prompt, "", 1) for prompt in PROMPTS)
    shape = (len(problems), count)
    zeros, ones = torch.zeros(shape).double(), torch.ones(shape).bool()
    prompt_ids = [engine.policy.encode(prompt) for prompt in PROMPTS]
    groups = Groups(problems, prompt_ids, completions, [], zeros, zeros, zeros, ones, ones, ones)
    values = zeros if advantages is None else advantages
    return pack(groups, Advantages(values), engine.policy.pad_id, torch.device("cpu"))


def mismatch(engine, completions, temperature=1.0):
    """Largest |sampler - learner| log-probability: the learner's own forward pass."""
    batch = as_batch(engine, completions)
    with torch.no_grad():
        stats = token_stats(engine.policy.model, batch, temperature)
    return (stats.logprobs_BL - batch.old_logprobs_BL)[batch.response_BL].abs().max().item()


def perturb(model, seed=0, scale=0.2):
    """Move every weight far enough that no old log-probability is right."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.add_(noise * weight.std(correction=0) * scale)


def objective(trust_sampler):
    """The baseline's loss."""
    return Objective(
        clip=bind("clip", composed()["clip"]),
        reduction=bind("reduction", composed()["reduction"]),
        regularizer=bind("regularizer", {"name": "none"})(),
        correction=Correction(None),
        temperature=1.0,
        reference=None,
        trust_sampler=trust_sampler,
    )
