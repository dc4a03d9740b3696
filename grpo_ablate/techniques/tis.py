"""Truncated importance sampling between sampler and learner (Hydra group `tis`).

An engine that is not the learner (vLLM in bfloat16, say) samples from slightly other
probabilities than the learner computes for the same weights. These variants weight each token's
policy loss by learner / sampler. A variant turns its knobs into a `Correction`, whose pure
`weights(learner_logprobs_BT, sampler_logprobs_BT, mask_BT)` returns weights_BT, 0 where masked,
without gradient; both log-probabilities are of the policy *before* this rollout's updates. The
clip's ratio then starts from the learner's own, which costs a forward pass over the rollout.

With d the difference of the log-probabilities: `token` takes w = exp(d), `sequence` one
w = exp(sum of d) a response. Then `mode` bounds it:

    truncate  w = clip(w, minimum, maximum)
    mask      w = 0 outside [minimum, maximum]

`normalise` divides by the mean weight, over tokens or over responses. Equal probabilities give
weights of exactly 1. Where sampler and learner are one model (engine=transformers) the weights
are 1 up to rounding, and the technique has nothing to act on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from grpo_ablate.knobs import Bound, Positive
from grpo_ablate.plans import Correction
from grpo_ablate.ratios import log_ratio


def none() -> Correction:
    """Trust the sampler's log-probabilities as the learner's own.

    w = 1

    Source: article: X1.

    Returns:
        No weights and no extra forward pass.
    """
    return Correction(None)


def token(
    *, mode: Literal["truncate", "mask"], minimum: Bound, maximum: Positive, normalise: bool
) -> Correction:
    """Weight each token by its own ratio: biased, of low variance.

    w = bound(exp(learner - sampler))

    Source: Yao et al. 2025 (Your Efficient RL Framework Secretly Brings You Off-Policy RL
    Training); verl's rollout_is=token, TRL's token_truncate and token_mask.

    Knobs:
        mode: see the module.
        minimum: lower bound; null for none.
        maximum: upper bound; 2 is usual.
        normalise: see the module.

    Returns:
        The correction.
    """
    bound = partial(_bounded, mode=mode, low=minimum, high=maximum)
    return Correction(partial(_weights, per_response=False, bound=bound, normalise=normalise))


def sequence(
    *, mode: Literal["truncate", "mask"], minimum: Bound, maximum: Positive, normalise: bool
) -> Correction:
    """Weight each response by the ratio of its whole probability: unbiased, of high variance.

    w = bound(exp(sum over its tokens of (learner - sampler)))

    Source: Liu et al. 2025 (When Speed Kills Stability); verl's rollout_is=sequence, TRL's
    sequence_truncate and sequence_mask.

    Knobs:
        mode: see the module.
        minimum: lower bound; null for none.
        maximum: upper bound; 2 is usual, TRL's default is 3 with mode mask.
        normalise: see the module.

    Returns:
        The correction.
    """
    bound = partial(_bounded, mode=mode, low=minimum, high=maximum)
    return Correction(partial(_weights, per_response=True, bound=bound, normalise=normalise))


def _weights(
    learner_logprobs_BT: Tensor,
    sampler_logprobs_BT: Tensor,
    mask_BT: Tensor,
    *,
    per_response: bool,
    bound: Callable[[Tensor], Tensor],
    normalise: bool,
) -> Tensor:
    """Return weights_BT; one a response is repeated over its tokens."""
    difference = log_ratio(learner_logprobs_BT.detach(), sampler_logprobs_BT, mask_BT)
    counted = mask_BT
    if per_response:
        difference, counted = difference.sum(1, keepdim=True), mask_BT.any(1, keepdim=True)
    # a ratio that overflows to infinity is above every maximum, and bounded like any other
    weights = bound(difference.exp())
    return (_normalised(weights, counted) if normalise else weights) * mask_BT


def _bounded(ratio: Tensor, *, mode: str, low: float | None, high: float) -> Tensor:
    if mode == "truncate":
        return ratio.clamp(low, high)
    return ratio.masked_fill((ratio < (low or 0.0)) | (ratio > high), 0.0)


def _normalised(weights: Tensor, counted: Tensor) -> Tensor:
    """Divide by the mean of the counted weights; all zero stays all zero."""
    mean = (weights * counted).sum() / counted.sum().clamp(min=1)
    return weights / torch.where(mean > 0, mean, 1.0)
