"""How the importance ratio is clipped (Hydra group `clip`; article: C1-C8).

Every variant takes, with B rows and T tokens,

    logprobs_BT      log pi(token) under the policy being trained, nats; carries the gradient
    old_logprobs_BT  the same under the policy that sampled, nats
    advantages_B     one advantage a response
    mask_BT          bool; True on tokens that are trained

and returns a `PolicyTerm`: the loss of each token before averaging (0 where masked), the ratio
used, and which tokens each bound silenced. Values under the mask may be anything, infinities
included: they never reach the result. |log ratio| up to 80 stays finite in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grpo_ablate.knobs import Fraction
from grpo_ablate.types import PolicyTerm


def symmetric(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    *,
    eps: Fraction,
) -> PolicyTerm:
    """Clip the token ratio to [1 - eps, 1 + eps]: PPO's pessimistic minimum, the neutral baseline.

    loss = -min(r A, clip(r, 1 - eps, 1 + eps) A),  r = exp(logprob - old_logprob)

    Source: Schulman et al. 2017, eq. 7; article: C1 (eps 0.2), C5 (0.15, 0.2, 0.25, 0.3).

    Args:
        logprobs_BT: see the module.
        old_logprobs_BT: see the module.
        advantages_B: see the module.
        mask_BT: see the module.
        eps: half-width of the trusted interval.

    Returns:
        The term per token. At r = 1 the loss is -A and its gradient -A.
    """
    log_ratio_BT = _log_ratio(logprobs_BT, old_logprobs_BT, mask_BT)
    return _pessimistic(log_ratio_BT, advantages_B, mask_BT, eps, eps)


def clip_higher(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    *,
    eps_low: Fraction,
    eps_high: Fraction,
) -> PolicyTerm:
    """Raise the upper bound alone, so that unlikely good tokens can grow: DAPO's clip-higher.

    loss = -min(r A, clip(r, 1 - eps_low, 1 + eps_high) A)

    For entropy that falls too fast; costs a little stability. Source: Yu et al. 2025 (DAPO),
    eq. 10; article: C2 (0.2 and 0.28).

    Args:
        logprobs_BT: see the module.
        old_logprobs_BT: see the module.
        advantages_B: see the module.
        mask_BT: see the module.
        eps_low: distance of the lower bound from 1.
        eps_high: distance of the upper bound from 1.

    Returns:
        The term per token; equal bounds give `symmetric`.
    """
    log_ratio_BT = _log_ratio(logprobs_BT, old_logprobs_BT, mask_BT)
    return _pessimistic(log_ratio_BT, advantages_B, mask_BT, eps_low, eps_high)


def two_sided(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    *,
    eps_low: Fraction,
    eps_high: Fraction,
) -> PolicyTerm:
    """Tighten both bounds; the same formula as `clip_higher` at the other end of its range.

    For noisy rewards; costs speed of convergence. Source: article: C3 ([0.85, 1.15]).

    Args:
        logprobs_BT: see the module.
        old_logprobs_BT: see the module.
        advantages_B: see the module.
        mask_BT: see the module.
        eps_low: distance of the lower bound from 1.
        eps_high: distance of the upper bound from 1.

    Returns:
        The term per token.
    """
    return clip_higher(
        logprobs_BT, old_logprobs_BT, advantages_B, mask_BT, eps_low=eps_low, eps_high=eps_high
    )


def asymmetric(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    *,
    eps_low: Fraction,
    eps_high: Fraction,
) -> PolicyTerm:
    """Loosen the lower bound and tighten the upper one: bad tokens fall freely, good ones slowly.

    For a policy that collapses; needs tuning. Source: article: C4, which names no numbers; the
    shipped 0.3 and 0.15 are ours.

    Args:
        logprobs_BT: see the module.
        old_logprobs_BT: see the module.
        advantages_B: see the module.
        mask_BT: see the module.
        eps_low: distance of the lower bound from 1; the larger one (checked in `rules.py`).
        eps_high: distance of the upper bound from 1; the smaller one.

    Returns:
        The term per token.
    """
    return clip_higher(
        logprobs_BT, old_logprobs_BT, advantages_B, mask_BT, eps_low=eps_low, eps_high=eps_high
    )


def gspo(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    *,
    eps_low: Fraction,
    eps_high: Fraction,
) -> PolicyTerm:
    """Clip one ratio a response, from its length-normalised log-probability.

    s = exp(mean over its tokens of (logprob - old_logprob));
    loss of every token of the row = -min(s A, clip(s, 1 - eps_low, 1 + eps_high) A)

    For responses of hundreds of tokens whose token ratios run to extremes; loses token-level
    credit. A mean moves far less than a token, so token-scale bounds such as 0.2 never clip here:
    the paper uses 3e-4 and 4e-4. Source: Zheng et al. 2025 (GSPO), eq. 7; article: C7, C8.

    Args:
        logprobs_BT: see the module.
        old_logprobs_BT: see the module.
        advantages_B: see the module.
        mask_BT: see the module.
        eps_low: distance of the lower bound from 1.
        eps_high: distance of the upper bound from 1.

    Returns:
        The term, the row's value repeated over its tokens: averaged over tokens and then over
        rows it is the paper's loss. A fully masked row contributes 0.
    """
    log_ratio_BT = _log_ratio(logprobs_BT, old_logprobs_BT, mask_BT)
    tokens_B = mask_BT.sum(1).clamp(min=1)
    sequence_B1 = (log_ratio_BT.sum(1) / tokens_B)[:, None]
    return _pessimistic(
        sequence_B1.expand_as(log_ratio_BT), advantages_B, mask_BT, eps_low, eps_high
    )


def _log_ratio(logprobs_BT: Tensor, old_logprobs_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return log(pi / pi_old), exactly 0 where masked so that padding cannot produce a NaN."""
    return logprobs_BT.masked_fill(~mask_BT, 0.0) - old_logprobs_BT.masked_fill(~mask_BT, 0.0)


def _pessimistic(
    log_ratio_BT: Tensor, advantages_B: Tensor, mask_BT: Tensor, eps_low: float, eps_high: float
) -> PolicyTerm:
    """Return PPO's clipped surrogate as a loss: the general form that every variant calls."""
    ratio_BT = log_ratio_BT.exp()
    advantages_B1 = advantages_B.to(ratio_BT.dtype)[:, None]
    bounded_BT = ratio_BT.clamp(1 - eps_low, 1 + eps_high)
    loss_BT = torch.maximum(-ratio_BT * advantages_B1, -bounded_BT * advantages_B1)
    ratio_BT = ratio_BT.detach()
    return PolicyTerm(
        loss_BT=loss_BT.masked_fill(~mask_BT, 0.0),
        clipped_low_BT=(ratio_BT < 1 - eps_low) & (advantages_B1 < 0) & mask_BT,
        clipped_high_BT=(ratio_BT > 1 + eps_high) & (advantages_B1 > 0) & mask_BT,
    )
