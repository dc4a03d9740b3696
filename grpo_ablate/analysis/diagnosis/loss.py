"""Signs in the loss, the ratios and the clip (article: D3)."""

from __future__ import annotations

import math
from statistics import median

import pandas as pd

from grpo_ablate.analysis.diagnosis.alarms import spikes
from grpo_ablate.analysis.diagnosis.log import LOOK, SETTLED, Evidence, Log, hits


def loss_spikes(log: Log, *, sigmas: float = 8.0, floor: float = 0.05) -> list[int]:
    """Return the steps whose loss lies far from the median of the 20 rows before.

    Far: by more than `sigmas` robust standard deviations (1.4826 × MAD) and more than `floor`.
    """
    loss = log.signals["policy/loss"]
    values, found = loss.tolist(), []
    for i in range(SETTLED, len(values)):
        before = values[max(0, i - 2 * SETTLED) : i]
        middle = median(before)
        sigma = 1.4826 * median(abs(value - middle) for value in before)
        if abs(values[i] - middle) > max(sigmas * sigma, floor):
            found.append(int(loss.index[i]))
    return found


def _near(log: Log, signal: str, step: int) -> float:
    """Return a signal's largest value within a row of a step."""
    values = log.signals[signal]
    gap = float(values.index.to_series().diff().median()) if len(values) > 1 else 0.0
    rows = values[(values.index >= step - gap) & (values.index <= step + gap)]
    return float(rows.max()) if len(rows) else math.nan


def loss_spike(log: Log, *, with_ratio: float | None = None) -> Evidence | None:
    """See loss spikes; with a number, only those where ratio/p99 exceeds it (article: D3)."""
    loss, steps = log.signals["policy/loss"], loss_spikes(log)
    if with_ratio is not None:
        steps = [step for step in steps if _near(log, "ratio/p99", step) > with_ratio]
    worst = max((float(loss[step]) for step in steps), key=abs, default=math.nan)
    ratio = math.nan
    if with_ratio is not None and steps:
        ratio = max(_near(log, "ratio/p99", step) for step in steps)
    return hits(loss, steps, loss=worst, ratio=ratio, median=float(loss.median()))


def loss_spike_with_gradient(log: Log) -> Evidence | None:
    """See loss spikes at which the gradient's norm spikes too (article: D3, M5)."""
    loss, norms = log.signals["policy/loss"], log.signals["optim/grad_norm"]
    gap = float(norms.index.to_series().diff().median()) if len(norms) > 1 else 0.0
    high = spikes(log)
    steps = [s for s in loss_spikes(log) if any(abs(s - t) <= gap for t in high)]
    worst = max((float(loss[step]) for step in steps), key=abs, default=math.nan)
    return hits(loss, steps, loss=worst, times=max(high.values(), default=math.nan))


def frequent_loss_spikes(log: Log, *, count: int) -> Evidence | None:
    """See so many loss spikes within 200 steps (article: D3)."""
    loss, steps = log.signals["policy/loss"], loss_spikes(log)
    crowded = [s for s in steps if sum(abs(s - t) < LOOK for t in steps) >= count]
    return hits(loss, crowded)


def loss_is_zero(log: Log, *, below: float) -> Evidence | None:
    """See a loss near 0 where a rollout has one update."""
    loss = log.signals["policy/loss"]
    size = float(loss.abs().median())
    if size > below or not _one_update(log):
        return None
    return hits(loss, loss.index, size=size)


def _one_update(log: Log) -> bool:
    """Tell by the configuration, else by ratios that never leave 1, else by an idle clip."""
    node = log.config.get("lr_batch")
    if node:
        return bool(node["minibatches"] * node["epochs"] == 1)
    if "ratio/p99" in log.signals and "ratio/p01" in log.signals:
        spread = log.signals["ratio/p99"] - log.signals["ratio/p01"]
        return bool(spread.max() < 1e-3)
    fractions = clip_fraction(log)
    return fractions is not None and bool((fractions == 0).all())


def clip_fraction(log: Log) -> pd.Series[float] | None:
    """Return the share of clipped tokens, both bounds together; None where nothing tells."""
    if "ratio/clip_frac" in log.signals:
        return log.signals["ratio/clip_frac"]
    names = ("ratio/clip_frac_low", "ratio/clip_frac_high")
    sides = [log.signals[name] for name in names if name in log.signals]
    return sum(sides[1:], sides[0]).dropna() if sides else None


def many_clipped(log: Log, *, share: float) -> Evidence | None:
    """See more clipped than a token-level clip usually does.

    A run of ours is asked only where its ratio is a sequence's; another trainer's log does not
    tell, and is asked always.
    """
    fractions = clip_fraction(log)
    level = log.config.get("clip", {}).get("name", "gspo")
    if fractions is None or level != "gspo":
        return None
    high = [int(step) for step, value in fractions.items() if value > share]  # type: ignore[call-overload]
    return hits(fractions, high, mean=float(fractions.mean()))
