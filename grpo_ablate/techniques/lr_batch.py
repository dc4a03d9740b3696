"""Learning rate and batch (Hydra group `lr_batch`; article: B1-B4): they outweigh every trick.

The rate is stated as a multiple of the model's own base rate (`model.base_lr`), since the
article's 1e-6 to 5e-6 hold for language models of billions of parameters and for those alone.
A variant is a shape over time; its knobs are the batch and the number of updates.
"""

from __future__ import annotations

from functools import partial

from grpo_ablate.knobs import Count, Index, Positive
from grpo_ablate.plans import LrBatch


def constant(
    *,
    lr_scale: Positive,
    warmup: Index,
    prompts: Count,
    minibatches: Count,
    epochs: Count,
    max_grad_norm: Positive,
) -> LrBatch:
    """Warm up linearly, then hold.

    lr(u) = base_lr * lr_scale * min(1, (u + 1) / warmup),  u = steps already applied

    A fresh Adam at full rate can wreck a policy in its first updates, hence the warm-up.
    A rollout is split by prompt into `minibatches`, each one optimizer step, `epochs` times over:
    with one update a rollout every ratio is 1 and no clip can act. Source: article: B1-B4.

    Args:
        lr_scale: multiple of model.base_lr.
        warmup: steps of the ramp; 0 for none.
        prompts: prompts a step; times sampling.group_size gives its responses.
        minibatches: optimizer steps a rollout and epoch.
        epochs: passes over a rollout.
        max_grad_norm: the gradient's norm is scaled down to this (article: B4, 1.0-5.0).

    Returns:
        The batch and the rate as a function of the steps applied.
    """
    rate = partial(_constant, lr_scale=lr_scale, warmup=warmup)
    return LrBatch(prompts, minibatches, epochs, max_grad_norm, rate)


def linear_decay(
    *,
    lr_scale: Positive,
    warmup: Index,
    prompts: Count,
    minibatches: Count,
    epochs: Count,
    max_grad_norm: Positive,
) -> LrBatch:
    """Warm up linearly, then fall linearly to 0 at the last step: the default of TRL.

    lr(u) = lr_constant(u) * (steps - u) / (steps - warmup)  once u >= warmup

    Args:
        lr_scale: see `constant`.
        warmup: see `constant`.
        prompts: see `constant`.
        minibatches: see `constant`.
        epochs: see `constant`.
        max_grad_norm: see `constant`.

    Returns:
        The batch and the rate as a function of the steps applied.
    """
    rate = partial(_linear_decay, lr_scale=lr_scale, warmup=warmup)
    return LrBatch(prompts, minibatches, epochs, max_grad_norm, rate)


def _constant(updates: int, steps: int, base_lr: float, *, lr_scale: float, warmup: int) -> float:
    ramp = min(1.0, (updates + 1) / warmup) if warmup else 1.0
    return base_lr * lr_scale * ramp


def _linear_decay(
    updates: int, steps: int, base_lr: float, *, lr_scale: float, warmup: int
) -> float:
    peak = _constant(updates, steps, base_lr, lr_scale=lr_scale, warmup=warmup)
    if updates < warmup:
        return peak
    return peak * max(0.0, (steps - updates) / max(1, steps - warmup))
