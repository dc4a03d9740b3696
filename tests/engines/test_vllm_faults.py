"""What vLLM alone can get wrong: half a push, a crash, a killed server, too little memory."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch

from grpo_ablate.variants import bind
from tests.conftest import composed
from tests.engines.helpers import TINY, generate, make, mismatch, perturb, require_vllm
from tests.test_models import load, save

pytestmark = [pytest.mark.slow, pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("broken", ["repack", "cache reset"])
def test_k18_a_push_without_it_is_seen(monkeypatch, broken):
    """Mutation: both halves of a push are needed, and the suite notices when one is gone."""
    require_vllm()
    from vllm import LLM

    from grpo_ablate.engines import _vllm_worker

    engine = make("vllm", {"mode": "inprocess"}, TINY)
    try:
        generate(engine)
        perturb(engine.policy.model)
        if broken == "repack":
            monkeypatch.setattr(_vllm_worker, "repack", lambda model: None)
        else:
            monkeypatch.setattr(LLM, "reset_prefix_cache", lambda self: True)
        engine.push(engine.policy.model)
        assert mismatch(engine, generate(engine)) > 0.01
    finally:
        engine.close()


def test_a_crash_costs_one_restart_and_then_a_clear_stop():
    """The restarted engine has the current weights; another failure is the end."""
    require_vllm()
    from grpo_ablate.engines.vllm import EngineError

    engine = moved("inprocess")
    break_down(engine)
    assert mismatch(engine, generate(engine)) < 1e-4
    break_down(engine)
    with pytest.raises(EngineError, match="failed again while generating, after a restart"):
        generate(engine)


def test_a_killed_server_is_replaced_and_nothing_is_left_running_after_close():
    require_vllm()
    engine = moved("server")
    first = engine._core.pid
    break_down(engine)
    assert mismatch(engine, generate(engine)) < 1e-4
    second = engine._core.pid
    engine.close()
    for pid in (first, second):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not list(Path("/dev/shm").glob("grpo_ablate-*"))


def moved(mode):
    """An engine whose weights are not those of the model's files."""
    engine = make("vllm", {"mode": mode}, TINY)
    perturb(engine.policy.model)
    engine.push(engine.policy.model)
    return engine


def break_down(engine):
    """Kill the server, or take away what the engine in this process runs on."""
    core = engine._core
    if hasattr(core, "pid"):
        os.kill(core.pid, signal.SIGKILL)
    else:
        core._llm.llm_engine.model_executor = core._llm.llm_engine.engine_core = None


@pytest.mark.parametrize("rank", [0, 4], ids=["full", "lora"])
def test_k18_qwen2_full_and_lora(tmp_path, rank):
    """Another family, with biases and untied embeddings; an adapter arrives merged."""
    require_vllm()
    policy = load(save(tmp_path / "qwen", hidden_size=128), lora_rank=rank)
    node = composed("engine=vllm")["engine"] | {"max_prompt_tokens": 64}
    engine = bind("engine", node, policy)()
    try:
        perturb(policy.model, scale=1.0)
        for name, weight in policy.model.named_parameters():
            if ".lora_B." in name:
                torch.nn.init.normal_(weight, std=0.3)
        engine.push(policy.model)
        assert mismatch(engine, generate(engine)) < 1e-4
    finally:
        engine.close()


def test_too_little_memory_is_said_at_start():
    require_vllm()
    with pytest.raises(MemoryError, match=r"engine=vllm has .* raise engine\.kv_cache_gib"):
        make("vllm", {"mode": "inprocess"}, TINY, kv_cache_gib=1e-6)
