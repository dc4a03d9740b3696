"""Signs in the course of reward, entropy and length (article: D1, D2, D4, D5)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from grpo_ablate.analysis.diagnosis.alarms import alarms, monitor_rules
from grpo_ablate.analysis.diagnosis.log import (
    LOOK,
    RISE,
    ROWS,
    SILENT,
    Evidence,
    Log,
    begin,
    during,
    ends,
    gain,
    growth,
    hits,
    unit,
    window,
)


def plateau(log: Log) -> pd.Series[float] | None:
    """Return the stretch up to the last row in which the reward no longer rises; None if it does.

    The last 200 steps without a gain between their halves, and what came before for as long as 50
    steps' mean lies no lower than they do by more than what is called a gain.
    """
    rewards = log.signals["reward/mean"]
    if log.last - log.first < LOOK - 1 or not gain(log, "reward/mean") < RISE:
        return None
    flat = window(rewards, LOOK)
    low = float(flat.mean()) - RISE * unit(log, flat)
    for step in reversed(rewards.index[rewards.index < flat.index[0]]):
        ahead = rewards[(rewards.index >= step) & (rewards.index < step + LOOK // 4)]
        if ahead.mean() < low:
            break
        flat = rewards[rewards.index >= step]
    return flat


def _flat(log: Log, rows: pd.Series[float], **numbers: float) -> Evidence:
    low, high = ends(rows, 2)
    first = begin(log.signals["reward/mean"], int(rows.index[0]))
    return Evidence(first, int(rows.index[-1]), {"before": low, "after": high} | numbers)


def plateau_without_variance(log: Log, *, dead: float, share: float) -> Evidence | None:
    """See a plateau in whose last 100 steps most groups are dead (article: D1, G3).

    Args:
        log: the log.
        dead: share of dead groups above which variance is called gone.
        share: in-group std / std below which it is, where dead groups are not logged.
    """
    rows = plateau(log)
    if rows is None:
        return None
    now = window(rows, SILENT)
    zero = during(log, "reward/frac_zero_std", now)
    inner = during(log, "reward/group_std", now) / unit(log, now)
    gone = zero > dead if math.isfinite(zero) else inner < share
    return _flat(log, rows, dead=zero, share=inner) if gone else None


def plateau_without_entropy(log: Log) -> Evidence | None:
    """See a plateau in whose last 100 steps entropy is below its level (article: D1, M7)."""
    rows = plateau(log)
    if rows is None:
        return None
    entropy = during(log, "policy/entropy", window(rows, SILENT))
    low = float(monitor_rules(log)["M7"]["threshold"])
    return _flat(log, rows, entropy=entropy, threshold=low) if entropy < low else None


def plateau_from_the_start(log: Log) -> Evidence | None:
    """See a reward that never rose (article: B2, D1)."""
    rows = plateau(log)
    if rows is None or gain(log, "reward/mean", until=log.first + LOOK - 1) >= RISE:
        return None
    return _flat(log, rows, lr=during(log, "optim/lr", rows))


def plateau_after_a_climb(log: Log) -> Evidence | None:
    """See a reward that rose and rises no more."""
    rows = plateau(log)
    if rows is None:
        return None
    names = [name for name in log.signals if name.startswith("eval/accuracy_")]
    levels = [during(log, name, rows) for name in names]
    spread = max(levels) - min(levels) if len(levels) > 1 else math.nan
    return _flat(log, rows, spread=spread)


def low_entropy(
    log: Log, *, names: Sequence[str], rising: bool, lasting: int = 0
) -> Evidence | None:
    """See entropy alarms at which the reward rises, or no longer does (article: D2).

    Args:
        log: the log.
        names: of the alarms.
        rising: True sees the rows at which the reward rises or its course is unknown, False those
            at which it does not rise.
        lasting: steps that these rows must stand for: a single row may be noise.
    """
    entropy = log.signals["policy/entropy"]
    raised = {step for name in names for step in alarms(log, name)}
    steps = [s for s in raised if (gain(log, "reward/mean", until=s) < RISE) is not rising]
    if sum(step - begin(entropy, step) + 1 for step in steps) < lasting:
        return None
    top = max((float(window(entropy, LOOK, step).max()) for step in steps), default=math.nan)
    low = min((float(entropy[step]) for step in steps), default=math.nan)
    return hits(entropy, steps, top=top, low=low, fall=-growth(top, low))


def collapse(log: Log, *, share: float) -> Evidence | None:
    """See the reward fall by more than a share of its best level and stay there (article: G7).

    Levels are means over 50 steps, of four rows at the least.
    """
    rewards = log.signals["reward/mean"]
    gap = float(rewards.index.to_series().diff().median()) if len(rewards) > 1 else 1.0
    steps = max(LOOK // 4, round(ROWS * gap))
    whole = [int(step) for step in rewards.index[ROWS - 1 :]]
    levels = {step: float(window(rewards, steps, step).mean()) for step in whole}
    top = max(levels.values(), default=0.0)
    standing = [step for step, level in levels.items() if level >= (1 - share) * top]
    if not top > 0 or not standing:
        return None
    fallen = [step for step in whole if step > standing[-1]]
    return hits(rewards, fallen, top=top, now=levels[whole[-1]])


def length_runaway(log: Log, *, share: float) -> Evidence | None:
    """See the mean length change by more than a share while the reward does not rise (D4)."""
    lengths = log.signals["completion/length_mean"]
    rows = window(lengths, LOOK)
    before, after = ends(rows, 4)
    change = growth(before, after)
    if not abs(change) > share or not gain(log, "reward/mean") < RISE:
        return None
    return hits(lengths, rows.index, before=before, after=after, change=change)


def wrong_grow_longer(log: Log, *, share: float) -> Evidence | None:
    """See wrong responses grow, and by so much more than right ones."""
    lengths = log.signals["completion/length_wrong_mean"]
    wrong = window(lengths, LOOK)
    right = window(log.signals["completion/length_right_mean"], LOOK)
    (wrong0, wrong1), (right0, right1) = ends(wrong, 4), ends(right, 4)
    wrong_growth, right_growth = growth(wrong0, wrong1), growth(right0, right1)
    if not wrong_growth > max(0.0, right_growth) + share:
        return None
    return hits(lengths, wrong.index, wrong0=wrong0, wrong1=wrong1, right0=right0, right1=right1)


def wasted_groups(log: Log, *, share: float) -> Evidence | None:
    """See dead groups above a share that nothing filters (article: D5, S2)."""
    dead = log.signals["reward/frac_zero_std"]
    rows = window(dead, LOOK // 2)
    filtered = log.signals.get("sampling/filter_ratio")
    if not rows.mean() > share or (filtered is not None and filtered.max() > 0):
        return None
    return hits(dead, rows.index, dead=float(rows.mean()))


def sustained(log: Log, *, signal: str, over: float, steps: int) -> Evidence | None:
    """See a signal's mean over a trailing window above a threshold."""
    values = log.signals[signal]
    means = {int(step): float(window(values, steps, int(step)).mean()) for step in values.index}
    high = [step for step, mean in means.items() if mean > over]
    return hits(values, high, worst=max((means[s] for s in high), default=math.nan))


