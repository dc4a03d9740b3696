"""How rewards become advantages (Hydra group `advantage`; article: G1-G3, A1-A9).

Every variant takes, with P prompts and G responses each,

    rewards_PG        float64; the reward after penalties
    vote_PG           bool; the responses that vote in their group's baseline
    prompt_lengths_P  tokens
    state             what the variant returned last time ({} at the start)

and returns `Advantages` with 0 where vote is False. In every variant but `length_buckets` a
group whose voters all agree gets exact zeros, and so does a group with fewer than two voters.
Standard deviations take `ddof` (1: sample, as TRL and verl; 0: population) and are 0 for a group
with no more than `ddof` voters.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from grpo_ablate.groups import varies
from grpo_ablate.knobs import Count, Decay, NonNegative, Positive, Share
from grpo_ablate.types import Advantages, AdvantageState


def none(
    rewards_PG: Tensor, vote_PG: Tensor, prompt_lengths_P: Tensor, state: AdvantageState
) -> Advantages:
    """Subtract the group mean and divide by nothing: Dr. GRPO, the neutral baseline.

    A = r - mean(r in the group)

    Division by the std magnifies groups that hardly vary. Source: Liu et al. 2025 (Dr. GRPO);
    article: A2, X1.

    Returns:
        Advantages in units of reward; each group sums to 0.
    """
    return Advantages(_centred(rewards_PG, vote_PG))


def group_std(
    rewards_PG: Tensor,
    vote_PG: Tensor,
    prompt_lengths_P: Tensor,
    state: AdvantageState,
    *,
    ddof: Literal[0, 1],
    eps: NonNegative,
) -> Advantages:
    """Divide by the group's own std: standard GRPO.

    A = (r - mean) / (std + eps)

    Source: Shao et al. 2024 (GRPO), section 4.1.2; article: G2, A1.

    Knobs:
        ddof: see the module.
        eps: added to the std, in units of reward.

    Returns:
        Advantages without unit; invariant to a positive scale of the rewards at eps 0.
    """
    return Advantages(_divide(rewards_PG, vote_PG, _std(rewards_PG, vote_PG, ddof) + eps))


def batch_std(
    rewards_PG: Tensor,
    vote_PG: Tensor,
    prompt_lengths_P: Tensor,
    state: AdvantageState,
    *,
    ddof: Literal[0, 1],
    eps: NonNegative,
) -> Advantages:
    """Divide by the std of all the step's rewards: one scale a step, set by how mixed it is.

    A = (r - mean in the group) / (std of all rewards + eps)

    The std spans groups too, so easy and hard prompts in one step widen it. Source: TRL's
    scale_rewards="batch"; Hu et al. 2025 (REINFORCE++) normalises over the batch as well.

    Knobs:
        ddof: see the module.
        eps: added to the std, in units of reward.

    Returns:
        Advantages without unit; each group sums to 0.
    """
    std_11 = _std(rewards_PG.reshape(1, -1), vote_PG.reshape(1, -1), ddof)
    return Advantages(_divide(rewards_PG, vote_PG, (std_11 + eps).expand(len(rewards_PG), 1)))


def rloo(
    rewards_PG: Tensor, vote_PG: Tensor, prompt_lengths_P: Tensor, state: AdvantageState
) -> Advantages:
    """Compare each response with the mean of the *others*: leave-one-out, an unbiased baseline.

    A = r - mean(the group's other rewards) = (r - mean) n / (n - 1),  n voters

    With equal group sizes a change of scale of `none`, and no more. Source: Ahmadian et al. 2024
    (RLOO), eq. 8; Kool et al. 2019.

    Returns:
        Advantages in units of reward; each group sums to 0.
    """
    voters_P1 = vote_PG.sum(1, keepdim=True).to(rewards_PG.dtype)
    factor_P1 = voters_P1 / (voters_P1 - 1).clamp(min=1)
    return Advantages(_centred(rewards_PG, vote_PG) * factor_P1)


def constant(
    rewards_PG: Tensor,
    vote_PG: Tensor,
    prompt_lengths_P: Tensor,
    state: AdvantageState,
    *,
    scale: Positive,
) -> Advantages:
    """Divide by a fixed number.

    A = (r - mean) / scale

    Source: article: A3. The shipped 0.5 is the largest std a right/wrong reward can have.

    Knobs:
        scale: in units of reward.

    Returns:
        Advantages without unit.
    """
    return Advantages(_centred(rewards_PG, vote_PG) / scale)


def ema_std(
    rewards_PG: Tensor,
    vote_PG: Tensor,
    prompt_lengths_P: Tensor,
    state: AdvantageState,
    *,
    decay: Decay,
    ddof: Literal[0, 1],
    eps: NonNegative,
) -> Advantages:
    """Divide by a moving average of the group std over training: the author's own choice.

    A = (r - mean) / (m + eps),  m = decay * m_before + (1 - decay) * mean std of varying groups

    The first step takes its own mean. Groups whose voters agree have no gradient and do not vote
    on its scale: else a growing share of them would raise the effective lr in silence; a step
    without a varying group leaves m as it is. Source: article: A4.

    Knobs:
        decay: weight of the past.
        ddof: see the module.
        eps: added to m, in units of reward.

    Returns:
        Advantages without unit, one scale for all groups, and {"std": m}.
    """
    std_P1, live_P1 = _std(rewards_PG, vote_PG, ddof), _live(rewards_PG, vote_PG)
    if not live_P1.any():
        return Advantages(torch.zeros_like(rewards_PG), dict(state))
    now = std_P1[live_P1].mean().item()
    mean = decay * state["std"] + (1 - decay) * now if "std" in state else now
    return Advantages(_centred(rewards_PG, vote_PG) / (mean + eps), {"std": mean})


def smooth(
    rewards_PG: Tensor,
    vote_PG: Tensor,
    prompt_lengths_P: Tensor,
    state: AdvantageState,
    *,
    weight: Share,
    ddof: Literal[0, 1],
    eps: NonNegative,
) -> Advantages:
    """Divide by the group's std drawn towards the batch's: for stds that range widely.

    A = (r - mean) / (s + eps),  s^2 = (1 - weight) * std^2 + weight * mean std^2 of varying groups

    weight 0 is `group_std`; weight 1 gives the whole step one scale. Source: article: A5.

    Knobs:
        weight: share of the batch's variance.
        ddof: see the module.
        eps: added to the std, in units of reward.

    Returns:
        Advantages without unit.
    """
    variance_P1, live_P1 = (
        _std(rewards_PG, vote_PG, ddof) ** 2,
        _live(rewards_PG, vote_PG),
    )
    pooled = variance_P1[live_P1].mean() if live_P1.any() else variance_P1.new_zeros(())
    scale_P1 = ((1 - weight) * variance_P1 + weight * pooled).sqrt() + eps
    return Advantages(_divide(rewards_PG, vote_PG, scale_P1))


def length_buckets(
    rewards_PG: Tensor,
    vote_PG: Tensor,
    prompt_lengths_P: Tensor,
    state: AdvantageState,
    *,
    buckets: Count,
) -> Advantages:
    """Take the baseline from all responses to prompts of about the same length.

    A = r - mean(r in the bucket);  buckets hold equally many prompts, in order of prompt length

    Prompts of one length are never split over two buckets. Unlike every other variant a group
    whose responses agree keeps a gradient here: it is compared with its neighbours. Source:
    article: A8.

    Knobs:
        buckets: how many, at most; 1 makes the baseline the mean of the step.

    Returns:
        Advantages in units of reward; each bucket sums to 0.
    """
    rank_P = torch.searchsorted(prompt_lengths_P.sort().values, prompt_lengths_P)
    bucket_P = rank_P * buckets // len(prompt_lengths_P)
    values_PG = torch.zeros_like(rewards_PG)
    for bucket in torch.unique(bucket_P):
        inside = bucket_P == bucket
        rewards_1N, vote_1N = rewards_PG[inside].view(1, -1), vote_PG[inside].view(1, -1)
        values_PG[inside] = _centred(rewards_1N, vote_1N).view_as(values_PG[inside])
    return Advantages(values_PG)


def _live(rewards_PG: Tensor, vote_PG: Tensor) -> Tensor:
    return varies(rewards_PG, vote_PG)[:, None]


def _centred(rewards_PG: Tensor, vote_PG: Tensor) -> Tensor:
    """Return reward minus the voters' mean; exact zeros where voters agree or do not vote."""
    voters_P1 = vote_PG.sum(1, keepdim=True).clamp(min=1)
    mean_P1 = rewards_PG.masked_fill(~vote_PG, 0.0).sum(1, keepdim=True) / voters_P1
    # the mean of equal floats can miss them by one rounding, which a small std would magnify
    return (rewards_PG - mean_P1).masked_fill(~(vote_PG & _live(rewards_PG, vote_PG)), 0.0)


def _std(rewards_PG: Tensor, vote_PG: Tensor, ddof: int) -> Tensor:
    """Return the voters' std [P, 1]; 0 where they agree or number no more than ddof."""
    squares_P1 = _centred(rewards_PG, vote_PG).square().sum(1, keepdim=True)
    freedom_P1 = (vote_PG.sum(1, keepdim=True) - ddof).clamp(min=1)
    return (squares_P1 / freedom_P1).sqrt()


def _divide(rewards_PG: Tensor, vote_PG: Tensor, scale_P1: Tensor) -> Tensor:
    """Return centred rewards over a scale, 0 (not 0 / 0) where the group has no variance."""
    live_P1 = _live(rewards_PG, vote_PG)
    return _centred(rewards_PG, vote_PG) / torch.where(live_P1, scale_P1, 1.0)
