"""What is logged, and how several steps pool into one row (article: M1-M7).

Each function returns name → (value, weight). Rows of `metrics.csv` pool the steps since the last
row: `mean` metrics by weight, so that a token-weighted metric is the exact mean over all tokens
of the window, `sum` and `max` as they say. Meaning and units: docs/metrics.md, which a test
holds against METRICS.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from grpo_ablate.groups import varies
from grpo_ablate.rollout import Rollout
from grpo_ablate.types import Advantages, Groups, Trace, Update

_ROUNDING = 1e-3
"""A `tis` weight nearer to 1 than this is what two summation orders of one model differ by."""

Pool = Literal["mean", "sum", "max"]
Weighted = tuple[float, float]

METRICS: dict[str, Pool] = {
    "reward/mean": "mean",
    "reward/std": "mean",
    "reward/group_std": "mean",
    "reward/frac_zero_std": "mean",
    "reward/raw_mean": "mean",
    "reward/penalty_mean": "mean",
    "reward/shaping_mean": "mean",
    "reward/excluded": "sum",
    "policy/entropy": "mean",
    "policy/loss": "mean",
    "policy/kl_ref": "mean",
    "completion/length_mean": "mean",
    "completion/length_std": "mean",
    "completion/length_right_mean": "mean",
    "completion/length_wrong_mean": "mean",
    "completion/truncated_frac": "mean",
    "ratio/p01": "mean",
    "ratio/p50": "mean",
    "ratio/p99": "mean",
    "ratio/max": "max",
    "ratio/clip_frac_low": "mean",
    "ratio/clip_frac_high": "mean",
    "ratio/clip_frac_dual": "mean",
    "ratio/unbounded_frac": "mean",
    "ratio/token_var": "mean",
    "ratio/sequence_var": "mean",
    "sampling/filter_ratio": "mean",
    "sampling/effective_groups": "mean",
    "sampling/effective_responses": "mean",
    "sampling/rounds": "mean",
    "advantage/abs_easy": "mean",
    "advantage/abs_hard": "mean",
    "optim/lr": "mean",
    "optim/grad_norm": "mean",
    "optim/grad_norm_max": "max",
    "optim/updates": "sum",
    "optim/skipped": "sum",
    "engine/logprob_diff_mean": "mean",
    "engine/logprob_diff_max": "max",
    "engine/prefix_cache_hit_rate": "mean",
    "monitor/alarms": "sum",
    "technique/activity": "mean",
    "technique/activity_clip": "mean",
    "technique/activity_advantage": "mean",
    "technique/activity_sampling": "mean",
    "technique/activity_length_penalty": "mean",
    "technique/activity_lr_batch": "mean",
    "technique/activity_shaping": "mean",
    "technique/activity_regularizer": "mean",
    "technique/activity_reduction": "mean",
    "technique/activity_masking": "mean",
    "technique/activity_tis": "mean",
    "perf/generated_tokens": "sum",
    "perf/tokens_per_second": "mean",
    "perf/seconds": "sum",
}


def step_metrics(
    rollout: Rollout,
    advantages: Advantages,
    update: Update,
    *,
    moved: Sequence[str],
    filters: bool,
    seconds: float,
) -> dict[str, Weighted]:
    """Measure one step.

    Rewards and lengths are means over *all* sampled responses, dropped groups included: what a
    filter leaves over is no longer a sample of the policy.

    Args:
        rollout: as sampled.
        advantages: of rollout.groups.
        update: the optimizer steps taken on it.
        moved: the levers this arm moves; their activity is `technique/activity`.
        filters: whether the sampling technique may drop anything; without it its activity has no
            measure, as for an arm that moves the temperature.
        seconds: wall-clock time of the step.

    Returns:
        A value for each of METRICS, NaN with weight 0 where there is nothing to measure.
    """
    found = (
        _reward(rollout.groups)
        | _completion(rollout.groups)
        | _policy(update)
        | _sampling(rollout)
        | _advantage(rollout.groups, advantages)
        | _activity(rollout, update, filters)
        | _engine(rollout, update)
        | {"perf/seconds": (seconds, 1.0), "monitor/alarms": (0.0, 1.0)}
    )
    acted = [found[f"technique/activity_{lever}"] for lever in moved]
    seen = [value for value, weight in acted if weight > 0]
    # a stack acts as far as its idlest part does
    found["technique/activity"] = (min(seen), 1.0) if seen else (math.nan, 0.0)
    assert found.keys() == METRICS.keys(), found.keys() ^ METRICS.keys()
    return found


def pool(rows: Sequence[Mapping[str, Weighted]]) -> dict[str, float]:
    """Return one value a metric over several steps; NaN where no step had a weight."""
    return {name: _pool([row[name] for row in rows], how) for name, how in METRICS.items()}


def _pool(samples: list[Weighted], how: Pool) -> float:
    samples = [(value, weight) for value, weight in samples if weight > 0]
    if not samples:
        return math.nan
    if how == "max":
        return max(value for value, _ in samples)
    if how == "sum":
        return math.fsum(value for value, _ in samples)
    return math.fsum(v * w for v, w in samples) / math.fsum(w for _, w in samples)


def _mean(values: Tensor) -> Weighted:
    """Return the mean, weighted by how many values it is of."""
    n = values.numel()
    return (values.double().mean().item(), float(n)) if n else (math.nan, 0.0)


def _std(values: Tensor) -> Weighted:
    """Return the population std of one step; steps weigh alike."""
    n = values.numel()
    return (values.double().std(correction=0).item(), 1.0) if n else (math.nan, 0.0)


def _reward(groups: Groups) -> dict[str, Weighted]:
    rewards_PG, raw_PG = groups.rewards_PG, groups.raw_rewards_PG
    std_P = rewards_PG.std(1, correction=0)
    return {
        "reward/mean": _mean(rewards_PG),
        "reward/std": _std(rewards_PG),
        "reward/group_std": _mean(std_P),
        "reward/frac_zero_std": _mean(~varies(raw_PG, torch.ones_like(groups.keep_PG))),
        "reward/raw_mean": _mean(raw_PG),
        "reward/penalty_mean": _mean(groups.penalty_PG),
        "reward/shaping_mean": _mean(groups.shaping_PG),
    }


def _completion(groups: Groups) -> dict[str, Weighted]:
    lengths_PG, right_PG = groups.lengths_PG, groups.raw_rewards_PG >= 0.5
    return {
        "completion/length_mean": _mean(lengths_PG),
        "completion/length_std": _std(lengths_PG),
        "completion/length_right_mean": _mean(lengths_PG[right_PG]),
        "completion/length_wrong_mean": _mean(lengths_PG[~right_PG]),
        "completion/truncated_frac": _mean(torch.tensor(groups.completions.truncated)),
        "perf/generated_tokens": (lengths_PG.sum().item(), 1.0),
    }


def _policy(update: Update) -> dict[str, Weighted]:
    trace = update.trace
    ratio_N = trace.log_ratio_N.double().exp()
    steps = torch.tensor(update.grad_norms, dtype=torch.float64)
    return {
        "policy/entropy": _mean(trace.entropy_N),
        "policy/kl_ref": _mean(trace.kl_N),
        "policy/loss": _mean(torch.tensor(update.losses, dtype=torch.float64)),
        **{f"ratio/p{q:02d}": _quantile(ratio_N, q / 100) for q in (1, 50, 99)},
        "ratio/max": (ratio_N.max().item(), 1.0) if len(ratio_N) else (math.nan, 0.0),
        "ratio/clip_frac_low": _mean(trace.clipped_low_N),
        "ratio/clip_frac_high": _mean(trace.clipped_high_N),
        "ratio/clip_frac_dual": _mean(trace.capped_N),
        "ratio/unbounded_frac": _mean(trace.unbounded_N),
        "ratio/token_var": _variance(ratio_N),
        "ratio/sequence_var": _variance(trace.sequence_log_ratio_S.double().exp()),
        "optim/lr": (update.lr, 1.0),
        "optim/grad_norm": _mean(steps),
        "optim/grad_norm_max": (steps.max().item(), 1.0) if len(steps) else (math.nan, 0.0),
        "optim/updates": (float(update.applied), 1.0),
        "optim/skipped": (float(update.skipped), 1.0),
    }


def _engine(rollout: Rollout, update: Update) -> dict[str, Weighted]:
    """Return how far sampler and learner are apart, and what the engine saved and took."""
    groups = rollout.groups
    diff_N = torch.zeros(0) if update.mismatch_N is None else update.mismatch_N
    prompt_tokens = groups.prompt_lengths_P.sum().item() * groups.group_size
    cached, tokens = groups.completions.cached, groups.lengths_PG.sum().item()
    seconds = 0.0 if math.isnan(rollout.seconds) else rollout.seconds
    return {
        "engine/logprob_diff_mean": _mean(diff_N),
        "engine/logprob_diff_max": (diff_N.max().item(), 1.0) if len(diff_N) else (math.nan, 0.0),
        "engine/prefix_cache_hit_rate": (
            (sum(cached) / prompt_tokens, prompt_tokens) if cached else (math.nan, 0.0)
        ),
        # weighted by time, so that a window's value is its tokens over its seconds
        "perf/tokens_per_second": (tokens / seconds, seconds) if seconds else (math.nan, 0.0),
    }


def _quantile(values: Tensor, q: float) -> Weighted:
    """Return a quantile of one step by the nearest rank; torch's own refuses 16 million values."""
    if not len(values):
        return math.nan, 0.0
    rank = max(1, math.ceil(q * len(values)))
    return values.kthvalue(rank).values.item(), 1.0


