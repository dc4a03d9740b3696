"""M1-M7 and what the article does not name, as data."""

from __future__ import annotations

from functools import partial

from grpo_ablate.analysis.diagnosis import alarms, course, loss
from grpo_ablate.analysis.diagnosis.log import LOOK
from grpo_ablate.analysis.diagnosis.rule import Level, Rule


def _alarm(
    name: str,
    level: Level,
    signals: tuple[str, ...],
    says: str,
    cause: str,
    remedies: tuple[str, ...],
    unless: tuple[str, ...] = (),
) -> Rule:
    """Return a rule that fires where `monitor`'s rule of that name does."""
    check = partial(alarms.alarm, name=name)
    source = f"article: {name.partition('_')[0]}; conf/monitor"
    return Rule(name, level, signals, check, says, cause, remedies, source, unless=unless)


_ALARMS = (
    _alarm(
        "M1",
        "note",
        ("reward/mean", "reward/std"),
        "reward rises while its std falls by {measure:.0%} within the window",
        "converging, and losing diversity",
        ("watch",),
    ),
    Rule(
        "M2",
        "note",
        ("policy/entropy",),
        partial(course.low_entropy, names=("M2",), rising=True),
        "entropy fell from {top:.3g} to {low:.3g} ({fall:.0%}); the reward rises or is too young",
        "no fault as long as the reward rises",
        ("watch",),
        "article: M2, D2; conf/monitor",
    ),
    _alarm(
        "M3",
        "caution",
        ("completion/length_mean", "target interval"),
        "mean length {worst:.0f}, up to {measure:.0%} outside the target interval",
        "the length penalty is too weak, or its interval is wrong for this task",
        ("length_penalty",),
    ),
    _alarm(
        "M3_std",
        "caution",
        ("completion/length_std",),
        "std of lengths jumps to {worst:.1f}, {measure:.1f} times its running mean",
        "some responses run away; a batch of mixed lengths widens the ratios too",
        ("look", "length_penalty"),
    ),
    _alarm(
        "M4_blown",
        "fault",
        ("ratio/p99",),
        "ratio/p99 reaches {worst:.2f}",
        "a token's ratio blew up",
        ("look", "dual_clip", "two_sided_clip"),
        unless=("D3_ratio",),
    ),
    _alarm(
        "M4",
        "caution",
        ("ratio/p99",),
        "ratio/p99 reaches {worst:.2f}",
        "the clip fires all the time",
        ("halve_lr", "fewer_updates"),
        unless=("M4_blown",),
    ),
    _alarm(
        "M4_low",
        "caution",
        ("ratio/p01",),
        "ratio/p01 falls to {worst:.2f}",
        "the clip fires all the time",
        ("halve_lr", "fewer_updates"),
    ),
    Rule(
        "M5",
        "caution",
        ("optim/grad_norm",),
        alarms.gradient,
        "gradient norm up to {times:.1f} times its running mean, in {rows:.0f} of {of:.0f} rows",
        "a batch unlike the others",
        ("look", "clip_gradient"),
        "article: M5; conf/monitor",
    ),
    _alarm(
        "M6",
        "caution",
        ("sampling/filter_ratio",),
        "up to {worst:.0%} of the sampled groups are dropped",
        "the reward tells too little apart",
        ("reward_design", "harder_data"),
    ),
    Rule(
        "M7",
        "note",
        ("policy/entropy",),
        partial(course.low_entropy, names=("M7",), rising=True),
        "entropy down to {low:.3g}; the reward rises or is too young",
        "diversity is going; no fault as long as the reward rises",
        ("watch",),
        "article: M7, D2; conf/monitor",
    ),
)

_EXTRAS = (
    Rule(
        "truncation",
        "caution",
        ("completion/truncated_frac",),
        partial(course.sustained, signal="completion/truncated_frac", over=0.1, steps=50),
        "up to {worst:.0%} of the responses end at the token limit",
        "cut-off answers score as wrong whatever they were worth",
        ("longer_limit", "mask_truncated", "soft_limit"),
        "DAPO section 3.4",
    ),
    Rule(
        "wrong_longer",
        "caution",
        ("completion/length_wrong_mean", "completion/length_right_mean"),
        partial(course.wrong_grow_longer, share=0.1),
        "wrong answers {wrong0:.1f} → {wrong1:.1f} tokens, right ones {right0:.1f} → {right1:.1f}",
        "length bias: dividing by a response's own length spares long wrong answers",
        ("no_length_bias",),
        "Dr. GRPO section 3",
        LOOK,
    ),
    Rule(
        "shaped_reward",
        "fault",
        ("reward/mean", "eval/accuracy"),
        partial(course.shaped_reward_alone, held_out=0.01, part=0.5),
        "training reward {low:.3f} → {high:.3f}, held-out accuracy {before:.3f} → {after:.3f}",
        "the model learns what shapes the reward, not the task",
        ("no_shaping",),
        "article: L4",
        LOOK,
    ),
    Rule(
        "sampler_drift",
        "fault",
        ("engine/logprob_diff_mean|engine/prob_diff_mean",),
        partial(course.drift, times=2.0, over=0.01),
        "mean difference of sampler and trainer {before:.3g} → {after:.3g}",
        "what was sampled is not what is trained: weights pushed late, or another precision",
        ("same_precision", "correct_sampler"),
        "Yao et al. 2025",
    ),
    Rule(
        "loss_zero",
        "note",
        ("policy/loss",),
        partial(loss.loss_is_zero, below=0.02),
        "loss around {size:.2g} with one update a rollout",
        "normal: every ratio is 1 and advantages sum to 0; the gradient is not 0",
        ("leave_as_is",),
        "docs/judging.md",
    ),
    Rule(
        "sequence_clip",
        "note",
        ("ratio/clip_frac|ratio/clip_frac_low|ratio/clip_frac_high",),
        partial(loss.many_clipped, share=0.1),
        "{mean:.0%} of the tokens are clipped",
        "with one ratio a sequence (GSPO) that is usual: it clips whole responses, and cannot be"
        " compared with token-level fractions; with token ratios it would be far too much",
        ("shorter_range",),
        "GSPO section 5; article: C7",
    ),
)

SIGNS = _ALARMS + _EXTRAS
