"""The two baselines against the article, line by line."""

from __future__ import annotations

from tests.conftest import composed


def test_neutral_is_x1():
    """Article X1: 8 samples, 32 prompts, eps 0.2, no std, no length penalty; lr is the base lr."""
    config = composed()
    assert config["sampling"] == {"name": "standard", "temperature": 1.0, "group_size": 8}
    assert config["clip"] == {"name": "symmetric", "eps": 0.2}
    assert config["advantage"] == {"name": "none"}
    assert config["length_penalty"] == {"name": "none"}
    assert config["lr_batch"]["prompts"] == 32
    assert config["lr_batch"]["lr_scale"] == 1.0
    assert config["lr_batch"]["max_grad_norm"] == 1.0, "article: B4"
    assert composed("model=hf", "model.path=x")["model"]["base_lr"] == 2e-6


def test_standard_is_x2():
    """Article X2: the neutral baseline with std normalisation, and nothing else."""
    neutral, standard = composed(), composed("baseline=standard")
    assert standard["advantage"]["name"] == "group_std"
    same = {"advantage": None, "arm": None}
    assert standard | same == neutral | same


def test_baselines_update_several_times_a_rollout():
    """With one update every ratio is 1 and clip arms are inert (K15)."""
    assert composed()["lr_batch"]["minibatches"] == 4
