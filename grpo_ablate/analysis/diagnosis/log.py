"""One run's course as signals, and the windows that signs of trouble are looked for in.

A row stands for the steps since the row before it, so that a range of evidence begins one step
after the last row before it. No smoothing: only means over stated windows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from grpo_ablate.analysis.diagnosis.aliases import Trainer

LOOK = 200
"""Steps over which reward, entropy and length are judged (article: B2, M2)."""

RISE = 0.05
"""Of the rewards' std: a smaller gain between the halves of a window is called flat."""

SILENT = 100
"""Steps whose reward says nothing yet (article: X4)."""

ROWS = 4
"""Rows below which halves of a window say nothing."""

SETTLED = 10
"""Rows that a running mean needs before anything can be called a jump."""


@dataclass(frozen=True)
class Log:
    """One run's course, whoever trained it."""

    name: str
    trainer: Trainer
    signals: Mapping[str, pd.Series[float]]
    """Our metric's name → values by step, ascending, no NaN."""
    unknown: tuple[str, ...] = ()
    """Columns that nobody here knows."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """A run of ours: its config.yaml; otherwise empty."""
    arm: str = ""
    seed: int | None = None
    state: str = ""
    """A run of ours: complete, running, ...; otherwise empty."""
    apart: str = ""
    """A stack of ours: the overrides that run its tricks one by one; otherwise empty."""

    @property
    def first(self) -> int:
        """The first step logged."""
        return int(min(values.index[0] for values in self.signals.values()))

    @property
    def last(self) -> int:
        """The last step logged."""
        return int(max(values.index[-1] for values in self.signals.values()))


@dataclass(frozen=True)
class Evidence:
    """Where a sign was seen, and the numbers it is told with."""

    first: int
    last: int
    numbers: dict[str, float]


def hits(values: pd.Series[float], steps: Iterable[int], **numbers: float) -> Evidence | None:
    """Return the range from the first step hit to the last, None where there is none.

    Adds `rows`, how many rows were hit, and `of`, how many there are.
    """
    found = sorted(steps)
    if not found:
        return None
    counts = {"rows": len(found), "of": len(values)}
    return Evidence(begin(values, found[0]), found[-1], numbers | counts)


def begin(values: pd.Series[float], step: int) -> int:
    """Return the first step that the row at `step` stands for."""
    row = int(values.index.searchsorted(step))
    return int(values.index[row - 1]) + 1 if row else step


def window(values: pd.Series[float], steps: int, until: int | None = None) -> pd.Series[float]:
    """Return the rows of the last so many steps, up to and including `until`."""
    until = int(values.index[-1]) if until is None else until
    begins, stops = values.index.searchsorted([until - steps, until], side="right")
    return values.iloc[begins:stops]


def ends(values: pd.Series[float], parts: int) -> tuple[float, float]:
    """Return the means of the first and the last of so many equal parts; NaN for too few rows."""
    size = len(values) // parts
    if len(values) < ROWS or size < 1:
        return math.nan, math.nan
    return float(values.iloc[:size].mean()), float(values.iloc[-size:].mean())


def growth(before: float, after: float) -> float:
    """Return the relative change; NaN from nothing, of which no share can be told."""
    return after / before - 1 if before > 0 else math.nan


def unit(log: Log, rewards: pd.Series[float]) -> float:
    """Return the scale that a gain in reward is measured by: the rewards' std, else their size."""
    stds = log.signals.get("reward/std")
    if stds is not None:
        begins = stds.index.searchsorted(rewards.index[0])
        stds = stds.iloc[begins : stds.index.searchsorted(rewards.index[-1], side="right")]
        if len(stds) and stds.median() > 0:
            return float(stds.median())
    return max(float(rewards.abs().mean()), 1e-12)


def gain(log: Log, signal: str, until: int | None = None, steps: int = LOOK) -> float:
    """Return how much a reward rose between the halves of a window, in rewards' stds.

    NaN where fewer than 100 steps are known: they say nothing (article: X4).
    """
    values = log.signals.get(signal)
    if values is None or len(rows := window(values, steps, until)) < ROWS:
        return math.nan
    if int(rows.index[-1]) - begin(values, int(rows.index[0])) < SILENT - 1:
        return math.nan
    low, high = ends(rows, 2)
    return (high - low) / unit(log, rows)


def during(log: Log, signal: str, rows: pd.Series[float]) -> float:
    """Return a signal's mean over the steps of these rows; NaN where it has none."""
    values = log.signals.get(signal)
    if values is None:
        return math.nan
    inside = values[(values.index >= rows.index[0]) & (values.index <= rows.index[-1])]
    return float(inside.mean()) if len(inside) else math.nan
