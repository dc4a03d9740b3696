"""The embedded model is what scripts/make_tiny_model.py makes, and starts where it should."""

from __future__ import annotations

import importlib.util
import json

import pytest
from omegaconf import OmegaConf
from transformers import AutoConfig

from grpo_ablate import assets
from grpo_ablate.engines.transformers import Transformers
from grpo_ablate.evaluation import HeldOut
from grpo_ablate.models import causal_lm
from tests.conftest import ROOT, composed

FOLDER = assets.folder("embedded:tiny")
RECIPE = json.loads((FOLDER / "recipe.json").read_text())


def script():
    spec = importlib.util.spec_from_file_location("make", ROOT / "scripts/make_tiny_model.py")
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["make"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_it_is_small():
    """Shipped inside the package: 0.2 to 2 M parameters, a few MB."""
    assert 200_000 <= RECIPE["parameters"] <= 2_000_000
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 9e6
    assert not list(FOLDER.glob("*.bin")), "safetensors only"


def test_architecture_recipe_and_task_are_the_scripts():
    make = script()
    assert (
        make.architecture_hash(AutoConfig.from_pretrained(FOLDER)) == RECIPE["architecture_sha256"]
    )
    tokenizer = make.build_tokenizer()
    built = make.build_model(make.Recipe(), tokenizer)
    assert make.architecture_hash(built.config) == RECIPE["architecture_sha256"]
    assert json.loads(json.dumps(make.asdict(make.Recipe()))) == RECIPE["recipe"]
    task = OmegaConf.to_container(OmegaConf.load(ROOT / "conf/task/arithmetic.yaml"))
    assert {k: v for k, v in task.items() if k != "name"} == RECIPE["task"]


def test_tokenizer_is_the_scripts():
    built, shipped = script().build_tokenizer(), causal_lm(**MODEL).tokenizer
    text = "7+8=15-3=12"
    ids = built.encode(text, add_special_tokens=False)
    assert shipped.encode(text, add_special_tokens=False) == ids
    assert len(ids) == len(text), "one token a character"
    assert shipped.decode(ids) == text


MODEL = {"path": "embedded:tiny", "base_lr": 1e-4, "dtype": "float32"}


@pytest.fixture(scope="module")
def scores():
    from grpo_ablate.variants import bind

    config = composed()
    policy = causal_lm(**MODEL)
    task = bind("task", config["task"])()
    engine = bind("engine", config["engine"], policy)()
    assert isinstance(engine, Transformers)
    evaluate = bind("evaluation", config["evaluation"], policy, task, engine)()
    assert isinstance(evaluate, HeldOut)
    return evaluate().scores


def test_accuracy_is_the_one_the_script_measured(scores):
    """Greedy decoding of the same questions; 2 of them may tip on another processor."""
    questions = composed()["evaluation"]["problems"]
    assert questions == RECIPE["task"]["held_out"], "all of them"
    assert scores["eval/accuracy"] == pytest.approx(
        RECIPE["held_out"]["greedy"]["accuracy"], abs=2 / questions
    )


def test_it_starts_with_something_to_learn(scores):
    """At the sampling temperature a quarter to two fifths of the answers are right."""
    assert 0.22 <= scores["eval/sampled_accuracy"] <= 0.43