def _variance(values: Tensor) -> Weighted:
    std, weight = _std(values)
    return std**2, weight


def _sampling(rollout: Rollout) -> dict[str, Weighted]:
    groups = rollout.groups
    live_P = varies(groups.raw_rewards_PG, groups.vote_PG) & groups.train_PG.any(1)
    return {
        "sampling/filter_ratio": (rollout.tally.filter_ratio, float(rollout.tally.sampled)),
        "sampling/effective_groups": (float(live_P.sum()), 1.0),
        "sampling/effective_responses": (float(groups.train_PG[live_P].sum()), 1.0),
        "sampling/rounds": (float(rollout.tally.rounds), 1.0),
        "reward/excluded": (float(rollout.tally.excluded), 1.0),
    }


def _advantage(groups: Groups, advantages: Advantages) -> dict[str, Weighted]:
    """Return the gradient scale of easy and hard prompts (article: A7), split at half right."""
    easy_P = groups.raw_rewards_PG.mean(1) >= 0.5
    size_PG = advantages.values_PG.abs()
    kept = {True: groups.train_PG & easy_P[:, None], False: groups.train_PG & ~easy_P[:, None]}
    return {
        "advantage/abs_easy": _mean(size_PG[kept[True]]),
        "advantage/abs_hard": _mean(size_PG[kept[False]]),
    }


