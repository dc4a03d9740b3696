"""Whole runs with vLLM, as a user types them: those that docs/engines.md shows, and `tis`."""

from __future__ import annotations

import importlib.util

import pandas as pd
import pytest

from tests import markdown
from tests.conftest import ROOT, shell
from tests.engines.helpers import SMOLLM2, require_smollm2, require_vllm

pytestmark = [pytest.mark.slow, pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]


def shown():
    """What docs/engines.md says is run here: the embedded default, then a language model."""
    page = (ROOT / "docs/engines.md").read_text(encoding="utf-8")
    marked = [c.words for c in markdown.commands(page) if "run by" in c.marks]
    assert all(words[:3] == ("python", "-m", "grpo_ablate") for words in marked)
    tiny, language = (words[3:] for words in marked)
    return tiny, language


def run(folder, *argv):
    done = shell(*argv, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*/*/seed=1/metrics.csv")
    return pd.read_csv(path)


def check_sampler(metrics, tolerance):
    """The sampler had the learner's weights at every step, those after an update too."""
    assert len(metrics) == 3 and metrics["optim/updates"].iloc[:2].sum() > 0
    assert metrics["engine/logprob_diff_max"].max() < tolerance
    assert (metrics["perf/tokens_per_second"] > 0).all()


def test_the_embedded_default_trains_with_vllm(tmp_path):
    require_vllm()
    check_sampler(run(tmp_path, *shown()[0]), 1e-4)


def test_a_language_model_trains_on_reasoning_gym_with_vllm(tmp_path):
    require_smollm2()
    assert importlib.util.find_spec("reasoning_gym"), "needs the extra `tasks`"
    (tmp_path / "models").symlink_to(SMOLLM2.parent)
    metrics = run(tmp_path, *shown()[1])
    check_sampler(metrics, 5e-4)
    assert (metrics["engine/prefix_cache_hit_rate"] > 0).all()


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
