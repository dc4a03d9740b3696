"""How a step's groups are sampled and filtered (Hydra group `sampling`; article: S1-S7).

A variant turns its knobs into a `Sampling`, whose pure `keep(rewards_PG, vote_PG, tally) -> bool
[P, G]` says which responses of freshly sampled groups stay. A group that keeps none is dropped,
and while rounds are left its place is filled again. Responses that do not vote (`masking`) are
not compared, and stay or go with their group.

Filters have the knob `filter_on`: with `raw`, the default, they compare the task's reward, so that
a length penalty cannot bring an all-wrong group to life and so teach "be short" (K8); with `shaped`
they compare the reward the advantage sees.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
from torch import Tensor

from grpo_ablate.groups import varies
from grpo_ablate.knobs import Count, Positive, Share
from grpo_ablate.plans import Sampling, Tally


def standard(*, temperature: Positive, group_size: Count) -> Sampling:
    """Keep every response, whatever its group looks like.

    Source: article: S6 (temperature 0.8-1.0), S7 (8-16 samples), X1.

    Args:
        temperature: softmax temperature of the sampler and of the learner's log-probabilities.
        group_size: responses per prompt.

    Returns:
        One generation round, no filter.
    """
    return Sampling(temperature, group_size, 1, _keep_all, filters=False)


def dynamic(
    *,
    temperature: Positive,
    group_size: Count,
    filter_on: Literal["raw", "shaped"],
    max_filter_ratio: Share,
    max_rounds: Count,
) -> Sampling:
    """Drop each group whose rewards are all equal, and sample again until the batch is full.

    filter ratio = dropped groups / sampled groups; healthy at 0.2-0.4, above 0.5 look at the reward

    The cap counts over the step: once dropping one more would exceed it, further dead groups stay
    in the batch, where they have no gradient but keep its size honest. If `max_rounds` pass
    without filling the batch, the step goes on with what it has (none: no update), and the log
    says so. Source: Yu et al. 2025 (DAPO), section 3.2; article: S1-S3, P1 (cap 0.4).

    Args:
        temperature: see `standard`.
        group_size: see `standard`; with 1 every group is dead.
        filter_on: see the module.
        max_filter_ratio: cap on the filter ratio; 1 never keeps a dead group.
        max_rounds: generation rounds a step may use.

    Returns:
        Up to max_rounds rounds, dead groups dropped whole.
    """
    keep = partial(_keep_live, max_filter_ratio=max_filter_ratio)
    return Sampling(temperature, group_size, max_rounds, keep, on=filter_on)


def intra_group(
    *,
    temperature: Positive,
    group_size: Count,
    filter_on: Literal["raw", "shaped"],
    keep_per_reward: Count,
) -> Sampling:
    """Keep the group but drop responses that share a reward with an earlier one.

    Of each distinct reward in a group the first `keep_per_reward` responses stay; a group with a
    single distinct reward has nothing to compare and is dropped. Finer than `dynamic`, at the
    risk of sampling bias: the survivors no longer show the pass rate. Never samples again, so
    the batch shrinks: see `sampling/effective_responses`. Source: article: S4.

    Args:
        temperature: see `standard`.
        group_size: see `standard`.
        filter_on: see the module.
        keep_per_reward: responses kept of each distinct reward.

    Returns:
        One round, filtered response by response.
    """
    keep = partial(_keep_distinct, keep_per_reward=keep_per_reward)
    return Sampling(temperature, group_size, 1, keep, on=filter_on)


def _keep_all(rewards_PG: Tensor, vote_PG: Tensor, tally: Tally) -> Tensor:
    return torch.ones_like(vote_PG)


def _keep_live(
    rewards_PG: Tensor, vote_PG: Tensor, tally: Tally, *, max_filter_ratio: float
) -> Tensor:
    """Keep groups whose voters differ, and dead ones beyond the cap; earlier ones drop first."""
    dead_P = ~varies(rewards_PG, vote_PG)
    sampled = tally.sampled + len(dead_P)
    # 1e-9: 0.4 * 30 must allow 12 drops although it is 11.999... or 12.000...1 in floating point
    allowance = int(max_filter_ratio * sampled + 1e-9) - tally.dropped
    drop_P = dead_P & (dead_P.cumsum(0) <= allowance)
    return ~drop_P[:, None].expand_as(vote_PG)


def _keep_distinct(
    rewards_PG: Tensor, vote_PG: Tensor, tally: Tally, *, keep_per_reward: int
) -> Tensor:
    """Keep the first few voters of each distinct reward, in groups that have more than one."""
    same_PGG = rewards_PG[:, :, None] == rewards_PG[:, None, :]
    earlier_PG = (same_PGG & vote_PG[:, None, :]).tril(-1).sum(2)
    first_PG = (earlier_PG < keep_per_reward) | ~vote_PG
    return first_PG & varies(rewards_PG, vote_PG)[:, None]
