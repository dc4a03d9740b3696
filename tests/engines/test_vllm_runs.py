"""Whole runs with vLLM, as a user types them, and the contract on a real language model.

The language model is made once by `python scripts/make_smollm2.py`; without it its tests are
skipped (GRPO_ABLATE_REQUIRE_SMOLLM2=1 makes that a failure).
"""

from __future__ import annotations

import importlib.util
import os

import pandas as pd
import pytest

from tests.conftest import ROOT, shell
from tests.engines.test_contract import generate, make, mismatch, perturb, require_vllm

pytestmark = [pytest.mark.slow, pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]
SMOLLM2 = ROOT / "models/smollm2_135m"


def require_smollm2():
    require_vllm()
    if not SMOLLM2.is_dir():
        assert not os.environ.get("GRPO_ABLATE_REQUIRE_SMOLLM2"), "no models/smollm2_135m"
        pytest.skip("python scripts/make_smollm2.py makes the model")


def run(folder, *argv):
    done = shell(*argv, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("multirun_outputs/*/seed=1/metrics.csv")
    return pd.read_csv(path)


def check_sampler(metrics):
    """The sampler had the learner's weights at every step, those after an update too."""
    assert metrics["optim/updates"].iloc[0] > 0
    assert metrics["engine/logprob_diff_max"].max() < 5e-4
    assert (metrics["perf/tokens_per_second"] > 0).all()


def test_the_embedded_default_trains_with_vllm(tmp_path):
    require_vllm()
    small = ["evaluation.problems=8", "lr_batch.prompts=8"]
    metrics = run(tmp_path, "engine=vllm", "steps=3", "log_every=1", *small)
    assert len(metrics) == 3
    check_sampler(metrics)


def test_a_language_model_trains_on_reasoning_gym_with_vllm(tmp_path):
    require_smollm2()
    assert importlib.util.find_spec("reasoning_gym"), "needs the extra `tasks`"
    metrics = run(
        tmp_path,
        "model=smollm2_135m",
        f"model.path={SMOLLM2}",
        "task=reasoning_gym",
        "task.size=300",
        "task.held_out=20",
        # a rule that any four answers differ by: in 24 tokens the model seldom gets to a number
        "task.verifier=python:tests.data.own_rule.even",
        "engine=vllm",
        "engine.kv_cache_gib=1",
        "engine.max_prompt_tokens=96",
        "engine.max_new_tokens=24",
        "evaluation.problems=2",
        "lr_batch.prompts=4",
        "lr_batch.minibatches=1",
        "sampling.group_size=4",
        "steps=2",
        "log_every=1",
    )
    check_sampler(metrics)
    assert metrics["engine/prefix_cache_hit_rate"].iloc[0] > 0


def test_the_contract_on_a_language_model_with_tied_embeddings():
    """K10 and K18 in float32; two summation orders of 30 layers differ by up to 2e-4."""
    require_smollm2()
    engine = make("vllm", {"max_new_tokens": 12, "kv_cache_gib": 1.0}, SMOLLM2)
    try:
        assert engine.policy.model.config.tie_word_embeddings
        assert mismatch(engine, generate(engine, n=2)) < 5e-4
        perturb(engine.policy.model)
        assert mismatch(engine, generate(engine, n=2)) > 0.01
        engine.push(engine.policy.model)
        assert mismatch(engine, generate(engine, n=2)) < 5e-4
    finally:
        engine.close()