def shaped_reward_alone(log: Log, *, held_out: float, part: float) -> Evidence | None:
    """See the training reward rise while held-out accuracy is flat.

    Args:
        log: the log.
        held_out: gain in held-out accuracy between a window's halves below which it is flat.
        part: of the reward's rise that must come from penalty and shaping, where a log tells them
            from the task's own reward.
    """
    accuracy, rewards = log.signals["eval/accuracy"], log.signals["reward/mean"]
    scores = window(accuracy, LOOK)
    before, after = ends(scores, 2)
    rise = gain(log, "reward/mean")
    if not (after - before < held_out and rise >= RISE):
        return None
    low, high = ends(window(rewards, LOOK), 2)
    raw = log.signals.get("reward/raw_mean")
    if raw is not None:
        raw0, raw1 = ends(window(raw, LOOK), 2)
        if not 1 - (raw1 - raw0) / (high - low) >= part:
            return None
    return hits(accuracy, scores.index, low=low, high=high, before=before, after=after)


def drift(log: Log, *, times: float, over: float) -> Evidence | None:
    """See sampler and trainer drift apart: from the log's first quarter to its last."""
    names = ("engine/logprob_diff_mean", "engine/prob_diff_mean")
    values = next(log.signals[name] for name in names if name in log.signals)
    before, after = ends(values, 4)
    if not (after > over and after > times * before):
        return None
    return hits(values, values.index[-(len(values) // 4) :], before=before, after=after)


def worse_than_baseline(log: Log, *, by: float, evaluations: int) -> Evidence | None:
    """See an arm's last evaluations lie below its baseline's (article: D6)."""
    arm, base = log.signals["eval/accuracy"], log.signals["baseline/accuracy"]
    steps = sorted({*arm.index} & {*base.index})[-evaluations:]
    if not steps:
        return None
    mine, theirs = float(arm[steps].mean()), float(base[steps].mean())
    if not theirs - mine > by:
        return None
    return hits(arm, steps, arm=mine, base=theirs, gap=theirs - mine)
