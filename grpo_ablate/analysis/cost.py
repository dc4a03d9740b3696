"""What an arm costs and how its curve goes, beside its score."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from grpo_ablate.analysis import curve
from grpo_ablate.analysis.evidence import up_to_horizon
from grpo_ablate.analysis.load import Run
from grpo_ablate.study import Design

COLUMNS = {
    "tokens": "perf/generated_tokens",
    "updates": "optim/updates",
    "seconds": "perf/seconds",
}
"""Cost → the column whose sum it is. Tokens of groups that a filter dropped are paid for too."""

_REACHED = 0.9
"""Share of the baseline's gain that counts as reached."""


def spent(run: Run, design: Design) -> dict[str, float | None]:
    """Return a run's cost up to the horizon; None where its column is missing."""
    rows = run.metrics[run.metrics.index <= design.horizon]
    return {
        name: float(rows[column].sum()) if column in rows and len(rows) else None
        for name, column in COLUMNS.items()
    }


def relative(
    arm: Mapping[int, Mapping[str, float | None]], base: Mapping[int, Mapping[str, float | None]]
) -> dict[str, float | None]:
    """Return the arm's cost over the baseline's, summed over shared seeds: 1.04 is 4 % more."""
    shared = sorted(arm.keys() & base.keys())
    return {
        name: _ratio(*(_total(costs, shared, name) for costs in (arm, base))) for name in COLUMNS
    }


def _total(
    costs: Mapping[int, Mapping[str, float | None]], seeds: Sequence[int], name: str
) -> float | None:
    values = [costs[seed][name] for seed in seeds]
    known = [value for value in values if value is not None]
    return math.fsum(known) if values and len(known) == len(values) else None


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours is not None and theirs else None


def spent_by(
    spent: pd.Series[float], steps: Sequence[float] | pd.Index[Any], beyond: float | None = None
) -> np.ndarray:
    """Return what had been spent at each step: between two rows, in proportion to the steps.

    Args:
        spent: a column of metrics.csv, each row the sum since the row before.
        steps: asked about.
        beyond: what to say after the last row; None: what had been spent by then.
    """
    paid = [0.0, *spent.fillna(0.0).cumsum()]
    found: np.ndarray = np.interp(steps, [0, *spent.index], paid, right=beyond)
    return found


def timeline(run: Run, design: Design) -> pd.DataFrame:
    """Return the run's evaluations with what had been spent by then: step, accuracy, costs."""
    accuracy = up_to_horizon(run, design)
    frame = pd.DataFrame({"step": accuracy.index, "accuracy": accuracy.to_numpy()})
    for name, column in COLUMNS.items():
        if column in run.metrics and len(run.metrics):
            frame[name] = spent_by(run.metrics[column], accuracy.index)
        else:
            frame[name] = math.nan
    return frame


def threshold(baseline: Sequence[Run], scores: Mapping[int, float], design: Design) -> float | None:
    """Return the accuracy that arms race to: 90 % of the baseline's mean gain.

    None where the baseline gains no more than the margin: there is nothing to race to.
    """
    starts = [float(c.iloc[0]) for run in baseline if len(c := up_to_horizon(run, design))]
    if not scores or not starts:
        return None
    start = fmean(starts)
    gain = fmean(scores.values()) - start
    return start + _REACHED * gain if gain > design.margin else None


def shape(run: Run, design: Design, goal: float | None) -> dict[str, Any]:
    """Return a curve's statistics; a goal never reached stays None (censored)."""
    line = timeline(run, design)
    y = list(line["accuracy"])
    reached = {
        f"{name}_to_goal": None if goal is None else curve.time_to(list(line[name]), y, goal)
        for name in ("step", *COLUMNS)
        if not line[name].isna().any()
    }
    return {
        "auc": curve.auc(line["step"], y) if len(y) > 1 else None,
        "drawdown": curve.drawdown(y) if y else None,
        "smoothness": curve.smoothness(y[1:]) if len(y) > 3 else None,
        **{f"{name}_to_goal": reached.get(f"{name}_to_goal") for name in ("step", *COLUMNS)},
    }


def floor(runs: Sequence[Run], accuracy: float) -> float | None:
    """Return the smoothness that sampling the held-out questions alone would give."""
    for run in runs:
        if "evaluation" in run.config:
            return curve.smoothness_floor(accuracy, int(run.config["evaluation"]["problems"]))
    return None


def by_difficulty(runs: Sequence[Run], design: Design) -> dict[str, float]:
    """Return the score of each difficulty, mean over seeds (article: A7)."""
    found: dict[str, list[float]] = {}
    for run in runs:
        rows = run.evals[(run.evals.index <= design.horizon) & (run.evals.index > 0)]
        for column in rows:
            level = re.fullmatch(r"eval/accuracy_(\d+)", str(column))
            if level:
                found.setdefault(level[1], []).append(
                    float(rows[column].tail(design.window).mean())
                )
    return {level: fmean(found[level]) for level in sorted(found, key=int)}


def selection(run: Run, design: Design) -> dict[str, float] | None:
    """Return the checkpoint that choosing by validation takes, and what it gains (article: X7).

    It is chosen by one half of the questions: `seeming` is what it is above the last checkpoint on
    that half, `real` on the other. No verdict uses either.
    """
    chosen_by, graded_by = "eval/selection_accuracy", "eval/test_accuracy"
    if not {chosen_by, graded_by} <= set(run.evals.columns):
        return None
    rows = run.evals.loc[run.evals.index <= design.horizon, [chosen_by, graded_by]]
    if rows.empty:
        return None
    at = int(rows[chosen_by].to_numpy().argmax())
    seeming, real = (rows.iloc[at] - rows.iloc[-1]).tolist()
    return {
        "step": float(rows.index[at]),
        "test": float(rows[graded_by].iloc[at]),
        "seeming": seeming,
        "real": real,
    }
