"""One seed's first step through both engines on the same ids: the same loss.

vLLM samples. The transformers engine then walks over vLLM's responses with its own loop (shared
prompts, cached keys, rows that leave), and takes their log-probabilities from its own logits. Both
are whole runs of one step: prompts, rewards, advantages and mini-batches come out of the seed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
import torch

from grpo_ablate.engines import transformers
from grpo_ablate.engines.transformers import Transformers
from grpo_ablate.learner import Learner
from grpo_ablate.records import Records
from grpo_ablate.train import train
from grpo_ablate.types import Completions, Update
from tests.conftest import composed
from tests.engines.helpers import require_vllm

pytestmark = [pytest.mark.slow, pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]
CONFIG = ["steps=1", "lr_batch.prompts=16", "evaluation.problems=8", "threads=1", "seed=3"]


@dataclass
class Step:
    """What a run of one step did."""

    prompt_ids: list[list[int]]
    seeds: list[int]
    completions: Completions
    update: Update
    metrics: pd.Series


def first_step(engine, name, folder):
    """Train one step as the worker does, and note what went in and out of engine and learner."""
    calls, updates = [], []
    generate, update = engine.generate, Learner.update

    def noting_generate(self, prompt_ids, n, *, temperature, seeds):
        found = generate(self, prompt_ids, n, temperature=temperature, seeds=seeds)
        if n > 1:  # not an evaluation
            calls.append((prompt_ids, seeds, found))
        return found

    def noting_update(self, *args, **kwargs):
        updates.append(update(self, *args, **kwargs))
        return updates[-1]

    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "generate", noting_generate)
        patch.setattr(Learner, "update", noting_update)
        train(composed(f"engine={name}", *CONFIG), Records(folder, "hash", "source", 1))
    ((prompt_ids, seeds, completions),) = calls
    (updated,) = updates
    metrics = pd.read_csv(folder / "metrics.csv").iloc[0]
    return Step(prompt_ids, seeds, completions, updated, metrics)


@pytest.fixture(scope="module")
def by_vllm(tmp_path_factory):
    require_vllm()
    from grpo_ablate.engines.vllm import Vllm

    return first_step(Vllm, "vllm", tmp_path_factory.mktemp("vllm") / "run")


def walk_over(step, monkeypatch):
    """Let transformers' loop choose the tokens of another engine's responses.

    A sampler draws its tokens by the uniforms of (prompt's seed, sample). In their place come
    the tokens, as negative numbers; evaluations keep theirs.
    """
    drawn, uniforms = transformers._drawn, transformers._uniforms
    size = len(step.completions.ids) // len(step.seeds)
    keys = [(seed, j) for seed in step.seeds for j in range(size)]
    given = dict(zip(keys, step.completions.ids, strict=True))

    def tokens(keys, count):
        if keys[0] not in given:
            return uniforms(keys, count)
        rows = [[*given[key], *[given[key][-1]] * count][:count] for key in keys]
        return -1.0 - np.array(rows, dtype=np.float64)

    def chosen(logits_RV, temperature, level_R):
        if level_R[0] >= 0:
            return drawn(logits_RV, temperature, level_R)
        chosen_R = (-1 - level_R).long()
        logprobs_RV = (logits_RV / temperature).log_softmax(-1)
        return chosen_R, logprobs_RV.gather(-1, chosen_R[:, None])[:, 0]

    monkeypatch.setattr(transformers, "_uniforms", tokens)
    monkeypatch.setattr(transformers, "_drawn", chosen)


def test_the_first_loss_is_the_same_through_both_engines(by_vllm, tmp_path, monkeypatch):
    walk_over(by_vllm, monkeypatch)
    other = first_step(Transformers, "transformers", tmp_path / "run")
    assert other.prompt_ids == by_vllm.prompt_ids
    assert other.completions.ids == by_vllm.completions.ids
    assert other.completions.truncated == by_vllm.completions.truncated
    check_same(other, by_vllm)
    same = [name for name in other.metrics.index if name.startswith(("reward", "completion"))]
    assert (other.metrics[same].dropna() == by_vllm.metrics[same].dropna()).all()


@pytest.mark.parametrize(("scale", "right"), [(1.0, True), (1.01, False)])
def test_vllms_own_logprobs_give_it_too(by_vllm, tmp_path, monkeypatch, scale, right):
    """Ratios started from them; and a sampler that is off by 1 % would not pass."""
    logprobs = [[scale * value for value in row] for row in by_vllm.completions.logprobs]
    answers = replace(by_vllm.completions, logprobs=logprobs)
    generate = Transformers.generate

    def given(self, prompt_ids, n, *, temperature, seeds):
        if n > 1:
            return answers
        return generate(self, prompt_ids, n, temperature=temperature, seeds=seeds)

    monkeypatch.setattr(Transformers, "generate", given)
    other = first_step(Transformers, "transformers", tmp_path / "run")
    assert other.update.mismatch_N is None, "the learner took them for its own"
    if right:
        check_same(other, by_vllm)
    else:
        assert abs(other.update.losses[0] - by_vllm.update.losses[0]) > 1e-4


def check_same(one, other):
    """Loss and gradient norm of each mini-batch, and each token's ratio after the updates."""
    found, wanted = one.update, other.update
    assert len(wanted.losses) == 4 and max(map(abs, wanted.losses)) > 1e-3
    assert found.losses == pytest.approx(wanted.losses, abs=1e-5)
    assert found.grad_norms == pytest.approx(wanted.grad_norms, rel=1e-4)
    difference_N = found.trace.log_ratio_N - wanted.trace.log_ratio_N
    assert wanted.trace.log_ratio_N.abs().max() > 1e-3 > 10 * difference_N.abs().max()
    assert torch.equal(found.trace.clipped_high_N, wanted.trace.clipped_high_N)
