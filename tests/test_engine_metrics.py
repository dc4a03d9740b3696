"""How far an engine is from the learner, and what it took: numbers worked out by hand."""

from __future__ import annotations

import csv
import dataclasses
import math

import numpy as np
import pytest
import torch

from grpo_ablate import metrics, publish
from grpo_ablate.engines.transformers import Transformers
from grpo_ablate.plans import Tally
from grpo_ablate.records import Records
from grpo_ablate.rollout import Rollout
from grpo_ablate.train import train
from grpo_ablate.types import Completions
from grpo_ablate.variants import bind
from tests.conftest import SMALL, composed
from tests.engines.helpers import PROMPTS, as_batch, generate, objective


@dataclasses.dataclass
class _Groups:
    """The few fields that the engine's metrics read."""

    completions: Completions
    group_size: int = 2
    prompt_lengths_P: torch.Tensor = dataclasses.field(
        default_factory=lambda: torch.tensor([4.0, 6.0])
    )
    lengths_PG: torch.Tensor = dataclasses.field(
        default_factory=lambda: torch.tensor([[10.0, 20.0], [30.0, 40.0]])
    )


@dataclasses.dataclass
class _Update:
    mismatch_N: torch.Tensor | None


def measured(cached, diff, seconds):
    groups = _Groups(Completions([], [], [], cached))
    rollout = Rollout(groups, Tally(), seconds)
    found = metrics._engine(rollout, _Update(diff))
    return {name.split("/")[1]: value for name, (value, _) in found.items()}


def test_values():
    """2 prompts of 4 and 6 tokens, 2 samples each: 20 prompt tokens, 10 of them cached."""
    found = measured([0, 4, 0, 6], torch.tensor([0.1, 0.3]).double(), 4.0)
    assert found["logprob_diff_mean"] == pytest.approx(0.2)
    assert found["logprob_diff_max"] == pytest.approx(0.3)
    assert found["prefix_cache_hit_rate"] == 0.5
    assert found["tokens_per_second"] == 25.0


def test_they_reach_metrics_csv_and_wandb(tmp_path, monkeypatch):
    """A run of one step with a sampler that is no learner, as vLLM is: 0.25 nats off, half cached.

    vLLM itself: tests/engines/test_vllm_runs.py.
    """

    def generate(self, prompt_ids, n, *, temperature, seeds, own=Transformers.generate):
        found = own(self, prompt_ids, n, temperature=temperature, seeds=seeds)
        off = [[value - 0.25 for value in row] for row in found.logprobs]
        cached = [len(ids) // 2 for ids in prompt_ids for _ in range(n)]
        return dataclasses.replace(found, logprobs=off, cached=cached)

    monkeypatch.setattr(Transformers, "generate", generate)
    monkeypatch.setattr(Transformers, "is_learner", False)
    assert train(composed(*SMALL, "steps=1"), Records(tmp_path, "hash", "source", 1)) == "complete"
    (row,) = csv.DictReader((tmp_path / "metrics.csv").read_text().splitlines())
    for name in ("logprob_diff_mean", "logprob_diff_max"):
        assert float(row[f"engine/{name}"]) == pytest.approx(0.25, abs=1e-5)
    assert 0.3 < float(row["engine/prefix_cache_hit_rate"]) <= 0.5
    assert float(row["perf/tokens_per_second"]) > 0
    (sent,) = (row for row in publish.settled(tmp_path) if row.step == 1)
    names = [name for name in row if name.startswith("engine/")] + ["perf/tokens_per_second"]
    assert len(names) == 4
    assert {name: sent.scalars[name] for name in names} == {n: float(row[n]) for n in names}


def test_nothing_to_measure_is_no_zero():
    found = measured([], None, math.nan)
    assert all(math.isnan(value) for value in found.values())


@pytest.mark.parametrize("trusted", [True, False])
def test_the_learner_starts_from_its_own_logprobs(policy, trusted):
    """K18: a sampler that is off by 0.5 nats everywhere is measured, and moves no ratio."""
    engine = Transformers(policy, max_prompt_tokens=64, max_new_tokens=24, max_rows=256)
    completions = generate(engine)
    off = [[value - 0.5 for value in row] for row in completions.logprobs]
    batch = as_batch(engine, dataclasses.replace(completions, logprobs=off))
    batch = dataclasses.replace(batch, advantages_B=torch.ones(4 * len(PROMPTS)).double())
    before = {name: p.detach().clone() for name, p in policy.model.named_parameters()}
    learner = bind("learner", composed()["learner"], policy)()
    lr_batch = bind("lr_batch", composed()["lr_batch"] | {"minibatches": 1})()
    order = np.random.default_rng(0)
    update = learner.update(batch, objective(trusted), lr_batch, 300, 1e-4, order)
    policy.model.load_state_dict(before, strict=False)
    ratio = update.trace.log_ratio_N.mean().item()
    assert ratio == pytest.approx(0.5 if trusted else 0.0, abs=1e-5)
    if trusted:
        assert update.mismatch_N is None
    else:
        assert update.mismatch_N.mean().item() == pytest.approx(0.5, abs=1e-5)
