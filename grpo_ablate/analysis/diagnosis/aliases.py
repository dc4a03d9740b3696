"""What other trainers call our metrics: one table, and the only place that knows their names.

Where a definition differs from ours, the alias says how. A measure that cannot be converted keeps
a name of its own (`engine/prob_diff_mean`): it is never passed off as ours. Names are those of TRL
1.16 (trl/trainer/grpo_trainer.py) and of verl (trainer/ppo/metric_utils.py, workers/actor,
utils/debug/metrics.py), older ones included; docs/diagnose.md shows this table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Trainer = Literal["grpo_ablate", "trl", "verl", "unknown"]


@dataclass(frozen=True)
class Alias:
    """One name of one trainer."""

    trainer: Trainer
    theirs: str
    """A name, or a pattern where `*` stands for any text."""
    ours: str | None
    """Our signal; None where we know the name and no rule asks for it."""
    differs: str = ""
    """How the definition differs from docs/metrics.md; empty where it does not."""

    def matches(self, name: str) -> bool:
        """Tell whether a column is meant."""
        pattern = ".*".join(re.escape(part) for part in self.theirs.split("*"))
        return re.fullmatch(pattern, name) is not None


_ROWS = "a row is an optimizer step, of which a rollout has several"

_TRL = (
    Alias("trl", "reward", "reward/mean"),
    Alias(
        "trl",
        "reward_std",
        "reward/std",
        "divides by n - 1; earlier versions log the in-group std under this name",
    ),
    Alias(
        "trl",
        "frac_reward_zero_std",
        "reward/frac_zero_std",
        "of the scored reward, penalties included; with scale_rewards=batch 0 or 1",
    ),
    Alias("trl", "loss", "policy/loss"),
    Alias("trl", "entropy", "policy/entropy"),
    Alias("trl", "kl", "policy/kl_ref"),
    Alias("trl", "completions/mean_length", "completion/length_mean"),
    Alias("trl", "completions/clipped_ratio", "completion/truncated_frac"),
    Alias("trl", "clip_ratio/low_mean", "ratio/clip_frac_low"),
    Alias("trl", "clip_ratio/high_mean", "ratio/clip_frac_high"),
    Alias("trl", "sampling/sampling_logp_difference/mean", "engine/logprob_diff_mean"),
    Alias("trl", "sampling/sampling_logp_difference/max", "engine/logprob_diff_max"),
    Alias("trl", "learning_rate", "optim/lr"),
    Alias("trl", "grad_norm", "optim/grad_norm", _ROWS),
    Alias("trl", "eval_reward", "eval/accuracy", "the held-out reward: accuracy if it is 0 or 1"),
    *(
        Alias("trl", name, None)
        for name in (
            *("clip_ratio/*", "cispo_clip_ratio", "completions/*", "rewards/*", "tools/*"),
            *("sampling/importance_sampling_ratio/*", "num_tokens", "step_time", "epoch"),
            *("policy_loss", "entropy_coef", "aux_loss", "vespo/*", "eval_*", "train_*"),
            *("total_flos", "profiling/*", "global_step"),
        )
    ),
)

_VERL = (
    Alias("verl", "critic/rewards/mean", "reward/mean"),
    Alias("verl", "critic/score/mean", "reward/raw_mean", "before verl's own KL penalty only"),
    Alias("verl", "actor/pg_loss", "policy/loss"),
    Alias("verl", "actor/entropy", "policy/entropy"),
    Alias("verl", "actor/entropy_loss", "policy/entropy", "the older name of actor/entropy"),
    Alias("verl", "actor/kl_loss", "policy/kl_ref"),
    Alias("verl", "response_length/mean", "completion/length_mean"),
    Alias(
        "verl",
        "response_length/clip_ratio",
        "completion/truncated_frac",
        "responses as long as the limit, those that end there by themselves included",
    ),
    Alias("verl", "actor/pg_clipfrac", "ratio/clip_frac", "both bounds together"),
    Alias("verl", "actor/pg_clipfrac_lower", "ratio/clip_frac_dual", "not the lower bound"),
    Alias("verl", "actor/grad_norm", "optim/grad_norm"),
    Alias("verl", "actor/lr", "optim/lr"),
    Alias(
        "verl",
        "training/rollout_probs_diff_mean",
        "engine/prob_diff_mean",
        "of probabilities, not of their logarithms: at most engine/logprob_diff_mean",
    ),
    Alias(
        "verl",
        "training/rollout_probs_diff_max",
        "engine/prob_diff_max",
        "of probabilities, not of their logarithms",
    ),
    Alias(
        "verl",
        "val-core/*/mean@*",
        "eval/accuracy",
        "mean over samples; over data sets too where there are several",
    ),
    Alias("verl", "val/test_score/*", "eval/accuracy", "the older name of val-core"),
    *(
        Alias("verl", name, None)
        for name in (
            *("critic/*", "actor/*", "response_length/*", "response_length_non_aborted/*"),
            *("response/*", "prompt_length/*", "timing_s/*", "timing_per_token_ms/*", "perf/*"),
            *("global_seqlen/*", "num_turns/*", "val-core/*", "val-aux/*", "val/*"),
            *("training/*", "rollout_corr/*", "mismatch/*", "train/num_gen_batches"),
        )
    ),
)

ALIASES = _TRL + _VERL
"""The first that matches counts, so exact names stand before patterns."""

STEPS = (
    *("step", "train/global_step", "training/global_step", "global_step", "trainer/global_step"),
    *("_step", "Step"),
)
"""What the column of steps is called: a trainer's own count before W&B's."""

_OURS = re.compile(
    r"(reward|policy|completion|ratio|sampling|advantage|optim|monitor|technique|engine)/\w+"
    r"|perf/(generated_tokens|tokens_per_second|seconds)"
    r"|eval/((sampled_|selection_|test_)?accuracy|accuracy_\d+|length_mean)"
)


def find(column: str) -> Alias | None:
    """Return what a column means; None where nobody here knows it.

    W&B's callback for TRL writes `train/reward` and `eval/reward` for `reward` and `eval_reward`.
    """
    if _OURS.fullmatch(column):
        return Alias("grpo_ablate", column, column)
    for name in (column, column.removeprefix("train/"), column.replace("eval/", "eval_", 1)):
        for alias in ALIASES:
            if alias.matches(name) and (name == column or alias.trainer == "trl"):
                return alias
    return None