def _activity(rollout: Rollout, update: Update, filters: bool) -> dict[str, Weighted]:
    """Return how much each lever acted; 0 where it had nothing to act on."""
    groups, trace = rollout.groups, update.trace
    live_std_P = groups.rewards_PG.std(1, correction=0)
    return {
        "technique/activity_clip": _mean(_clipped(trace)),
        "technique/activity_advantage": _variation(live_std_P[live_std_P > 0]),
        "technique/activity_sampling": _mean(~groups.keep_PG) if filters else (math.nan, 0.0),
        "technique/activity_length_penalty": _mean(groups.penalty_PG != 0),
        "technique/activity_lr_batch": (update.applied / update.planned, 1.0),
        # what a whole group gets alike cancels in its baseline
        "technique/activity_shaping": _mean(varies(groups.shaping_PG, groups.vote_PG)),
        "technique/activity_regularizer": _mean(trace.regularizer_N.double().abs()),
        "technique/activity_reduction": _variation(groups.lengths_PG[groups.train_PG]),
        "technique/activity_masking": _mean(~groups.train_PG[groups.keep_PG]),
        "technique/activity_tis": _mean((trace.weight_N.double() - 1).abs() > _ROUNDING),
    }


def _clipped(trace: Trace) -> Tensor:
    return trace.clipped_low_N | trace.clipped_high_N | trace.capped_N


def _variation(values: Tensor) -> Weighted:
    """Return std / mean: 0 where all values are equal, so that weighting them is a mere scale."""
    if not len(values):
        return math.nan, 0.0
    return (values.std(correction=0) / values.mean()).item(), 1.0
