"""How the importance ratio is clipped (Hydra group `clip`; article: C1-C8).

Every variant takes, with B rows and T tokens,

    logprobs_BT      log pi(token) under the policy being trained, nats; carries the gradient
    old_logprobs_BT  the same under the policy before this rollout's updates, nats
    advantages_B     one advantage a response
    mask_BT          bool; True on tokens that are trained

and returns a `PolicyTerm`: the loss of each token before averaging (0 where masked) and which
tokens each bound acted on. With r = exp(logprob - old_logprob) and A the advantage:

- at r = 1 the loss is -A and its gradient -A; A = 0 gives 0;
- values under the mask may be anything, infinities included: they never reach the result, and a
  fully masked row contributes 0;
- a log ratio counts as at most 80, where float32 still has room, so no ratio overflows; beyond,
  the gradient is 0.

Wherever both bounds of a ratio stand, `dual_clip` is a knob: with A < 0 and a large ratio PPO's
minimum picks the *unclipped* branch, so the loss has no bound there. dual_clip = c caps it at
c |A| (Ye et al. 2020, eq. 5; c = 3 in verl; the same as TRL's `delta`); null leaves it unbounded,
as PPO does, and `ratio/unbounded_frac` counts how often that happens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grpo_ablate.knobs import Bound, Cap, Fraction, Positive
from grpo_ablate.ratios import LARGEST_LOG_RATIO, log_ratio
from grpo_ablate.types import PolicyTerm


def symmetric(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    *,
    eps: Fraction,
    dual_clip: Cap,
) -> PolicyTerm:
    """Clip the token ratio to [1 - eps, 1 + eps]: PPO's pessimistic minimum, the neutral baseline.

    loss = -min(r A, clip(r, 1 - eps, 1 + eps) A)

    Source: Schulman et al. 2017, eq. 7; article: C1 (eps 0.2), C5 (0.15, 0.2, 0.25, 0.3).

    Knobs:
        eps: half-width of the trusted interval.
        dual_clip: see the module.

    Returns:
        The term per token.
    """
    inputs = (logprobs_BT, old_logprobs_BT, advantages_B, mask_BT)
    return clip_higher(*inputs, eps_low=eps, eps_high=eps, dual_clip=dual_clip)


def clip_higher(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    *,
    eps_low: Fraction,
    eps_high: Fraction,
    dual_clip: Cap,
) -> PolicyTerm:
    """Raise the upper bound alone, so that unlikely good tokens can grow: DAPO's clip-higher.

    loss = -min(r A, clip(r, 1 - eps_low, 1 + eps_high) A)

    For entropy that falls too fast; costs a little stability. Source: Yu et al. 2025 (DAPO),
    eq. 10; article: C2 (0.2 and 0.28).

    Knobs:
        eps_low: distance of the lower bound from 1.
        eps_high: distance of the upper bound from 1.
        dual_clip: see the module.

    Returns:
        The term per token; equal bounds give `symmetric`.
    """
    log_ratio_BT = log_ratio(logprobs_BT, old_logprobs_BT, mask_BT)
    return _pessimistic(log_ratio_BT, advantages_B, mask_BT, eps_low, eps_high, dual_clip)


def two_sided(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    *,
    eps_low: Fraction,
    eps_high: Fraction,
    dual_clip: Cap,
) -> PolicyTerm:
    """Tighten both bounds; the same formula as `clip_higher` at the other end of its range.

    loss = -min(r A, clip(r, 1 - eps_low, 1 + eps_high) A)

    For noisy rewards; costs speed of convergence. Source: article: C3 ([0.85, 1.15]).

    Knobs:
        eps_low: distance of the lower bound from 1.
        eps_high: distance of the upper bound from 1.
        dual_clip: see the module.

    Returns:
        The term per token.
    """
    inputs = (logprobs_BT, old_logprobs_BT, advantages_B, mask_BT)
    return clip_higher(*inputs, eps_low=eps_low, eps_high=eps_high, dual_clip=dual_clip)


def asymmetric(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    *,
    eps_low: Fraction,
    eps_high: Fraction,
    dual_clip: Cap,
) -> PolicyTerm:
    """Loosen the lower bound and tighten the upper one: bad tokens fall freely, good ones slowly.

    loss = -min(r A, clip(r, 1 - eps_low, 1 + eps_high) A)

    For a policy that collapses; needs tuning. Source: article: C4, which names no numbers; the
    shipped 0.3 and 0.15 are ours.

    Knobs:
        eps_low: distance of the lower bound from 1; the larger one (checked in `rules.py`).
        eps_high: distance of the upper bound from 1; the smaller one.
        dual_clip: see the module.

    Returns:
        The term per token.
    """
    inputs = (logprobs_BT, old_logprobs_BT, advantages_B, mask_BT)
    return clip_higher(*inputs, eps_low=eps_low, eps_high=eps_high, dual_clip=dual_clip)


def gspo(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    *,
    eps_low: Fraction,
    eps_high: Fraction,
    length_normalised: bool,
    dual_clip: Cap,
) -> PolicyTerm:
    """Clip one ratio a response, from its length-normalised log-probability.

    s = exp(mean over its tokens of (logprob - old_logprob));
    loss of every token of the row = -min(s A, clip(s, 1 - eps_low, 1 + eps_high) A)

    For responses of hundreds of tokens whose token ratios run to extremes; loses token-level
    credit. A mean moves far less than a token, so token-scale bounds such as 0.2 never clip here:
    the paper uses 3e-4 and 4e-4. Source: Zheng et al. 2025 (GSPO), eq. 7; article: C7, C8.

    Knobs:
        eps_low: distance of the lower bound from 1.
        eps_high: distance of the upper bound from 1.
        length_normalised: true takes the mean of the log ratios (the paper), false their sum,
            the likelihood ratio proper, whose spread grows with length.
        dual_clip: see the module.

    Returns:
        The term, the row's value repeated over its tokens: averaged over tokens and then over
        rows it is the paper's loss.
    """
    log_ratio_BT = log_ratio(logprobs_BT, old_logprobs_BT, mask_BT)
    tokens_B1 = mask_BT.sum(1, keepdim=True).clamp(min=1) if length_normalised else 1
    sequence_B1 = log_ratio_BT.sum(1, keepdim=True) / tokens_B1
    return _pessimistic(
        sequence_B1.expand_as(log_ratio_BT), advantages_B, mask_BT, eps_low, eps_high, dual_clip
    )


def hard(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    *,
    eps_low: Fraction,
    eps_high: Fraction,
) -> PolicyTerm:
    """Clip without PPO's minimum: no gradient outside the interval, whatever the advantage.

    loss = -clip(r, 1 - eps_low, 1 + eps_high) A

    A token that has moved too far the *wrong* way is not called back, which PPO's form would do.
    Source: what "clip the ratio" says literally; here to be told apart from `two_sided`.

    Knobs:
        eps_low: distance of the lower bound from 1.
        eps_high: distance of the upper bound from 1.

    Returns:
        The term per token.
    """
    ratio_BT = _ratio(log_ratio(logprobs_BT, old_logprobs_BT, mask_BT))
    bounded_BT = ratio_BT.clamp(1 - eps_low, 1 + eps_high)
    loss_BT = -bounded_BT * _column(advantages_B, ratio_BT)
    below_BT, above_BT = ratio_BT < 1 - eps_low, ratio_BT > 1 + eps_high
    return _term(loss_BT, mask_BT, low=below_BT, high=above_BT)


def cispo(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    *,
    weight_min: Bound,
    weight_max: Positive,
) -> PolicyTerm:
    """Clip the *weight* of each token's gradient and never the gradient itself.

    loss = -stop_gradient(clip(r, weight_min, weight_max)) A logprob

    Rare tokens that turn an argument keep their gradient, which PPO's clip would cut. Source:
    MiniMax 2025 (MiniMax-M1), eq. 4; a cap of 5 and no lower bound as in ScaleRL and TRL.

    Knobs:
        weight_min: lower bound of the weight; null for none, as in the paper.
        weight_max: upper bound of the weight.

    Returns:
        The term per token; its value has no meaning, only its gradient has. The clip flags say
        where a bound changed the weight.
    """
    ratio_BT = _ratio(log_ratio(logprobs_BT, old_logprobs_BT, mask_BT)).detach()
    weight_BT = ratio_BT.clamp(weight_min, weight_max)
    loss_BT = -weight_BT * _column(advantages_B, ratio_BT) * logprobs_BT.masked_fill(~mask_BT, 0.0)
    return _term(loss_BT, mask_BT, low=ratio_BT < weight_BT, high=ratio_BT > weight_BT)


def _ratio(log_ratio_BT: Tensor) -> Tensor:
    return log_ratio_BT.clamp(max=LARGEST_LOG_RATIO).exp()


def _column(advantages_B: Tensor, like: Tensor) -> Tensor:
    return advantages_B.to(like.dtype)[:, None]


def _pessimistic(
    log_ratio_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    eps_low: float,
    eps_high: float,
    dual_clip: float | None,
) -> PolicyTerm:
    """Return PPO's clipped surrogate as a loss: the general form of the two-bound variants."""
    ratio_BT = _ratio(log_ratio_BT)
    advantages_B1 = _column(advantages_B, ratio_BT)
    bounded_BT = ratio_BT.clamp(1 - eps_low, 1 + eps_high)
    loss_BT = torch.maximum(-ratio_BT * advantages_B1, -bounded_BT * advantages_B1)
    rising_BT = (ratio_BT > 1 + eps_high) & (advantages_B1 < 0)
    capped_BT = torch.zeros_like(rising_BT)
    if dual_clip is not None:
        capped_BT = (ratio_BT > dual_clip) & (advantages_B1 < 0)
        loss_BT = torch.where(capped_BT, -dual_clip * advantages_B1, loss_BT)
    return _term(
        loss_BT,
        mask_BT,
        low=(ratio_BT < 1 - eps_low) & (advantages_B1 < 0),
        high=(ratio_BT > 1 + eps_high) & (advantages_B1 > 0),
        capped=capped_BT,
        unbounded=rising_BT & ~capped_BT,
    )


def _term(loss_BT: Tensor, mask_BT: Tensor, **flags: Tensor) -> PolicyTerm:
    """Return the term, nothing of it under the mask."""
    nowhere = torch.zeros_like(mask_BT)
    found = {
        name: flags.get(name, nowhere) & mask_BT for name in ("low", "high", "capped", "unbounded")
    }
    return PolicyTerm(
        loss_BT.masked_fill(~mask_BT, 0.0),
        clipped_low_BT=found["low"],
        clipped_high_BT=found["high"],
        capped_BT=found["capped"],
        unbounded_BT=found["unbounded"],
    )
