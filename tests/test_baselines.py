"""The two baselines against the article, line by line."""

from __future__ import annotations

import pytest

from tests.conftest import composed, plan


def test_neutral_is_x1():
    """Article X1: 8 samples, 32 prompts, eps 0.2, no std, no length penalty; lr is the base lr."""
    config = composed()
    assert config["sampling"] == {"name": "standard", "temperature": 1.0, "group_size": 8}
    assert config["clip"] == {"name": "symmetric", "eps": 0.2, "dual_clip": None}
    assert config["advantage"] == {"name": "none"}
    for group in ("length_penalty", "shaping", "regularizer", "masking", "tis"):
        assert config[group] == {"name": "none"}
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


P1 = {
    "lr_batch.prompts": 32,
    "sampling.group_size": 8,
    "clip.name": "symmetric",
    "clip.eps": 0.2,
    "length_penalty.name": "target_interval",
    "length_penalty.coefficient": 0.02,
    "sampling.name": "dynamic",
    "sampling.max_filter_ratio": 0.4,
    "advantage.name": "none",
    "regularizer.name": "none",
}
P2 = P1 | {
    "clip.eps": None,  # two bounds instead of one
    "clip.name": "clip_higher",
    "clip.eps_low": 0.2,
    "clip.eps_high": 0.28,
    "regularizer.name": "entropy_bonus",
    "regularizer.coefficient": 0.03,
}
P3 = P1 | {"clip.name": "two_sided", "clip.eps": None, "clip.eps_low": 0.15, "clip.eps_high": 0.15}
# TRL 1.16's GRPOConfig: scale_rewards=group (its std has ddof 1, eps 1e-4), loss_type=dapo,
# epsilon 0.2, delta None, beta 0, num_iterations 1 with one update a generation batch,
# num_generations 8, temperature 1,
# mask_truncated_completions False, lr 1e-6 linear; AdamW as in TrainingArguments
TRL = {
    "advantage.name": "group_std",
    "advantage.ddof": 1,
    "advantage.eps": 1e-4,
    "clip.name": "symmetric",
    "clip.eps": 0.2,
    "clip.dual_clip": None,
    "reduction.name": "token_mean",
    "regularizer.name": "none",
    "masking.name": "none",
    "sampling.name": "standard",
    "sampling.group_size": 8,
    "sampling.temperature": 1.0,
    "lr_batch.name": "linear_decay",
    "lr_batch.minibatches": 1,
    "lr_batch.epochs": 1,
    "lr_batch.warmup": 0,
    "lr_batch.max_grad_norm": 1.0,
    "learner.beta2": 0.999,
    "learner.weight_decay": 0.0,
}
# verl 0.10: norm_adv_by_std_in_grpo (ddof 1, eps 1e-6), loss_agg_mode=token-mean, clip_ratio 0.2,
# clip_ratio_c 3, train batch 1024 in mini-batches of 256, constant lr, weight decay 0.01
VERL = TRL | {
    "advantage.eps": 1e-6,
    "clip.dual_clip": 3.0,
    "lr_batch.name": "constant",
    "lr_batch.minibatches": 4,
    "learner.weight_decay": 0.01,
}


@pytest.mark.parametrize(
    ("preset", "lines", "llm_lr"),
    [
        ("recommended", P1, 2e-6),
        ("diverse", P2, 2e-6),
        ("stable", P3, 1e-6),
        ("trl", TRL, 1e-6),
        ("verl", VERL, 1e-6),
    ],
)
def test_presets_line_by_line(preset, lines, llm_lr):
    """Article P1-P3 and two trainers' own defaults."""
    config = composed(f"preset={preset}", "model=hf", "model.path=x")
    assert {key: config[key.split(".")[0]].get(key.split(".")[1]) for key in lines} == lines
    assert config["model"]["base_lr"] * config["lr_batch"]["lr_scale"] == pytest.approx(llm_lr)


@pytest.mark.parametrize("preset", ["recommended", "diverse", "stable", "trl", "verl"])
def test_a_preset_is_a_starting_point_with_a_name(preset):
    """Arms on top of it are measured against it, not against the neutral baseline."""
    (plain,) = plan(f"preset={preset}")
    assert (plain.arm, plain.delta) == (preset, {})
    (job,) = plan(f"preset={preset}", "+experiment=ema_std")
    assert (job.arm, job.baseline) == (f"{preset}+ema_std", preset)
    assert {key.split(".")[0] for key in job.delta} == {"advantage"}
    assert f"preset={preset}" in job.conditions
