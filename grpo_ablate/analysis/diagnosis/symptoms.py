"""D1-D6 as data, in the article's order of checks.

A plateau has one cause: of D1's rules the first that fires counts (`unless`), and so for D3's lr.
"""

from __future__ import annotations

from functools import partial

from grpo_ablate.analysis.diagnosis import course, loss
from grpo_ablate.analysis.diagnosis.log import LOOK
from grpo_ablate.analysis.diagnosis.rule import Rule

_REWARD = ("reward/mean",)
_FLAT = "reward flat: {before:.3f} → {after:.3f} between the stretch's halves; "

_PLATEAU = (
    Rule(
        "D1_variance",
        "fault",
        (*_REWARD, "reward/frac_zero_std|reward/group_std"),
        partial(course.plateau_without_variance, dead=0.5, share=0.2),
        _FLAT + "dead groups {dead:.0%}, in-group std {share:.0%} of the whole",
        "nearly all responses of a group get the same reward, so that advantages are 0",
        ("harder_data", "larger_groups", "dynamic_sampling"),
        "article: D1, G3",
        LOOK,
    ),
    Rule(
        "D1_entropy",
        "fault",
        (*_REWARD, "policy/entropy"),
        course.plateau_without_entropy,
        _FLAT + "entropy {entropy:.3g}, below {threshold:g}",
        "the policy no longer tries anything new",
        ("clip_higher", "entropy_bonus"),
        "article: D1, M7",
        LOOK,
        ("D1_variance",),
    ),
    Rule(
        "D1_lr",
        "fault",
        _REWARD,
        course.plateau_from_the_start,
        _FLAT + "and it did not rise over the first 200 steps either, at lr {lr:.2g}",
        "groups vary and entropy is healthy: the learning rate is too small",
        ("double_lr",),
        "article: D1, B2",
        LOOK,
        ("D1_variance", "D1_entropy"),
    ),
    Rule(
        "D1_difficulty",
        "note",
        _REWARD,
        course.plateau_after_a_climb,
        _FLAT + "it rose before; accuracy differs by {spread:.2f} between difficulties",
        "with prompts that are all about as hard a plateau is normal: what could be learned was",
        ("other_data", "double_lr"),
        "article: D1",
        LOOK,
        ("D1_variance", "D1_entropy", "D1_lr"),
    ),
)

_ENTROPY = (
    Rule(
        "D2",
        "fault",
        ("policy/entropy", *_REWARD),
        partial(course.low_entropy, names=("M2", "M7"), rising=False, lasting=50),
        "entropy fell from {top:.3g} to {low:.3g} ({fall:.0%}) while the reward does not rise",
        "entropy collapse: the outputs turn into a template, and clipping makes it worse",
        ("halve_lr", "entropy_bonus", "clip_higher", "asymmetric_clip", "roll_back"),
        "article: D2, M2, M7",
    ),
    Rule(
        "collapse",
        "fault",
        _REWARD,
        partial(course.collapse, share=0.5),
        "reward {top:.3f} → {now:.3f}, more than half of its best level lost and not regained",
        "the policy is broken: the steps were too large for it",
        ("halve_lr", "two_sided_clip", "roll_back"),
        "article: G7, B2",
    ),
)

_LOSS = (
    Rule(
        "D3_ratio",
        "fault",
        ("policy/loss", "ratio/p99"),
        partial(loss.loss_spike, with_ratio=3.0),
        "loss {loss:.3g} (median {median:.3g}) at ratio/p99 {ratio:.2f}",
        "a token's ratio blew up: an overlong response or an outlier among the rewards",
        ("look", "mask_truncated", "dual_clip"),
        "article: D3, M4",
    ),
    Rule(
        "D3_gradient",
        "fault",
        ("policy/loss", "optim/grad_norm"),
        loss.loss_spike_with_gradient,
        "loss {loss:.3g} with a gradient {times:.1f} times its running mean",
        "one batch throws the weights about",
        ("look", "clip_gradient", "halve_lr"),
        "article: D3, B4",
    ),
    Rule(
        "D3_frequent",
        "fault",
        ("policy/loss",),
        partial(loss.frequent_loss_spikes, count=3),
        "{rows:.0f} loss spikes, three or more of them within 200 steps",
        "the clip lets too much through for this reward",
        ("two_sided_clip", "gspo", "halve_lr"),
        "article: D3",
    ),
    Rule(
        "D3_lr",
        "caution",
        ("policy/loss",),
        loss.loss_spike,
        "loss {loss:.3g} (median {median:.3g}), {rows:.0f} times",
        "neither ratio nor gradient explains the spike: the learning rate may be too high",
        ("halve_lr",),
        "article: D3, B2",
        unless=("D3_ratio", "D3_gradient", "D3_frequent"),
    ),
)

_REST = (
    Rule(
        "D4",
        "fault",
        ("completion/length_mean", *_REWARD),
        partial(course.length_runaway, share=0.5),
        "mean length {before:.0f} → {after:.0f} ({change:+.0%}) while the reward does not rise",
        "length runaway: length and reward are linked in some way",
        ("look", "length_penalty"),
        "article: D4, G6",
        LOOK,
    ),
    Rule(
        "D5",
        "note",
        ("reward/frac_zero_std",),
        partial(course.wasted_groups, share=0.2),
        "{dead:.0%} of the groups are dead and nothing filters them",
        "their tokens are paid for and teach nothing",
        ("dynamic_sampling", "filter_data"),
        "article: D5, S2, S5",
        unless=("D1_variance", "collapse"),
    ),
    Rule(
        "D6",
        "fault",
        ("baseline/accuracy", "eval/accuracy"),
        partial(course.worse_than_baseline, by=0.02, evaluations=5),
        "held-out accuracy {arm:.3f}, {gap:.3f} below the baseline's {base:.3f} on the same seeds",
        "worse than the baseline: tricks that work alone can conflict (`report` has the interval)",
        ("one_by_one",),
        "article: D6, G9, X4",
        300,
    ),
)

SYMPTOMS = _PLATEAU + _ENTROPY + _LOSS + _REST
