"""Learning-rate schedules by hand (article: B1)."""

from __future__ import annotations

import pytest

from grpo_ablate.techniques import lr_batch

BATCH = {"prompts": 32, "minibatches": 4, "epochs": 1, "max_grad_norm": 1.0}


@pytest.mark.parametrize(
    ("updates", "expected"), [(0, 0.2e-5), (3, 0.8e-5), (4, 1e-5), (5, 1e-5), (900, 1e-5)]
)
def test_constant_warms_up_and_holds(updates, expected):
    plan = lr_batch.constant(lr_scale=2.0, warmup=5, **BATCH)
    assert plan.lr(updates, 1000, 0.5e-5) == pytest.approx(expected, rel=1e-12)


def test_without_warmup_the_first_step_has_the_full_rate():
    assert lr_batch.constant(lr_scale=1.0, warmup=0, **BATCH).lr(0, 10, 3e-4) == 3e-4


@pytest.mark.parametrize(
    ("updates", "share"), [(0, 0.5), (1, 1.0), (2, 1.0), (6, 0.5), (10, 0.0), (11, 0.0)]
)
def test_linear_decay_ends_at_zero(updates, share):
    plan = lr_batch.linear_decay(lr_scale=1.0, warmup=2, **BATCH)
    assert plan.lr(updates, 10, 1e-5) == pytest.approx(share * 1e-5, rel=1e-12)


@pytest.mark.parametrize("function", [lr_batch.constant, lr_batch.linear_decay])
def test_the_batch_passes_through(function):
    plan = function(lr_scale=1.0, warmup=0, **BATCH)
    assert {key: getattr(plan, key) for key in BATCH} == BATCH
