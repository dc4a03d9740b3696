"""What every engine must keep (K10, K11, K12, K17, K18), held against each that is installed.

`GRPO_ABLATE_REQUIRE_VLLM=1` makes a missing vLLM a failure instead of a skip.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from grpo_ablate import assets
from grpo_ablate.learner import Learner, Objective
from grpo_ablate.loss import pack, token_stats
from grpo_ablate.models import causal_lm
from grpo_ablate.plans import Correction
from grpo_ablate.types import Advantages, Completions, Groups, Problem
from grpo_ablate.variants import bind, signature
from tests.conftest import composed
from tests.test_models import load, save

PROMPTS = ["3+4:", "7+8-3:", "9-2+5+1:", "1+" * 25 + "1:"]
"""The last one is longer than a block of the prefix cache."""

ENGINES = [
    pytest.param(("transformers", {}), id="transformers"),
    pytest.param(("vllm", {"mode": "inprocess"}), id="vllm", marks=[pytest.mark.slow]),
    pytest.param(("vllm", {"mode": "server"}), id="vllm-server", marks=[pytest.mark.slow]),
]
pytestmark = [
    pytest.mark.vllm,
    # vLLM's own imports warn
    pytest.mark.filterwarnings("ignore"),
]


def require_vllm():
    if importlib.util.find_spec("vllm") is None:
        assert not os.environ.get("GRPO_ABLATE_REQUIRE_VLLM"), "vllm is not installed"
        pytest.skip("vllm is not installed")


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """The embedded model with generation defaults that bend a careless sampler (K11)."""
    folder = tmp_path_factory.mktemp("shipped") / "model"
    shutil.copytree(assets.folder("embedded:tiny"), folder)
    path = folder / "generation_config.json"
    bent = {"repetition_penalty": 1.5, "top_k": 2, "top_p": 0.5, "temperature": 0.3}
    path.write_text(json.dumps(json.loads(path.read_text()) | bent))
    return folder


def make(name, knobs, folder, **changes):
    if name == "vllm":
        require_vllm()
    policy = causal_lm(path=str(folder), base_lr=1e-4, dtype="float32")
    node = composed(f"engine={name}")["engine"]
    node |= {"max_prompt_tokens": 64, **knobs, **changes}
    engine = bind("engine", node, policy)()
    engine.push(policy.model)
    return engine


@pytest.fixture(scope="module", params=ENGINES)
def engine(request, shipped):
    engine = make(*request.param, shipped)
    yield engine
    engine.close()


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


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.3])
def test_k10_logprobs_are_the_learners(engine, temperature):
    """Same weights, fp32: 1e-4, at the sampling temperature, whatever defaults a model ships."""
    assert mismatch(engine, generate(engine, temperature=temperature), temperature) < 1e-4


def test_k12_end_of_sequence_is_kept_and_truncation_told(engine):
    completions = generate(engine, n=8, temperature=1.5)
    eos = engine.policy.eos_ids
    assert len(completions.ids) == 8 * len(PROMPTS)
    rows = zip(completions.ids, completions.logprobs, completions.truncated, strict=True)
    for ids, logprobs, truncated in rows:
        assert len(ids) == len(logprobs) > 0
        assert truncated == (ids[-1] not in eos)
        assert not truncated or len(ids) == 32
        assert not any(token in eos for token in ids[:-1])
    assert not all(completions.truncated)


def test_k17_seeds(engine):
    """One seed twice is identical, two seeds differ, samples of a prompt are distinct."""
    first, again = generate(engine), generate(engine)
    assert first.ids == again.ids
    assert generate(engine, seeds=[10, 11, 12, 13]).ids != first.ids
    assert len({tuple(ids) for ids in generate(engine, ["9-2+5+1:"], n=16).ids}) > 1
    two = generate(engine, ["9-2+5+1:"] * 2, seeds=[0, 1])
    assert two.ids[:4] != two.ids[4:]


def test_k17_a_sample_depends_on_its_own_seed_alone(engine):
    """Not on how many samples are asked for, nor on the prompts beside it."""
    four, two = generate(engine), generate(engine, n=2)
    assert [four.ids[4 * i : 4 * i + 2] for i in range(4)] == [
        two.ids[2 * i : 2 * i + 2] for i in range(4)
    ]


def test_greedy_takes_the_likeliest_token(engine):
    completions = generate(engine, n=1, temperature=0.0)
    batch = as_batch(engine, completions)
    with torch.no_grad():
        logits = engine.policy.model(
            input_ids=batch.ids_BL, attention_mask=batch.attention_BL.long()
        ).logits
    inside = batch.response_BL[:, 1:]
    assert torch.equal(logits[:, :-1].argmax(-1)[inside], batch.ids_BL[:, 1:][inside])


def test_k18_a_push_reaches_the_sampler(engine):
    """After a push the log-probabilities are the new weights', and the old cache is gone."""
    generate(engine)
    perturb(engine.policy.model)
    if not engine.is_learner:
        assert mismatch(engine, generate(engine)) > 0.01, "not pushed yet"
    engine.sleep()
    engine.push(engine.policy.model)
    assert mismatch(engine, generate(engine)) < 1e-4


