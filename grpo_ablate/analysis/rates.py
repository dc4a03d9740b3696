"""Is the learning rate right? The author's rule as arithmetic (article: B2); no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from grpo_ablate.analysis.load import Run


def look(runs: Sequence[Run], rule: Mapping[str, float]) -> dict[str, Any]:
    """Judge one learning rate by the first steps of its runs.

    gain = mean reward of the last quarter of the rows - of the first quarter; mean over runs
    wild = share of rows whose ratio quantiles leave the alarm's limits (article: M4)
    advice = halve if wild > rule.wild or gain < -rule.flat; double if gain < rule.flat; else keep

    The article says "loss oscillating → halve". A GRPO loss hardly shows it: on the embedded
    default its standard deviation over steps was .011, .009 and .013 at a quarter, once and four
    times the rate, while the last one lost its reward, with ratios beyond the limits in four rows
    of ten.
    So an oscillating learner is told by what it does: ratios far from 1, or a falling reward.

    Args:
        runs: of one configuration, over seeds.
        rule: `steps` looked at, `flat` (reward), `wild` (share), `ratio_low`, `ratio_high`.

    Returns:
        `gain`, `wild` and `advice`.

    Raises:
        ValueError: no run has four rows within these steps.
    """
    heads = [run.metrics.loc[: rule["steps"]] for run in runs if not run.metrics.empty]
    heads = [head for head in heads if len(head) >= 4]
    if not heads:
        raise ValueError(f"no run has four rows of metrics.csv within {rule['steps']} steps")
    gain = sum(_gain(head["reward/mean"]) for head in heads) / len(heads)
    rows = pd.concat(heads)
    outside = (rows["ratio/p01"] < rule["ratio_low"]) | (rows["ratio/p99"] > rule["ratio_high"])
    wild = float(outside.mean())
    return {"gain": gain, "wild": wild, "advice": _advice(gain, wild, rule)}


def _gain(reward: pd.Series) -> float:
    quarter = len(reward) // 4
    return float(reward.iloc[-quarter:].mean() - reward.iloc[:quarter].mean())


def _advice(gain: float, wild: float, rule: Mapping[str, float]) -> str:
    if wild > rule["wild"] or gain < -rule["flat"]:
        return "halve"
    return "double" if gain < rule["flat"] else "keep"
