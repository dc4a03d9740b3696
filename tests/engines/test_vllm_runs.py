"""Whole runs with vLLM, as a user types them: the embedded default, and a real language model."""

from __future__ import annotations

import importlib.util

import pandas as pd
import pytest

from tests.conftest import shell
from tests.engines.helpers import SMOLLM2, require_smollm2, require_vllm

pytestmark = [pytest.mark.slow, pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]


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


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_a_bfloat16_sampler_is_corrected(tmp_path, level):
    """Where vLLM rounds and the learner does not, a correction has weights other than 1."""
    require_vllm()
    small = ["evaluation.problems=8", "lr_batch.prompts=8", "steps=2", "log_every=1"]
    metrics = run(tmp_path, "engine=vllm", "engine.dtype=bfloat16", f"tis={level}", *small)
    assert len(metrics) == 2
    assert (metrics["technique/activity_tis"] > 0).all()
    assert (metrics["engine/logprob_diff_max"] > 1e-3).all()
    # the ratios start from the learner's own log-probabilities, not from the sampler's
    assert metrics["ratio/p50"].iloc[0] == pytest.approx(1.0, abs=1e-3)
    assert (metrics["optim/updates"] > 0).all() and metrics["policy/loss"].notna().all()


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