def test_golden_equality_of_the_first_loss(engine):
    """The first step's loss from the sampler's log-probabilities and from the learner's own."""
    completions = generate(engine)
    advantages = torch.tensor([[1.0, -1.0, 0.5, -0.5]] * len(PROMPTS)).double()
    batch = as_batch(engine, completions, advantages)
    losses = [_first_loss(engine, batch, trust) for trust in (True, False)]
    assert losses[0] != 0
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


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


def _first_loss(engine, batch, trust_sampler):
    before = {name: p.detach().clone() for name, p in engine.policy.model.named_parameters()}
    learner: Learner = bind("learner", composed()["learner"], engine.policy)()
    lr_batch = bind("lr_batch", composed()["lr_batch"] | {"minibatches": 1})()
    update = learner.update(
        batch, objective(trust_sampler), lr_batch, 300, 1e-4, np.random.default_rng(0)
    )
    engine.policy.model.load_state_dict(before, strict=False)
    return update.losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["repack", "cache reset"])
def test_k18_a_push_without_it_is_seen(shipped, monkeypatch, broken):
    """Mutation: both halves of a push are needed, and the suite notices when one is gone."""
    require_vllm()
    from vllm import LLM

    from grpo_ablate.engines import _vllm_worker

    engine = make("vllm", {"mode": "inprocess"}, shipped)
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


@pytest.mark.slow
def test_a_crash_costs_one_restart_and_then_a_clear_stop(shipped):
    """The restarted engine has the current weights; another failure is the end."""
    require_vllm()
    from grpo_ablate.engines.vllm import EngineError

    engine = moved("inprocess", shipped)
    break_down(engine)
    assert mismatch(engine, generate(engine)) < 1e-4
    break_down(engine)
    with pytest.raises(EngineError, match="failed again while generating, after a restart"):
        generate(engine)


@pytest.mark.slow
def test_a_killed_server_is_replaced_and_nothing_is_left_running_after_close(shipped):
    require_vllm()
    engine = moved("server", shipped)
    first = engine._core.pid
    break_down(engine)
    assert mismatch(engine, generate(engine)) < 1e-4
    second = engine._core.pid
    engine.close()
    for pid in (first, second):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not list(Path("/dev/shm").glob("grpo_ablate-*"))


def moved(mode, folder):
    """An engine whose weights are not those of the model's files."""
    engine = make("vllm", {"mode": mode}, folder)
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_too_little_memory_is_said_at_start(shipped):
    require_vllm()
    with pytest.raises(MemoryError, match=r"engine=vllm has .* raise engine\.kv_cache_gib"):
        make("vllm", {"mode": "inprocess"}, shipped, kv_cache_gib=1e-6)


@pytest.mark.parametrize("name", ["transformers", "vllm"])
def test_k11_knobs_that_bend_the_sampler_do_not_exist(name):
    """What the learner does not apply cannot be asked for; the check names the unknown key."""
    assert not {"top_p", "top_k", "min_p", "repetition_penalty"} & set(signature("engine", name))


def test_completions_join():
    assert Completions([[1]], [[0.0]], [False]).cached == []
